"""The closed loop, driven by a transport whose requests end when the test says so."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from specbench.load.closed import frozen_heap, run_closed
from specbench.load.progress import Progress
from specbench.load.record import ErrorClass, RequestRecord
from specbench.load.recorder import CellRun, Recorder
from specbench.load.transport import Prepared
from specbench.load.warmup import warm_up
from specbench.workloads.request import Request


def requests(n: int) -> list[Request]:
    return [Request(id=f"r{i}", category="c", prompt="x", max_tokens=4) for i in range(n)]


class Puppet:
    """A transport with strings: `flying` maps the index of a request to the future that ends it."""

    def __init__(self) -> None:
        self.flying: dict[int, asyncio.Future[ErrorClass | None]] = {}
        self.sent: list[str] = []
        self.most = 0

    def prepare(self, request: Request) -> Prepared:
        return Prepared(request, b"")

    async def send(
        self, prepared: Prepared, record: RequestRecord, *, epoch_s: float, progress: Progress
    ) -> None:
        self.sent.append(prepared.request.id)
        self.flying[record.index] = asyncio.get_running_loop().create_future()
        self.most = max(self.most, len(self.flying))
        record.sent_s = time.perf_counter() - epoch_s
        try:
            error = await self.flying[record.index]
        except asyncio.CancelledError:
            del self.flying[record.index]
            raise
        del self.flying[record.index]
        record.error_class = error
        record.finish_reason = None if error else "stop"
        record.end_s = time.perf_counter() - epoch_s

    async def end(self, index: int, error: ErrorClass | None = None) -> None:
        self.flying[index].set_result(error)
        await settle()


async def settle() -> None:
    for _ in range(8):
        await asyncio.sleep(0)


def drive(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await test()

    asyncio.run(bounded())


async def end_all(puppet: Puppet, run: Awaitable[CellRun]) -> CellRun:
    task = asyncio.ensure_future(run)
    await settle()
    while not task.done():
        for index in list(puppet.flying):
            await puppet.end(index)
    return await task


def test_order_and_concurrency() -> None:
    async def test() -> None:
        puppet, progress = Puppet(), Progress()
        task = asyncio.ensure_future(run_closed(puppet, requests(10), 3, progress=progress))
        await settle()
        assert sorted(puppet.flying) == [0, 1, 2]
        assert (progress.planned, progress.in_flight, progress.admitted) == (10, 3, 3)
        for ended, admitted in ((1, 3), (0, 4), (4, 5)):
            await puppet.end(ended)
            assert len(puppet.flying) == 3
            assert admitted in puppet.flying
        run = await end_all(puppet, task)
        assert puppet.sent == [f"r{i}" for i in range(10)]
        assert [r.index for r in run.records] == list(range(10))
        assert puppet.most == 3
        assert (progress.in_flight, progress.completed, progress.errors) == (0, 10, 0)
        assert run.end_s == max(r.end_s or 0.0 for r in run.records)

    drive(test)


def test_latency_counts_from_the_slot_being_free() -> None:
    async def test() -> None:
        puppet = Puppet()
        task = asyncio.ensure_future(run_closed(puppet, requests(5), 2))
        await settle()
        for index in (1, 0, 3, 2, 4):  # slot of 1 takes 2, slot of 0 takes 3, slot of 3 takes 4
            await puppet.end(index)
        records = (await task).records
        assert [r.intended_s for r in records[:2]] == [0.0, 0.0]
        assert [r.intended_s for r in records[2:]] == [records[1].end_s, records[0].end_s, records[3].end_s]
        assert all(r.sent_s is not None and r.sent_s >= r.intended_s for r in records)

    drive(test)


def test_window_marks_and_hooks() -> None:
    async def test() -> None:
        puppet, recorder, calls = Puppet(), Recorder(), list[str]()
        release = asyncio.Event()

        async def opened() -> None:
            calls.append("open")
            await release.wait()

        async def closed() -> None:
            calls.append("close")

        task = asyncio.ensure_future(
            run_closed(
                puppet, requests(8), 2, on_window_open=opened, on_window_close=closed, recorder=recorder
            )
        )
        await settle()
        await puppet.end(0)
        assert (calls, recorder.opened_s) == ([], None)
        await puppet.end(1)
        assert calls == ["open"]
        assert sorted(puppet.flying) == [2, 3]  # the hook still waits, the load does not
        for index in (2, 3, 4):
            await puppet.end(index)
        assert (calls, recorder.closed_s) == (["open"], None)
        await puppet.end(5)
        assert calls == ["open", "close"]
        assert sorted(puppet.flying) == [6, 7]
        await puppet.end(6)
        await puppet.end(7)
        assert not task.done()
        release.set()
        run = await task
        assert run.opened_s is not None
        assert run.closed_s is not None
        second_end = sorted(r.end_s or 0.0 for r in run.records)[1]
        last_sent = run.records[7].sent_s or 0.0
        assert second_end <= run.opened_s < (run.records[2].end_s or 0.0)
        assert (run.records[5].end_s or 0.0) <= run.closed_s <= last_sent

    drive(test)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_no_window_without_enough_requests(n: int) -> None:
    async def test() -> None:
        async def hook() -> None:
            raise AssertionError("there is no window")

        puppet = Puppet()
        run = await end_all(
            puppet, run_closed(puppet, requests(n), 2, on_window_open=hook, on_window_close=hook)
        )
        assert (run.opened_s, run.closed_s, len(run.records)) == (None, None, n)

    drive(test)


def test_timed_cell_cycles_and_sends_at_least_six_per_slot() -> None:
    async def test() -> None:
        puppet, progress = Puppet(), Progress()
        run = await end_all(puppet, run_closed(puppet, requests(5), 2, seconds=1e-9, progress=progress))
        assert [r.id for r in run.records] == [f"r{i % 5}" for i in range(12)]
        assert [r.index for r in run.records] == list(range(12))
        assert progress.planned is None
        assert run.opened_s is not None
        assert run.closed_s is not None
        assert run.opened_s < run.closed_s

    drive(test)


def test_timed_cell_goes_on_until_the_time_is_over() -> None:
    async def test() -> None:
        puppet = Puppet()
        run = await end_all(puppet, run_closed(puppet, requests(2), 1, seconds=0.05))
        assert len(run.records) > 6
        assert run.closed_s is not None
        assert run.closed_s >= 0.05
        assert run.records[-2].intended_s < run.closed_s

    drive(test)


@pytest.mark.parametrize(("concurrency", "sent"), [(1, 4), (3, 6), (8, 15)])
def test_a_dead_server_ends_the_cell(concurrency: int, sent: int) -> None:
    async def test() -> None:
        puppet = Puppet()
        task = asyncio.ensure_future(run_closed(puppet, requests(200), concurrency))
        await settle()
        while not task.done():
            await puppet.end(min(puppet.flying), ErrorClass.CONNECT)
        run = await task
        assert len(run.records) == sent
        assert "the server is gone" in (run.aborted or "")
        assert run.closed_s is None

    drive(test)


def test_single_failures_do_not_end_it() -> None:
    async def test() -> None:
        puppet = Puppet()
        task = asyncio.ensure_future(run_closed(puppet, requests(40), 1))
        await settle()
        for index in range(40):
            await puppet.end(index, ErrorClass.RESET if index % 4 else None)
        run = await task
        assert run.aborted is None
        assert len(run.records) == 40

    drive(test)


def test_refusals_alone_end_it_later() -> None:
    async def test() -> None:
        puppet, progress = Puppet(), Progress()
        task = asyncio.ensure_future(run_closed(puppet, requests(200), 1, progress=progress))
        await settle()
        while not task.done():
            await puppet.end(min(puppet.flying), ErrorClass.HTTP_STATUS)
        run = await task
        assert len(run.records) == 32
        assert "nothing succeeds" in (run.aborted or "")
        assert (progress.completed, progress.errors) == (0, 32)

    drive(test)


def test_cancellation_keeps_the_records() -> None:
    async def test() -> None:
        puppet, recorder, progress = Puppet(), Recorder(), Progress()
        hook_ended = asyncio.Event()

        async def endless() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                hook_ended.set()

        task = asyncio.ensure_future(
            run_closed(puppet, requests(20), 2, recorder=recorder, progress=progress, on_window_open=endless)
        )
        await settle()
        for index in range(3):
            await puppet.end(index)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        run = recorder.result()
        assert run.cancelled
        assert hook_ended.is_set()
        assert [r.ok for r in run.records] == [True, True, True, False, False]
        assert [r.error_class for r in run.records[3:]] == [ErrorClass.CANCELLED] * 2
        assert all(r.end_s is not None for r in run.records)
        assert (puppet.flying, progress.in_flight) == ({}, 0)

    drive(test)


def test_a_failing_hook_is_told_after_the_load() -> None:
    async def test() -> None:
        async def broken() -> None:
            raise RuntimeError("no metrics page")

        puppet, recorder = Puppet(), Recorder()
        with pytest.raises(RuntimeError, match="no metrics page"):
            await end_all(
                puppet, run_closed(puppet, requests(9), 2, on_window_open=broken, recorder=recorder)
            )
        assert len(recorder.records) == 9

    drive(test)


def test_bad_arguments() -> None:
    async def test() -> None:
        for arguments, words in (
            (([], 1), "at least one request"),
            ((requests(1), 0), "concurrency must be at least 1"),
        ):
            with pytest.raises(ValueError, match=words):
                await run_closed(Puppet(), *arguments)
        with pytest.raises(ValueError, match="must be positive"):
            await run_closed(Puppet(), requests(1), 1, seconds=0)

    drive(test)


def test_lateness_leaves_out_the_first_wave() -> None:
    records = tuple(
        RequestRecord(f"r{i}", i, "c", intended_s=1.0, sent_s=sent)
        for i, sent in enumerate([9.0, 9.0, 1.25, None, 0.5])
    )
    run = CellRun(records, 2, 0.0, None, None, 9.0)
    assert run.send_lateness_s() == [0.25, 0.0]


def test_warm_up_reports() -> None:
    async def test() -> None:
        puppet = Puppet()
        task = asyncio.ensure_future(warm_up(puppet, requests(5), 2))
        await settle()
        await puppet.end(0, ErrorClass.RATE_LIMITED)
        while not task.done():
            await puppet.end(min(puppet.flying))
        result = await task
        assert (result.ok, result.failed) == (4, 1)
        assert "rate_limited" in (result.first_error or "")
        assert (await warm_up(puppet, [], 2)).first_error is None

    drive(test)


def test_the_collector_rests_while_a_load_runs() -> None:
    """No pass over the heap for what 10,000 requests leave behind; afterwards all is as before."""
    before, passes = gc.get_threshold(), []
    note: Callable[[str, dict[str, int]], None] = lambda phase, _: passes.append(phase)  # noqa: E731
    with frozen_heap():
        gc.callbacks.append(note)
        kept = [RequestRecord(id="r", index=i, category="c", intended_s=0.0) for i in range(10_000)]
        gc.callbacks.remove(note)
    assert len(kept) == 10_000
    assert passes == []
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
