"""Open loops and traces: requests go out at their times, however many are still running."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from specbench.load.closed import Hook, frozen_heap, run_hook
from specbench.load.progress import Progress
from specbench.load.record import ErrorClass, RequestRecord
from specbench.load.recorder import CellRun, Recorder
from specbench.load.streaks import Streaks
from specbench.load.transport import Prepared, Transport
from specbench.workloads.request import Arrival, Request

RAMP: Final = 0.1
"""Share of the arrivals' span that passes before the window opens: the engine fills up in it."""

_STREAK_CONCURRENCY: Final = 16
"""An open loop has no concurrency; it gives up as a closed loop of this many would."""

History = Literal["recorded", "real"]


async def run_open(
    transport: Transport,
    requests: Sequence[Request],
    schedule: Sequence[Arrival],
    *,
    history: History = "recorded",
    on_window_open: Hook | None = None,
    on_window_close: Hook | None = None,
    progress: Progress | None = None,
    recorder: Recorder | None = None,
) -> CellRun:
    """Send each request once, at its time in the schedule, and wait for all ends.

    Latency counts from the intended time: that of the schedule, or for a turn of a session its predecessor's
    end plus the think time. Nothing caps the requests in flight; a connection that the system refuses is a
    failed request. The window runs from a tenth of the arrivals' span to the last admission. Records are in
    the order of admission, and their index is the place in the list: the same request in every arm.

    Args:
        schedule: one per request; ``after`` points to an earlier one.
        history: ``real`` puts what the engine said in a turn into the later turns of its session, where the
            recorded reply stood; the arms may then send different prompts.
        on_window_open: called when the window opens, beside the load, which does not wait for it.
        on_window_close: likewise at the last admission; not called when the load is cut short.
        recorder: holds the records; pass one in to keep them when this call is cancelled.

    Raises:
        ValueError: no requests, a schedule of another length, or a turn that waits for a later one.
        asyncio.CancelledError: after requests in flight were recorded as cancelled.
        Exception: whatever a hook raised, after the load has ended.
    """
    if not requests:
        raise ValueError("an open loop needs at least one request")
    if len(schedule) != len(requests):
        raise ValueError(f"{len(requests)} requests have {len(schedule)} arrival times")
    if any(a.after is not None and not 0 <= a.after < i for i, a in enumerate(schedule)):
        raise ValueError("a turn must come after the one that it waits for")
    prepared = [transport.prepare(request) for request in requests]
    loop = _OpenLoop(
        transport, prepared, schedule, history, progress or Progress(), recorder or Recorder(),
        on_window_open, on_window_close,
    )  # fmt: skip
    with frozen_heap():
        await loop.run()
    return loop.recorder.result()


