"""Scored outputs: what an arm wrote, and how likely the baseline model finds each token.

On disk a Parquet table of one row per output (schema ``specbench.parity/1``), in memory `ScoredSequence`;
the tests read `Tokens`, all outputs of an arm laid end to end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

SCHEMA: Final = "specbench.parity/1"

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Logprobs = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]

UNKNOWN: Final = -1
"""Position in the step, or rank, that the engine did not tell."""


class Role(StrEnum):
    """Who wrote an output."""

    A = "A"
    """The baseline."""
    A2 = "A2"
    """The baseline again, at another concurrency: how much correct outputs differ."""
    S = "S"
    """A speculative arm."""


class ParityDataError(ValueError):
    """A table of scored outputs is not what this version reads; the message says how."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScoredSequence:
    """One output of n tokens, scored by the baseline: prompt and output ids in, logprobs of each token out.

    Attributes:
        arm, load, concurrency: what served it.
        temperature, top_p: how it was sampled.
        finish_reason: ``stop`` or ``length``.
        scorer: the draft model that scored it; empty for the baseline, whose scores are what is tested.
        logprobs: [n], of the emitted tokens, at temperature 1 before any truncation.
        top_ids, top_logprobs: [n, k], the k most likely tokens, best first.
        ranks: [n] from 1; null if the scorer did not tell.
        positions: [n] place of each token in the engine step that gave it, from 0; null if unknown.
        after_rejection: [n] first token of a step that followed a rejected draft; null if unknown.
        text: the output in words, as the engine streamed it; null in files of before it was kept.
        draft_top_ids, draft_top_logprobs: [n, k], the same text scored by the draft model served alone. Stored
            as a row of its own with that ``scorer``, and joined when it is needed.
        proposals: [n], the token that n-gram lookup would propose there, -1 for none; null for other methods.
            Worked out from the text when it is needed, not stored.
    """

    role: Role
    arm: str
    load: str
    concurrency: int
    temperature: float
    top_p: float
    prompt_id: str
    prompt_ids: Ids
    output_ids: Ids
    finish_reason: str
    scorer: str = ""
    logprobs: Logprobs
    top_ids: Ids
    top_logprobs: Logprobs
    ranks: Ids | None = None
    positions: Ids | None = None
    after_rejection: Bools | None = None
    text: str | None = None
    draft_top_ids: Ids | None = None
    draft_top_logprobs: Logprobs | None = None
    proposals: Ids | None = None

    def __post_init__(self) -> None:
        n, k = len(self.output_ids), self.top_ids.shape[1] if self.top_ids.ndim == 2 else -1
        shapes: dict[str, tuple[Any, tuple[int, ...]]] = {
            "logprobs": (self.logprobs, (n,)),
            "top_ids": (self.top_ids, (n, k)),
            "top_logprobs": (self.top_logprobs, (n, k)),
            "ranks": (self.ranks, (n,)),
            "positions": (self.positions, (n,)),
            "after_rejection": (self.after_rejection, (n,)),
            "proposals": (self.proposals, (n,)),
        }
        for name, (array, shape) in shapes.items():
            if array is not None and array.shape != shape:
                raise ParityDataError(
                    f"{self.role} {self.prompt_id}: {name} has shape {array.shape}, not {shape}"
                )

    @classmethod
    def unscored(
        cls,
        *,
        role: Role,
        arm: str,
        load: str,
        concurrency: int,
        temperature: float,
        top_p: float,
        prompt_id: str,
        prompt_ids: Sequence[int],
        output_ids: Sequence[int],
        finish_reason: str,
        chunk_tokens: Sequence[int],
        k: int | None,
        every_step_drafts: bool,
        text: str | None = None,
    ) -> ScoredSequence:
        """An output as it was served, without scores yet.

        Args:
            chunk_tokens: tokens of each chunk of the stream; one engine step each, unless the client was slow
                and they were merged.
            k: speculative tokens per step; null for the baseline.
            every_step_drafts: whether a step of fewer than k + 1 tokens must have rejected a draft.
        """
        n = len(output_ids)
        positions, after = step_places(chunk_tokens, n, k, every_step_drafts=every_step_drafts)
        return cls(
            role=role,
            arm=arm,
            load=load,
            concurrency=concurrency,
            temperature=temperature,
            top_p=top_p,
            prompt_id=prompt_id,
            prompt_ids=np.array(prompt_ids, dtype=np.int32),
            output_ids=np.array(output_ids, dtype=np.int32),
            finish_reason=finish_reason,
            logprobs=np.full(n, np.nan, dtype=np.float32),
            top_ids=np.zeros((n, 0), dtype=np.int32),
            top_logprobs=np.zeros((n, 0), dtype=np.float32),
            positions=positions,
            after_rejection=after,
            text=text,
        )

    @property
    def key(self) -> tuple[str, str, str, str, float, float]:
        """Which output it is, whoever scored it."""
        return str(self.role), self.arm, self.load, self.prompt_id, self.temperature, self.top_p

    @property
    def greedy(self) -> bool:
        """Whether it was decoded without sampling."""
        return self.temperature == 0.0


