"""The stored outputs of a parity check as a scorer is given them: texts, without the baseline's scores."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

    from specbench.runs.rundir import RunDir

AGAIN: Final = "repeat the command with --run RUN (a sweep: --resume): only the scoring is done again"

_COLUMNS: Final = ("role", "arm", "load", "temperature", "prompt_id", "finish_reason", "text")


@dataclass(frozen=True, slots=True)
class Output:
    """One output; ``text`` is null in files of before texts were kept."""

    id: str
    role: str
    arm: str
    load: str
    temperature: float
    prompt_id: str
    finish_reason: str
    text: str | None

    @property
    def prompt(self) -> str:
        """The prompt, however often it was used: ``p7#2`` is ``p7`` again."""
        return self.prompt_id.split("#", 1)[0]


def tables_of(run: RunDir) -> dict[str, pa.Table]:
    """All outputs that a run keeps, by name; where texts are compared, these are what counts."""
    return {**run.parity_outputs(scored=False), **run.parity_outputs(scored=True), **run.parity_texts()}


def outputs_of(tables: Mapping[str, pa.Table]) -> list[Output]:
    """All outputs by name of their file; what a draft model scored again is left out."""
    found = []
    for name in sorted(tables):
        table = tables[name]
        names = table.column_names
        scorers = table.column("scorer").to_pylist() if "scorer" in names else [""] * table.num_rows
        columns = [table.column(c).to_pylist() if c in names else [None] * table.num_rows for c in _COLUMNS]
        found += [
            Output(f"{name}/{row}", *values)
            for row, (scorer, *values) in enumerate(zip(scorers, *columns, strict=True))
            if not scorer
        ]
    return found


def digest_of(outputs: Iterable[Output]) -> str:
    """Hex SHA-256 of everything that a score may depend on."""
    h = hashlib.sha256()
    for x in sorted(outputs, key=lambda x: x.id):
        values = [x.id, x.role, x.arm, x.load, x.temperature, x.prompt_id, x.finish_reason, x.text]
        h.update(json.dumps(values).encode() + b"\n")
    return h.hexdigest()
