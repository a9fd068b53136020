"""Run directories survive crashes, garbage, full disks and rivals."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from specbench.runs import records as r
from specbench.runs.files import RunFileError, read_json, write_atomic
from specbench.runs.journal import Journal
from specbench.runs.rundir import RunDir
from tests.synthetic import Pace, SyntheticRun


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return SyntheticRun(loads=(1,), rounds=1).write(
        tmp_path, {("baseline", 1, 1): Pace(0.01), ("ngram-k4", 1, 1): Pace(0.01)}
    )


def test_a_torn_journal_line_is_left_out_and_the_next_one_is_whole(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.append("one", x=1)
    with journal.path.open("ab") as file:
        file.write(b'{"event": "torn')
    journal.append("two", y=2)
    assert [e["event"] for e in journal.read()] == ["one", "two"]


def test_write_leaves_the_old_file_when_it_fails(tmp_path: Path) -> None:
    target = tmp_path / "dir"
    target.mkdir()
    (target / "file").write_text("keep")
    with pytest.raises(RunFileError, match="cannot write"):
        write_atomic(target, b"new")
    assert (target / "file").read_text() == "keep"
    assert [p.name for p in tmp_path.iterdir()] == ["dir"]


@pytest.mark.parametrize("garbage", [b"", b"{", b"[]", b'{"schema": "specbench.cell/1"}', b"\xff\xfe"])
def test_a_damaged_record_names_the_file_and_the_mend(run: RunDir, garbage: bytes) -> None:
    path = next((run.path / "cells").glob("*/cell.json"))
    path.write_bytes(garbage)
    with pytest.raises(RunFileError, match=r"cell\.json is damaged.*--resume"):
        run.cells()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"confidence": 1.0}, "confidence is 1.0; it lies between 0.5 and 1"),
        ({"confidence": -3}, "confidence is -3.0"),
        ({"traffic": {"c1": -0.5}}, "a share of traffic is below 0"),
        ({"arms": [{"id": "ngram-k4", "method": "ngram", "k": 4}]}, "has no arm baseline"),
    ],
)
def test_a_manifest_that_no_sweep_would_write_is_refused(
    run: RunDir, change: dict[str, object], why: str
) -> None:
    path = run.path / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(RunFileError, match=why):
        run.manifest()


def test_a_future_schema_is_refused_by_name(run: RunDir) -> None:
    path = run.path / "manifest.json"
    data = json.loads(path.read_text())
    data["schema"] = "specbench.manifest/9"
    path.write_text(json.dumps(data))
    with pytest.raises(RunFileError, match=r"specbench\.manifest/9"):
        run.manifest()


def test_a_damaged_parquet_names_the_file(run: RunDir) -> None:
    path = next((run.path / "cells").glob("*/requests.parquet"))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(RunFileError, match=r"requests\.parquet"):
        run.requests(path.parent.name)


def test_two_sweeps_cannot_write_one_run(run: RunDir) -> None:
    with run.lock(), pytest.raises(RunFileError, match="another specbench"), RunDir(run.path).lock():
        pass
    with run.lock():
        pass


def test_latest_is_the_newest_run_of_that_name_only(tmp_path: Path) -> None:
    for name in ("x-20260101T000000Z-aaaa", "x-20260102T000000Z-0000", "x-y-20270101T000000Z-0000"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text("{}")
    (tmp_path / "x-20280101T000000Z-0000").mkdir()  # no manifest: never started
    found = RunDir.latest(tmp_path, "x")
    assert found is not None
    assert found.id == "x-20260102T000000Z-0000"
    assert RunDir.latest(tmp_path / "missing", "x") is None


def test_an_unfinished_attempt_is_set_aside_not_deleted(run: RunDir) -> None:
    cell = run.cells()[0].id
    run.set_aside(cell)
    assert not run.cell_path(cell).exists()
    assert (run.path / "interrupted" / f"{cell}.1" / "requests.parquet").exists()


def test_opening_something_else_says_so(tmp_path: Path) -> None:
    with pytest.raises(RunFileError, match="not a run directory"):
        RunDir.open(tmp_path)


def test_files_that_are_no_files_are_refused_and_not_waited_for(run: RunDir) -> None:
    os.mkfifo(run.path / "pipe.json")
    with pytest.raises(RunFileError, match="not a regular file"):
        read_json(run.path / "pipe.json", r.Manifest, r.MANIFEST_SCHEMA)
    folder = run.cell_path("c")
    (folder / "requests.parquet").mkdir(parents=True)
    with pytest.raises(RunFileError, match="not a regular file"):
        run.requests("c")
    (run.path / "manifest.json").write_text("[" * 100_000)
    with pytest.raises(RunFileError, match=r"manifest\.json is damaged.*back from a copy"):
        run.manifest()


def test_a_hostile_journal_is_read_as_far_as_it_goes(run: RunDir) -> None:
    lines = [
        "[" * 100_000,
        '{"event": null}',
        '{"event": "a", "active_s": null}',
        '{"event": "b", "active_s": 2}',
    ]
    run.journal.path.write_text("\n".join(lines))
    assert [e["event"] for e in run.journal.read()] == ["a", "b"]
    assert run.active_s() == 2.0
    run.journal.path.unlink()
    run.journal.path.mkdir()
    with pytest.raises(RunFileError, match="not a regular file"):
        run.journal.read()


def test_a_run_that_cannot_be_written_says_so(run: RunDir) -> None:
    (run.path / ".lock").mkdir()
    with pytest.raises(RunFileError, match=r"cannot write .*\.lock.*permissions"), run.lock():
        pass
    cell = next(p.name for p in (run.path / "cells").iterdir())
    (run.path / "interrupted").write_text("in the way")
    with pytest.raises(RunFileError, match=r"cannot write .*interrupted.*--resume"):
        run.set_aside(cell)
    assert run.cell_path(cell).is_dir()
