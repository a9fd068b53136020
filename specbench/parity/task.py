"""Do an arm's outputs solve a task as well as the baseline's? Equivalence of mean scores, paired by prompt.

A different and weaker question than the rest of parity: a PASS never comes from it, a FAIL may.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
from scipy import special

from specbench.parity.data import Floats, Role
from specbench.parity.task_outputs import Output
from specbench.parity.task_power import prompts_needed
from specbench.runs.parity import ArmParity, Interval, TaskDecision, TaskParity

FAIL_BELOW: Final = 0.001
"""Two-sided."""

SMALL: Final = 100
"""With fewer prompts a permutation test takes the place of the t test, which trusts in the normal law."""

PERMUTATIONS: Final = 19_999
BATCH: Final = 1_000
"""Permutations at once: bounds the memory."""

FEW_DIFFER: Final = 10
"""With fewer differing prompts a variance is not known: exact bounds on their share limit the interval too."""


@dataclass(frozen=True, slots=True)
class Graded:
    """The score of one output, 0 to 1."""

    prompt: str
    temperature: float
    score: float


@dataclass(frozen=True, slots=True)
class _Group:
    """Scores of one prompt at one temperature, and its weight in the mean difference of that prompt."""

    arm: tuple[float, ...]
    baseline: tuple[float, ...]
    weight: float

    @property
    def difference(self) -> float:
        return self.weight * (_mean(self.arm) - _mean(self.baseline))


def judge_task(
    arm: str, baseline: str, outputs: Sequence[Output], scores: Mapping[str, float], margin: float
) -> TaskParity:
    """Compare an arm with its baseline (A and A') from stored scores by output id."""

    def graded(found: Iterable[Output]) -> list[Graded]:
        return [Graded(x.prompt, x.temperature, scores[x.id]) for x in found]

    own = graded(x for x in outputs if x.arm == arm and x.role == Role.S)
    base = graded(x for x in outputs if x.arm == baseline and x.role != Role.S)
    if not own or not base:
        return not_shown(f"no output of {'this arm' if base else 'the baseline'} was scored", margin)
    return compare(own, base, margin)


def not_shown(why: str, margin: float) -> TaskParity:
    """A task part without numbers."""
    return TaskParity(margin=margin, decision="NOT SHOWN", words=f"task: not shown: {why}")


def compare(own: Sequence[Graded], base: Sequence[Graded], margin: float) -> TaskParity:
    """TOST of the mean score, arm less baseline, with the prompt as the unit.

    The difference of a prompt is the mean over its temperatures of mean(arm's scores) - mean(baseline's). Equal if
    its mean's 90 % t interval lies inside ``margin`` on both sides (Schuirmann 1987, two one-sided tests at 5 %).
    """
    prompts = _pair(own, base)
    n = len(prompts)
    if n < 2:
        return not_shown(f"{n} prompts have scores of both the arm and the baseline", margin)
    groups = [g for found in prompts for g in found]
    d = np.array([sum(g.difference for g in found) for found in prompts])
    mean_base = sum(g.weight * _mean(g.baseline) for g in groups) / n
    p = p_value(d, groups)
    # Bounds that ignore how prompts cancel are for claims of equality; beside such a p they would only confuse.
    value, low, high = interval(d, exact=p >= FAIL_BELOW)
    needed: int | None = None
    decision: TaskDecision
    size = f"difference {value:+.4f}, 90% CI {low:+.4f}..{high:+.4f}"
    means = f"task: mean score {mean_base + value:.4f}, the baseline's {mean_base:.4f}, on {n:,} prompts"
    if -margin < low and high < margin:
        decision, words = "EQUIVALENT", f"{means}: equal within {margin:g} ({size})"
    elif p < FAIL_BELOW and (low > 0.0 or high < 0.0):
        decision, words = "FAIL", f"{means}: not the same ({size}, p = {p:.1e})"
    else:
        needed = prompts_needed(float(d.var(ddof=1)), margin)
        more = (
            f"about {needed:,} prompts would show it if nothing differs"
            if needed > n
            else "the difference is too near to the margin for this many prompts"
        )
        decision, words = "NOT SHOWN", f"{means}: not shown to be equal within {margin:g} ({size}); {more}"
    return TaskParity(
        prompts=n,
        mean_arm=mean_base + value,
        mean_baseline=mean_base,
        difference=Interval(value=value, low=low, high=high),
        p=p,
        margin=margin,
        prompts_needed=needed,
        decision=decision,
        words=words,
    )


def interval(d: Floats, *, exact: bool = True) -> tuple[float, float, float]:
    """Mean of the differences [n] with its 90 % interval.

    Student's t; if ``exact`` and few prompts differ also no narrower than the exact (Poisson) 95 % bounds on the
    share of prompts that are better, and worse: a score moves by 1 at most, so neither mean part exceeds that
    share. With no difference at all the interval is 3/n on both sides.
    """
    n, mean = len(d), float(d.mean())
    half = float(special.stdtrit(n - 1, 0.95)) * float(d.std(ddof=1)) / n**0.5
    low, high = mean - half, mean + half
    better, worse = int((d > 0).sum()), int((d < 0).sum())
    if exact and better + worse < FEW_DIFFER:
        low, high = min(low, -_upper95(worse) / n), max(high, _upper95(better) / n)
    return mean, max(low, -1.0), min(high, 1.0)


def p_value(d: Floats, groups: Sequence[_Group]) -> float:
    """Two-sided p of "the mean difference is 0": paired t, or a permutation test for few prompts."""
    n, spread = len(d), float(d.std(ddof=1))
    if not d.any():
        return 1.0
    if n < SMALL or spread == 0.0:
        return _permuted(groups)
    t = abs(float(d.mean())) / (spread / n**0.5)
    return 2.0 * float(special.stdtr(n - 1, -t))


def with_task(arm: ArmParity, task: TaskParity) -> ArmParity:
    """Let the task part join an arm's result: it can take a PASS away, and fail an arm; it never makes a PASS."""
    if task.decision == "EQUIVALENT":
        return msgspec.structs.replace(arm, task=task)
    if task.decision == "FAIL":
        lead = arm.decision != "FAIL"
        return msgspec.structs.replace(
            arm,
            task=task,
            decision="FAIL",
            headline=task.words if lead else arm.headline,
            reasons=(task.words, *arm.reasons) if lead else (*arm.reasons, task.words),
            escalate=False,
        )
    passed = arm.decision == "PASS"
    return msgspec.structs.replace(
        arm,
        task=task,
        decision="INCONCLUSIVE" if passed else arm.decision,
        headline=task.words if passed else arm.headline,
        reasons=(*arm.reasons, task.words),
    )


def _pair(own: Sequence[Graded], base: Sequence[Graded]) -> list[list[_Group]]:
    """Per prompt its temperatures at which both have scores."""
    mine, theirs = _by_prompt(own), _by_prompt(base)
    paired = []
    for prompt, temperatures in mine.items():
        both = [t for t in temperatures if t in theirs.get(prompt, {})]
        if both:
            paired.append(
                [_Group(tuple(temperatures[t]), tuple(theirs[prompt][t]), 1 / len(both)) for t in both]
            )
    return paired


def _by_prompt(graded: Sequence[Graded]) -> dict[str, dict[float, list[float]]]:
    found: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for x in graded:
        found[x.prompt][x.temperature].append(x.score)
    return found


def _permuted(groups: Sequence[_Group]) -> float:
    """Exact test that the arm's outputs are the baseline's: who wrote which output of a prompt is shuffled.

    Of outputs of one prompt and temperature; valid for any scores and any number of outputs on either side, where
    flipping signs would need as many on both. A seeded sample of the permutations, with p = (1 + k) / (1 + N)
    (Phipson and Smyth 2010), which is valid as it stands.
    """
    rng = np.random.default_rng(1)
    shapes: dict[tuple[int, int], list[_Group]] = defaultdict(list)
    for g in groups:
        if len({*g.arm, *g.baseline}) > 1:  # shuffling equal scores changes nothing
            shapes[len(g.arm), len(g.baseline)].append(g)
    observed = abs(sum(g.difference for g in groups))
    sums = np.zeros(PERMUTATIONS)
    for (m, k), same in shapes.items():
        rows = np.array([[*g.arm, *g.baseline] for g in same])
        weights = np.array([g.weight for g in same])
        signs = np.concatenate([np.full(m, 1 / m), np.full(k, -1 / k)])
        for start in range(0, PERMUTATIONS, BATCH):
            batch = sums[start : start + BATCH]
            shuffled = rng.permuted(np.broadcast_to(rows, (len(batch), *rows.shape)), axis=2)
            batch += (shuffled @ signs) @ weights
    extreme = int((np.abs(sums) >= observed - 1e-9).sum())
    return (1 + extreme) / (1 + PERMUTATIONS)


def _mean(scores: Sequence[float]) -> float:
    return sum(scores) / len(scores)


def _upper95(count: int) -> float:
    """Exact upper 95 % bound of a Poisson mean."""
    return float(special.chdtri(2 * (count + 1), 0.05)) / 2
