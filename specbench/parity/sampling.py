"""Sampled parity: tests of scores, tokens that sampling cannot give, and the size of what was not found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import special

from specbench.parity.counting import Counted
from specbench.parity.data import Bools, Floats, Tokens
from specbench.parity.scores import BASIC, Omnibus, Scores, Sums, contrast, hotelling, omnibus

BASELINE_EXPLAINS: Final = 0.02
"""An arm's scores count only where they differ from the baseline's at this level: the guard against noise
between the decoding and the scoring kernels, which tilts both arms."""
BASELINE_OFF: Final = 0.01
"""Below this p-value of the baseline's own scores, noise is shown and only the two-sample test is used."""

MIN_TOKENS_IN_STRATUM: Final = 30
IMPOSSIBLE_LOGPROB: Final = float(np.log(1e-6))
IMPOSSIBLE_RANK: Final = 1000
NUCLEUS_TOLERANCE: Final = 0.005
"""Mass by which a token must lie outside the nucleus: ties at its edge and rounding are no bugs."""
MAX_VOCABULARY: Final = 1 << 18

Z90: Final = float(special.ndtri(0.95))


@dataclass(frozen=True, slots=True)
class Guarded:
    """A one-sample test that the baseline's own scores keep honest.

    Attributes:
        one: the arm's scores against zero.
        against: the arm's tilt against the baseline's.
        baseline_p: the baseline's scores against zero.
        p: what counts. The one-sample p-value while the arm differs from the baseline too; the two-sample
            one when it does not, or when the baseline's own scores are off.
    """

    one: Omnibus
    against: Omnibus
    baseline_p: float
    p: float


def guarded(arm: Sums, baseline: Sums) -> Guarded:
    """Test an arm's scores; valid whether or not numerical noise tilts both arms."""
    one, against, baseline_p = omnibus(arm), contrast(arm, baseline), omnibus(baseline).p
    if baseline_p < BASELINE_OFF:
        p = against.p
    elif against.p < BASELINE_EXPLAINS:
        p = one.p
    else:
        p = max(one.p, against.p)
    return Guarded(one, against, baseline_p, p)


@dataclass(frozen=True, slots=True)
class ByPosition:
    """The basic directions at each place in the engine step, and at the first token after a rejection.

    Strata must be known before the token is drawn. "The last token of a step" or "an accepted draft" is
    known by the outcome, and would find fault with every correct engine.
    """

    tests: dict[str, Guarded]

    @property
    def p(self) -> float:
        """Bonferroni over the strata."""
        return min(1.0, min((t.p for t in self.tests.values()), default=1.0) * max(len(self.tests), 1))

    @property
    def worst(self) -> str | None:
        """The stratum that differs most, in words."""
        return min(self.tests, key=lambda name: self.tests[name].p) if self.tests else None


def by_position(arm: Scores, tokens: Tokens, baseline: Sums) -> ByPosition:
    """Test every stratum that is known and not nearly empty."""
    strata = {f"place {j} of the step": tokens.positions == j for j in np.unique(tokens.positions) if j >= 0}
    strata["the first token after a rejection"] = tokens.after_rejection == 1
    return ByPosition(
        {
            name: guarded(arm.where(here).first(BASIC), baseline.first(BASIC))
            for name, here in strata.items()
            if here.sum() >= MIN_TOKENS_IN_STRATUM
        }
    )


def two_sample(arm: Scores, baseline: Scores, directions: int) -> Omnibus:
    """Hotelling's test of per-output sums, for sampling parameters whose law the scorer cannot know."""
    return hotelling(arm.per_output()[:, :directions], baseline.per_output()[:, :directions])


@dataclass(frozen=True, slots=True)
class Estimate:
    """An effect with its 90% interval."""

    value: float
    low: float
    high: float

    @classmethod
    def normal(cls, value: float, se: float) -> Estimate:
        """Normal approximation."""
        return cls(value, value - Z90 * se, value + Z90 * se)

    def within(self, margin: float) -> bool:
        """Whether the whole interval lies inside plus or minus a margin: two one-sided tests at 5%."""
        return -margin < self.low and self.high < margin