_INT_LIST: Final = pa.list_(pa.int32())
_FLOAT_LIST: Final = pa.list_(pa.float32())

_FIELDS: Final[dict[str, pa.DataType]] = {
    "role": pa.string(),
    "arm": pa.string(),
    "load": pa.string(),
    "concurrency": pa.int32(),
    "temperature": pa.float64(),
    "top_p": pa.float64(),
    "prompt_id": pa.string(),
    "finish_reason": pa.string(),
    "scorer": pa.string(),
    "prompt_ids": _INT_LIST,
    "output_ids": _INT_LIST,
    "logprobs": _FLOAT_LIST,
    "top_ids": _INT_LIST,
    "top_logprobs": _FLOAT_LIST,
    "ranks": _INT_LIST,
    "positions": _INT_LIST,
    "after_rejection": pa.list_(pa.bool_()),
    "text": pa.string(),
}
_LATER: Final = frozenset({"text"})
"""Columns that came after the first files of this schema; null where a file has none."""

_MATRICES: Final = frozenset({"top_ids", "top_logprobs"})
_TYPES: Final[dict[str, Any]] = {
    "logprobs": np.float32,
    "top_logprobs": np.float32,
    "after_rejection": np.bool_,
}

ARROW_SCHEMA: Final = pa.schema(
    [pa.field(name, kind) for name, kind in _FIELDS.items()], metadata={"schema": SCHEMA}
)
"""Matrices [n, k] are stored row after row; k is their length over that of ``output_ids``."""


def check_table(table: pa.Table, schema: str, columns: Iterable[str]) -> None:
    """Whether a stored table is of a schema and has its columns.

    Raises:
        ParityDataError: it is not, or has not.
    """
    found = (table.schema.metadata or {}).get(b"schema", b"none").decode()
    if found != schema:
        raise ParityDataError(f"schema {found!r}, this specbench reads {schema!r}")
    missing = [name for name in columns if name not in table.column_names]
    if missing:
        raise ParityDataError(f"column {missing[0]!r} is missing")


def to_table(sequences: Iterable[ScoredSequence]) -> pa.Table:
    """The Parquet table of some outputs."""
    rows = list(sequences)
    columns = []
    for name, kind in _FIELDS.items():
        values = [getattr(s, name) for s in rows]
        if pa.types.is_list(kind):
            values = [None if v is None else np.asarray(v).reshape(-1) for v in values]
        elif name == "role":
            values = [str(v) for v in values]
        columns.append(pa.array(values, type=kind))
    return pa.Table.from_arrays(columns, schema=ARROW_SCHEMA)


def from_table(table: pa.Table) -> list[ScoredSequence]:
    """Outputs of a table that `to_table` made.

    Raises:
        ParityDataError: another schema, or lists that do not fit together.
    """
    check_table(table, SCHEMA, [name for name in _FIELDS if name not in _LATER])
    columns: dict[str, list[Any]] = {}
    for name, kind in _FIELDS.items():
        if name not in table.column_names:
            columns[name] = [None] * table.num_rows
            continue
        column = table.column(name)
        columns[name] = _lists(name, column) if pa.types.is_list(kind) else column.to_pylist()
    sequences = []
    for i in range(table.num_rows):
        values = {name: column[i] for name, column in columns.items()}
        n = len(values["output_ids"])
        for name in _MATRICES:
            if values[name] is not None:
                if n and len(values[name]) % n:
                    raise ParityDataError(f"row {i}: {name} does not divide by its {n} tokens")
                values[name] = values[name].reshape(n, -1) if n else values[name].reshape(0, 0)
        sequences.append(ScoredSequence(**{**values, "role": Role(values["role"])}))
    return sequences


def _lists(name: str, column: pa.ChunkedArray[Any]) -> list[Any]:
    kind = _TYPES.get(name, np.int32)
    out: list[Any] = []
    for chunk in column.chunks:
        lists: Any = chunk
        flat = lists.values.to_numpy(zero_copy_only=False).astype(kind, copy=False)
        offsets = lists.offsets.to_numpy()
        null = lists.is_null().to_numpy(zero_copy_only=False)
        out += [None if null[i] else flat[offsets[i] : offsets[i + 1]].copy() for i in range(len(lists))]
    return out


