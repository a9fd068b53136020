"""Equivalence of task scores: what it promises, measured on seeded sets of correct and of worse arms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from specbench.parity.data import Role, ScoredSequence, to_table
from specbench.parity.task import Graded, compare, interval, judge_task, not_shown, with_task
from specbench.parity.task_outputs import digest_of, outputs_of
from specbench.parity.task_power import largest_discordant, prompts_needed
from specbench.runs.parity import ArmParity, Decision, TaskParity
from tests.parity.test_data import output

Scores = Sequence[Graded]


def graded(scores: Iterable[float], temperature: float = 0.0) -> list[Graded]:
    return [Graded(f"p{i}", temperature, float(x)) for i, x in enumerate(scores)]


def pair(
    rng: np.random.Generator, n: int, *, arm: int = 2, shift: float = 0.0, sure: float = 0.2
) -> tuple[Scores, Scores]:
    """Right or wrong answers: each prompt has a chance of its own, ``arm`` outputs of the arm, 2 of the baseline."""
    chance = rng.beta(sure, sure, n)
    own = [Graded(f"p{i}", 1.0, float(x)) for i in range(n) for x in rng.random(arm) < chance[i] - shift]
    base = [Graded(f"p{i}", 1.0, float(x)) for i in range(n) for x in rng.random(2) < chance[i]]
    return own, base


def discordant(n: int, share: float, drop: float, rng: np.random.Generator) -> tuple[Scores, Scores]:
    """One output each; ``share`` of the prompts are scored differently, the arm's mean is ``drop`` lower."""
    u, right = rng.random(n), rng.random(n) < 0.7
    worse, better = u < (share + drop) / 2, (u >= (share + drop) / 2) & (u < share)
    return graded(np.where(worse, 0, np.where(better, 1, right))), graded(
        np.where(worse, 1, np.where(better, 0, right))
    )


def test_correct_arms_do_not_fail() -> None:
    rng = np.random.default_rng(5)
    # 1,000 sets of all sizes and both designs; 0.001 is allowed, so more than 3 has a chance of 0.02.
    sizes = [(64, 1)] * 25 + [(64, 2)] * 25 + [(100, 1)] * 475 + [(128, 2)] * 475
    decisions = [compare(*pair(rng, n, arm=arm), margin=0.02).decision for n, arm in sizes]
    assert len(decisions) == 1_000
    assert decisions.count("FAIL") <= 3
    assert decisions.count("NOT SHOWN") > 950  # so few prompts settle nothing


def test_equality_is_shown_as_often_as_the_formula_promises() -> None:
    assert prompts_needed(0.05, 0.02) == 1354
    n = prompts_needed(0.10, 0.02)
    assert n == 2707
    rng = np.random.default_rng(6)
    assert compare(*discordant(n, 0.10, 0.0, rng), margin=0.02).decision == "EQUIVALENT"
    shown = 0
    for _ in range(400):
        u = rng.random(n)
        _, low, high = interval((u < 0.05).astype(float) - (u > 0.95))
        shown += low > -0.02 and high < 0.02
    assert 340 <= shown <= 378  # promised are 90%: 360 +- 6


@pytest.mark.parametrize(("n", "share"), [(1354, 0.05), (256, 0.02), (512, 0.03)])
def test_an_arm_at_the_margin_is_seldom_called_equal(n: int, share: float) -> None:
    rng = np.random.default_rng(7)
    equal = 0
    for _ in range(1000):
        u = rng.random(n)
        worse, better = u < (share + 0.02) / 2, (u >= (share + 0.02) / 2) & (u < share)
        _, low, high = interval(better.astype(float) - worse)
        equal += low > -0.02 and high < 0.02
    assert equal < 80  # 50 +- 7; without the exact bounds 256 prompts would give 115


def test_five_points_less_fail() -> None:
    rng = np.random.default_rng(8)
    for _ in range(5):
        found = compare(*discordant(2000, 0.15, 0.05, rng), margin=0.02)
        assert found.decision == "FAIL"
    assert found.difference is not None
    assert found.p is not None
    assert found.p < 0.001
    assert -0.09 < found.difference.low < found.difference.high < -0.02
    assert "not the same (difference -0.0" in found.words


def test_a_broken_arm_fails_on_few_prompts_too() -> None:
    found = compare(graded([0.0] * 64), graded([1.0] * 64), margin=0.02)
    assert (found.decision, found.p) == ("FAIL", 1 / 20_000)
    rng = np.random.default_rng(9)
    own, base = pair(rng, 64, shift=0.6)
    assert compare(own, base, margin=0.02).decision == "FAIL"


