"""Up to which load an arm pays, and K by load."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from specbench.analysis.compare import PairedRatio
from specbench.analysis.run import RunAnalysis, analyse
from specbench.report.build import build
from specbench.runs import records as r
from specbench.runs.files import write_json
from specbench.runs.rundir import RunDir
from specbench.verdict.policy import KRange, crossing, crossovers, schedules
from tests.synthetic import SyntheticRun, paces_of

BASE = 0.010


def test_crossing_is_a_straight_line_in_logarithms() -> None:
    assert crossing([(1, 2.0), (16, 0.5)], 1.0) == pytest.approx(4.0)
    assert crossing([(1, 2.0), (4, 1.5), (16, 1.2)], 1.05) is None
    assert crossing([(1, 0.9), (4, 1.5), (16, 0.5)], 1.05) is None  # it never paid at the low end
    assert crossing([(4, 1.5)], 1.05) is None


def run_of(tmp_path: Path, gains: dict[str, dict[int, float]], spread: float = 0.004) -> RunDir:
    """Arms with K as the number in their name, at each load's speed-up."""
    loads = tuple(next(iter(gains.values())))
    run = SyntheticRun(loads=loads, arms=tuple(gains)).write(tmp_path, paces_of(gains, BASE, spread))
    manifest = run.manifest()
    arms = tuple(
        a if a.method is None else r.ArmRecord(id=a.id, method="eagle3", draft="d", k=int(a.id[1:]))
        for a in manifest.arms
    )
    fields = {name: getattr(manifest, name) for name in manifest.__struct_fields__}
    write_json(run.path / "manifest.json", r.Manifest(**{**fields, "arms": arms}))
    return run


def analysed(tmp_path: Path, gains: dict[str, dict[int, float]], spread: float = 0.004) -> RunAnalysis:
    return analyse(run_of(tmp_path, gains, spread))


def test_the_crossover_lies_inside_its_interval_and_narrows_with_less_noise(tmp_path: Path) -> None:
    gains = {"k3": {1: 1.6, 4: 1.2, 16: 0.9}}
    (found,) = crossovers(analysed(tmp_path, gains))
    assert found.low is not None
    assert found.high is not None
    assert 4 < found.low < found.concurrency < found.high < 16
    (noisy,) = crossovers(analysed(tmp_path, gains, spread=0.02))
    assert noisy.low is not None
    assert noisy.low < found.low


def test_an_arm_that_always_pays_has_no_crossover(tmp_path: Path) -> None:
    assert crossovers(analysed(tmp_path, {"k3": {1: 1.6, 4: 1.4}})) == ()


def test_k_falls_with_the_load_and_ends_with_none(tmp_path: Path) -> None:
    gains = {"k5": {1: 2.0, 4: 1.3, 16: 0.7}, "k2": {1: 1.5, 4: 1.5, 16: 0.9}}
    (found,) = schedules(analysed(tmp_path, gains))
    assert (found.method, found.draft) == ("eagle3", "d")
    assert found.ranges == (KRange(1, 1, 5), KRange(2, 4, 2), KRange(5, 16, 0))


def test_a_gain_too_small_is_no_reason_to_switch(tmp_path: Path) -> None:
    gains = {"k5": {1: 1.5, 4: 1.5}, "k2": {1: 1.3, 4: 1.505}}
    assert schedules(analysed(tmp_path, gains)) == ()


def test_ranks_that_change_by_chance_are_no_reason_to_switch(tmp_path: Path) -> None:
    """Three rounds of an n-gram arm on two cores: K = 4 is surest at 8 in flight, and not clearly better there."""
    seen = {
        ("k2", 1): (1.444, 1.525, 1.315),
        ("k4", 1): (1.657, 1.573, 1.548),
        ("k2", 4): (1.437, 1.337, 1.258),
        ("k4", 4): (1.273, 1.214, 1.179),
        ("k2", 8): (1.216, 1.359, 1.180),
        ("k4", 8): (1.236, 1.248, 1.238),
    }
    run = analysed(tmp_path, {"k4": {1: 1.6, 4: 1.2, 8: 1.2}, "k2": {1: 1.4, 4: 1.3, 8: 1.2}})
    ratios = {(arm, f"c{c}"): dict(enumerate(x, 1)) for (arm, c), x in seen.items()}
    at = {
        key: dataclasses.replace(x, speedup=PairedRatio(tuple(ratios[key].values()))) if key in ratios else x
        for key, x in run.at.items()
    }
    (found,) = schedules(dataclasses.replace(run, at=at, ratios={**run.ratios, **ratios}))
    assert found.ranges == (KRange(1, 1, 4), KRange(2, 8, 2))


def test_the_report_says_both_and_that_a_schedule_must_be_confirmed(tmp_path: Path) -> None:
    gains = {"k5": {1: 2.0, 4: 1.3, 16: 0.7}, "k2": {1: 1.5, 4: 1.5, 16: 0.9}}
    notes = {n.code: n for n in build(run_of(tmp_path, gains)).warnings}
    assert "falls below 1.05x at about" in notes["crossover"].message
    assert "5 up to 1, 2 up to 4, none up to 16" in notes["k_by_load"].message
    assert "arm of its own" in notes["k_by_load"].action


def test_where_an_arm_that_is_not_deployed_stops_paying_is_not_told(tmp_path: Path) -> None:
    run = run_of(tmp_path, {"k5": {1: 2.0, 4: 1.9, 16: 1.8}, "k2": {1: 1.5, 4: 1.2, 16: 0.9}})
    assert [x.arm for x in crossovers(analyse(run))] == ["k2"]
    assert "crossover" not in {n.code for n in build(run).warnings}
