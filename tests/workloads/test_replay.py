"""From recorded times and sessions to a schedule."""

from __future__ import annotations

from typing import Any

import pytest

from specbench.config.grid import Load
from specbench.config.model import TraceLoad, Workload
from specbench.workloads.replay import build_trace_mix, select
from specbench.workloads.request import CellMix
from specbench.workloads.requests_file import WorkloadError
from specbench.workloads.source_request import Source, SourceRequest


def ask(name: str, at: float | None = None, **fields: Any) -> SourceRequest:
    return SourceRequest(
        id=name, source=Source(file="x.jsonl", line=1), prompt=f"say {name}", arrival_s=at, **fields
    )


def trace(**changes: Any) -> TraceLoad:
    return TraceLoad.model_validate(changes)


def mix(rows: list[SourceRequest], warmup: int = 2, **changes: Any) -> CellMix:
    load = trace(**changes)
    chosen = select(rows, load, 1)
    return build_trace_mix(Workload.model_validate({}), chosen, rows, Load("trace", 8, trace=load), warmup, 1)


def test_times_are_scaled_and_cut() -> None:
    rows = [ask(f"r{i}", 100 + 2.0 * i) for i in range(10)]
    made = mix(rows, time_scale=0.5, seconds=4.5)
    assert [a.at_s for a in made.schedule] == [0, 1, 2, 3, 4]
    assert [r.id for r in made.measured] == [f"r{i}" for i in range(5)]
    assert {r.id for r in made.warmup} <= {f"r{i}" for i in range(5, 10)}
    assert made.digest != mix(rows, time_scale=0.25, seconds=2.25).digest


def test_a_warm_up_that_must_repeat_has_ids_of_its_own() -> None:
    made = mix([ask(f"r{i}", float(i)) for i in range(3)], warmup=5)
    ids = [r.id for r in made.warmup + made.measured]
    assert len(made.warmup) == 5
    assert len(set(ids)) == len(ids)


def test_jitter_spreads_a_coarse_grid_and_keeps_order() -> None:
    rows = [ask(f"r{i}", 3.0 * (i // 10)) for i in range(40)]
    at = [a.at_s for a in mix(rows, jitter_s=3.0).schedule]
    assert at == sorted(at)
    assert len(set(at)) == 40
    assert mix(rows, jitter_s=3.0) == mix(rows, jitter_s=3.0)


def test_turns_wait_for_their_predecessors() -> None:
    rows = [
        ask("a1", 0.0, session_id="a", turn=1),
        ask("b1", 1.0, session_id="b", turn=1),
        ask("a2", 4.0, session_id="a", turn=2, after="a1", delay_s=3.0),
        ask("a3", None, session_id="a", turn=3, after="a2", delay_s=5.0),
        ask("b2", 9.0, session_id="b", turn=2, after="b1"),
        ask("c2", 9.5, session_id="c", turn=2, after="not in the file"),
    ]
    made = mix(rows, time_scale=2)
    place = {r.id: i for i, r in enumerate(made.measured)}
    schedule = {r.id: made.schedule[i] for i, r in enumerate(made.measured)}
    assert (schedule["a2"].after, schedule["a2"].delay_s, schedule["a2"].at_s) == (place["a1"], 6.0, 0.0)
    assert (schedule["a3"].after, schedule["a3"].delay_s) == (place["a2"], 10.0)
    # Without a recorded think time its own arrival is the earliest moment.
    assert (schedule["b2"].after, schedule["b2"].delay_s, schedule["b2"].at_s) == (place["b1"], 0.0, 18.0)
    assert (schedule["c2"].after, schedule["c2"].at_s) == (None, 19.0)
    assert all(a.after is None or a.after < i for i, a in enumerate(made.schedule))


def test_a_source_without_times_says_what_to_do() -> None:
    with pytest.raises(WorkloadError, match=r"records no arrival times: use loads\.open"):
        mix([ask("x"), ask("y")])
