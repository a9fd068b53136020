"""What to deploy at which load: enable ranges, suggestions, and what a confirming run makes of them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from specbench.analysis.run import analyse
from specbench.report.build import build
from specbench.report.html import to_html
from specbench.report.markdown import to_markdown
from specbench.report.model import Result
from specbench.report.terminal import render
from specbench.runs import records as r
from specbench.runs.checks import ConfirmsRecord
from specbench.runs.files import write_json
from specbench.runs.rundir import RunDir
from specbench.verdict.deploy import suggestions
from specbench.verdict.policy import KRange
from specbench.verdict.rule import judge
from tests.synthetic import Pace, SyntheticRun

KEY = "num_speculative_tokens_per_batch_size"
VARYING = {"k5": {1: 2.0, 4: 1.3, 16: 0.7}, "k2": {1: 1.5, 4: 1.5, 16: 0.9}}


def run_of(tmp_path: Path, gains: dict[str, dict[int, float]], **manifest: Any) -> RunDir:
    """Arms of eagle3 with K as the number in their name, at each load's speed-up."""
    loads = tuple(next(iter(gains.values())))
    pace: dict[tuple[str, int, int], Pace | str | None] = {}
    for n in (1, 2, 3):
        for c in loads:
            pace["baseline", c, n] = Pace(0.010)
            for arm, at in gains.items():
                pace[arm, c, n] = Pace(0.010 / (at[c] * (1 + 0.004 * (n - 2))))
    run = SyntheticRun(loads=loads, arms=tuple(gains)).write(tmp_path, pace)
    old = run.manifest()
    fields = {name: getattr(old, name) for name in old.__struct_fields__}
    arms = tuple(
        a if a.method is None else r.ArmRecord(id=a.id, method="eagle3", draft="org/head", k=int(a.id[1:]))
        for a in old.arms
    )
    changes = {"arms": arms, "engine_kind": "vllm", "engine_version": "0.32.0", **manifest}
    write_json(run.path / "manifest.json", r.Manifest(**{**fields, **changes}))
    return run


def shown(result: Result) -> list[str]:
    """The same result in every format for people."""
    console = Console(width=120, record=True, file=io.StringIO())
    render(result, console)
    return [to_markdown(result), to_html(result).replace("&#34;", '"'), console.export_text()]


def test_flags_of_a_suggested_schedule_are_for_this_engine_and_version(tmp_path: Path) -> None:
    result = build(run_of(tmp_path, VARYING))
    assert result.policy is not None
    (schedule,) = result.policy.schedules
    assert schedule.status == "suggested"
    assert [(s.first, s.last, s.k) for s in schedule.steps] == [(1, 1, 5), (2, 4, 2), (5, 16, 0)]
    assert schedule.flags[0] == "--speculative-config"
    assert json.loads(schedule.flags[1]) == {
        "method": "eagle3",
        "model": "org/head",
        "num_speculative_tokens": 5,
        KEY: [[1, 1, 5], [2, 4, 2], [5, 16, 0]],
    }
    for text in shown(result):
        assert "suggestion, not yet measured" in text
        assert "--confirm-policy" in text
        assert f'"{KEY}":[[1,1,5],[2,4,2],[5,16,0]]' in text
        assert "no GO at 16" in text


def test_the_enable_range_has_its_crossover_and_flags(tmp_path: Path) -> None:
    result = build(run_of(tmp_path, VARYING))
    assert result.policy is not None
    by_arm = {x.arm: x for x in result.policy.enable}
    assert (by_arm["k5"].first, by_arm["k5"].last, by_arm["k5"].beyond) == (1, 4, 16)
    low, at, high = by_arm["k5"].crossover_low, by_arm["k5"].crossover, by_arm["k5"].crossover_high
    assert low is not None
    assert at is not None
    assert high is not None
    assert 4 < low < at < high < 16
    assert by_arm["k5"].flags == ("--speculative-config", "{}")


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ({"engine_version": "0.20.0"}, "vLLM 0.20.0 has no num_speculative_tokens_per_batch_size"),
        ({"engine_kind": "sglang", "engine_version": "0.5.6"}, "SGLang has no K by load"),
        ({"engine_kind": "endpoint", "engine_version": "none"}, "servers of kind endpoint"),
    ],
)
def test_an_engine_that_cannot_switch_is_told(tmp_path: Path, engine: dict[str, str], said: str) -> None:
    result = build(run_of(tmp_path, VARYING, **engine))
    assert result.policy is not None
    (schedule,) = result.policy.schedules
    assert schedule.flags == ()
    assert said in (schedule.why_no_flags or "")
    assert said.split("_")[0] in to_markdown(result)


def test_a_run_where_one_arm_always_pays_suggests_nothing(tmp_path: Path) -> None:
    result = build(run_of(tmp_path, {"k5": {1: 1.6, 4: 1.5}}))
    assert result.policy is not None
    assert result.policy.schedules == ()
    assert result.policy.enable[0].beyond is None
    assert "GO at every measured load, 1 to 4" in to_markdown(result)


@pytest.mark.parametrize(
    ("above", "status", "verdict"),
    [(1.0, "recommended", "GO"), (0.6, "rejected", "NO-GO"), (0.972, "open", "INCONCLUSIVE")],
)
def test_a_schedule_is_recommended_only_when_it_does_no_harm_beside_its_switch(
    tmp_path: Path, above: float, status: str, verdict: str
) -> None:
    rows = [[1, 4, 5], [5, 16, 0]]
    arms = (
        r.ArmRecord(id="baseline"),
        r.ArmRecord(id="k5", method="eagle3", draft="org/head", k=5, settings={KEY: rows}),
    )
    run = run_of(
        tmp_path,
        {"k5": {1: 2.0, 4: 1.4, 5: above, 16: 1.0}},
        arms=arms,
        traffic={"c1": 0.5, "c4": 0.4, "c5": 0.0, "c16": 0.1},
        confirms=ConfirmsRecord(run_id="before", arm="k5", ranges=((1, 4, 5), (5, 16, 0)), edges=(4, 5)),
    )
    result = build(run)
    assert result.policy is not None
    (schedule,) = result.policy.schedules
    assert (schedule.status, schedule.confirms, result.verdict) == (status, "before", verdict)
    if status == "recommended":
        assert result.recommended is not None
        assert "measured as an arm of its own" in to_markdown(result)
    else:
        assert result.recommended is None
        assert any("at 5 in flight (K = 0)" in reason for reason in schedule.reasons)


@pytest.mark.parametrize(("gain", "off"), [(0.8, True), (1.05, False)])
def test_a_load_that_is_not_settled_is_no_reason_to_switch_off(
    tmp_path: Path, gain: float, off: bool
) -> None:
    run = analyse(run_of(tmp_path, {"k5": {1: 2.0, 4: gain}}))
    verdict = judge(run)
    assert verdict.at["k5", "c4"].decision == ("NO-GO" if off else "INCONCLUSIVE")
    found = [x.ranges for x in suggestions(run, verdict)]
    assert found == ([(KRange(1, 1, 5), KRange(2, 4, 0))] if off else [])
