"""Measure one cell: forget the prefix cache, warm up, run the load, scrape the counters around its window."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import aiohttp
import msgspec

from specbench.engines.attached import Attached
from specbench.engines.base import Failure, FailureClass
from specbench.load.closed import run_closed
from specbench.load.open import run_open
from specbench.load.progress import Progress
from specbench.load.record import ErrorClass
from specbench.load.recorder import Recorder
from specbench.load.warmup import warm_up
from specbench.observe.client import ClientHealth, lag_limit_s
from specbench.runs.records import CellCounters, WindowMarks
from specbench.sweep.scrape import CounterLog

if TYPE_CHECKING:
    from specbench.config.grid import Load
    from specbench.engines.base import Engine, LaunchSpec
    from specbench.engines.running import Running
    from specbench.load.record import RequestRecord
    from specbench.load.transport import Transport
    from specbench.sweep.events import Watcher
    from specbench.workloads.request import CellMix

BROKEN: Final = frozenset(
    {ErrorClass.CONNECT, ErrorClass.RESET, ErrorClass.TRUNCATED, ErrorClass.STREAM_ERROR}
)
"""Endings of a request that a dying engine gives."""

DEATH_POLL_S: Final = 0.1
DEATH_GRACE_S: Final = 6.0
"""vLLM answers 500 first and ends a few seconds later; wait this long for the end before blaming requests."""


@dataclass(slots=True)
class Served:
    """A ready engine and how to talk to it."""

    engine: Engine
    spec: LaunchSpec
    process: Running
    session: aiohttp.ClientSession


@dataclass(frozen=True, slots=True)
class How:
    """What the config says about measuring a cell: how long to admit, and how late the client may be."""

    seconds: float | None
    lag_limit_s: float | None


@dataclass(slots=True)
class Measured:
    """What came out of a cell, whole or partial."""

    records: list[RequestRecord] = field(default_factory=list)
    counters: CellCounters | None = None
    window: WindowMarks | None = None
    epoch_unix_s: float | None = None
    duration_s: float | None = None
    client: dict[str, object] | None = None
    offered_per_s: float | None = None
    delivered_per_s: float | None = None
    prefix_cache_reset: bool | None = None
    warmup_ok: int | None = None
    failure: Failure | None = None
    interrupted: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def tokens_per_s(self) -> float | None:
        """Whole-cell throughput, for orientation only: it includes ramp and drain."""
        tokens = sum(r.output_tokens or 0 for r in self.records)
        return tokens / self.duration_s if tokens and self.duration_s else None


async def measure_cell(
    served: Served, transport: Transport, load: Load, mix: CellMix, how: How, watcher: Watcher,
    progress: Progress,
) -> Measured:  # fmt: skip
    """Run one cell to its end, to a failure, or to a cancellation (then ``interrupted`` is set and returned).

    Never raises for what an engine does: a dead or refusing engine is a result.
    """
    out = Measured()
    work = asyncio.create_task(_work(served, transport, load, mix, how, watcher, progress, out))
    death = asyncio.create_task(_death(served))
    try:
        await asyncio.wait({work, death}, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        out.interrupted = True
    dead = death.done() and not out.interrupted
    for task in (work, death):
        if not task.done():
            task.cancel()
    await asyncio.wait({work, death})
    if out.interrupted:
        return out
    if work.done() and not work.cancelled() and (error := work.exception()) is not None:
        if not isinstance(error, aiohttp.ClientError | TimeoutError | OSError):
            raise error
        out.notes.append(f"{type(error).__name__}: {error}")
        out.failure = out.failure or _requests_failed(str(error))
    if out.records and not any(r.ok for r in out.records):
        out.failure = out.failure or _requests_failed(next((r.error for r in out.records if r.error), None))
    # Broken connections come before the end of the process that broke them.
    if not dead and (out.failure is not None or any(r.error_class in BROKEN for r in out.records)):
        dead = await dies(served)
    if dead or served.process.poll() is not None:
        out.failure = served.engine.explain(served.process.log_text(), served.process.poll())
    return out


async def _work(
    served: Served, transport: Transport, load: Load, mix: CellMix, how: How, watcher: Watcher,
    progress: Progress, out: Measured,
) -> None:  # fmt: skip
    base_url = served.spec.base_url
    watcher.cell_phase("warm-up")
    out.prefix_cache_reset = await served.engine.reset_prefix_cache(served.session, base_url)
    warmed = await warm_up(transport, mix.warmup, load.concurrency)
    out.warmup_ok = warmed.ok
    if warmed.ok == 0:
        out.failure = _requests_failed(warmed.first_error)
        return
    # The warm-up must not leave prefixes that the measured requests could hit.
    out.prefix_cache_reset = await served.engine.reset_prefix_cache(served.session, base_url)
    counters = CounterLog(served.engine, base_url, served.session)
    recorder = Recorder()
    health = ClientHealth()
    await counters.settled("start")
    watcher.cell_phase("measuring")
    started = time.monotonic()
    try:
        async with health:
            if load.kind == "closed":
                run = await run_closed(
                    transport,
                    mix.measured,
                    load.concurrency,
                    seconds=how.seconds,
                    on_window_open=lambda: counters.take("window_open"),
                    on_window_close=lambda: counters.take("window_close"),
                    progress=progress,
                    recorder=recorder,
                )
            else:
                run = await run_open(
                    transport,
                    mix.measured,
                    mix.schedule,
                    history=load.trace.history if load.trace is not None else "recorded",
                    on_window_open=lambda: counters.take("window_open"),
                    on_window_close=lambda: counters.take("window_close"),
                    progress=progress,
                    recorder=recorder,
                )
        out.window = WindowMarks(opened_s=run.opened_s, closed_s=run.closed_s)
        if run.aborted is not None:
            out.failure = _requests_failed(run.aborted)
        out.duration_s = time.monotonic() - started
        watcher.cell_phase("settling")
        await counters.settled("end")
    finally:
        run = recorder.result()
        out.records = recorder.records
        out.offered_per_s, out.delivered_per_s = run.offered_per_s, run.delivered_per_s
        out.epoch_unix_s = run.epoch_unix or None
        out.duration_s = out.duration_s or time.monotonic() - started
        limit = how.lag_limit_s
        if limit is None:
            limit = lag_limit_s([b - a for r in run.records for a, b in itertools.pairwise(r.chunk_s)])
        out.client = msgspec.to_builtins(health.report(run.send_lateness_s(), limit))
        if run.epoch_unix:
            out.counters = counters.record(run.epoch_unix)


async def _death(served: Served) -> None:
    """Return when the engine's process has ended."""
    while served.process.poll() is None:  # noqa: ASYNC110 - a process has no event to wait for here
        await asyncio.sleep(DEATH_POLL_S)


async def dies(served: Served) -> bool:
    """Whether the process ends within the grace that a dying engine needs; a server elsewhere is asked."""
    if isinstance(served.process, Attached):
        return not await served.process.look(served.engine, served.session)
    try:
        await asyncio.wait_for(_death(served), DEATH_GRACE_S)
    except TimeoutError:
        return False
    return True


def _requests_failed(first_error: str | None) -> Failure:
    return Failure(
        kind=FailureClass.REQUESTS_FAILED,
        summary=f"No request succeeded: {first_error[:300]}" if first_error else "No request succeeded.",
        mend="Look at the errors in requests.parquet and at engine.log; send one such request by hand.",
    )