def step_places(
    chunk_tokens: Sequence[int], n: int, k: int | None, *, every_step_drafts: bool
) -> tuple[Ids | None, Bools | None]:
    """Place in the step of each of n tokens, and which ones start a step after a rejection.

    Null where the chunks cannot be steps: they do not add up, or one is larger than k + 1 tokens.
    """
    sizes = list(chunk_tokens)
    if sum(sizes) != n or any(size < 1 for size in sizes) or max(sizes, default=0) > (k or 0) + 1:
        return None, None
    positions = np.concatenate([np.arange(size) for size in sizes] or [np.arange(0)]).astype(np.int32)
    if k is None or not every_step_drafts:
        return positions, None
    after = np.zeros(n, dtype=bool)
    starts = np.cumsum([0, *sizes])[:-1]
    for place, size in enumerate(sizes[:-1]):
        # The first token comes from the prefill, which never drafts.
        if place > 0 and size < k + 1:
            after[starts[place + 1]] = True
    return positions, after


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """All N tokens of some outputs, end to end.

    Attributes:
        ids: [N] emitted tokens.
        logprobs: [N]; their log p.
        top_ids, top_logprobs: [N, k], best first.
        sequence: [N] which output a token belongs to, from 0 to ``outputs`` - 1.
        positions: [N], -1 where unknown.
        after_rejection: [N], 1 yes, 0 no, -1 unknown.
        ranks: [N], -1 where unknown.
        draft_logprobs: [N, k] log q of the tokens in ``top_ids``, floored; null without a draft's scores.
        proposed: [N] the token that the draft would propose, -1 for none; null where no client can tell.
    """

    ids: Ints
    logprobs: Floats
    top_ids: Ids
    top_logprobs: Logprobs
    sequence: Ints
    outputs: int
    positions: Ints
    after_rejection: Ints
    ranks: Ints
    draft_logprobs: Logprobs | None = None
    proposed: Ints | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, start: int, stop: int) -> Tokens:
        """The tokens from ``start`` to before ``stop``."""
        cut = slice(start, stop)
        return Tokens(
            ids=self.ids[cut],
            logprobs=self.logprobs[cut],
            top_ids=self.top_ids[cut],
            top_logprobs=self.top_logprobs[cut],
            sequence=self.sequence[cut],
            outputs=self.outputs,
            positions=self.positions[cut],
            after_rejection=self.after_rejection[cut],
            ranks=self.ranks[cut],
            draft_logprobs=None if self.draft_logprobs is None else self.draft_logprobs[cut],
            proposed=None if self.proposed is None else self.proposed[cut],
        )

    @classmethod
    def of(cls, sequences: Sequence[ScoredSequence]) -> Tokens:
        """Lay outputs end to end. They must have been scored with the same k.

        Raises:
            ParityDataError: there are none, or their k differ.
        """
        used = [s for s in sequences if len(s.output_ids)]
        if not used:
            raise ParityDataError("there are no scored tokens")
        if len({s.top_ids.shape[1] for s in used}) > 1:
            raise ParityDataError("outputs were scored with different numbers of alternatives")
        lengths = [len(s.output_ids) for s in used]

        def column(name: str, absent: int) -> Ints:
            parts = [getattr(s, name) for s in used]
            filled = [np.full(n, absent) if p is None else p for p, n in zip(parts, lengths, strict=True)]
            return np.concatenate(filled).astype(np.int64)

        top_ids = np.concatenate([s.top_ids for s in used])
        draft, proposed = _draft_of(used, top_ids)
        return cls(
            ids=np.concatenate([s.output_ids for s in used]).astype(np.int64),
            logprobs=np.concatenate([s.logprobs for s in used]).astype(np.float64),
            top_ids=top_ids,
            top_logprobs=np.concatenate([s.top_logprobs for s in used]),
            sequence=np.repeat(np.arange(len(used)), lengths),
            outputs=len(used),
            positions=column("positions", UNKNOWN),
            after_rejection=column("after_rejection", UNKNOWN),
            ranks=column("ranks", UNKNOWN),
            draft_logprobs=draft,
            proposed=proposed,
        )


DRAFT_FLOOR: Final = -6.0
"""log q is not told apart below this: the draft's list ends somewhere, and rare tokens must not dominate."""


def _draft_of(sequences: Sequence[ScoredSequence], top_ids: Ids) -> tuple[Logprobs | None, Ints | None]:
    """log q of the target's top tokens, and what the draft would propose."""
    ids = [s.draft_top_ids for s in sequences if s.draft_top_ids is not None]
    logprobs = [s.draft_top_logprobs for s in sequences if s.draft_top_logprobs is not None]
    if len(ids) == len(logprobs) == len(sequences):
        joined = np.concatenate(ids)
        return draft_logprobs(top_ids, joined, np.concatenate(logprobs)), joined[:, 0].astype(np.int64)
    proposals = [s.proposals for s in sequences if s.proposals is not None]
    if len(proposals) == len(sequences):
        return None, np.concatenate(proposals).astype(np.int64)
    return None, None


def draft_logprobs(top_ids: Ids, draft_ids: Ids, logprobs: Logprobs) -> Logprobs:
    """log q [N, k] of the target's top tokens [N, k] from the draft's own list [N, m], floored."""
    found = np.full(top_ids.shape, DRAFT_FLOOR, dtype=np.float32)
    for column in range(draft_ids.shape[1]):
        same = top_ids == draft_ids[:, column, None]
        np.copyto(found, np.maximum(logprobs[:, column, None], DRAFT_FLOOR), where=same)
    return found
