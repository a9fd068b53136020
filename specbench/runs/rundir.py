"""The run directory: the only hand-over between measuring and judging."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from specbench.runs import records as r
from specbench.runs.files import RunFileError, read_json, write_json
from specbench.runs.journal import Journal
from specbench.runs.parity import RESULT_SCHEMA, ParityResult
from specbench.runs.task import TASK_SCHEMA, TaskScores

if TYPE_CHECKING:
    from collections.abc import Iterator


class RunDir:
    """Paths, reading and writing of one run.

    Layout::

        manifest.json  journal.jsonl
        launches/ID/{engine.log,launch.json}
        cells/ID/{requests.parquet,counters.json,cell.json}
        parity/{prompts.json,NAME.parquet,unscored/NAME.parquet,result.json}   when parity is checked
        parity/texts/NAME.parquet   when its servers tell neither token ids nor scores
        parity/{task.json,task.log}   when a scorer is named

    A cell is complete when its ``cell.json`` exists: it is written last.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = Journal(path / "journal.jsonl")

    @classmethod
    def create(cls, out: Path, name: str) -> RunDir:
        """A new directory ``out/NAME-UTC-ID``.

        Raises:
            RunFileError: it cannot be made.
        """
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        path = out / f"{name}-{stamp}-{secrets.token_hex(2)}"
        try:
            (path / "launches").mkdir(parents=True)
            (path / "cells").mkdir()
        except OSError as error:
            raise RunFileError(
                f"cannot make {path}: {error.strerror or error}; choose another --out"
            ) from error
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> RunDir:
        """An existing run.

        Raises:
            RunFileError: there is no run there.
        """
        if not (path / "manifest.json").is_file():
            raise RunFileError(f"{path} is not a run directory: it has no manifest.json")
        return cls(path)

    @classmethod
    def latest(cls, out: Path, name: str) -> RunDir | None:
        """The newest run of a config name under ``out``, or None."""
        pattern = re.compile(re.escape(name) + r"-\d{8}T\d{6}Z-[0-9a-f]{4}")
        if not out.is_dir():
            return None
        found = [p for p in out.iterdir() if pattern.fullmatch(p.name) and (p / "manifest.json").is_file()]
        return cls(max(found, key=lambda p: (p.name[-21:-5], p.stat().st_mtime))) if found else None

    @property
    def id(self) -> str:
        """The folder's name."""
        return self.path.name

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Only one sweep may write a run.

        Raises:
            RunFileError: another process holds it.
        """
        try:
            fd = os.open(self.path / ".lock", os.O_CREAT | os.O_RDWR, 0o644)
        except OSError as error:
            raise RunFileError(
                f"cannot write {self.path / '.lock'}: {error.strerror or error}; fix its permissions"
            ) from error
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise RunFileError(
                    f"{self.path} is being written by another specbench; wait for it or stop it"
                ) from error
            yield
        finally:
            os.close(fd)

    def manifest(self) -> r.Manifest:
        """Read ``manifest.json``.

        Raises:
            RunFileError: it is missing or damaged, or says what no sweep would write.
        """
        path = self.path / "manifest.json"
        manifest = read_json(path, r.Manifest, r.MANIFEST_SCHEMA)
        ids = {a.id for a in manifest.arms}
        lost = next((a.baseline for a in manifest.arms if a.baseline not in ids), None)
        if lost is not None:
            raise RunFileError(
                f"{path} has no arm {lost}, which the others are compared with; restore the file"
            )
        if not 0.5 < manifest.confidence < 1:
            raise RunFileError(f"{path}: confidence is {manifest.confidence}; it lies between 0.5 and 1")
        if any(not share >= 0 for share in manifest.traffic.values()):
            raise RunFileError(f"{path}: a share of traffic is below 0; restore the file")
        return manifest

    def write_manifest(self, manifest: r.Manifest) -> None:
        """Write it once, before the first launch."""
        write_json(self.path / "manifest.json", manifest)

    def active_s(self) -> float:
        """Seconds spent measuring, over the first session and all resumes that ended in order."""
        found = (e.get("active_s") for e in self.journal.read())
        return sum(float(x) for x in found if isinstance(x, int | float))

    def launch_path(self, launch: str) -> Path:
        """Folder of a launch; a second attempt after a resume gets its own."""
        return self.path / "launches" / launch

    def write_launch(self, record: r.LaunchRecord) -> None:
        """Write or replace the record of a launch."""
        write_json(self.launch_path(record.id) / "launch.json", record)

    def launches(self) -> list[r.LaunchRecord]:
        """All launches with a record, in order of start."""
        found = [
            read_json(p, r.LaunchRecord, r.LAUNCH_SCHEMA)
            for p in sorted((self.path / "launches").glob("*/launch.json"))
        ]
        return sorted(found, key=lambda x: x.started_utc)

    def cell_path(self, cell: str) -> Path:
        """Folder of a cell."""
        return self.path / "cells" / cell

    def cells(self) -> list[r.CellRecord]:
        """All cells with a record, by round, arm and load."""
        found = [
            read_json(p, r.CellRecord, r.CELL_SCHEMA)
            for p in sorted((self.path / "cells").glob("*/cell.json"))
        ]
        return sorted(found, key=lambda x: (x.round, x.arm, x.concurrency))

    def set_aside(self, cell: str) -> None:
        """Move an earlier, unfinished attempt at a cell to ``interrupted/``: nothing is thrown away."""
        folder = self.cell_path(cell)
        if not folder.exists():
            return
        shelf = self.path / "interrupted"
        n = 1
        while (shelf / f"{cell}.{n}").exists():
            n += 1
        try:
            shelf.mkdir(exist_ok=True)
            folder.replace(shelf / f"{cell}.{n}")
        except OSError as error:
            raise _cannot_write(shelf, error) from error

    def write_cell(
        self, record: r.CellRecord, counters: r.CellCounters | None, requests: pa.Table | None
    ) -> None:
        """Write a cell's files, the record last.

        Raises:
            RunFileError: disk full or the like; no ``cell.json`` exists then.
        """
        folder = self.cell_path(record.id)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "cell.json").unlink(missing_ok=True)
        except OSError as error:
            raise _cannot_write(folder, error) from error
        if requests is not None:
            _write_parquet(folder / "requests.parquet", requests)
        if counters is not None:
            write_json(folder / "counters.json", counters)
        write_json(folder / "cell.json", record)

    def requests(self, cell: str) -> pa.Table | None:
        """The request records of a cell, or None when it has none."""
        path = self.cell_path(cell) / "requests.parquet"
        if not path.exists():
            return None
        try:
            if not path.is_file():
                raise RunFileError(f"{path} is not a regular file; move {path.parent} away and --resume")
            return pq.read_table(path)
        except (OSError, pa.ArrowException) as error:
            raise RunFileError(
                f"{path} is damaged: {error}; move {path.parent} out of the run and --resume"
            ) from error

    def counters(self, cell: str) -> r.CellCounters | None:
        """The counter scrapes of a cell, or None when it has none."""
        path = self.cell_path(cell) / "counters.json"
        return read_json(path, r.CellCounters, r.COUNTERS_SCHEMA) if path.exists() else None

    @property
    def parity_path(self) -> Path:
        """Folder of the parity check; absent when there is none."""
        return self.path / "parity"

    def write_parity_outputs(self, name: str, table: pa.Table, *, scored: bool) -> None:
        """Keep the outputs of an arm at a load; scored ones take the place of the same outputs unscored."""
        waiting = self.parity_path / "unscored" / f"{name}.parquet"
        path = self.parity_path / f"{name}.parquet" if scored else waiting
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunFileError(f"cannot make {path.parent}: {error.strerror or error}") from error
        _write_parquet(path, table)
        if scored:
            waiting.unlink(missing_ok=True)

    def parity_outputs(self, *, scored: bool) -> dict[str, pa.Table]:
        """Outputs of the parity check by name."""
        return self._parity_tables(self.parity_path if scored else self.parity_path / "unscored")

    def write_parity_texts(self, name: str, table: pa.Table) -> None:
        """Keep the outputs of an arm at a load as texts, where no server tells ids or scores."""
        folder = self.parity_path / "texts"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunFileError(f"cannot make {folder}: {error.strerror or error}") from error
        _write_parquet(folder / f"{name}.parquet", table)

    def parity_texts(self) -> dict[str, pa.Table]:
        """Outputs that were kept as texts, by name."""
        return self._parity_tables(self.parity_path / "texts")

    @staticmethod
    def _parity_tables(folder: Path) -> dict[str, pa.Table]:
        found = {}
        for path in sorted(folder.glob("*.parquet")):
            try:
                found[path.stem] = pq.read_table(path)
            except (OSError, pa.ArrowException) as error:
                raise RunFileError(f"{path} is damaged: {error}; remove it and --resume") from error
        return found

    def write_task_scores(self, scores: TaskScores) -> None:
        """Write ``parity/task.json``."""
        write_json(self.task_path, scores)

    def task_scores(self) -> TaskScores | None:
        """Read ``parity/task.json``; None when there is none."""
        return read_json(self.task_path, TaskScores, TASK_SCHEMA) if self.task_path.exists() else None

    @property
    def task_path(self) -> Path:
        """What the scorer said."""
        return self.parity_path / "task.json"

    def write_parity_result(self, result: ParityResult) -> None:
        """Write ``parity/result.json``."""
        write_json(self.parity_path / "result.json", result)

    def parity_result(self) -> ParityResult | None:
        """Read ``parity/result.json``; None when there is none."""
        path = self.parity_path / "result.json"
        return read_json(path, ParityResult, RESULT_SCHEMA) if path.exists() else None


def _cannot_write(path: Path, error: OSError) -> RunFileError:
    return RunFileError(
        f"cannot write {path}: {error.strerror or error}; free space or fix permissions, then --resume"
    )


def _write_parquet(path: Path, table: pa.Table) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        pq.write_table(table, temporary, compression="zstd")
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except (OSError, pa.ArrowException) as error:
        temporary.unlink(missing_ok=True)
        raise RunFileError(
            f"cannot write {path}: {error}; free space or fix permissions, then --resume"
        ) from error
