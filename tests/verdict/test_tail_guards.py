"""Tail latencies as guardrails of a sweep of fixed rounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from specbench.analysis.run import analyse
from specbench.runs import records as r
from specbench.verdict.exit_codes import ExitCode
from specbench.verdict.rule import Verdict, judge
from tests.synthetic import Pace, SyntheticRun

BASE_FIRST_S = 0.05
ROUNDS = (1, 2, 3)


def _judged(
    tmp_path: Path,
    first_s: tuple[float, float, float],
    *,
    gain: float = 2.0,
    arms: tuple[str, ...] = ("ngram-k4",),
    margins: dict[str, float] | None = None,
    per_slot: int = 60,
) -> Verdict:
    """Arms that are faster by ``gain``, with the TTFT of each round over the baseline's."""
    pace: dict[tuple[str, int, int], Pace | str | None] = {}
    for n, first in zip(ROUNDS, first_s, strict=True):
        pace["baseline", 4, n] = Pace(0.01, first_s=BASE_FIRST_S)
        for arm in arms:
            pace[arm, 4, n] = Pace(0.01 / (gain * (1 + 0.01 * n)), first_s=BASE_FIRST_S * first)
    rule = r.RuleRecord(margins={"ttft_p95": 0.15} if margins is None else margins)
    run = SyntheticRun(loads=(4,), arms=arms, per_slot=per_slot, rule=rule)
    return judge(analyse(run.write(tmp_path, pace)))


def test_a_tail_within_its_margin_leaves_a_go(tmp_path: Path) -> None:
    verdict = _judged(tmp_path, (1.00, 1.02, 1.04))
    assert verdict.decision == "GO"
    assert verdict.guards == {("ttft_p95", "ngram-k4", "c4"): "pass"}


def test_a_tail_that_is_clearly_worse_is_no_go_whatever_the_speed(tmp_path: Path) -> None:
    verdict = _judged(tmp_path, (1.39, 1.40, 1.41))
    assert (verdict.decision, verdict.exit_code) == ("NO-GO", ExitCode.NO_GO_GUARDRAIL)
    reason = verdict.arms["ngram-k4"].reasons[0]
    assert reason.startswith("TTFT p95 at c4 is 1.40 times the baseline's [1.38, 1.42]")
    assert "more than the allowed 1.15" in reason
    assert verdict.at["ngram-k4", "c4"].decision == "NO-GO"


def test_a_tail_that_may_be_worse_is_no_go_ahead(tmp_path: Path) -> None:
    verdict = _judged(tmp_path, (1.00, 1.12, 1.24))
    assert (verdict.decision, verdict.exit_code) == ("INCONCLUSIVE", ExitCode.INCONCLUSIVE)
    assert "whether it keeps the allowed 1.15 is open" in verdict.arms["ngram-k4"].reasons[-1]


def test_a_slow_arm_stays_no_go_for_its_speed(tmp_path: Path) -> None:
    verdict = _judged(tmp_path, (1.00, 1.12, 1.24), gain=0.5)
    assert (verdict.decision, verdict.exit_code) == ("NO-GO", ExitCode.NO_GO_SPEED)


@pytest.mark.parametrize(("margins", "per_slot"), [({}, 60), ({"ttft_p95": 0.15}, 20)])
def test_without_a_margin_or_enough_requests_a_tail_decides_nothing(
    tmp_path: Path, margins: dict[str, float], per_slot: int
) -> None:
    verdict = _judged(tmp_path, (1.39, 1.40, 1.41), margins=margins, per_slot=per_slot)
    assert verdict.decision == "GO"
    assert verdict.guards == {}


def test_a_pass_is_harder_among_several_arms(tmp_path: Path) -> None:
    wide = (1.00, 1.04, 1.08)
    assert _judged(tmp_path / "one", wide).decision == "GO"
    many = _judged(tmp_path / "many", wide, arms=("a-k1", "b-k1", "c-k1", "d-k1"))
    assert set(many.guards.values()) == {"open"}
    assert many.decision == "INCONCLUSIVE"
