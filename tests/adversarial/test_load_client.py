"""Servers that misbehave, over real sockets: what the client must still get right."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from specbench.load.record import ErrorClass, RequestRecord
from tests.load.servers import DONE, HEAD, LAST_CHUNK, Script, Wire, chunked, event, text_event
from tests.load.test_transport import answered_by

FINAL = event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}})


def streamed(*packets: bytes, end: bytes = LAST_CHUNK) -> RequestRecord:
    async def script(wire: Wire) -> None:
        await wire.stream(*packets, end=end)
        if not end:
            wire.close()

    return answered_by(script)


def delta(total: int | None = None, finish: str | None = None, **fields: object) -> bytes:
    usage = None if total is None else {"prompt_tokens": 7, "completion_tokens": total}
    return event({"choices": [{"delta": fields, "finish_reason": finish}], "usage": usage})


A = text_event("a", ids=[1], total=1)
B = text_event("b", ids=[2], total=2, finish="stop")


@pytest.mark.parametrize(
    "packets",
    [
        pytest.param([A, B, FINAL, DONE], id="plain"),
        pytest.param([A, B, event({"usage": {"completion_tokens": 2}}), DONE], id="usage without choices"),
        pytest.param(
            [b": hi\n\n", A, b": ping\n\n", B, b":\n\n", DONE], id="keep-alives in their own packets"
        ),
        pytest.param([A.replace(b"data: ", b"data:"), B], id="no space after data"),
        pytest.param([b"event: message\nid: 1\n" + A, b"id: 2\n" + B], id="event and id lines"),
        pytest.param([(A + B + DONE).replace(b"\n", b"\r\n")], id="CRLF, all in a packet"),
        pytest.param([A[:-1] + b"\r", b"\n\r", b"\n" + B], id="CRLF cut apart"),
        pytest.param([(A + B).replace(b"\n", b"\r")], id="CR alone"),
        pytest.param([b"\xef\xbb\xbf" + A, B], id="byte order mark"),
        pytest.param([A[:9], A[9:] + B[:5], B[5:-1], B[-1:]], id="events cut and glued"),
        pytest.param([A, B], id="no DONE"),
        pytest.param([A, B, DONE, b"data: {after the end\n\n"], id="rubbish after DONE"),
        pytest.param([bytes([c]) for c in A + B + DONE], id="byte by byte"),
    ],
)
def test_two_tokens_in_any_dress(packets: list[bytes]) -> None:
    record = streamed(*packets)
    assert record.error is None
    assert (record.chunk_tokens, record.token_ids, record.output_tokens) == ([1, 1], [1, 2], 2)
    assert record.finish_reason == "stop"


def test_cuts_at_white_space_and_inside_characters() -> None:
    data = delta(2, "stop", content="x y 漢 😀")
    for cut in (data.index(b" {"), data.index(b"x ") + 1, data.index(b"x ") + 2, len(data) - 3):
        record = streamed(data[:cut], data[cut:])
        assert record.ok
        assert record.chunk_tokens == [2]
    raw = '{"choices":[{"text":"漢😀","finish_reason":"stop"}],"usage":{"completion_tokens":2}}'
    stream = f"data: {raw}\n\n".encode()
    for cut in range(stream.index("漢".encode()), stream.index("😀".encode()) + 4):
        assert streamed(stream[:cut], stream[cut:]).chunk_tokens == [2]


def test_first_token_is_not_the_role_chunk() -> None:
    role = delta(0, role="assistant", content="")
    record = streamed(role, delta(1, content="a"), delta(2, "stop", content="b"), DONE)
    assert record.chunk_tokens == [1, 1]
    alone = streamed(role, delta(0, content=""), delta(None, "stop"), DONE)
    assert alone.error_class == ErrorClass.NO_TOKENS
    assert alone.chunk_s == []


def test_several_tokens_in_a_chunk() -> None:
    record = streamed(delta(4, content="abcd"), delta(5, content="e"), delta(9, "length", content="fghi"))
    assert record.chunk_tokens == [4, 1, 4]
    assert record.output_tokens == 9


def test_usage_on_the_last_choices_chunk() -> None:
    record = streamed(delta(content="a"), delta(content="b"), delta(7, "stop", content="c"), DONE)
    assert record.ok
    assert record.output_tokens == 7
    assert record.chunk_tokens == [-1, -1, -1]


def test_reasoning_and_tool_calls_are_tokens() -> None:
    call = {"index": 0, "function": {"arguments": "{}"}}
    record = streamed(
        delta(1, reasoning="hm"), delta(3, content="a"), delta(40, "tool_calls", tool_calls=[call])
    )
    assert record.ok
    assert record.chunk_tokens == [1, 2, 37]


def test_nothing_is_imputed() -> None:
    record = streamed(delta(content="a"), delta(None, "stop", content="b"), DONE)
    assert record.ok
    assert (record.output_tokens, record.prompt_tokens) == (None, None)
    assert record.chunk_tokens == [-1, -1]


@pytest.mark.parametrize("end", [LAST_CHUNK, b""])
def test_error_object_inside_a_stream(end: bytes) -> None:
    """Also when the connection breaks right after it: what was said before the end still counts."""
    record = streamed(A, event({"error": {"message": "EngineDeadError", "code": 500}}), end=end)
    assert record.error_class == ErrorClass.STREAM_ERROR
    assert "EngineDeadError" in (record.error or "")
    assert record.http_status == 200
    assert record.chunk_tokens == [1]


def test_error_and_break_in_one_burst() -> None:
    async def script(wire: Wire) -> None:
        wire.writer.write(HEAD + chunked(A) + chunked(event({"error": {"message": "EngineDeadError"}})))
        await wire.writer.drain()
        wire.close()

    record = answered_by(script)
    assert record.error_class == ErrorClass.STREAM_ERROR
    assert record.token_ids == [1]


@pytest.mark.parametrize("end", [LAST_CHUNK, b""])
def test_truncated_stream(end: bytes) -> None:
    record = streamed(A, A[: len(A) // 2], end=end)
    assert record.error_class == ErrorClass.TRUNCATED
    assert record.chunk_tokens == [1]
    assert record.end_s is not None


def test_close_after_the_finish_is_a_finish() -> None:
    assert streamed(A, B, end=b"").ok


def reset_after(*packets: bytes) -> Script:
    async def script(wire: Wire) -> None:
        await wire.packets(*packets)
        wire.reset()

    return script


def close_after(*packets: bytes) -> Script:
    async def script(wire: Wire) -> None:
        await wire.packets(*packets)
        wire.close()

    return script


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (reset_after(), ErrorClass.RESET),
        (reset_after(b"HTTP/1.1 2"), ErrorClass.RESET),
        (reset_after(HEAD, chunked(A)), ErrorClass.RESET),
        (close_after(), ErrorClass.RESET),
        (close_after(HEAD), ErrorClass.TRUNCATED),
        (close_after(b"HTTP/1.1 200 OK\r\n\r\n" + A), ErrorClass.TRUNCATED),
        (close_after(b"SSH-2.0-x\r\n"), ErrorClass.BAD_EVENT),
        (close_after(HEAD, b"zz\r\n"), ErrorClass.BAD_EVENT),
        (close_after(HEAD, chunked(b"data: {oops\n\n"), LAST_CHUNK), ErrorClass.BAD_EVENT),
        (close_after(b"HTTP/1.1 200 OK\r\ncontent-encoding: br\r\n\r\n"), ErrorClass.BAD_EVENT),
        (close_after(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n" + A), ErrorClass.BAD_EVENT),
    ],
)
def test_broken_answers(script: Script, kind: ErrorClass) -> None:
    record = answered_by(script)
    assert record.error_class == kind
    assert record.error
    assert not record.ok


def test_unframed_stream_is_whole_with_its_finish() -> None:
    record = answered_by(
        close_after(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n", A, B + DONE)
    )
    assert record.ok
    assert record.token_ids == [1, 2]


def plain(status: str, body: bytes, content_type: str = "application/json") -> Script:
    async def script(wire: Wire) -> None:
        await wire.answer(status, body, content_type)

    return script


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        (
            plain("400 Bad Request", b'{"error":{"message":"maximum context length is 8 tokens"}}'),
            ErrorClass.CONTEXT_OVERFLOW,
            "maximum context length is 8 tokens",
        ),
        (
            plain("422 Unprocessable", b'{"detail":[{"type":"extra_forbidden","loc":["return_token_ids"]}]}'),
            ErrorClass.UNSUPPORTED_PARAMETER,
            "return_token_ids",
        ),
        (plain("429 Too Many", b"slow down", "text/plain"), ErrorClass.RATE_LIMITED, "HTTP 429: slow down"),
        (plain("503 Busy", b"", "text/plain"), ErrorClass.RATE_LIMITED, "HTTP 503 with an empty body"),
        (plain("500 Oops", b"Traceback", "text/plain"), ErrorClass.HTTP_STATUS, "HTTP 500: Traceback"),
        (plain("404 Not Found", b"model x", "text/plain"), ErrorClass.HTTP_STATUS, "model x"),
        (plain("302 Found", b"", "text/plain"), ErrorClass.HTTP_STATUS, "302"),
        (plain("204 No Content", b"", "text/plain"), ErrorClass.HTTP_STATUS, "204"),
        (plain("200 OK", b'{"choices":[{"text":"whole"}]}'), ErrorClass.BAD_EVENT, "without a stream"),
        (plain("200 OK", b'{"object":"error","message":"no"}'), ErrorClass.STREAM_ERROR, '"no"'),
        (plain("200 OK", b"<html>busy", "text/html"), ErrorClass.TRUNCATED, "<html>busy"),
        (plain("200 OK", b"", "text/event-stream"), ErrorClass.TRUNCATED, "without a finish"),
    ],
)
def test_refusals(script: Script, kind: ErrorClass, words: str) -> None:
    record = answered_by(script)
    assert record.error_class == kind
    assert words in (record.error or "")
    assert record.http_status is not None


def test_an_endless_error_body_is_cut() -> None:
    async def script(wire: Wire) -> None:
        await wire.packets(b"HTTP/1.1 500 Oops\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            await wire.packets(chunked(b"x" * 1000))

    record = answered_by(script)
    assert record.error_class == ErrorClass.HTTP_STATUS
    assert (record.error or "").count("x") == 2048


def test_an_error_body_cut_short_is_still_told() -> None:
    head = b"HTTP/1.1 500 Oops\r\ncontent-length: 100\r\n\r\n"
    record = answered_by(close_after(head + b"out of mem"))
    assert record.error_class == ErrorClass.HTTP_STATUS
    assert "out of mem" in (record.error or "")


def test_interim_responses_are_skipped() -> None:
    async def script(wire: Wire) -> None:
        await wire.packets(b"HTTP/1.1 102 Processing\r\n\r\n")
        await wire.stream(A, B)

    assert answered_by(script).ok


@pytest.mark.parametrize("cut", [lambda s: [s], lambda s: [bytes([c]) for c in s]])
def test_http_framing_in_any_packets(cut: Callable[[bytes], list[bytes]]) -> None:
    async def script(wire: Wire) -> None:
        await wire.packets(*cut(HEAD + chunked(A)[:-1]), b"\n", *cut(chunked(B) + LAST_CHUNK))

    assert answered_by(script).token_ids == [1, 2]
