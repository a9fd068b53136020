"""The best K from a few: a parabola through the arms of a ladder that ran (`config.ladders`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from specbench.config.ladders import Ladder

LEAST_POINTS: Final = 3
"""Measured values of K that a curve needs."""


def curve(ladder: Ladder, measured: Mapping[str, float]) -> dict[str, float]:
    """Log ratio of the arms of a ladder by the parabola in log(1 + K) through the measured ones.

    Args:
        measured: arm to log ratio; others than the ladder's are ignored.

    Returns:
        Of every arm between the lowest and the highest measured K: nothing is extrapolated. Empty when
        fewer than three values of K were measured.
    """
    points = {a: measured[a] for a in ladder if a in measured}
    if len(points) < LEAST_POINTS:
        return {}
    x = np.array([math.log1p(ladder[a]) for a in points])
    fit = np.polynomial.Polynomial.fit(x, np.array(list(points.values())), 2)
    low, high = min(ladder[a] for a in points), max(ladder[a] for a in points)
    return {a: float(fit(math.log1p(k))) for a, k in ladder.items() if low <= k <= high}
