"""From recorded arrival times to the requests and the schedule of a trace load."""

from __future__ import annotations

from collections.abc import Sequence

from specbench.config.grid import Load
from specbench.config.model import TraceLoad, Workload
from specbench.config.plan import MAX_TIMED_REQUESTS
from specbench.workloads.arrivals import jitter_s, seed_of
from specbench.workloads.mix import make_request
from specbench.workloads.request import Arrival, CellMix, digest
from specbench.workloads.requests_file import WorkloadError
from specbench.workloads.source_request import SourceRequest


def select(rows: Sequence[SourceRequest], load: TraceLoad, seed: int) -> list[tuple[float, SourceRequest]]:
    """(seconds from the start of the cell, request) in order: scaled, moved by their jitter, cut to length.

    A turn without a time of its own comes right after the turn that it waits for.

    Raises:
        WorkloadError: no row has a time, or there are more than a cell may hold.
    """
    at: dict[str, float] = {}
    timed: list[tuple[float, int, SourceRequest]] = []
    for place, row in enumerate(rows):
        if row.arrival_s is not None:
            at[row.id] = row.arrival_s * load.time_scale + jitter_s(row.id, seed, load.jitter_s)
        elif row.after is not None and row.after in at:
            at[row.id] = at[row.after] + (row.delay_s or 0.0) * load.time_scale
        else:
            continue
        timed.append((at[row.id], place, row))
    if not timed:
        raise WorkloadError(
            [
                "loads.trace: the workload records no arrival times: use loads.open with a rate, or a source "
                "(or workload.lengths.source) with times"
            ]
        )
    timed.sort(key=lambda item: item[:2])
    start = timed[0][0]
    chosen = [(t - start, row) for t, _, row in timed if load.seconds is None or t - start < load.seconds]
    if len(chosen) > MAX_TIMED_REQUESTS:
        raise WorkloadError(
            [
                f"loads.trace: {len(chosen)} requests are more than a cell may hold ({MAX_TIMED_REQUESTS}): "
                "set loads.trace.seconds"
            ]
        )
    return chosen


def build_trace_mix(
    workload: Workload,
    chosen: Sequence[tuple[float, SourceRequest]],
    spare: Sequence[SourceRequest],
    load: Load,
    warmup_count: int,
    seed: int,
) -> CellMix:
    """The requests and times of every cell at a trace load.

    Args:
        chosen: from `select`.
        spare: requests to warm up with; those of ``chosen`` are only taken when nothing else is left.

    Raises:
        WorkloadError: a request has no text.
    """
    assert load.trace is not None
    place = {row.id: i for i, (_, row) in enumerate(chosen)}
    schedule = []
    for at_s, row in chosen:
        after = place.get(row.after) if row.after is not None else None
        if after is not None and after >= place[row.id]:
            after = None  # a turn recorded before the one it names cannot wait for it
        scaled = (row.delay_s or 0.0) * load.trace.time_scale if after is not None else 0.0
        # With a recorded think time the turn follows its predecessor; without one its own time is a floor.
        floor = 0.0 if after is not None and row.delay_s is not None else at_s
        schedule.append(Arrival(at_s=floor, after=after, delay_s=scaled))
    measured = tuple(make_request(workload, row, seed) for _, row in chosen)
    others = sorted(
        (row for row in spare if row.id not in place), key=lambda row: seed_of("warm-up", seed, row.id)
    )
    warmup = [make_request(workload, row, seed) for row in others[:warmup_count]]
    again = 2
    while len(warmup) < warmup_count:
        for _, row in chosen[: warmup_count - len(warmup)]:
            warmup.append(make_request(workload, row, seed, again, "#w"))
        again += 1
    return CellMix(
        warmup=tuple(warmup),
        measured=measured,
        schedule=tuple(schedule),
        digest=digest((*warmup, *measured), schedule),
    )
