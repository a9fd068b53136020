"""Greedy parity: how much each emitted token falls short of the baseline's best one, given the same text.

Correct engines do not give the same greedy text: rounding differs between kernels and batch sizes, ties flip,
and after the first flip everything differs. So texts are not compared; every token of every output is scored
by one baseline, and regret = max log p - log p(token) is compared between an arm and the baseline itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from specbench.parity.counting import Counted
from specbench.parity.data import UNKNOWN, Floats, Logprobs, ScoredSequence, Tokens

HARD_NAT: Final = 1.5
SOFT_NAT: Final = 0.25
SOFT_QUANTILE: Final = 0.999
ULPS: Final = (0.5, 0.25, 0.125, 0.0625, 0.03125)
"""Spacings of bfloat16 and float16 logits that show in differences of logprobs."""
GRID_TOLERANCE_NAT: Final = 1e-3
GRID_SHARE: Final = 0.6


def regrets(tokens: Tokens) -> Floats:
    """[N] log p of the likeliest token less that of the emitted one; nats, 0 or more."""
    return np.maximum(tokens.top_logprobs[:, 0].astype(np.float64) - tokens.logprobs, 0.0)


def logit_ulp(tokens: Tokens) -> float:
    """Spacing of the engine's logits in nats as their differences show it; 0 when they look continuous."""
    if tokens.top_logprobs.shape[1] < 2:
        return 0.0
    return spacing(tokens.top_logprobs[:, 0] - tokens.top_logprobs[:, 1])


def spacing(gaps: Floats | Logprobs) -> float:
    """The grid in nats on which most gaps between the two likeliest tokens lie, [n]; 0 when they look continuous."""
    for ulp in ULPS:
        off = np.abs(gaps - ulp * np.round(gaps / ulp))
        if (off < GRID_TOLERANCE_NAT).mean() >= GRID_SHARE:
            return ulp
    return 0.0


@dataclass(frozen=True, slots=True)
class GreedyTests:
    """Regrets of an arm against those of the baseline's own outputs.

    Attributes:
        tokens: scored tokens of the arm.
        hard_nat: a larger regret is no rounding; 1.5, or twice the baseline's largest if that is more.
        soft_nat: 0.25, 2 ULP of the logits, or the baseline's 99.9% quantile, whichever is most.
        hard, soft: tokens above them.
        worst_nat, baseline_worst_nat: largest regrets.
    """

    tokens: int
    hard_nat: float
    soft_nat: float
    hard: Counted
    soft: Counted
    worst_nat: float
    baseline_worst_nat: float

    @property
    def p_hard(self) -> float:
        """0 when the arm has a regret that the baseline never comes near, else 1: a rule, not a test."""
        return 0.0 if self.hard.arm else 1.0

    @property
    def p_soft(self) -> float:
        """One-sided: more tokens above the soft threshold than the baseline."""
        return self.soft.p_more


def greedy_tests(arm: Tokens, baseline: Tokens) -> GreedyTests:
    """Hard and soft test of greedy outputs; both arms scored by one baseline."""
    own, base = regrets(arm), regrets(baseline)
    worst = float(base.max(initial=0.0))
    hard = max(HARD_NAT, 2 * worst)
    # One binade above the typical logit the spacing is twice as wide, hence 2 ULP.
    quantile = float(np.quantile(base, SOFT_QUANTILE))
    soft = max(SOFT_NAT, 2 * logit_ulp(baseline), quantile)
    return GreedyTests(
        tokens=len(arm),
        hard_nat=hard,
        soft_nat=soft,
        hard=Counted(int((own > hard).sum()), len(own), int((base > hard).sum()), len(base)),
        soft=Counted(int((own > soft).sum()), len(own), int((base > soft).sum()), len(base)),
        worst_nat=float(own.max(initial=0.0)),
        baseline_worst_nat=worst,
    )


Cause = Literal["tie", "rounding", "unexplained"]


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where a greedy output first leaves the baseline's.

    Attributes:
        index: place in the output, from 0.
        margin_nat: distance of the two tokens by the baseline's own score of the same text.
        position: place in the engine step; null if unknown.
        after_rejection: whether the step follows a rejected draft; null if unknown.
        cause: equal logits, a margin that rounding explains, or neither.
    """

    prompt_id: str
    index: int
    margin_nat: float
    position: int | None
    after_rejection: bool | None
    cause: Cause


def first_divergences(
    arm: Sequence[ScoredSequence], baseline: Sequence[ScoredSequence], soft_nat: float, ulp: float = 0.0
) -> list[Divergence]:
    """The first difference of each pair of outputs to the same prompt; equal outputs are left out."""
    by_prompt = {s.prompt_id: s for s in baseline}
    found = []
    for own in arm:
        other = by_prompt.get(own.prompt_id)
        if other is None:
            continue
        n = min(len(own.output_ids), len(other.output_ids))
        differ = np.flatnonzero(own.output_ids[:n] != other.output_ids[:n])
        if not len(differ):
            continue
        at = int(differ[0])
        margin = abs(float(own.logprobs[at]) - _logprob_of(own, at, int(other.output_ids[at])))
        cause: Cause = "unexplained"
        if margin <= max(ulp, GRID_TOLERANCE_NAT):
            cause = "tie"
        elif margin <= soft_nat:
            cause = "rounding"
        position = UNKNOWN if own.positions is None else int(own.positions[at])
        found.append(
            Divergence(
                prompt_id=own.prompt_id,
                index=at,
                margin_nat=margin,
                position=None if position == UNKNOWN else position,
                after_rejection=None if own.after_rejection is None else bool(own.after_rejection[at]),
                cause=cause,
            )
        )
    return found


def _logprob_of(sequence: ScoredSequence, at: int, token: int) -> float:
    """log p of another token at a place; below the list, the least it can be told to lie under."""
    listed = np.flatnonzero(sequence.top_ids[at] == token)
    return float(sequence.top_logprobs[at, listed[0] if len(listed) else -1])
