"""How long a round of launches takes, so that a verdict can say what more of them would cost."""

from __future__ import annotations

from datetime import datetime
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from specbench.runs.records import LaunchRecord


def seconds_per_round(
    events: Sequence[Mapping[str, Any]], launches: Iterable[LaunchRecord], arms: Iterable[str]
) -> float | None:
    """Median over rounds of the time that the launches of these arms took, start-up to stop; seconds.

    Args:
        events: of the journal.
        launches: those with timed cells.
        arms: ids; a round counts when each of them was launched and stopped in it.

    Returns:
        Null where no round was finished.
    """
    took = _launch_seconds(events)
    wanted = set(arms)
    rounds: dict[int, dict[str, float]] = {}
    for launch in launches:
        if launch.arm in wanted and launch.id in took:
            by_arm = rounds.setdefault(launch.round, {})
            by_arm[launch.arm] = by_arm.get(launch.arm, 0.0) + took[launch.id]
    whole = [sum(by_arm.values()) for by_arm in rounds.values() if set(by_arm) == wanted]
    return median(whole) if whole else None


def _launch_seconds(events: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Launch id to seconds; of a launch that was repeated after an interruption the last."""
    started: dict[str, datetime] = {}
    took: dict[str, float] = {}
    for event in events:
        launch = event.get("launch")
        if not isinstance(launch, str) or not isinstance(event.get("t"), str):
            continue
        if event.get("event") == "launch_started":
            started[launch] = datetime.fromisoformat(event["t"])
        elif event.get("event") == "launch_stopped" and launch in started:
            took[launch] = (datetime.fromisoformat(event["t"]) - started.pop(launch)).total_seconds()
    return took
