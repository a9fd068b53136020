"""The record that comes out of a response body, without a socket."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench.load.classify import Fault
from specbench.load.progress import Progress
from specbench.load.receive import Receiver
from specbench.load.record import ErrorClass, RequestRecord
from tests.load.servers import DONE, event, text_event

USAGE = event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5}})
STREAM = (
    b": keep-alive\n\n"
    + event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
    + text_event("é", ids=[1], total=1)
    + text_event("x y😀", ids=[2, 3, 4], total=4).replace(b"\n", b"\r\n")
    + text_event("", ids=[5], total=5, finish="length")
    + USAGE
    + DONE
)


def receive(*packets: bytes, fault: Fault | None = None) -> tuple[RequestRecord, Progress]:
    """Packet ``i`` arrives at second ``i + 1``; the end comes one second after the last."""
    record, progress = RequestRecord("a", 0, "c", 0.0), Progress()
    receiver = Receiver(record, progress)
    for i, packet in enumerate(packets):
        receiver.feed(packet, i + 1.0)
    receiver.end(len(packets) + 1.0, fault)
    return record, progress


def test_a_whole_stream() -> None:
    record, progress = receive(STREAM)
    assert record.ok
    assert record.chunk_tokens == [1, 3, 1]
    assert record.chunk_s == [1.0, 1.0, 1.0]
    assert record.token_ids == [1, 2, 3, 4, 5]
    assert (record.prompt_tokens, record.output_tokens, record.finish_reason) == (7, 5, "length")
    assert record.end_s == 1.0
    assert progress.tokens == 5


@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=10))
def test_packets_do_not_matter(cuts: list[int]) -> None:
    bounds = [0, *sorted(cuts), len(STREAM)]
    record, progress = receive(*(STREAM[a:b] for a, b in pairwise(bounds)))
    whole, _ = receive(STREAM)
    times = {"chunk_s": record.chunk_s, "end_s": record.end_s}
    assert record == dataclasses.replace(whole, **times)  # type: ignore[arg-type]  # names checked above
    assert record.chunk_s == sorted(record.chunk_s)
    assert progress.tokens == 5


def test_times_are_those_of_the_packets() -> None:
    record, _ = receive(
        event({"choices": [{"delta": {"role": "assistant", "content": ""}}]}),
        text_event("a", total=1),
        b": ping\n\n",
        text_event("b", total=2) + text_event("cd", total=4, finish="stop"),
        DONE,
    )
    assert record.chunk_s == [2.0, 4.0, 4.0]
    assert record.end_s == 5.0


def test_a_finished_stream_needs_no_done() -> None:
    record, _ = receive(text_event("a", total=1, finish="stop"))
    assert record.ok
    assert record.end_s == 1.0


@pytest.mark.parametrize(
    ("packets", "kind", "words"),
    [
        ([text_event("a", total=1)], ErrorClass.TRUNCATED, "after 1 token chunks"),
        ([text_event("a", total=1), DONE], ErrorClass.TRUNCATED, "without a finish reason"),
        ([], ErrorClass.TRUNCATED, "after 0 token chunks"),
        ([b"<html>busy</html>"], ErrorClass.TRUNCATED, "<html>busy</html>"),
        (
            [text_event("a", total=1), event({"error": {"message": "EngineDeadError"}}), DONE],
            ErrorClass.STREAM_ERROR,
            "EngineDeadError",
        ),
        (
            [text_event("a", total=1, finish="stop"), event({"error": {"message": "late"}})],
            ErrorClass.STREAM_ERROR,
            "late",
        ),
        ([b"event: error\ndata: {}\n\n"], ErrorClass.STREAM_ERROR, "{}"),
        (
            [event({"error": {"message": "longer than the model's context length (9 tokens)"}})],
            ErrorClass.CONTEXT_OVERFLOW,
            "9 tokens",
        ),
        (
            [text_event("a", total=1), event({"error": {"message": "op not supported"}})],
            ErrorClass.STREAM_ERROR,
            "op not supported",
        ),
        ([text_event("a", total=1, finish="abort")], ErrorClass.STREAM_ERROR, "abort"),
        ([b"data: {oops\n\n"], ErrorClass.BAD_EVENT, "{oops"),
        ([text_event("", finish="stop"), DONE], ErrorClass.NO_TOKENS, "stop"),
        ([text_event("", finish="stop", total=0), DONE], ErrorClass.NO_TOKENS, "stop"),
    ],
)
def test_failures(packets: list[bytes], kind: ErrorClass, words: str) -> None:
    record, _ = receive(*packets)
    assert not record.ok
    assert record.error_class == kind
    assert words in (record.error or "")


def test_a_fault_does_not_undo_a_finish() -> None:
    fault = Fault(ErrorClass.RESET, "gone")
    assert receive(text_event("a", total=1, finish="stop"), fault=fault)[0].ok
    record, _ = receive(text_event("a", total=1), fault=fault)
    assert (record.error_class, record.error, record.end_s) == (ErrorClass.RESET, "gone", 2.0)
    assert record.chunk_tokens == [1]


def test_tokens_without_visible_chunks_are_kept_without_times() -> None:
    """A parser may swallow a whole tool call: the engine counted it, nobody saw when."""
    record, progress = receive(event({"choices": [{"delta": {}, "finish_reason": "stop"}]}), USAGE, DONE)
    assert record.ok
    assert (record.chunk_s, record.output_tokens, progress.tokens) == ([], 5, 5)


def test_missing_usage_stays_missing() -> None:
    record, progress = receive(text_event("a"), text_event("b", finish="stop"), DONE)
    assert record.ok
    assert record.chunk_tokens == [-1, -1]
    assert record.output_tokens is None
    assert progress.tokens == 0
