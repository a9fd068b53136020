"""A baseline against itself: when a machine is fit to measure on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from specbench.analysis.run import analyse
from specbench.runs import records as r
from specbench.runs.calibrations import calibration_path, read_calibration, write_calibration
from specbench.runs.files import write_json
from specbench.sweep.calibrate import calibration_from
from specbench.verdict.calibration import judge_equal
from specbench.verdict.exit_codes import ExitCode
from specbench.verdict.rule import judge
from tests.synthetic import Pace, SyntheticRun
from tests.verdict.test_rule import paces

RECORD = r.CalibrationRecord(
    created_utc="2026-01-01T00:00:00.000Z",
    fingerprint="f" * 16,
    engine="simulated 1",
    run_id="x",
    target="target",
    passed=False,
    reason="equal launches came out at 1.20x",
    ratios=(1.2, 1.2, 1.2),
)


@pytest.mark.parametrize(
    ("ratios", "passed"),
    [
        ((1.01, 0.99, 1.00), True),
        ((1.004, 1.005, 1.0045), True),  # certainly not 1, and too little to matter
        ((1.04, 1.041, 1.0405), False),  # certainly not 1
        ((1.03, 0.99, 1.05), True),  # noise
        ((1.00, 1.01, 1.12), False),  # a pair apart
        ((1.00, 1.01, 1 / 1.12), False),
        ((1.0,), False),
    ],
)
def test_the_rule(ratios: tuple[float, ...], passed: bool) -> None:
    assert judge_equal(ratios).passed is passed


def test_healthy_machines_pass() -> None:
    rng = np.random.default_rng(1)
    failed = sum(not judge_equal(np.exp(rng.normal(0, 0.03, 3)).tolist()).passed for _ in range(1000))
    assert failed <= 30  # 1 % of intervals, and a few pairs of a spread of 3 % that are 10 % apart


def test_pairs_turn_so_that_a_drift_cancels(tmp_path: Path) -> None:
    # Every launch is 2 % slower than the one before.
    pace: dict[tuple[str, int, int], Pace | str | None] = {
        ("baseline", 4, n): Pace(0.01 * 1.02**n) for n in range(1, 5)
    }
    run = SyntheticRun(loads=(4,), rounds=4, arms=()).write(tmp_path, pace)
    record = calibration_from(run)
    assert record.ratios == pytest.approx((1 / 1.02, 1.02), rel=1e-3)
    assert record.by_load["c4"] == pytest.approx(record.ratios)
    assert record.passed


def test_a_lost_launch_loses_its_pair(tmp_path: Path) -> None:
    pace: dict[tuple[str, int, int], Pace | str | None] = {
        ("baseline", 4, n): Pace(0.01) for n in range(1, 7)
    }
    pace["baseline", 4, 3] = "the engine died"
    run = SyntheticRun(loads=(4,), rounds=6, arms=()).write(tmp_path, pace)
    assert len(calibration_from(run).ratios) == 2


def test_it_is_kept_per_machine_and_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert read_calibration(RECORD.fingerprint, RECORD.engine) is None
    path = write_calibration(RECORD)
    assert path.is_relative_to(tmp_path)
    assert read_calibration(RECORD.fingerprint, RECORD.engine) == RECORD
    assert read_calibration(RECORD.fingerprint, "simulated 2") is None
    assert read_calibration("0" * 16, RECORD.engine) is None
    calibration_path(RECORD.fingerprint, RECORD.engine).write_text("{}")
    assert read_calibration(RECORD.fingerprint, RECORD.engine) is None


@pytest.mark.parametrize("passed", [True, False])
def test_a_failed_calibration_allows_no_verdict(tmp_path: Path, passed: bool) -> None:
    run = SyntheticRun().write(tmp_path, paces({1: 1.3, 4: 1.2}))
    manifest = run.manifest()
    fields = {name: getattr(manifest, name) for name in manifest.__struct_fields__}
    kept = r.CalibrationRecord(
        **{**{n: getattr(RECORD, n) for n in RECORD.__struct_fields__}, "passed": passed}
    )
    write_json(run.path / "manifest.json", r.Manifest(**{**fields, "calibration": kept}))
    v = judge(analyse(run))
    assert v.exit_code == (ExitCode.OK if passed else ExitCode.INVALID)
    assert passed or "failed its calibration (equal launches came out at 1.20x)" in v.reasons[0]
