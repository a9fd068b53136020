from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench.load import sse
from specbench.load.sse import Event, EventStream, EventTooLarge


def read(*packets: bytes) -> list[Event]:
    stream = EventStream()
    return [event for packet in packets for event in stream.feed(packet)]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: A\n\ndata: B\n\n", [Event(b"A"), Event(b"B")]),
        (b"data: A\r\n\r\ndata: B\r\n\r\n", [Event(b"A"), Event(b"B")]),
        (b"data: A\r\rdata: B\r\r", [Event(b"A"), Event(b"B")]),
        (b"data: A\r\n\ndata: B\n\r\n", [Event(b"A"), Event(b"B")]),
        (b"data:A\n\ndata:  B\n\n", [Event(b"A"), Event(b" B")]),
        (b": ping\n\ndata: A\n: in between\n\n:\n\n", [Event(b"A")]),
        (b"event: error\ndata: A\nid: 3\nretry: 9\n\n", [Event(b"A", b"error")]),
        (b"data: A\ndata: B\n\n", [Event(b"A\nB")]),
        (b"data: A\r\ndata: B\r\n\r\n", [Event(b"A\nB")]),
        (b"data: A\ndata\ndata: B\n\n", [Event(b"A\n\nB")]),
        (b"data\n\n", [Event(b"")]),
        (b"\xef\xbb\xbfdata: A\n\n", [Event(b"A")]),
        (b"\xef\xbb\xbf\n\ndata: A\n\n", [Event(b"A")]),
        (b"data: \xef\xbb\xbfA\n\n", [Event(b"\xef\xbb\xbfA")]),
        (b"\n\n\n\ndata: A\n\n\n\n\n", [Event(b"A")]),
        (b"event: lonely\n\ndata: A\n\n", [Event(b"A")]),
        (b"datax: no\nxdata: no\n\ndata : no\n\n", []),
        ("data: ü漢😀\n\n".encode(), [Event("ü漢😀".encode())]),
        (b"data: open\n", []),
        (b"", []),
    ],
)
class TestOneStream:
    def test_whole(self, stream: bytes, events: list[Event]) -> None:
        assert read(stream) == events

    def test_byte_by_byte(self, stream: bytes, events: list[Event]) -> None:
        assert read(*(stream[i : i + 1] for i in range(len(stream)))) == events

    def test_cut_in_two_anywhere(self, stream: bytes, events: list[Event]) -> None:
        for cut in range(len(stream) + 1):
            assert read(stream[:cut], stream[cut:]) == events


LINES = st.sampled_from(
    [
        b"data: A",
        b"data:B",
        b"data",
        b": c",
        b"event: e",
        b"id: 1",
        b"",
        "data: é😀".encode(),
        b"\xef\xbb\xbf",
    ]
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(
    lines=st.lists(st.tuples(LINES, ENDS), max_size=20),
    cuts=st.lists(st.integers(0, 200), max_size=12),
)
def test_packets_do_not_matter(lines: list[tuple[bytes, bytes]], cuts: list[int]) -> None:
    stream = b"".join(line + end for line, end in lines)
    bounds = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    packets = [stream[a:b] for a, b in pairwise(bounds)]
    assert read(*packets) == read(stream) == read_by_the_book(stream)


def read_by_the_book(stream: bytes) -> list[Event]:
    """The standard's line-by-line algorithm, slow and plain."""
    events: list[Event] = []
    data: list[bytes] = []
    name = b""
    text = stream.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    for line in text.split(b"\n")[:-1]:
        field, _, value = line.partition(b":")
        if not line:
            if data:
                events.append(Event(b"\n".join(data), name))
            data, name = [], b""
        elif field == b"data":
            data.append(value.removeprefix(b" "))
        elif field == b"event":
            name = value.removeprefix(b" ")
    return events


def test_an_endless_event_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 1000)
    stream = EventStream()
    stream.feed(b"data: " + b"x" * 900)
    with pytest.raises(EventTooLarge, match="1000 bytes"):
        stream.feed(b"x" * 100)


def test_the_rest_is_told() -> None:
    stream = EventStream()
    stream.feed(b"data: A\n\ndata: half")
    assert stream.unfinished == b"data: half"
