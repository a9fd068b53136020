"""The closed loop: a fixed number of requests in flight, the next one sent the moment one ends."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from specbench.load.progress import Progress
from specbench.load.record import ErrorClass, RequestRecord
from specbench.load.recorder import CellRun, Recorder
from specbench.load.streaks import Streaks
from specbench.load.transport import Prepared, Transport
from specbench.workloads.request import Request

Hook = Callable[[], Awaitable[None]]

MIN_REQUESTS_PER_SLOT: Final = 6
"""Below this the window between the first wave and the drain is too small a part of the cell."""


async def run_closed(
    transport: Transport,
    requests: Sequence[Request],
    concurrency: int,
    *,
    seconds: float | None = None,
    on_window_open: Hook | None = None,
    on_window_close: Hook | None = None,
    progress: Progress | None = None,
    recorder: Recorder | None = None,
) -> CellRun:
    """Keep ``concurrency`` requests in flight, admitted in their order, until the list or the time is over.

    The first ``concurrency`` requests are intended at time 0, each later one when the request before it in
    its slot ended; latency counts from there. The window of steady load runs from the ``concurrency``-th
    end to the last admission. It needs more than two requests per slot; otherwise no hook is called.

    Args:
        seconds: admit for this long, and at least 6 requests per slot; the list starts again when it runs
            out (the index of a record is then no longer the place in the list). Null: each request once.
        on_window_open: called when the window opens, beside the load, which does not wait for it.
        on_window_close: likewise at the last admission; not called when the load is cut short.
        progress: counters for a display.
        recorder: holds the records; pass one in to keep them when this call is cancelled.

    The load stops early when the last max(4, concurrency) requests all found no server (no connection,
    reset, time out), or the last max(32, 4 x concurrency) all failed; ``aborted`` says so.

    Raises:
        ValueError: no requests, or a concurrency or time that is not positive.
        asyncio.CancelledError: after requests in flight were recorded as cancelled.
        Exception: whatever a hook raised, after the load has ended.
    """
    if not requests:
        raise ValueError("a closed loop needs at least one request")
    if concurrency < 1:
        raise ValueError(f"concurrency must be at least 1, not {concurrency}")
    if seconds is not None and seconds <= 0:
        raise ValueError(f"the time of a cell must be positive, not {seconds:g} s")
    prepared = [transport.prepare(request) for request in requests]
    loop = _ClosedLoop(
        transport, prepared, concurrency, seconds, progress or Progress(), recorder or Recorder(),
        on_window_open, on_window_close,
    )  # fmt: skip
    with frozen_heap():
        await loop.run()
    return loop.recorder.result()


class _ClosedLoop:
    """State of one cell: what was admitted, what ended, whether to go on."""

    def __init__(
        self,
        transport: Transport,
        prepared: list[Prepared],
        concurrency: int,
        seconds: float | None,
        progress: Progress,
        recorder: Recorder,
        on_window_open: Hook | None,
        on_window_close: Hook | None,
    ) -> None:
        self.transport = transport
        self.prepared = prepared
        self.concurrency = concurrency
        self.seconds = seconds
        self.progress = progress
        self.recorder = recorder
        self.on_window_open = on_window_open
        self.on_window_close = on_window_close
        self.windowed = seconds is not None or len(prepared) > 2 * concurrency
        self.over = False
        self.ended = 0
        self.streaks = Streaks(concurrency)
        self.hooks: list[asyncio.Task[None]] = []
        self.epoch_s = 0.0

    async def run(self) -> None:
        recorder = self.recorder
        recorder.concurrency = self.concurrency
        self.progress.planned = len(self.prepared) if self.seconds is None else None
        recorder.epoch_unix = time.time()
        self.epoch_s = time.perf_counter()
        try:
            async with asyncio.TaskGroup() as slots:
                for _ in range(self.concurrency):
                    slots.create_task(self._slot())
            await asyncio.gather(*self.hooks)
        except asyncio.CancelledError:
            recorder.cancelled = True
            self._close_records()
            raise
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            for hook in self.hooks:
                hook.cancel()
            await asyncio.gather(*self.hooks, return_exceptions=True)

    async def _slot(self) -> None:
        """One place in the loop. No other task has to run between an end and the next admission."""
        intended_s = 0.0
        while not self.over:
            prepared, record = self._admit(intended_s)
            try:
                await self.transport.send(prepared, record, epoch_s=self.epoch_s, progress=self.progress)
            finally:
                self.progress.in_flight -= 1
            self._note_end(record)
            intended_s = self._now_s() if record.end_s is None else record.end_s

    def _admit(self, intended_s: float) -> tuple[Prepared, RequestRecord]:
        index = len(self.recorder.records)
        prepared = self.prepared[index % len(self.prepared)]
        request = prepared.request
        record = RequestRecord(id=request.id, index=index, category=request.category, intended_s=intended_s)
        self.recorder.records.append(record)
        self.progress.admitted += 1
        self.progress.in_flight += 1
        if self._is_last(index):
            self.over = True
            if self.windowed:
                self.recorder.closed_s = self._now_s()
                self._call(self.on_window_close)
        return prepared, record

    def _is_last(self, index: int) -> bool:
        if self.seconds is None:
            return index + 1 == len(self.prepared)
        return index + 1 >= MIN_REQUESTS_PER_SLOT * self.concurrency and self._now_s() >= self.seconds

    def _note_end(self, record: RequestRecord) -> None:
        self.ended += 1
        if record.ok:
            self.progress.completed += 1
        else:
            self.progress.errors += 1
        hopeless = self.streaks.note(record)
        if hopeless is not None and not self.over:
            self.recorder.aborted = hopeless
            self.over = True
        if self.ended == self.concurrency and self.windowed and not self.over:
            self.recorder.opened_s = self._now_s()
            self._call(self.on_window_open)

    def _call(self, hook: Hook | None) -> None:
        if hook is not None:
            self.hooks.append(asyncio.create_task(run_hook(hook)))

    def _close_records(self) -> None:
        """A transport writes its own ending; this is for requests that never reached theirs."""
        for record in self.recorder.records:
            if record.end_s is None:
                record.error_class, record.error = ErrorClass.CANCELLED, "cancelled before its end"
                record.end_s = self._now_s()

    def _now_s(self) -> float:
        return time.perf_counter() - self.epoch_s


def run_hook(hook: Hook) -> Coroutine[Any, Any, None]:
    """A hook as a coroutine, whatever kind of awaitable it gives."""

    async def call() -> None:
        await hook()

    return call()


GC_EVERY: Final = 1_000_000
"""Live containers between two passes of the collector. A request leaves four (its record and lists) and no
cycle, so that a pass finds nothing; at the usual 700 the passes made the slowest 1 % of chunks a third later."""


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Keep the garbage collector out of the way: a pass over all that exists would stop the clock-taking."""
    usual = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_EVERY)
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()
