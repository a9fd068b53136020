"""Is a cell's window steady? A check on the rate of steps; docs/method.md, "The steady window".

What is looked at is chunks per second, not tokens: a chunk is a step of one request, so its rate is the engine's,
while tokens per chunk depend on which prompts were running. By tokens, one in ten healthy speculative cells with
few requests would be called unsteady; by chunks none in hundreds (the same page).

- The halves of the window differ: by more than 3 standard errors of ten batch means, and by more than 10 %.
- MSER-5 (Hoad and Robinson, WSC 2011) would cut more than half of the window, and the halves differ by more than
  2 standard errors and 10 %. Alone it says so of one healthy cell in ten.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from specbench.analysis.window import Window
    from specbench.load.record import RequestRecord

MIN_CHUNKS: Final = 200
"""Below this the rate of a tenth of the window is too coarse to compare."""

BATCHES: Final = 10
MSER_BATCHES: Final = 20
MSER_SIZE: Final = 5

MAX_Z: Final = 3.0
MAX_Z_WITH_MSER: Final = 2.0
MAX_DIFFERENCE: Final = 0.10
MAX_CUT: Final = 0.5


@dataclass(frozen=True, slots=True)
class Steadiness:
    """What the check saw.

    Attributes:
        z: first half minus second half of the window, in standard errors.
        difference: the same, over the mean rate.
        cut: share of the window that MSER-5 would leave out at its start.
    """

    z: float
    difference: float
    cut: float

    @property
    def problem(self) -> str | None:
        """Why the window is not steady; null when it is."""
        apart = abs(self.difference) > MAX_DIFFERENCE
        drifts = apart and abs(self.z) > MAX_Z
        starts_late = apart and abs(self.z) > MAX_Z_WITH_MSER and self.cut > MAX_CUT
        if not drifts and not starts_late:
            return None
        way = "slower" if self.difference > 0 else "faster"
        return (
            f"not steady: in the second half of the window the engine was {abs(self.difference):.0%} {way} "
            f"({abs(self.z):.1f} standard errors): measure longer cells, or look for heat and neighbours"
        )


def steadiness(records: Sequence[RequestRecord], window: Window) -> Steadiness | None:
    """Look at the chunks inside a window; null when they are too few to tell."""
    times = np.fromiter(itertools.chain.from_iterable(r.chunk_s for r in records), dtype=np.float64)
    inside = times[(times > window.start_s) & (times <= window.end_s)]
    if len(inside) < MIN_CHUNKS:
        return None
    span = (window.start_s, window.end_s)
    batches = np.histogram(inside, bins=BATCHES, range=span)[0].astype(np.float64)
    first, second = batches[: BATCHES // 2], batches[BATCHES // 2 :]
    gap = float(first.mean() - second.mean())
    error = math.sqrt((first.var(ddof=1) + second.var(ddof=1)) / len(first))
    fine = np.histogram(inside, bins=MSER_BATCHES * MSER_SIZE, range=span)[0].astype(np.float64)
    return Steadiness(
        z=gap / error if error > 0 else math.copysign(math.inf, gap) if gap else 0.0,
        difference=gap / float(batches.mean()),
        cut=_mser_cut(fine.reshape(MSER_BATCHES, MSER_SIZE).mean(axis=1)),
    )


def _mser_cut(means: NDArray[np.float64]) -> float:
    """Share of the batches that gives the remaining mean the smallest marginal standard error.

    The last fifth is not tried: of a few values the variance is small by chance.
    """
    tried = range(len(means) * 4 // 5)
    errors = [float(means[d:].var()) / (len(means) - d) for d in tried]
    return int(np.argmin(errors)) / len(means)
