"""How long a round takes, from the journal."""

from __future__ import annotations

from typing import Any

import pytest

from specbench.analysis.pace import seconds_per_round
from specbench.runs.records import LaunchRecord
from specbench.verdict.words import time_text


def _launch(arm: str, n: int) -> LaunchRecord:
    return LaunchRecord(
        id=f"r{n}-{arm}", arm=arm, round=n, status="stopped", started_utc="", argv=(), speculation_flags=()
    )


def _event(event: str, launch: str, second: int) -> dict[str, Any]:
    return {"t": f"2026-01-01T00:{second // 60:02d}:{second % 60:02d}.000Z", "event": event, "launch": launch}


def _ran(launch: str, start: int, end: int) -> list[dict[str, Any]]:
    return [_event("launch_started", launch, start), _event("launch_stopped", launch, end)]


def test_a_round_is_the_sum_of_its_launches_and_the_median_counts() -> None:
    launches = [_launch(arm, n) for n in (1, 2, 3) for arm in ("baseline", "a")]
    events = [{"t": "2026-01-01T00:00:00.000Z", "event": "sweep_started"}]
    for n, seconds in ((1, 10), (2, 30), (3, 20)):
        events += _ran(f"r{n}-baseline", 100 * n, 100 * n + seconds) + _ran(
            f"r{n}-a", 100 * n + 40, 100 * n + 45
        )
    assert seconds_per_round(events, launches, ["baseline", "a"]) == 25.0
    assert seconds_per_round(events, launches, ["baseline"]) == 20.0


def test_unfinished_rounds_do_not_count_and_repeats_do_once() -> None:
    launches = [_launch(arm, n) for n in (1, 2) for arm in ("baseline", "a")]
    events = [
        _event("launch_started", "r1-baseline", 0),  # interrupted: specbench was killed
        *_ran("r1-baseline", 50, 60),
        *_ran("r1-a", 60, 67),
        *_ran("r2-baseline", 100, 200),
    ]
    assert seconds_per_round(events, launches, ["baseline", "a"]) == 17.0
    assert seconds_per_round(events[:1], launches, ["baseline", "a"]) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, ""),
        (20, ", about 1 min"),
        (1500, ", about 25 min"),
        (5400, ", about 1.5 h"),
        (90000, ", about 25.0 h"),
    ],
)
def test_times_in_words(seconds: float | None, text: str) -> None:
    assert time_text(seconds) == text
