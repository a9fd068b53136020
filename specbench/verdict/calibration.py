"""Is this machine fit to measure on? A baseline against itself must come out equal.

The rule: the 99 % interval of the mean log ratio excludes 0 and the mean is off by more than 1 %, or a single pair
is off by more than 10 %. Either means that what differs between launches here is not noise that pairs average out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from specbench.analysis.compare import PairedRatio
from specbench.verdict.words import interval_text, ratio_text

if TYPE_CHECKING:
    from collections.abc import Sequence

CONFIDENCE: Final = 0.99
MAX_MEAN: Final = 0.01
MAX_PAIR: Final = 0.10


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Whether equal launches came out equal, and in words why or why not."""

    passed: bool
    reason: str


def judge_equal(ratios: Sequence[float]) -> Calibrated:
    """Judge the ratios of equal launches, one per pair."""
    ratio = PairedRatio(tuple(ratios))
    interval = ratio.interval(CONFIDENCE)
    if interval is None or ratio.value is None:
        return Calibrated(False, f"{len(ratios)} valid pairs: at least 2 are needed")
    text = f"equal launches came out at {ratio_text(ratio.value)} {interval_text(interval)}"
    worst = max(ratios, key=lambda x: abs(math.log(x)))
    if abs(math.log(worst)) > MAX_PAIR:
        return Calibrated(False, f"{text}, one pair at {ratio_text(worst)}: more than 10 % apart")
    if not interval[0] <= 1 <= interval[1] and abs(math.log(ratio.value)) > MAX_MEAN:
        return Calibrated(False, f"{text}: they differ, though nothing was changed")
    return Calibrated(True, f"{text}, from {len(ratios)} pairs")
