"""The steady window of a cell.

Closed loop: from the completion of the c-th request (the synchronised first wave is over) to the last
admission (the drain has not begun). Whole-run throughput includes a drain at low batch, where speculation
wins: it overstates a speed-up by 3 to 28 % (docs/method.md, "The steady window").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specbench.load.record import RequestRecord

MIN_COMPLETIONS_PER_SLOT: Final = 4
"""Completions per slot that a window must hold to be used."""


MIN_ARRIVALS: Final = 30
"""Requests that must be due inside the window of an open or trace load: below, a mean latency says little."""

RAMP: Final = 0.1
"""Share of the arrivals' span before the window of an open or trace load; its counters are read there too."""


@dataclass(frozen=True, slots=True)
class Window:
    """A half-open interval ``(start_s, end_s]`` on the cell's clock, with the completions inside it."""

    start_s: float
    end_s: float
    completions: int

    @property
    def length_s(self) -> float:
        """Seconds."""
        return self.end_s - self.start_s

    def holds(self, t_s: float) -> bool:
        """Whether a moment lies in the window."""
        return self.start_s < t_s <= self.end_s


class NoWindowError(ValueError):
    """The cell has no steady window; the message says why."""


def steady_window(records: Sequence[RequestRecord], concurrency: int) -> Window:
    """Find the window from the requests' own time stamps.

    Raises:
        NoWindowError: too few completions, so that nothing steady can be cut out.
    """
    ends = sorted(r.end_s for r in records if r.end_s is not None)
    sent = [r.sent_s for r in records if r.sent_s is not None]
    if len(ends) <= concurrency or not sent:
        raise NoWindowError(f"only {len(ends)} of {len(records)} requests ended at concurrency {concurrency}")
    start, end = ends[concurrency - 1], max(sent)
    inside = sum(1 for t in ends if start < t <= end)
    if end <= start or inside < MIN_COMPLETIONS_PER_SLOT * concurrency:
        raise NoWindowError(
            f"{inside} completions in the steady window, {MIN_COMPLETIONS_PER_SLOT * concurrency} are needed "
            f"at concurrency {concurrency}: raise workload.requests_per_slot"
        )
    return Window(start, end, inside)


def open_window(records: Sequence[RequestRecord]) -> Window:
    """Of an open or trace load: from a tenth of the arrivals' span (the engine fills up) to the last arrival.

    Requests that are due inside it are followed to their ends, wherever those lie.

    Raises:
        NoWindowError: fewer than 30 of them.
    """
    due = sorted(r.intended_s for r in records)
    if len(due) < 2 or due[-1] <= due[0]:
        raise NoWindowError(f"{len(due)} requests arrived, all at once")
    start, end = due[0] + RAMP * (due[-1] - due[0]), due[-1]
    inside = sum(1 for t in due if start < t <= end)
    if inside < MIN_ARRIVALS:
        raise NoWindowError(
            f"{inside} requests are due in the steady window, {MIN_ARRIVALS} are needed: "
            "raise workload.seconds, workload.min_requests or loads.trace.seconds"
        )
    return Window(start, end, inside)
