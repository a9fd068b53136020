"""Guardrails at open rates: what they do to a GO."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import pytest

from specbench.analysis.open_check import CheckedRate, OpenCheck
from specbench.analysis.run import RunAnalysis, analyse
from specbench.analysis.tails import METRICS, Tail
from specbench.report.policy import open_check_notes, open_check_result
from specbench.runs.checks import OpenCheckLoad, OpenCheckRecord
from specbench.verdict.open_check import checked, guarded, settled
from specbench.verdict.registered import rule_digest
from specbench.verdict.rule import judge
from tests.synthetic import Pace, SyntheticRun

RECORD = OpenCheckRecord(
    loads=(OpenCheckLoad(id="check90", share=0.9, requests=1200, workload_digest="0" * 64),),
    rounds=6,
    first_look=3,
    margins={"ttft_p95": 0.15, "tpot_p99": 0.10},
)
CALM = (1.0, 1.01, 0.99)


def analysed(tmp_path: Path, check: OpenCheck | None = None, **limits: Any) -> RunAnalysis:
    """Two arms that are GO, a by 1.6 and b by 1.3; ``check`` is laid over it with the cells of a."""
    pace: dict[tuple[str, int, int], Pace | str | None] = {}
    for n in (1, 2, 3):
        pace["baseline", 4, n] = Pace(0.010)
        pace["a", 4, n] = Pace(0.010 / (1.6 * (1 + 0.004 * (n - 2))))
        pace["b", 4, n] = Pace(0.010 / (1.3 * (1 + 0.004 * (n - 2))))
    run = analyse(SyntheticRun(loads=(4,), arms=("a", "b"), per_slot=80).write(tmp_path, pace))
    manifest = msgspec.structs.replace(run.manifest, open_check=RECORD, **limits)
    return dataclasses.replace(run, manifest=manifest, open_check=check or OpenCheck())


def check_of(run: RunAnalysis, *, over: bool = True, fail: int = 0, **ratios: tuple[float, ...]) -> OpenCheck:
    """Tails by metric; what is not named has too few values."""
    tails = {
        metric.id: Tail(metric, dict(enumerate(ratios[metric.id], start=1)))
        if metric.id in ratios
        else Tail(metric, {}, "not estimable: too few values")
        for metric in METRICS
    }
    own = run.at["a", "c4"].cells
    if fail:
        own = tuple(dataclasses.replace(c, failed_requests=fail) for c in own)
    rate = CheckedRate("check90", 0.9, 4.5, own, run.at["baseline", "c4"].cells, tails)
    return OpenCheck("a", "baseline", "c4", 5.0, (rate,), over, "all pairs were run" if over else "")


def verdict(tmp_path: Path, over: bool = True, fail: int = 0, **ratios: tuple[float, ...]) -> Any:
    run = analysed(tmp_path)
    return judge(dataclasses.replace(run, open_check=check_of(run, over=over, fail=fail, **ratios)))


def test_a_go_waits_for_the_check(tmp_path: Path) -> None:
    run = analysed(tmp_path)
    found = judge(run)
    assert found.decision == "INCONCLUSIVE"
    assert found.choice is None
    assert "has not run yet" in found.reasons[0]
    assert not run.complete
    without = judge(run, open_check=False)
    assert (without.decision, without.choice and without.choice.arm) == ("GO", "a")


def test_guardrails_that_hold_leave_the_go(tmp_path: Path) -> None:
    found = verdict(tmp_path, ttft_p95=CALM, tpot_p99=CALM)
    assert (found.decision, found.choice.arm) == ("GO", "a")
    assert found.arms["b"].decision == "GO"


def test_a_guardrail_that_fails_frees_no_other_arm(tmp_path: Path) -> None:
    found = verdict(tmp_path, ttft_p95=(1.5, 1.52, 1.48), tpot_p99=CALM)
    assert found.arms["a"].decision == "NO-GO"
    assert found.arms["a"].guardrail
    assert (
        "open loop: TTFT p95 at 4.5 requests/s (90% of the baseline's) is 1.50" in found.arms["a"].reasons[0]
    )
    assert found.arms["b"].decision == "INCONCLUSIVE"
    assert "a was checked in an open loop, not this arm" in found.arms["b"].reasons[-1]
    assert (found.decision, found.choice) == ("INCONCLUSIVE", None)


def test_failed_requests_are_a_guardrail(tmp_path: Path) -> None:
    found = verdict(tmp_path, ttft_p95=CALM, fail=5)
    assert found.arms["a"].decision == "NO-GO"
    assert "of the requests failed" in found.arms["a"].reasons[0]


def test_what_is_open_is_looked_at_again_and_then_inconclusive(tmp_path: Path) -> None:
    run = analysed(tmp_path)
    wide = check_of(run, over=False, ttft_p95=(0.8, 1.3, 1.05))
    assert not settled(dataclasses.replace(run, open_check=wide))
    calm = check_of(run, over=False, ttft_p95=CALM)
    assert settled(dataclasses.replace(run, open_check=calm))
    found = verdict(tmp_path / "b", ttft_p95=(0.8, 1.3, 1.05))
    assert found.arms["a"].decision == "INCONCLUSIVE"
    assert found.decision == "INCONCLUSIVE"


def test_what_cannot_be_estimated_decides_nothing_and_is_told(tmp_path: Path) -> None:
    run = analysed(tmp_path)
    run = dataclasses.replace(run, open_check=check_of(run, ttft_p95=CALM))
    assert checked(run).state == "pass"
    states = {g.metric: g.state for g in guarded(run)}
    assert states == {"errors": "pass", "ttft_p95": "pass", "tpot_p99": None}
    result = open_check_result(run)
    assert result is not None
    assert (result.state, result.rates[0].pairs) == ("pass", 3)


@pytest.mark.parametrize(("limit_ms", "state"), [(1.0, "fail"), (500.0, "pass")])
def test_absolute_limits_are_tested_on_the_percentile(tmp_path: Path, limit_ms: float, state: str) -> None:
    run = analysed(tmp_path)
    run = dataclasses.replace(run, open_check=check_of(run, ttft_p95=CALM))
    limited = dataclasses.replace(
        run, manifest=msgspec.structs.replace(run.manifest, ttft_p95_limit_ms=limit_ms)
    )
    states = {g.metric: g.state for g in guarded(limited)}
    assert states["ttft_p95_limit"] == state


def test_the_check_is_part_of_the_registered_rule(tmp_path: Path) -> None:
    run = analysed(tmp_path)
    other = msgspec.structs.replace(run.manifest, open_check=msgspec.structs.replace(RECORD, rounds=7))
    none = msgspec.structs.replace(run.manifest, open_check=None)
    assert len({rule_digest(m) for m in (run.manifest, other, none)}) == 3


def test_lost_cells_of_the_check_are_told(tmp_path: Path) -> None:
    run = analysed(tmp_path)
    check = check_of(run, ttft_p95=CALM)
    lost = dataclasses.replace(check.rates[0].arm[0], invalid=["offered 9/s, delivered 7/s"])
    rate = dataclasses.replace(check.rates[0], arm=(lost, *check.rates[0].arm[1:]))
    run = dataclasses.replace(run, open_check=dataclasses.replace(check, rates=(rate,)))
    messages = [n.message for n in open_check_notes(run)]
    assert "a at check90, round 1: offered 9/s, delivered 7/s" in messages
    result = open_check_result(run)
    assert result is not None
    assert result.rates[0].pairs == 2
