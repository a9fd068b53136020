"""What a scorer said of the outputs of a parity check, as stored in ``parity/task.json``."""

from __future__ import annotations

from typing import Final

import msgspec

TASK_SCHEMA: Final = "specbench.parity-task/1"


class TaskScores(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the scorer over all outputs.

    Attributes:
        margin: largest difference of mean scores that counts as equal, as it was asked for.
        outputs: digest of what was scored (`specbench.parity.task_outputs.digest_of`).
        command: digest of the command and of the files that it names; its words may hold secrets.
        problem: why there are no scores; null when there are.
        scores: 0 to 1, by output: ``NAME/ROW``, a file of the folder and a row of it from 0.
    """

    schema: str = TASK_SCHEMA
    margin: float
    outputs: str
    command: str
    problem: str | None = None
    scores: dict[str, float] = {}
