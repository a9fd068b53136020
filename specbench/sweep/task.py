"""Have the outputs of a parity check scored by the user's command, once for the same outputs."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from specbench.config.identity import canonical
from specbench.parity.task_outputs import AGAIN, Output, digest_of, outputs_of, tables_of
from specbench.runs.files import RunFileError
from specbench.runs.task import TaskScores
from specbench.sweep.scorer import ScorerFailed, read_scores, run_scorer
from specbench.workloads.loading import load_source
from specbench.workloads.requests_file import WorkloadError

if TYPE_CHECKING:
    from specbench.config.model import TaskConfig
    from specbench.config.source import LoadedConfig
    from specbench.runs.rundir import RunDir
    from specbench.workloads.source_request import SourceRequest

MAX_SCRIPT_BYTES: Final = 16 << 20
"""Larger files that the command names are taken for data, or for a program, and known by name alone."""


@dataclass(frozen=True, slots=True)
class TaskCheck:
    """The task part of one parity check over one run directory."""

    loaded: LoadedConfig
    run: RunDir

    async def score(self) -> str | None:
        """Have all collected outputs scored; why there are no scores, or null. Nothing else is ever lost by it.

        Raises:
            asyncio.CancelledError: interrupted; the scorer is stopped and nothing is written.
            RunFileError: the run directory could not be written.
        """
        section = self.loaded.config.parity.task
        outputs = outputs_of(tables_of(self.run))
        if section is None or self.loaded.config.parity.tier is None or not outputs:
            return None
        new = TaskScores(
            margin=section.margin,
            outputs=digest_of(outputs),
            command=_command_digest(section.command, self.loaded.base_dir),
        )
        old = self._known()
        if (
            old is not None
            and old.problem is None
            and (old.outputs, old.command) == (new.outputs, new.command)
        ):
            if old.margin != new.margin:
                self.run.write_task_scores(msgspec.structs.replace(old, margin=new.margin))
            return None
        self.run.journal.append("parity_task_started", outputs=len(outputs))
        try:
            new = msgspec.structs.replace(new, scores=await self._scores(section, outputs))
        except (ScorerFailed, WorkloadError, OSError) as error:
            text = "; ".join(error.problems) if isinstance(error, WorkloadError) else str(error)
            new = msgspec.structs.replace(new, problem=self.loaded.redact(f"{text}; {AGAIN}"))
        self.run.write_task_scores(new)
        self.run.journal.append("parity_task_scored", outputs=len(new.scores), problem=new.problem)
        return new.problem

    def _known(self) -> TaskScores | None:
        try:
            return self.run.task_scores()
        except RunFileError:
            return None  # scoring again is cheaper than a mend by hand

    async def _scores(self, section: TaskConfig, outputs: Sequence[Output]) -> dict[str, float]:
        prompts = self._prompts(outputs)
        lines = [msgspec.json.encode(_question(x, prompts[x.prompt])) for x in outputs]
        printed = await run_scorer(
            section.command,
            self.loaded.base_dir,
            b"\n".join(lines) + b"\n",
            section.timeout,
            self.run.parity_path / "task.log",
        )
        return read_scores(printed, dict.fromkeys(x.id for x in outputs))

    def _prompts(self, outputs: Sequence[Output]) -> dict[str, SourceRequest]:
        """Rows of the workload by the id that its prompts have in the check.

        Raises:
            ScorerFailed: texts were not kept, or it is not clear which row a prompt is.
        """
        silent = next((x for x in outputs if x.text is None), None)
        if silent is not None:
            raise ScorerFailed(
                f"{silent.id} has no text: it was written by an older specbench, or without one; start a new run"
            )
        rows = defaultdict(list)
        for row in load_source(self.loaded.config.workload, self.loaded.base_dir).requests:
            if row.messages or row.prompt:
                rows[row.id.replace("#", "_")].append(row)
        for prompt in dict.fromkeys(x.prompt for x in outputs):
            if len(rows[prompt]) != 1:
                raise ScorerFailed(
                    f"{len(rows[prompt])} rows of workload.source are called {prompt!r} (# counts as _): "
                    + ("rename all but one" if rows[prompt] else "put back the file that the run began with")
                )
        return {prompt: found[0] for prompt, found in rows.items() if found}


def _question(x: Output, row: SourceRequest) -> dict[str, Any]:
    """One line of the scorer's input."""
    return {
        "id": x.id,
        "prompt_id": x.prompt,
        "arm": x.arm,
        "role": x.role,
        "load": x.load,
        "temperature": x.temperature,
        "text": x.text,
        "finish_reason": x.finish_reason,
        "prompt": row.prompt if row.prompt is not None else row.messages,
        "reference": row.reference,
    }


def _command_digest(command: Sequence[str], base_dir: Path) -> str:
    """Of the words, and of the content of files among them: a corrected script scores again."""
    found: list[list[str]] = []
    for word in command:
        path = base_dir / word
        try:
            small = path.is_file() and path.stat().st_size <= MAX_SCRIPT_BYTES
            found.append([word, hashlib.sha256(path.read_bytes()).hexdigest() if small else ""])
        except (OSError, ValueError):
            found.append([word, ""])
    return hashlib.sha256(canonical(found).encode("utf-8", "surrogatepass")).hexdigest()
