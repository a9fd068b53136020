"""Outputs as texts: what an arm wrote, from a server that tells neither token ids nor how likely it finds a text.

On disk a Parquet table of one row per output (schema ``specbench.parity-texts/1``), in memory `TextOutput`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from specbench.parity.data import ParityDataError, Role, check_table

SCHEMA: Final = "specbench.parity-texts/1"

Alternatives = tuple[tuple[str, float], ...]
"""The likeliest tokens at one place, (token, logprob), best first; empty where the server told none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOutput:
    """One output.

    Attributes:
        arm, load, concurrency: what served it.
        temperature, top_p: how it was sampled.
        finish_reason: as the server told it; ``stop`` or ``length``.
        tokens: the n tokens as the server spells them; null without logprobs.
        top: the alternatives at each of them, as this very server found them; null likewise.
    """

    role: Role
    arm: str
    load: str
    concurrency: int
    temperature: float
    top_p: float
    prompt_id: str
    text: str
    finish_reason: str
    tokens: tuple[str, ...] | None = None
    top: tuple[Alternatives, ...] | None = None

    def __post_init__(self) -> None:
        if (self.tokens is None) != (self.top is None) or len(self.tokens or ()) != len(self.top or ()):
            raise ParityDataError(
                f"{self.role} {self.prompt_id}: {len(self.tokens or ())} tokens, alternatives at "
                f"{len(self.top or ())} of them"
            )

    @property
    def greedy(self) -> bool:
        """Whether it was decoded without sampling."""
        return self.temperature == 0.0

    @property
    def law(self) -> tuple[float, float]:
        """Temperature and top_p."""
        return self.temperature, self.top_p


_STRINGS: Final = pa.list_(pa.string())
_FIELDS: Final[dict[str, pa.DataType]] = {
    "role": pa.string(),
    "arm": pa.string(),
    "load": pa.string(),
    "concurrency": pa.int32(),
    "temperature": pa.float64(),
    "top_p": pa.float64(),
    "prompt_id": pa.string(),
    "text": pa.string(),
    "finish_reason": pa.string(),
    "tokens": _STRINGS,
    "top_tokens": pa.list_(_STRINGS),
    "top_logprobs": pa.list_(pa.list_(pa.float32())),
}
ARROW_SCHEMA: Final = pa.schema(
    [pa.field(name, kind) for name, kind in _FIELDS.items()], metadata={"schema": SCHEMA}
)
_PLAIN: Final = tuple(name for name in _FIELDS if not name.startswith("top_") or name == "top_p")


def to_table(outputs: Iterable[TextOutput]) -> pa.Table:
    """The Parquet table of some outputs."""
    rows = list(outputs)
    columns: dict[str, list[Any]] = {name: [getattr(x, name) for x in rows] for name in _PLAIN}
    columns["role"] = [str(x.role) for x in rows]
    for name, part in (("top_tokens", 0), ("top_logprobs", 1)):
        columns[name] = [None if x.top is None else [[a[part] for a in at] for at in x.top] for x in rows]
    arrays = [pa.array(columns[name], type=kind) for name, kind in _FIELDS.items()]
    return pa.Table.from_arrays(arrays, schema=ARROW_SCHEMA)


def from_table(table: pa.Table) -> list[TextOutput]:
    """Outputs of a table that `to_table` made.

    Raises:
        ParityDataError: another schema, or lists that do not fit together.
    """
    check_table(table, SCHEMA, _FIELDS)
    outputs = []
    for i, row in enumerate(table.to_pylist()):
        words, logprobs = row.pop("top_tokens"), row.pop("top_logprobs")
        try:
            top = (
                None
                if words is None
                else tuple(tuple(zip(w, p, strict=True)) for w, p in zip(words, logprobs, strict=True))
            )
        except (TypeError, ValueError):
            raise ParityDataError(f"row {i}: top_tokens and top_logprobs do not fit together") from None
        tokens = None if row["tokens"] is None else tuple(row["tokens"])
        outputs.append(TextOutput(**{**row, "role": Role(row["role"]), "tokens": tokens, "top": top}))
    return outputs
