"""Open loops and traces: sent on time whatever runs, sessions in order, delivered against offered."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from specbench.load.open import run_open, with_reply
from specbench.load.progress import Progress
from specbench.load.record import ErrorClass, RequestRecord
from specbench.load.recorder import Recorder
from specbench.load.transport import Prepared
from specbench.workloads.request import Arrival, Request
from tests.load.test_closed import Puppet, drive, requests, settle


class Clockwork:
    """A transport whose requests take a set time; ``fail`` names those that find no server."""

    def __init__(
        self, takes_s: float, *, fail: frozenset[str] = frozenset(), says: str = "", late_s: float = 0
    ) -> None:
        self.takes_s = takes_s
        self.fail = fail
        self.says = says
        self.late_s = late_s
        self.prepared: list[Request] = []
        self.running = self.most = 0

    def prepare(self, request: Request) -> Prepared:
        self.prepared.append(request)
        return Prepared(request, b"")

    async def send(
        self, prepared: Prepared, record: RequestRecord, *, epoch_s: float, progress: Progress
    ) -> None:
        if prepared.request.id in self.fail:
            record.error_class, record.error = ErrorClass.CONNECT, "refused"
            record.end_s = time.perf_counter() - epoch_s
            return
        if self.late_s:
            await asyncio.sleep(self.late_s * record.index)
        record.sent_s = time.perf_counter() - epoch_s
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(self.takes_s)
        self.running -= 1
        if record.text is not None:
            record.text += [self.says, prepared.request.id]
        record.finish_reason = "stop"
        record.end_s = time.perf_counter() - epoch_s


def at(*times: float) -> list[Arrival]:
    return [Arrival(at_s=t) for t in times]


def every(gap_s: float, n: int) -> list[Arrival]:
    return at(*(i * gap_s for i in range(n)))


def test_requests_go_out_on_time_however_many_are_running() -> None:
    async def test() -> None:
        transport = Clockwork(takes_s=0.4)
        run = await run_open(transport, requests(20), every(0.01, 20))
        assert transport.most == 20  # the first was still running when the last was sent
        assert [r.intended_s for r in run.records] == pytest.approx([i * 0.01 for i in range(20)])
        assert all((r.sent_s or 0) >= r.intended_s - 0.002 for r in run.records)
        assert run.offered_per_s == pytest.approx(100.0)
        assert run.delivered_per_s is not None
        assert run.delivered_per_s <= 100.0001
        assert len(run.send_lateness_s()) == 20
        assert (run.cancelled, run.aborted, run.concurrency) == (False, None, 0)

    drive(test)


def test_the_index_is_the_place_in_the_list() -> None:
    async def test() -> None:
        run = await run_open(Clockwork(0.0), requests(4), at(0.03, 0.0, 0.02, 0.01))
        assert [r.index for r in run.records] == [1, 3, 2, 0]
        assert [r.id for r in run.records] == ["r1", "r3", "r2", "r0"]

    drive(test)


def test_a_turn_waits_for_its_predecessor_and_the_think_time() -> None:
    async def test() -> None:
        schedule = [
            Arrival(at_s=0.0),
            Arrival(at_s=0.0, after=0, delay_s=0.05),
            Arrival(at_s=0.5, after=1),
            Arrival(at_s=0.01),
        ]
        run = await run_open(Clockwork(0.1), requests(4), schedule)
        by_index = {r.index: r for r in run.records}
        assert by_index[1].intended_s == pytest.approx((by_index[0].end_s or 0) + 0.05)
        assert by_index[2].intended_s == 0.5  # its own time is later than its predecessor's end
        assert (by_index[1].sent_s or 0) >= by_index[1].intended_s - 0.002
        # Turns that wait are no independent arrivals.
        assert run.offered_per_s == pytest.approx(100.0)

    drive(test)


def test_a_turn_follows_a_failed_one_too() -> None:
    async def test() -> None:
        schedule = [Arrival(at_s=0.0), Arrival(at_s=0.0, after=0)]
        run = await run_open(Clockwork(0.0, fail=frozenset({"r0"})), requests(2), schedule)
        assert [r.ok for r in run.records] == [False, True]

    drive(test)


def test_real_history_puts_the_reply_into_the_next_turn() -> None:
    user = {"role": "user", "content": "one"}
    more = {"role": "user", "content": "two"}
    reply = {"role": "assistant", "content": "recorded"}
    turns = [
        Request(id="a", category="c", messages=(user,), max_tokens=4),
        Request(id="b", category="c", messages=(user, reply, more), max_tokens=4),
        Request(
            id="c",
            category="c",
            messages=(user, reply, more, {**reply, "content": "recorded 2"}, user),
            max_tokens=4,
        ),
    ]  # fmt: skip
    schedule = [Arrival(at_s=0.0), Arrival(at_s=0.0, after=0), Arrival(at_s=0.0, after=1)]

    async def test() -> None:
        transport = Clockwork(0.0, says="said ")
        run = await run_open(transport, turns, schedule, history="real")
        assert [m["content"] for m in transport.prepared[-1].messages or ()] == [
            "one", "said a", "two", "said b", "one",
        ]  # fmt: skip
        assert all(r.text is None for r in run.records)
        plain = Clockwork(0.0, says="said ")
        await run_open(plain, turns, schedule)
        assert plain.prepared == turns  # nothing was prepared again

    drive(test)


def test_with_reply_only_where_the_turn_continues_the_one_before() -> None:
    user, reply = {"role": "user", "content": "u"}, {"role": "assistant", "content": "r"}
    assert with_reply((user,), (user, reply, user), "new") == (
        user,
        {"role": "assistant", "content": "new"},
        user,
    )
    assert with_reply((user,), (user, user, user), "new") is None
    assert with_reply((user,), (user,), "new") is None
    assert with_reply(None, (user, reply, user), "new") is None


def test_the_window_opens_after_a_tenth_and_closes_at_the_last_admission() -> None:
    seen: list[str] = []

    async def hook(name: str) -> None:
        seen.append(name)

    async def test() -> None:
        run = await run_open(
            Clockwork(0.05),
            requests(21),
            every(0.01, 21),
            on_window_open=lambda: hook("open"),
            on_window_close=lambda: hook("close"),
        )
        assert seen == ["open", "close"]
        assert run.opened_s == pytest.approx(0.02, abs=0.02)
        assert run.closed_s is not None
        assert run.closed_s >= 0.2 - 0.002

    drive(test)


def test_a_client_that_cannot_send_in_time_delivers_less_than_offered() -> None:
    async def test() -> None:
        run = await run_open(Clockwork(0.0, late_s=0.01), requests(20), every(0.02, 20))
        assert run.offered_per_s == pytest.approx(50.0)
        assert run.delivered_per_s is not None
        assert run.delivered_per_s < 0.8 * 50

    drive(test)


def test_requests_that_are_never_sent_are_missing_from_what_was_delivered() -> None:
    async def test() -> None:
        fail = frozenset({"r3", "r7"})
        run = await run_open(Clockwork(0.0, fail=fail), requests(11), every(0.01, 11))
        assert run.delivered_per_s is not None
        assert run.delivered_per_s <= 80.001
        assert run.aborted is None

    drive(test)


def test_a_server_that_is_gone_ends_the_load_at_once() -> None:
    async def test() -> None:
        fail = frozenset(f"r{i}" for i in range(100))
        schedule = [*every(0.001, 99), Arrival(at_s=3600.0)]
        run = await run_open(Clockwork(0.0, fail=fail), requests(100), schedule)
        assert run.aborted is not None
        assert "the server is gone" in run.aborted
        assert len(run.records) < 100
        assert (run.delivered_per_s, run.closed_s) == (None, None)

    drive(test)


def test_a_cancelled_load_keeps_its_records() -> None:
    async def test() -> None:
        puppet, recorder = Puppet(), Recorder()
        task = asyncio.ensure_future(run_open(puppet, requests(3), at(0.0, 0.0, 3600.0), recorder=recorder))
        await settle()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        run = recorder.result()
        assert run.cancelled
        assert [r.error_class for r in run.records] == [ErrorClass.CANCELLED] * 2
        assert all(r.end_s is not None for r in run.records)

    drive(test)


def test_a_fault_of_a_hook_comes_out() -> None:
    async def broken() -> None:
        raise RuntimeError("hook broke")

    async def test() -> None:
        with pytest.raises(RuntimeError, match="hook broke"):
            await run_open(Clockwork(0.0), requests(12), every(0.001, 12), on_window_open=broken)

    drive(test)


@pytest.mark.parametrize(
    ("n", "schedule", "message"),
    [
        (0, [], "at least one request"),
        (2, at(0.0), "2 requests have 1 arrival times"),
        (2, [Arrival(at_s=0.0, after=1), Arrival(at_s=0.0)], "a turn must come after"),
        (1, [Arrival(at_s=0.0, after=0)], "a turn must come after"),
    ],
)
def test_nonsense_is_refused(n: int, schedule: Any, message: str) -> None:
    async def test() -> None:
        with pytest.raises(ValueError, match=message):
            await run_open(Clockwork(0.0), requests(n), schedule)

    drive(test)
