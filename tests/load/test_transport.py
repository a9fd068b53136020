"""The HTTP transport against a scripted server, over real sockets."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest
import uvloop
from aiohttp import web

from specbench.load.closed import run_closed
from specbench.load.progress import Progress
from specbench.load.record import ErrorClass, RequestRecord
from specbench.load.recorder import Recorder
from specbench.load.transport import HttpTransport, open_client
from specbench.observe.client import OpenFileLimitError
from specbench.workloads.request import Request
from tests.load.servers import (
    DONE,
    HEAD,
    LAST_CHUNK,
    Script,
    Wire,
    chunked,
    good_stream,
    hang,
    serving,
    text_event,
)

REQUEST = Request(id="r", category="c", prompt="x", max_tokens=4)


def drive(test: Callable[[], Coroutine[Any, Any, Any]], run: Callable[..., Any] = uvloop.run) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(30):
            return await test()

    return run(bounded())


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came true")


async def send(transport: HttpTransport, request: Request = REQUEST) -> RequestRecord:
    record = RequestRecord(request.id, 0, request.category, 0.0)
    await transport.send(transport.prepare(request), record, epoch_s=time.perf_counter(), progress=Progress())
    return record


def answered_by(*scripts: Script, stall_s: float = 20.0, total_s: float = 20.0) -> RequestRecord:
    async def test() -> RequestRecord:
        async with (
            serving(*scripts) as server,
            open_client(
                server.url, "m", connections=1, stall_timeout_s=stall_s, total_timeout_s=total_s
            ) as transport,
        ):
            return await send(transport)

    record = drive(test)
    assert isinstance(record, RequestRecord)
    return record


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_one_request(run: Callable[..., Any]) -> None:
    async def test() -> None:
        async with serving(good_stream(3)) as server:
            async with open_client(
                server.url + "/base/",
                "target",
                connections=1,
                stall_timeout_s=20,
                total_timeout_s=20,
                headers={"Authorization": "Bearer abc"},
                extra_body={"return_spec_tokens_details": True},
            ) as transport:
                record = await send(transport)
            (body,) = server.bodies
        assert record.ok
        assert (record.http_status, record.chunk_tokens, record.token_ids) == (200, [1, 1, 1], [1, 2, 3])
        times = [0.0, record.sent_s, *record.chunk_s, record.end_s]
        assert times == sorted(times)  # type: ignore[type-var]  # none is null after a good request
        sent = msgspec.json.decode(body)
        assert (sent["model"], sent["return_spec_tokens_details"]) == ("target", True)

    drive(test, run)


def test_chats_have_keys_of_their_own() -> None:
    transport = HttpTransport(
        "http://127.0.0.1:1",
        "m",
        stall_timeout_s=1,
        total_timeout_s=1,
        extra_body={"a": 1},
        extra_chat={"return_token_ids": False},
    )

    def body(**changes: object) -> dict[str, object]:
        request = msgspec.structs.replace(REQUEST, **{"prompt": None, **changes})
        sent: dict[str, object] = msgspec.json.decode(
            transport.prepare(request).payload.partition(b"\r\n\r\n")[2]
        )
        return sent

    text, chat = body(prompt="hello"), body(messages=({"role": "user", "content": "hello"},))
    assert (text["a"], text["return_token_ids"]) == (1, True)
    assert (chat["a"], chat["return_token_ids"]) == (1, False)


def test_head_is_what_was_asked() -> None:
    heads = []

    async def script(wire: Wire) -> None:
        heads.append(wire.head)
        await good_stream(1)(wire)

    async def test() -> None:
        async with serving(script) as server:
            async with open_client(
                server.url + "/base/", "m", connections=1, stall_timeout_s=20, total_timeout_s=20
            ) as transport:
                await send(transport)
            authority = server.url.removeprefix("http://")
            first, *lines = heads[0].decode().strip().split("\r\n")
            assert first == "POST /base/v1/completions HTTP/1.1"
            assert f"Host: {authority}" in lines
            assert not any(line.lower().startswith("accept-encoding") for line in lines)

    drive(test)


@pytest.mark.parametrize(("concurrency", "n"), [(1, 4), (5, 40), (150, 600)])
def test_exactly_so_many_in_flight(concurrency: int, n: int) -> None:
    """Counted by the server; 150 is above the connection caps that general HTTP clients have unasked."""

    async def test() -> None:
        gate = asyncio.Event()

        async def wave(wire: Wire) -> None:
            if wire.server.in_flight == concurrency:
                gate.set()
            await gate.wait()  # the first wave must be there in full before anything is answered
            await good_stream(2)(wire)

        async with serving(wave) as server:
            async with open_client(
                server.url, "m", connections=concurrency, stall_timeout_s=20, total_timeout_s=20
            ) as transport:
                run = await run_closed(transport, [REQUEST] * n, concurrency)
            assert all(r.ok for r in run.records)
            assert max(server.in_flight_seen) == concurrency
            assert server.connections == concurrency
            assert len(server.bodies) == n

    drive(test)


def test_no_connection_is_shared_or_wasted() -> None:
    async def test() -> None:
        async with serving(good_stream(2)) as server:
            async with open_client(
                server.url, "m", connections=4, stall_timeout_s=20, total_timeout_s=20
            ) as transport:
                await run_closed(transport, [REQUEST] * 20, 4)
                await run_closed(transport, [REQUEST] * 20, 2)
            assert server.connections == 4

    drive(test)


def test_a_closing_server_costs_connections_not_requests() -> None:
    async def once(wire: Wire) -> None:
        await good_stream(2)(wire)
        wire.close()

    async def test() -> None:
        async with serving(once) as server:
            async with open_client(
                server.url, "m", connections=1, stall_timeout_s=20, total_timeout_s=20
            ) as transport:
                records = []
                for _ in range(5):
                    records.append(await send(transport))
                    await asyncio.sleep(0.01)  # the FIN arrives
            assert [r.error for r in records] == [None] * 5
            assert server.connections == 5

    drive(test)


def test_large_prompt_and_large_event() -> None:
    async def test() -> None:
        async def script(wire: Wire) -> None:
            await wire.stream(
                text_event("y" * 1_000_000, ids=list(range(50_000)), total=50_000, finish="stop")
            )

        async with (
            serving(script) as server,
            open_client(server.url, "m", connections=1, stall_timeout_s=20, total_timeout_s=20) as transport,
        ):
            record = await send(transport, msgspec.structs.replace(REQUEST, prompt="x" * 3_000_000))
            assert record.ok
            assert record.chunk_tokens == [50_000]
            assert len(server.bodies[0]) > 3_000_000

    drive(test)


def test_silence_before_the_answer() -> None:
    record = answered_by(hang, stall_s=0.1)
    assert record.error_class == ErrorClass.TIMEOUT
    assert record.error == "stalled: no byte for 0.1 s"
    assert record.http_status is None


def test_silence_inside_the_stream() -> None:
    async def script(wire: Wire) -> None:
        await wire.stream(text_event("a", total=1), end=b"")
        await hang(wire)

    record = answered_by(script, stall_s=0.1)
    assert record.error_class == ErrorClass.TIMEOUT
    assert (record.http_status, record.chunk_tokens, record.finish_reason) == (200, [1], None)


def test_keep_alives_hold_off_the_stall_but_not_the_total() -> None:
    async def script(wire: Wire) -> None:
        await wire.packets(HEAD)
        while True:
            await wire.packets(chunked(b": ping\n\n"))
            await asyncio.sleep(0.02)

    record = answered_by(script, stall_s=0.4, total_s=0.8)
    assert record.error_class == ErrorClass.TIMEOUT
    assert record.error == "not finished within 0.8 s"


def test_done_without_an_end_of_body() -> None:
    async def script(wire: Wire) -> None:
        await wire.stream(text_event("a", total=1, finish="stop"), DONE, end=b"")
        await hang(wire)

    record = answered_by(script)
    assert record.ok
    assert record.end_s is not None
    assert record.end_s < 20


def test_nobody_listens() -> None:
    with socket.socket() as held:  # bound, not listening: connections are refused
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"

        async def test() -> None:
            async with open_client(
                url, "m", connections=1, stall_timeout_s=20, total_timeout_s=20
            ) as transport:
                record = await send(transport)
                assert record.error_class == ErrorClass.CONNECT
                assert "cannot connect to 127.0.0.1" in (record.error or "")
                assert record.sent_s is None
                run = await run_closed(transport, [REQUEST] * 100, 2)
                assert len(run.records) == 5
                assert "server is gone" in (run.aborted or "")

        drive(test)


def test_cancellation_reaches_records_and_server() -> None:
    async def test() -> None:
        async with serving(good_stream(2), hang) as server:
            recorder = Recorder()
            async with open_client(
                server.url, "m", connections=2, stall_timeout_s=20, total_timeout_s=20
            ) as transport:
                task = asyncio.ensure_future(run_closed(transport, [REQUEST] * 20, 2, recorder=recorder))
                await until(lambda: server.in_flight == 2 and len(server.bodies) == 3)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                run = recorder.result()
                assert run.cancelled
                assert sorted(str(r.error_class) for r in run.records) == ["None", "cancelled", "cancelled"]
                await until(lambda: server.in_flight == 0)
                assert server.lost == 2

    drive(test)


def test_a_killed_server_ends_the_cell() -> None:
    async def dies(wire: Wire) -> None:
        await wire.stream(text_event("a", total=1), end=b"")
        wire.reset()

    async def test() -> None:
        async with (
            serving(*[good_stream(2)] * 12, dies) as server,
            open_client(server.url, "m", connections=4, stall_timeout_s=20, total_timeout_s=20) as transport,
        ):
            run = await run_closed(transport, [REQUEST] * 500, 4)
        kinds = [r.error_class for r in run.records]
        assert kinds[:12] == [None] * 12
        assert set(kinds[12:]) == {ErrorClass.RESET}
        assert len(kinds) <= 12 + 4 + 4
        assert "connection_reset" in (run.aborted or "")

    drive(test)


@pytest.mark.parametrize(
    ("url", "words"),
    [("127.0.0.1:8000", "not an http"), ("ftp://x", "not an http"), ("http://", "not an http")],
)
def test_bad_addresses(url: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        HttpTransport(url, "m", stall_timeout_s=1, total_timeout_s=1)


def test_headers_cannot_carry_line_breaks() -> None:
    with pytest.raises(ValueError, match="line break"):
        HttpTransport("http://h", "m", stall_timeout_s=1, total_timeout_s=1, headers={"X": "a\r\nY: b"})


def test_too_many_connections_for_the_system() -> None:
    async def test() -> None:
        async with open_client(
            "http://127.0.0.1:1", "m", connections=2**40, stall_timeout_s=1, total_timeout_s=1
        ):
            raise AssertionError("not reached")

    with pytest.raises(OpenFileLimitError, match=r"lower loads\.closed"):
        drive(test)


def test_bytes_outside_a_response_end_the_connection() -> None:
    async def chatty(wire: Wire) -> None:
        await good_stream(1)(wire)
        await wire.packets(b"HTTP/1.1 200 OK\r\n\r\n")

    async def test() -> None:
        async with (
            serving(chatty, good_stream(1)) as server,
            open_client(server.url, "m", connections=1, stall_timeout_s=20, total_timeout_s=20) as transport,
        ):
            assert (await send(transport)).ok
            await asyncio.sleep(0.05)
            assert (await send(transport)).token_ids == [1]
            assert server.connections == 2

    drive(test)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_real_http_server(run: Callable[..., Any]) -> None:
    """Heads, chunks and kept connections as aiohttp's server writes them."""

    async def handle(request: web.Request) -> web.StreamResponse:
        await request.json()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for i in range(1, 6):
            await response.write(text_event("t", ids=[i], total=i, finish="length" if i == 5 else None))
        await response.write(DONE)
        return response

    async def test() -> None:
        app = web.Application()
        app.router.add_post("/v1/completions", handle)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            async with open_client(
                f"http://127.0.0.1:{runner.addresses[0][1]}",
                "m",
                connections=8,
                stall_timeout_s=20,
                total_timeout_s=20,
            ) as transport:
                result = await run_closed(transport, [REQUEST] * 64, 8)
        finally:
            await runner.cleanup()
        assert all(r.ok and r.token_ids == [1, 2, 3, 4, 5] for r in result.records)

    drive(test, run)


def test_the_end_may_share_a_packet() -> None:
    async def script(wire: Wire) -> None:
        await wire.packets(HEAD + chunked(text_event("a", ids=[1], finish="stop") + DONE) + LAST_CHUNK)

    assert answered_by(script).ok
