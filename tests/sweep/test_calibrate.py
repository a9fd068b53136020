"""`specbench calibrate` on the simulated engine, and what a sweep makes of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specbench.runs.rundir import RunDir
from tests.sweep.conftest import Bench, engines_of, measure


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_a_calibration_is_kept_and_a_failed_one_ends_verdicts(bench: Bench) -> None:
    bench.write(loads={"closed": [2]}, measure=measure(rounds=1))
    done = bench.run("calibrate", str(bench.config), "--pairs", "2")
    assert done.returncode in {0, 30}, done.stdout + done.stderr
    (kept,) = (bench.folder / "state").rglob("*.json")
    record = json.loads(kept.read_text())
    assert record["passed"] is (done.returncode == 0)
    assert len(record["ratios"]) == 2
    run = RunDir.latest(bench.folder / "runs", "tiny-calibration")
    assert run is not None
    assert [x.arm for x in run.launches()] == ["baseline"] * 4
    assert engines_of(bench.folder) == []

    kept.write_text(json.dumps({**record, "passed": False, "reason": "twins differ"}))
    swept = bench.sweep("--gate")
    assert swept.returncode == 30, swept.stdout
    assert "failed its calibration (twins differ)" in " ".join(swept.stdout.split())


def test_inconclusive_may_pass_a_gate(bench: Bench) -> None:
    bench.write(loads={"closed": [2]}, measure=measure(rounds=1))  # one round never decides
    assert bench.sweep("--gate").returncode == 20
    run = str(bench.the_run().path)
    assert bench.run("gate", run).returncode == 20
    assert bench.run("gate", run, "--inconclusive", "pass").returncode == 0
    assert bench.sweep("--resume", "--gate", "--inconclusive", "pass").returncode == 0