@pytest.mark.parametrize(("n", "decision"), [(149, "NOT SHOWN"), (150, "EQUIVALENT")])
def test_no_difference_at_all_needs_three_over_n_below_the_margin(n: int, decision: str) -> None:
    found = compare(graded([1.0, 0.0] * (n // 2) + [1.0] * (n % 2)), graded([1.0, 0.0] * (n // 2) + [1.0] * (n % 2)),
                    margin=0.02)  # fmt: skip
    assert found.decision == decision
    assert found.difference is not None
    assert found.difference.high == pytest.approx(2.9957 / n, rel=1e-4)
    assert found.difference.low == -found.difference.high
    assert found.p == 1.0
    assert found.prompts_needed == (150 if decision == "NOT SHOWN" else None)


def test_the_prompt_is_the_unit() -> None:
    """Loads, temperatures and repeats of a prompt add no evidence: the same answers again change nothing."""
    rng = np.random.default_rng(10)
    own, base = discordant(120, 0.2, 0.0, rng)
    once = compare(own, base, margin=0.02)
    more = compare([*own, *own], [*base, *base], margin=0.02)
    hot = [Graded(x.prompt, 1.0, x.score) for x in (*own,)], [Graded(x.prompt, 1.0, x.score) for x in base]
    both = compare([*own, *hot[0]], [*base, *hot[1]], margin=0.02)
    assert once.prompts == more.prompts == both.prompts == 120
    assert once.difference is not None
    assert more.difference is not None
    assert both.difference is not None
    assert more.difference.low == pytest.approx(once.difference.low)
    assert both.difference.high == pytest.approx(once.difference.high)


def test_open_says_how_many_prompts_it_would_take() -> None:
    own, base = graded([1.0] * 95 + [0.0] * 5), graded([0.0] * 5 + [1.0] * 95)
    found = compare(own, base, margin=0.02)
    assert found.decision == "NOT SHOWN"
    assert found.prompts_needed == prompts_needed(0.1 * 100 / 99, 0.02)
    assert found.words == (
        "task: mean score 0.9500, the baseline's 0.9500, on 100 prompts: not shown to be equal within 0.02 "
        "(difference +0.0000, 90% CI -0.0528..+0.0528); about 2,734 prompts would show it if nothing differs"
    )
    near = compare(*discordant(4000, 0.05, 0.018, np.random.default_rng(3)), margin=0.005)
    assert near.decision == "FAIL"


def test_what_cannot_be_compared_says_why() -> None:
    assert "1 prompts have scores" in compare(graded([1.0]), graded([1.0]), margin=0.02).words
    other = [Graded("elsewhere", 0.0, 1.0), Graded("p0", 1.0, 1.0)]
    assert compare(graded([1.0] * 9), other, margin=0.02).prompts == 0


def test_what_a_number_of_prompts_can_settle() -> None:
    share = largest_discordant(256, 0.02)
    assert share is not None
    assert share == pytest.approx(0.00946, rel=1e-3)
    assert prompts_needed(share, 0.02) == 256
    assert largest_discordant(64, 0.02) is None
    assert prompts_needed(0.0, 0.02) == 150


def arm(decision: Decision, *reasons: str) -> ArmParity:
    return ArmParity(
        arm="x",
        tier="gate",
        decision=decision,
        headline=reasons[0] if reasons else "equivalent",
        reasons=reasons,
        lossy=(),
        escalate=decision == "INCONCLUSIVE",
        tokens=1,
        bug_rate_upper95=None,
        loads=(),
    )


EQUAL = TaskParity(margin=0.02, decision="EQUIVALENT", words="task: equal")
WORSE = TaskParity(margin=0.02, decision="FAIL", words="task: worse")
OPEN = not_shown("why", 0.02)


def test_how_the_task_joins_the_rest() -> None:
    for decision, reasons in (("PASS", ()), ("INCONCLUSIVE", ("few",)), ("FAIL", ("bug",))):
        before = arm(decision, *reasons)  # type: ignore[arg-type]
        equal, worse, open_ = (with_task(before, t) for t in (EQUAL, WORSE, OPEN))
        assert (equal.decision, equal.headline, equal.reasons) == (decision, before.headline, before.reasons)
        assert equal.task is EQUAL
        assert worse.decision == "FAIL"
        assert not worse.escalate
        assert worse.headline == ("bug" if decision == "FAIL" else "task: worse")
        assert open_.decision == ("INCONCLUSIVE" if decision == "PASS" else decision)
        assert open_.headline == ("task: not shown: why" if decision == "PASS" else before.headline)
        assert "task: not shown: why" in open_.reasons


def test_stored_outputs_are_paired_with_their_baseline() -> None:
    def written(role: Role, arm: str, prompts: Sequence[str], **changes: Any) -> list[ScoredSequence]:
        return [output(role=role, arm=arm, prompt_id=p, text=f"{arm} {p}", **changes) for p in prompts]

    prompts = ["a", "b", "c", "a#2"]
    tables = {
        "S-x-c1": to_table(written(Role.S, "x", prompts)),
        "S-y-c1": to_table(written(Role.S, "y", prompts)),
        "A-baseline-c1": to_table(written(Role.A, "baseline", prompts)),
        "A2-baseline-c8": to_table(written(Role.A2, "baseline", prompts)),
        "S-x-c1@draft": to_table(written(Role.S, "x", prompts, scorer="draft")),
    }
    outputs = outputs_of(tables)
    assert [x.id for x in outputs if x.arm == "x"] == ["S-x-c1/0", "S-x-c1/1", "S-x-c1/2", "S-x-c1/3"]
    scores = {x.id: float(x.arm == "baseline" and x.prompt != "b") for x in outputs}
    found = judge_task("x", "baseline", outputs, scores, 0.02)
    assert found.prompts == 3
    assert found.mean_arm == pytest.approx(0.0)
    assert found.mean_baseline == pytest.approx(2 / 3)
    assert "no output of this arm" in judge_task("z", "baseline", outputs, scores, 0.02).words
    assert "no output of the baseline" in judge_task("x", "baseline@b", outputs, scores, 0.02).words
    digest = digest_of(outputs)
    assert digest_of(reversed(outputs)) == digest
    tables["S-y-c1"] = to_table(written(Role.S, "y", [*prompts[:3], "d"]))
    assert digest_of(outputs_of(tables)) != digest