class _OpenLoop:
    """State of one cell: what is due, what was admitted, what ended."""

    def __init__(
        self,
        transport: Transport,
        prepared: list[Prepared],
        schedule: Sequence[Arrival],
        history: History,
        progress: Progress,
        recorder: Recorder,
        on_window_open: Hook | None,
        on_window_close: Hook | None,
    ) -> None:
        self.transport = transport
        self.prepared = prepared
        self.schedule = schedule
        self.progress = progress
        self.recorder = recorder
        self.on_window_open = on_window_open
        self.on_window_close = on_window_close
        self.turns: dict[int, list[int]] = {}
        for i, arrival in enumerate(schedule):
            if arrival.after is not None:
                self.turns.setdefault(arrival.after, []).append(i)
        self.real = history == "real"
        self.said: dict[int, str] = {}
        self.streaks = Streaks(_STREAK_CONCURRENCY)
        self.over = False
        self.tasks: set[asyncio.Task[None]] = set()
        self.hooks: list[asyncio.Task[None]] = []
        self.stop = asyncio.Event()
        self.idle = asyncio.Event()
        self.fault: BaseException | None = None
        self.epoch_s = 0.0

    async def run(self) -> None:
        recorder = self.recorder
        first = [(a.at_s, i) for i, a in enumerate(self.schedule) if a.after is None]
        first.sort()
        self.progress.planned = len(self.prepared)
        recorder.concurrency = 0
        recorder.epoch_unix = time.time()
        self.epoch_s = time.perf_counter()
        start, end = first[0][0], max(a.at_s for a in self.schedule)
        opens_s = start + RAMP * (end - start)
        try:
            for at_s, i in first:
                if at_s >= opens_s and recorder.opened_s is None and len(self.prepared) > 1:
                    await self._until(opens_s)
                    self._open_window()
                await self._until(at_s)
                if self.over:
                    break
                self._spawn(i, at_s)
            while self.tasks:
                self.idle.clear()
                await self.idle.wait()
            if self.fault is not None:
                raise self.fault
            await asyncio.gather(*self.hooks)
            self._rates([i for _, i in first])
        except asyncio.CancelledError:
            recorder.cancelled = True
            await self._cancel_all()
            raise
        finally:
            for hook in self.hooks:
                hook.cancel()
            await asyncio.gather(*self.hooks, return_exceptions=True)

    def _stop(self) -> None:
        self.over = True
        self.stop.set()

    async def _until(self, at_s: float) -> None:
        """Wait for a moment, or for the end of the load if that comes first."""
        left = at_s - self._now_s()
        if left > 0 and not self.over:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stop.wait(), left)

    def _open_window(self) -> None:
        if not self.over:
            self.recorder.opened_s = self._now_s()
            self._call(self.on_window_open)

    def _spawn(self, i: int, intended_s: float) -> None:
        task = asyncio.create_task(self._one(i, intended_s))
        self.tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fault = self.fault or error
            self._stop()
        if not self.tasks:
            self.idle.set()

    async def _one(self, i: int, intended_s: float) -> None:
        await self._until(intended_s)
        if self.over:
            return
        prepared = self._with_history(i)
        request = prepared.request
        record = RequestRecord(id=request.id, index=i, category=request.category, intended_s=intended_s)
        if self.real and i in self.turns:
            record.text = []
        self.recorder.records.append(record)
        self.progress.admitted += 1
        self.progress.in_flight += 1
        if len(self.recorder.records) == len(self.prepared):
            self.recorder.closed_s = self._now_s()
            self._call(self.on_window_close)
        try:
            await self.transport.send(prepared, record, epoch_s=self.epoch_s, progress=self.progress)
        finally:
            self.progress.in_flight -= 1
        self._note_end(i, record)

    def _note_end(self, i: int, record: RequestRecord) -> None:
        if record.ok:
            self.progress.completed += 1
        else:
            self.progress.errors += 1
        if record.text is not None:
            self.said[i] = "".join(record.text)
            record.text = None
        hopeless = self.streaks.note(record)
        if hopeless is not None and not self.over:
            self.recorder.aborted = hopeless
            self._stop()
        if self.over:
            return
        ended_s = self._now_s() if record.end_s is None else record.end_s
        # A turn follows a failed one too: the load stays the same, whatever the engine does with it.
        for turn in self.turns.get(i, ()):
            arrival = self.schedule[turn]
            self._spawn(turn, max(arrival.at_s, ended_s + arrival.delay_s))

    def _with_history(self, i: int) -> Prepared:
        """The request with what the engine said in the turn before, where the recorded reply stood."""
        before = self.schedule[i].after
        mine = self.prepared[i]
        if not self.real or before is None or before not in self.said:
            return mine
        messages = with_reply(
            self.prepared[before].request.messages, mine.request.messages, self.said[before]
        )
        if messages is None:
            return mine
        made = self.transport.prepare(msgspec.structs.replace(mine.request, messages=messages))
        self.prepared[i] = made
        return made

    def _rates(self, independent: list[int]) -> None:
        """Offered and delivered arrivals per second, over the requests that wait for no other."""
        if len(independent) < 2 or self.recorder.aborted is not None:
            return
        due = [self.schedule[i].at_s for i in independent]
        chosen = set(independent)
        sent = sorted(r.sent_s for r in self.recorder.records if r.index in chosen and r.sent_s is not None)
        span = max(due) - min(due)
        if span <= 0:
            return
        self.recorder.offered_per_s = (len(due) - 1) / span
        # What was late stretches the span; what was never sent is missing from the count.
        delivered_span = max(span, sent[-1] - sent[0]) if len(sent) > 1 else span
        self.recorder.delivered_per_s = max(0, len(sent) - 1) / delivered_span

    async def _cancel_all(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for record in self.recorder.records:
            if record.end_s is None:
                record.error_class, record.error = ErrorClass.CANCELLED, "cancelled before its end"
                record.end_s = self._now_s()

    def _call(self, hook: Hook | None) -> None:
        if hook is not None:
            self.hooks.append(asyncio.create_task(run_hook(hook)))

    def _now_s(self) -> float:
        return time.perf_counter() - self.epoch_s


def with_reply(
    before: tuple[dict[str, Any], ...] | None, now: tuple[dict[str, Any], ...] | None, said: str
) -> tuple[dict[str, Any], ...] | None:
    """The messages of a turn, its last recorded reply replaced by ``said``, what precedes it by ``before``.

    Null when the turn is not the one before plus a reply plus more: then nothing can be put in its place.
    """
    if before is None or now is None or len(now) <= len(before) + 1:
        return None
    reply = now[len(before)]
    if reply.get("role") != "assistant" or [m.get("role") for m in now[: len(before)]] != [
        m.get("role") for m in before
    ]:
        return None
    return (*before, {"role": "assistant", "content": said}, *now[len(before) + 1 :])
