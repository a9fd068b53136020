"""Non-inferiority of a latency percentile or an error rate: is it worse by no more than a margin?

Per launch the percentile, per pair the log ratio, over pairs Student's t: a percentile of pooled requests has
no honest interval, since the requests of one launch share its fate. Each guardrail must hold by itself
(intersection-union), so that their number needs no correction; each is looked at twice at most, so that a
look has 2.5 % and not 5 % on each side.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Literal

from scipy import special

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GuardState = Literal["pass", "fail", "open"]

ALPHA: Final = 0.025


def non_inferior(log_ratios: Sequence[float], margin: float, alpha: float = ALPHA) -> GuardState:
    """Whether the ratio is below ``1 + margin`` (pass), above it (fail), or it cannot be said.

    Args:
        log_ratios: one per pair, of a figure of which more is worse.
        margin: the relative worsening allowed.
    """
    bounds = interval(log_ratios, alpha)
    if bounds is None:
        return "open"
    limit = 1 + margin
    return "pass" if bounds[1] < limit else "fail" if bounds[0] > limit else "open"


def interval(log_ratios: Sequence[float], alpha: float = ALPHA) -> tuple[float, float] | None:
    """Of the ratio, with ``alpha`` outside on each side; null from one pair."""
    n = len(log_ratios)
    if n < 2:
        return None
    mean = math.fsum(log_ratios) / n
    sd = math.sqrt(math.fsum((x - mean) ** 2 for x in log_ratios) / (n - 1))
    half = -float(special.stdtrit(n - 1, alpha)) * sd / math.sqrt(n)
    return math.exp(mean - half), math.exp(mean + half)


def logs(by_round: Mapping[int, float]) -> list[float]:
    """Logarithms of the ratios of rounds, in the order of rounds."""
    return [math.log(by_round[r]) for r in sorted(by_round)]


def guard_state(log_ratios: Sequence[float], margin: float, looks: tuple[int, int]) -> GuardState:
    """Look when speed was decided (0: it is not yet) and, if that left it open, at the last look."""
    state: GuardState = "open"
    for n in looks:
        if 0 < n <= len(log_ratios) and state == "open":
            state = non_inferior(log_ratios[:n], margin)
    return state
