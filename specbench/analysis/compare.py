"""Arm against baseline, paired within rounds.

Source: paired t on per-pair log ratios (Student 1908); with 3 to 8 pairs a percentile bootstrap covers
50 to 88 % at a nominal 90 %, the t interval covers 90 % (docs/method.md, "Intervals").
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import special

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from specbench.analysis.sequential import Design

MAX_ROUNDS: Final = 1000


@dataclass(frozen=True, slots=True)
class PairedRatio:
    """Geometric mean of per-round ratios with its t statistics.

    ``per_round`` are ratios in the order of rounds; ``log_sd`` is the sample standard deviation of their
    logarithms, null for one round. With a ``design`` the rounds were added until the answer was clear, and the
    interval is the repeated one.
    """

    per_round: tuple[float, ...]
    why_null: str | None = None
    design: Design | None = None

    @property
    def value(self) -> float | None:
        """Geometric mean, null without a pair."""
        if not self.per_round:
            return None
        return math.exp(math.fsum(math.log(x) for x in self.per_round) / len(self.per_round))

    @property
    def log_sd(self) -> float | None:
        """Sample standard deviation of the log ratios."""
        n = len(self.per_round)
        if n < 2:
            return None
        logs = [math.log(x) for x in self.per_round]
        m = math.fsum(logs) / n
        return math.sqrt(math.fsum((x - m) ** 2 for x in logs) / (n - 1))

    def interval(self, confidence: float) -> tuple[float, float] | None:
        """Two-sided t interval at ``confidence`` (0 to 1); null from one round.

        With a design, its repeated interval: the confidence is the design's own, and it is null before the
        first look.
        """
        if self.design is not None:
            return self.design.step([math.log(x) for x in self.per_round]).interval
        n, sd, value = len(self.per_round), self.log_sd, self.value
        if sd is None or value is None:
            return None
        half = float(special.stdtrit(n - 1, (1 + confidence) / 2)) * sd / math.sqrt(n)
        return math.exp(math.log(value) - half), math.exp(math.log(value) + half)


def paired(numerator: Mapping[int, float], denominator: Mapping[int, float], missing: str) -> PairedRatio:
    """Ratios of the rounds that both have. ``missing`` is the reason given when there are none."""
    rounds = sorted(set(numerator) & set(denominator))
    if not rounds:
        return PairedRatio((), missing)
    return PairedRatio(tuple(numerator[r] / denominator[r] for r in rounds))


def mix(by_load: Sequence[tuple[float, Mapping[int, float]]]) -> PairedRatio:
    """Speed-up over a traffic mix, per round: ``1 / sum(w_c / S_c)``.

    Args:
        by_load: (share of the baseline's serving time at this load, round to speed-up).
            Shares need not add up to 1. Only rounds that have every load with a positive share count.
    """
    if not any(w > 0 for w, _ in by_load):
        return PairedRatio((), "no load has a traffic share")
    ratios = mix_rounds(by_load)
    if not ratios:
        return PairedRatio((), "no round has a valid pair at every load of the traffic mix")
    return PairedRatio(tuple(ratios[r] for r in sorted(ratios)))


def mix_rounds(by_load: Sequence[tuple[float, Mapping[int, float]]]) -> dict[int, float]:
    """Round to speed-up over the mix; see `mix`."""
    used = [(w, s) for w, s in by_load if w > 0]
    total = math.fsum(w for w, _ in used)
    rounds = set.intersection(*(set(s) for _, s in used)) if used else set()
    return {r: total / math.fsum(w / s[r] for w, s in used) for r in sorted(rounds)}


def rounds_needed(
    ratio: PairedRatio, threshold: float, confidence: float, arms: int = 1, power: float = 0.9
) -> int | None:
    """Rounds after which the interval would clear the threshold with the given power.

    The smallest n with ``(t[conf, n-1] + t[power, n-1]) sd / sqrt(n) <= |mean - log threshold|``, taking
    today's spread as the truth; for a gain the confidence is corrected for the number of arms tried.
    Null when it cannot be said, or when it would be more than 1000.
    """
    sd, value = ratio.log_sd, ratio.value
    if sd is None or value is None or value == threshold:
        return None
    gap = math.log(value) - math.log(threshold)
    tail = (1 - confidence) / 2 / (arms if gap > 0 else 1)
    n = np.arange(len(ratio.per_round) + 1, MAX_ROUNDS + 1)
    need = (special.stdtrit(n - 1, 1 - tail) + special.stdtrit(n - 1, power)) * sd / np.sqrt(n)
    enough = np.flatnonzero(need <= abs(gap))
    return int(n[enough[0]]) if len(enough) else None
