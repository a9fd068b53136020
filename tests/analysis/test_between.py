"""Two runs beside each other: the interval, what it takes to settle, the traffic."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import msgspec
import numpy as np
import pytest
from scipy import stats

from specbench.analysis.between import UnpairedRatio, between
from specbench.analysis.comparable import changes, incomparable, left_out, shared_loads
from specbench.analysis.run import analyse
from specbench.runs.records import LoadRecord
from specbench.runs.rundir import RunDir
from tests.synthetic import Pace, SyntheticRun, paces_of


def test_the_interval_is_welchs() -> None:
    before, after = (100.0, 103.0, 99.0), (96.0, 97.5, 95.0, 96.5)
    expected = stats.ttest_ind(np.log(after), np.log(before), equal_var=False).confidence_interval(0.9)
    low, high = UnpairedRatio(before, after).interval(0.9) or (0.0, 0.0)
    assert (math.log(low), math.log(high)) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_one_launch_gives_a_ratio_without_an_interval_and_none_gives_a_reason() -> None:
    one = UnpairedRatio((100.0,), (90.0, 91.0))
    assert one.value == pytest.approx(math.sqrt(90 * 91) / 100)
    assert one.interval(0.9) is None
    none = UnpairedRatio((100.0,), ())
    assert (none.value, none.why_null) == (None, "no valid round in the new run")


def test_equal_launches_leave_no_width() -> None:
    assert UnpairedRatio((100.0, 100.0), (97.0, 97.0)).interval(0.9) == pytest.approx((0.97, 0.97))


def test_launches_needed_are_enough_in_simulation() -> None:
    rng, gap, sd = np.random.default_rng(3), 0.03, 0.02
    a = sd / math.sqrt(2)
    spread = UnpairedRatio((math.exp(a), math.exp(-a)), (math.exp(a), math.exp(-a)))
    n = spread.launches_needed(math.exp(-gap), 0.9)
    assert n == 9
    won = 0
    for _ in range(1000):
        x, y = np.exp(rng.normal(0, sd, (2, n)))
        bounds = UnpairedRatio(tuple(x), tuple(y)).interval(0.9)
        won += bounds is not None and bounds[0] > math.exp(-gap)
    assert 0.87 <= won / 1000 <= 0.95


def test_speeds_speedups_and_the_mix(tmp_path: Path) -> None:
    gains = {1: 2.0, 4: 1.5}
    old = SyntheticRun().write(tmp_path / "old", paces_of({"ngram-k4": gains}, 0.010, 0.0))
    # The new build needs a tenth more time per token, in every arm.
    new = SyntheticRun().write(tmp_path / "new", paces_of({"ngram-k4": gains}, 0.011, 0.0))
    x = between(analyse(old), analyse(new), "ngram-k4", ("c1", "c4"))
    assert x.speed["c4"].value == pytest.approx(1 / 1.1, rel=1e-3)
    assert x.over_mix.value == pytest.approx(1 / 1.1, rel=1e-3)
    assert x.speedup["c1"].value == pytest.approx(1.0, rel=1e-3)
    assert x.speedup_over_mix is not None
    assert x.speedup_over_mix.before == analyse(old).mix["ngram-k4"].per_round
    base = between(analyse(old), analyse(new), "baseline", ("c1", "c4"))
    assert (base.speedup, base.speedup_over_mix, base.tail_ratios) == ({}, None, {})
    assert x.tokens_per_step["c1"].value == pytest.approx(1.0)
    assert len(x.over_mix.before) == len(x.over_mix.after) == 3


def test_tokens_per_step_and_tails_are_those_of_the_arm(tmp_path: Path) -> None:
    def run(name: str, tokens: int, first_s: float) -> RunDir:
        pace: dict[tuple[str, int, int], Pace | str | None] = {}
        for n in (1, 2, 3):
            pace["baseline", 4, n] = Pace(0.010, first_s=0.05)
            pace["ngram-k4", 4, n] = Pace(0.010, tokens_per_step=tokens, first_s=first_s)
        return SyntheticRun(loads=(4,), per_slot=60).write(tmp_path / name, pace)

    x = between(analyse(run("old", 2, 0.05)), analyse(run("new", 4, 0.10)), "ngram-k4", ("c4",))
    assert [
        round(sum(v) / len(v)) for v in (x.tokens_per_step["c4"].before, x.tokens_per_step["c4"].after)
    ] == [2, 4]
    ttft = x.tails["ttft_p95", "c4"]
    assert (ttft.before[0], ttft.after[0]) == pytest.approx((0.05, 0.10))
    assert x.tail_ratios["ttft_p95", "c4"].value == pytest.approx(2.0)


def test_the_mix_weighs_loads_by_the_recorded_time(tmp_path: Path) -> None:
    run = SyntheticRun(traffic={"c1": 0.25, "c4": 0.75})
    old = run.write(tmp_path / "old", paces_of({"ngram-k4": {1: 1.0, 4: 1.0}}, 0.010, 0.0))
    new = run.write(tmp_path / "new", paces_of({"ngram-k4": {1: 1.0, 4: 0.5}}, 0.010, 0.0))
    x = between(analyse(old), analyse(new), "ngram-k4", ("c1", "c4"))
    at = {load: x.speed[load].value or 0 for load in ("c1", "c4")}
    assert x.over_mix.value == pytest.approx(1 / (0.25 / at["c1"] + 0.75 / at["c4"]), rel=1e-9)


def test_a_launch_without_a_valid_cell_at_a_load_of_the_traffic_does_not_count(tmp_path: Path) -> None:
    pace = paces_of({"ngram-k4": {1: 2.0, 4: 1.5}}, 0.010, 0.01)
    old = SyntheticRun().write(tmp_path / "old", pace)
    new = SyntheticRun().write(tmp_path / "new", {**pace, ("ngram-k4", 4, 2): Pace(0.01, fail=9)})
    x = between(analyse(old), analyse(new), "ngram-k4", ("c1", "c4"))
    assert len(x.over_mix.after) == 2
    assert len(x.speed["c1"].after) == 3


def test_what_cannot_be_compared(tmp_path: Path) -> None:
    m = SyntheticRun().write(tmp_path, paces_of({"ngram-k4": {1: 2.0, 4: 1.5}}, 0.01, 0.0)).manifest()
    other = msgspec.structs.replace(m, run_id="other")
    assert incomparable(m, other) == ()
    assert shared_loads(m, other) == ("c1", "c4")
    assert "both are the run" in incomparable(m, m)[0]
    elsewhere = msgspec.structs.replace(other, machine={**m.machine, "fingerprint": "e" * 16, "cores": 64})
    assert "different machines: host (cpu, 2 cores) and host (cpu, 64 cores)" in incomparable(m, elsewhere)[0]
    forced = msgspec.structs.replace(other, output_mode="forced")
    assert "output lengths differ in kind: natural and forced" in incomparable(m, forced)[0]
    mine = msgspec.structs.replace(m, meaning={"measurement_schema": 1})
    schema = msgspec.structs.replace(other, meaning={"measurement_schema": 9})
    assert "measure cells differently" in incomparable(mine, schema)[0]
    load = LoadRecord(id="c1", concurrency=1, requests=9, workload_digest="9" * 64)
    one = msgspec.structs.replace(other, loads=(load,))
    assert "other requests at c1" in incomparable(m, one)[0]
    assert "no load is in both runs" in incomparable(m, msgspec.structs.replace(other, loads=()))[0]
    assert "no arm is in both runs" in incomparable(m, msgspec.structs.replace(other, arms=()))[0]


def test_what_differs_and_what_is_left_out(tmp_path: Path) -> None:
    pace = paces_of({"ngram-k4": {1: 2.0, 4: 1.5}}, 0.01, 0.0)
    settings: dict[str, dict[str, object]] = {"ngram-k4": {"scheduler.policy": "fcfs"}}
    old = analyse(SyntheticRun(settings=settings).write(tmp_path / "old", pace))
    settings = {"ngram-k4": {"scheduler.policy": "priority"}}
    new = analyse(SyntheticRun(loads=(4,), settings=settings).write(tmp_path / "new", pace))
    manifest = msgspec.structs.replace(new.manifest, specbench="0.2.0", meaning={"engine": {"version": "2"}})
    new = dataclasses.replace(new, manifest=manifest)
    told = changes(old, new)
    assert "specbench: 0.1.0 -> 0.2.0" in told
    assert any("engine" in line and "2" in line for line in told)
    assert "resolved by the engine, ngram-k4: scheduler.policy: fcfs -> priority" in told
    assert left_out(old.manifest, new.manifest) == ("c1: only in the recorded run",)
