"""Deciding while measuring: the group-sequential t test on log ratios of launch pairs.

The boundaries are those of `boundaries`. A decision is final at the look that made it. The interval is the
intersection of the repeated confidence intervals ``mean +- c s / sqrt(n)`` of the looks so far: they hold
together with probability ``1 - 2 alpha``, so the intersection does, and it agrees with the decision. Only when
the mean of all pairs lies outside what earlier looks allowed is the latest interval shown instead.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from scipy import special

from specbench.analysis.boundaries import boundaries

if TYPE_CHECKING:
    from collections.abc import Sequence

Side = Literal["above", "below", "open"]

MAX_PRIOR_DF: Final = 4
"""A variance from a few exploring rounds counts for no more than this: it may be stale by the confirming ones."""

GATE: Final = 0.95
"""The prior is dropped when the pairs' own variance exceeds it by more than this quantile of F."""


@dataclass(frozen=True, slots=True)
class VariancePrior:
    """Variance of one pair's log ratio, known from other pairs of the same session."""

    df: int
    variance: float

    @staticmethod
    def pooled(groups: Sequence[Sequence[float]]) -> VariancePrior | None:
        """From log ratios grouped by arm; null when no group has two, or nothing varies.

        Arms of one round share its baseline launch, so half of their variance: G of them are worth
        ``G / (1 + (G - 1) / 4)`` independent ones.
        """
        used = [g for g in groups if len(g) >= 2]
        df = sum(len(g) - 1 for g in used)
        squares = math.fsum((x - math.fsum(g) / len(g)) ** 2 for g in used for x in g)
        if not df or squares <= 0:
            return None
        independent = int(df / (1 + (len(used) - 1) / 4))
        return VariancePrior(max(1, min(independent, MAX_PRIOR_DF)), squares / df)


@dataclass(frozen=True, slots=True)
class Step:
    """Where a test stands.

    Attributes:
        decision: which side of the threshold the ratio is on; ``open`` until a boundary is crossed.
        pairs: pairs at the look that decided, or else at the last look.
        interval: of the ratio; null before the first look.
        spent: whether the last look is over: an open decision then stays open.
        prior_dropped: the pairs varied more than the prior said, so it was not used.
    """

    decision: Side
    pairs: int
    interval: tuple[float, float] | None
    spent: bool
    prior_dropped: bool = False


@dataclass(frozen=True, slots=True)
class Design:
    """A test as it was registered; see `step`."""

    theta: float
    looks: tuple[int, ...]
    alpha: float
    prior: VariancePrior | None = None

    def step(self, log_ratios: Sequence[float]) -> Step:
        """Look at the pairs so far."""
        return step(log_ratios, self.theta, self.looks, self.alpha, self.prior)


def step(
    log_ratios: Sequence[float],
    theta: float,
    looks: Sequence[int],
    alpha: float,
    prior: VariancePrior | None = None,
) -> Step:
    """Look at the pairs so far.

    Args:
        log_ratios: one per pair, in the order of measurement; those after the last look are not used.
        theta: the required ratio.
        looks: numbers of pairs at which the data are looked at. With a prior, 2 is looked at too.
        alpha: error allowed on each side.
    """
    plain = tuple(looks)
    dropped = prior is not None and _too_variable(log_ratios, plain, prior)
    used = None if dropped else prior
    at = plain if used is None or plain[0] <= 2 else (2, *plain)
    bounds = boundaries(at, alpha, 0 if used is None else used.df)
    low, high = -math.inf, math.inf
    decision: Side = "open"
    decided_at = 0
    for n, bound in zip(at, bounds, strict=True):
        if n > len(log_ratios):
            break
        mean, half = _half_width(log_ratios[:n], bound, used)
        inside = max(low, mean - half), min(high, mean + half)
        low, high = inside if inside[0] <= mean <= inside[1] else (mean - half, mean + half)
        if decision == "open":
            decided_at = n
            gap = mean - math.log(theta)
            if abs(gap) > half:
                decision = "above" if gap > 0 else "below"
    interval = (math.exp(low), math.exp(high)) if decided_at else None
    return Step(decision, decided_at, interval, len(log_ratios) >= at[-1], dropped)


def _half_width(values: Sequence[float], bound: float, prior: VariancePrior | None) -> tuple[float, float]:
    n = len(values)
    mean = math.fsum(values) / n
    squares = math.fsum((x - mean) ** 2 for x in values)
    df = n - 1
    if prior is not None:
        squares += prior.df * prior.variance
        df += prior.df
    return mean, bound * math.sqrt(squares / df / n)


def _too_variable(values: Sequence[float], looks: Sequence[int], prior: VariancePrior) -> bool:
    """Whether at any look so far the variance of the pairs is too large for the prior to be theirs."""
    for n in looks:
        if n > len(values):
            return False
        own = values[:n]
        mean = math.fsum(own) / n
        variance = math.fsum((x - mean) ** 2 for x in own) / (n - 1)
        if variance / prior.variance > _gate(n - 1, prior.df):
            return True
    return False


@functools.cache
def _gate(df: int, prior_df: int) -> float:
    return float(special.fdtri(df, prior_df, GATE))
