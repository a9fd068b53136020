"""Loads whose arrivals are too few to be judged: known from the schedule, before anything is measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from specbench.analysis.window import MIN_ARRIVALS, RAMP
from specbench.engines.base import Problem

if TYPE_CHECKING:
    from specbench.config.grid import Load
    from specbench.workloads.request import Arrival, CellMix


def arrival_problems(loads: Iterable[Load], mixes: Mapping[str, CellMix]) -> list[Problem]:
    """Open and trace loads of which every cell would be invalid; fatal."""
    found = []
    for load in loads:
        mix = mixes.get(load.id)
        if load.kind == "closed" or mix is None:
            continue
        inside = most_inside(mix.schedule)
        if inside >= MIN_ARRIVALS:
            continue
        trace = load.kind == "trace"
        found.append(
            Problem(
                "loads.trace" if trace else "loads.open",
                f"{len(mix.schedule)} requests arrive at {load.id}, {inside} of them in the steady window, which "
                f"needs {MIN_ARRIVALS}: no cell would count",
                "raise loads.trace.seconds, or lower loads.trace.time_scale"
                if trace
                else "raise workload.seconds, or workload.min_requests without it",
            )
        )
    return found


def most_inside(schedule: Sequence[Arrival]) -> int:
    """Requests that can be due inside the steady window; turns that wait for others may be due at any time."""
    if not schedule:
        return 0
    if any(a.after is not None for a in schedule):
        return len(schedule)
    due = [a.at_s for a in schedule]
    start = min(due) + RAMP * (max(due) - min(due))
    return sum(1 for t in due if t > start)
