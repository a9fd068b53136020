"""Open and trace loads: latency of requests that arrive on time, whether the engine keeps up, and load bins.

At a rate that both arms are offered, throughput is that rate in both and says nothing. What speculation can
change is how long a request takes, so the speed-up is the ratio of mean end-to-end latencies (docs/method.md,
"Open loads").
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from specbench.analysis.window import Window
    from specbench.load.record import RequestRecord

MAX_RATE_ERROR: Final = 0.05
"""Largest relative difference between offered and delivered arrivals of a valid cell."""

KEEPS_UP: Final = 0.9
"""Ends over arrivals inside the window below which the queue grew: latency depends on the cell's length."""

BinName = Literal["low", "mid", "high"]
BINS: Final[tuple[BinName, ...]] = ("low", "mid", "high")


@dataclass(frozen=True, slots=True)
class OpenTimes:
    """The requests that were due inside the window, by their place in the list (the same in every arm).

    Attributes:
        latency_s: intended send to end, of those that finished.
        in_flight: other requests running when each was sent.
        kept_up: requests ended over requests arrived, inside the window.
    """

    latency_s: dict[int, float]
    in_flight: dict[int, int]
    kept_up: float

    @property
    def mean_latency_s(self) -> float | None:
        """Mean end-to-end latency; null without a finished request."""
        return sum(self.latency_s.values()) / len(self.latency_s) if self.latency_s else None


def open_times(records: Sequence[RequestRecord], window: Window) -> OpenTimes:
    """Latencies and running requests of a cell."""
    due = [r for r in records if window.holds(r.intended_s)]
    sent = sorted(r.sent_s for r in records if r.sent_s is not None)
    ends = sorted(r.end_s for r in records if r.sent_s is not None and r.end_s is not None)
    ended = sum(1 for t in ends if window.holds(t))
    return OpenTimes(
        latency_s={r.index: r.end_s - r.intended_s for r in due if r.ok and r.end_s is not None},
        in_flight={
            r.index: bisect.bisect_left(sent, r.sent_s) - bisect.bisect_right(ends, r.sent_s)
            for r in due
            if r.sent_s is not None
        },
        kept_up=ended / len(due) if due else 0.0,
    )


def rate_problem(offered_per_s: float | None, delivered_per_s: float | None) -> str | None:
    """Why the cell's load was not the one asked for; null when it was, or without rates to compare."""
    if offered_per_s is None or delivered_per_s is None or offered_per_s <= 0:
        return None
    if abs(delivered_per_s - offered_per_s) <= MAX_RATE_ERROR * offered_per_s:
        return None
    return f"offered {offered_per_s:.3g}/s, delivered {delivered_per_s:.3g}/s"


@dataclass(frozen=True, slots=True)
class LoadBin:
    """Requests that met about the same load in the baseline, in one round.

    ``low`` and ``high`` are the fewest and most requests running when one of them was sent.
    """

    name: BinName
    low: int
    high: int
    indices: frozenset[int]

    def mean_latency_s(self, latency_s: Mapping[int, float]) -> float | None:
        """Mean over the bin's requests that have a latency."""
        values = [latency_s[i] for i in self.indices if i in latency_s]
        return sum(values) / len(values) if values else None


def load_bins(baseline: OpenTimes) -> tuple[LoadBin, ...]:
    """Tertiles by the requests running when each was sent **in the baseline**; empty ones are left out.

    The bins of the baseline serve for every arm of the round, so that the same requests are compared: an arm
    that is faster has fewer running, and by its own count would compare other requests.
    """
    if not baseline.in_flight:
        return ()
    low, high = np.quantile(list(baseline.in_flight.values()), [1 / 3, 2 / 3])
    found: dict[int, list[int]] = {}
    for index, running in baseline.in_flight.items():
        # Counts are few and tie: what is no more than the lower edge is low, no less than the upper one high.
        found.setdefault(0 if running <= low else 2 if running >= high else 1, []).append(index)
    return tuple(
        LoadBin(
            name=BINS[k],
            low=min(baseline.in_flight[i] for i in members),
            high=max(baseline.in_flight[i] for i in members),
            indices=frozenset(members),
        )
        for k, members in sorted(found.items())
    )