@dataclass(frozen=True, slots=True)
class Effects:
    """How far an arm lies from the baseline.

    Attributes:
        beta: effective inverse temperature over that of the scorer; 1 is the model's own.
        d_beta: difference of beta, arm less baseline; about ``-dT/T``.
        d_top1: difference of the share of likeliest tokens.
    """

    beta: Estimate
    d_beta: Estimate
    d_top1: Estimate


def effects(arm: Scores, baseline: Scores) -> Effects:
    """Effect sizes, with variances from the spread between outputs.

    ``beta = 1 + u_0 / v_0`` is the one-step maximum likelihood estimate of the tilt p^beta.
    """
    own, base = _tilts(arm), _tilts(baseline)
    return Effects(
        beta=Estimate.normal(1.0 + own[0], own[1]),
        d_beta=Estimate.normal(own[0] - base[0], float(np.hypot(own[1], base[1]))),
        d_top1=Estimate.normal(own[2] - base[2], float(np.hypot(own[3], base[3]))),
    )


def _tilts(scores: Scores) -> tuple[float, float, float, float]:
    """Tilt of log p and its standard error, excess of top-1 and its own."""
    per_output = scores.per_output()
    information = float(scores.cov[:, 0, 0].sum())
    tilt = float(per_output[:, 0].sum()) / information if information > 0 else 0.0
    tilt_se = _root_sum_of_squares(per_output[:, 0]) / information if information > 0 else np.inf
    n = len(scores.u)
    return tilt, tilt_se, float(per_output[:, 1].sum()) / n, _root_sum_of_squares(per_output[:, 1]) / n


def _root_sum_of_squares(x: Floats) -> float:
    return float(np.sqrt((x**2).sum()))


def impossible(tokens: Tokens) -> Bools:
    """[N] tokens that sampling from the model gives less than once in a million, or far down the ranking.

    Real vocabularies are large and their tails thin: a corrupted token is nearly always one of these.
    """
    return (tokens.logprobs < IMPOSSIBLE_LOGPROB) | (tokens.ranks > IMPOSSIBLE_RANK)


def count_impossible(arm: Tokens, baseline: Tokens) -> Counted:
    """Impossible tokens of both arms."""
    return Counted(int(impossible(arm).sum()), len(arm), int(impossible(baseline).sum()), len(baseline))


def outside_nucleus(tokens: Tokens, temperature: float, top_p: float) -> Bools:
    """[N] tokens that top_p must have cut off.

    From top-k logprobs the mass before a token is known up to the normaliser of p^(1/T) outside the list;
    its upper bound is used, so that a token is called outside only when it surely is.
    """
    if top_p >= 1.0 or temperature <= 0.0:
        return np.zeros(len(tokens), dtype=bool)
    p = np.exp(tokens.top_logprobs.astype(np.float64))
    listed = p ** (1.0 / temperature)
    rest = np.maximum(1.0 - p.sum(axis=1), 0.0)
    if temperature <= 1.0:
        bound = rest * p[:, -1] ** (1.0 / temperature - 1.0)
    else:
        bound = rest ** (1.0 / temperature) * MAX_VOCABULARY ** (1.0 - 1.0 / temperature)
    before = np.cumsum(listed, axis=1) / (listed.sum(axis=1) + bound)[:, None]
    emitted = tokens.top_ids == tokens.ids[:, None]
    place = np.where(emitted.any(axis=1), emitted.argmax(axis=1), p.shape[1])
    mass = np.where(place > 0, before[np.arange(len(tokens)), np.maximum(place - 1, 0)], 0.0)
    outside: Bools = mass >= top_p + NUCLEUS_TOLERANCE
    return outside


def count_outside_nucleus(arm: Tokens, baseline: Tokens, temperature: float, top_p: float) -> Counted:
    """Tokens outside the nucleus, of both arms."""
    own = outside_nucleus(arm, temperature, top_p)
    base = outside_nucleus(baseline, temperature, top_p)
    return Counted(int(own.sum()), len(arm), int(base.sum()), len(baseline))
