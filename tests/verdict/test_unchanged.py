"""Parity comes before speed."""

from __future__ import annotations

from pathlib import Path

import pytest

from specbench.analysis.run import analyse
from specbench.runs.parity import ArmParity, Decision, ParityResult
from specbench.verdict.exit_codes import ExitCode
from specbench.verdict.rule import Verdict, judge
from tests.synthetic import SyntheticRun
from tests.verdict.test_rule import paces

ARM = "ngram-k4"


def found(arm: str, decision: Decision, tier: str = "gate") -> ArmParity:
    return ArmParity(
        arm=arm,
        tier=tier,
        decision=decision,
        headline="the words of the check",
        reasons=(),
        lossy=(),
        escalate=False,
        tokens=1,
        bug_rate_upper95=None,
        loads=(),
    )


def judged(
    tmp_path: Path,
    decision: Decision | None,
    speedup: float = 1.3,
    tier: str = "gate",
) -> Verdict:
    run = SyntheticRun().write(tmp_path, paces({1: speedup, 4: speedup}))
    if decision is not None:
        run.write_parity_result(ParityResult(tier=tier, arms=(found(ARM, decision, tier),)))
    return judge(analyse(run))


def test_changed_output_is_no_go_whatever_the_speed(tmp_path: Path) -> None:
    v = judged(tmp_path, "FAIL", 2.0)
    assert (v.decision, v.exit_code) == ("NO-GO", ExitCode.NO_GO_PARITY)
    assert v.headline == "Speculation changes the output: ngram-k4 must not be deployed."
    assert "the words of the check" in v.reasons[0]
    assert v.choice is None


def test_fast_but_not_shown_to_be_the_same_is_inconclusive(tmp_path: Path) -> None:
    v = judged(tmp_path, "INCONCLUSIVE")
    assert (v.decision, v.exit_code) == ("INCONCLUSIVE", ExitCode.INCONCLUSIVE)
    assert "is not shown: the words of the check" in v.reasons[0]
    assert v.grade == "C"
    assert v.choice is None


def test_slow_stays_slow_without_parity(tmp_path: Path) -> None:
    v = judged(tmp_path, "INCONCLUSIVE", 0.8)
    assert (v.decision, v.exit_code) == ("NO-GO", ExitCode.NO_GO_SPEED)


@pytest.mark.parametrize(("tier", "grade"), [("gate", "A"), ("nightly", "A"), ("smoke", "B")])
def test_a_pass_lifts_the_grade(tmp_path: Path, tier: str, grade: str) -> None:
    v = judged(tmp_path, "PASS", tier=tier)
    assert (v.decision, v.grade) == ("GO", grade)


def test_without_a_check_the_grade_says_so(tmp_path: Path) -> None:
    v = judged(tmp_path, None)
    assert (v.decision, v.grade) == ("GO", "C")
    assert any("parity was not run" in r for r in v.grade_reasons)


def test_another_arm_may_still_win(tmp_path: Path) -> None:
    pace = paces({1: 1.3, 4: 1.3}) | paces({1: 1.2, 4: 1.2}, arm="draft-k3")
    run = SyntheticRun(arms=(ARM, "draft-k3")).write(tmp_path, pace)
    run.write_parity_result(ParityResult(tier="gate", arms=(found(ARM, "FAIL"), found("draft-k3", "PASS"))))
    v = judge(analyse(run))
    assert (v.decision, v.exit_code) == ("GO", ExitCode.OK)
    assert v.choice is not None
    assert v.choice.arm == "draft-k3"
