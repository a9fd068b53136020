from __future__ import annotations

import gzip
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench.load.http1 import BadResponse, ResponseReader

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def read(*packets: bytes) -> tuple[bytes, ResponseReader]:
    reader = ResponseReader()
    return b"".join(reader.feed(p) for p in packets), reader


@pytest.mark.parametrize(
    ("response", "body", "complete", "reusable"),
    [
        (CHUNKED + b"3\r\nabc\r\n4;ext=1\r\nd\r\nf\r\n0\r\n\r\n", b"abcd\r\nf", True, True),
        (CHUNKED + b"A\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n", b"0123456789", True, True),
        (CHUNKED + b"3\r\nabc\r\n", b"abc", False, True),
        (CHUNKED + b"3\r\nabc\r\n0\r\n\r\nHTTP/1.1 ", b"abc", True, False),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", b"hello", True, True),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello!", b"hello", True, False),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello", b"hello", False, True),
        (b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n", b"", True, True),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\ncontent-length: 1\r\n\r\nx", b"x", True, False),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\nx", b"x", True, False),
        (b"HTTP/1.1 200\r\n\r\nuntil the end", b"until the end", False, False),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\n", b"", True, True),
    ],
)
def test_framings_in_any_cut(response: bytes, body: bytes, complete: bool, reusable: bool) -> None:
    splits = [[response], [response[i : i + 1] for i in range(len(response))]]
    splits += [[response[:cut], response[cut:]] for cut in range(len(response))]
    for packets in splits:
        got, reader = read(*packets)
        assert (got, reader.complete, reader.reusable) == (body, complete, reusable)


@given(parts=st.lists(st.binary(min_size=1, max_size=50), max_size=10), data=st.data())
def test_chunks_come_back(parts: list[bytes], data: st.DataObject) -> None:
    response = CHUNKED + b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(response)), max_size=8)))
    bounds = [0, *cuts, len(response)]
    got, reader = read(*(response[a:b] for a, b in pairwise(bounds)))
    assert got == b"".join(parts)
    assert reader.complete
    assert reader.reusable


@given(
    parts=st.lists(st.binary(min_size=1, max_size=50), min_size=1, max_size=6),
    wbits=st.sampled_from([31, 15]),
    data=st.data(),
)
def test_compressed_bodies_come_back_event_by_event(
    parts: list[bytes], wbits: int, data: st.DataObject
) -> None:
    packer = zlib.compressobj(wbits=wbits)
    packed = [packer.compress(p) + packer.flush(zlib.Z_SYNC_FLUSH) for p in parts]
    name = b"gzip" if wbits == 31 else b"deflate"
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-encoding: " + name + b"\r\n\r\n"
    reader = ResponseReader()
    assert reader.feed(head) == b""
    # Each part is there as soon as its bytes are: nothing waits for the end.
    framed = [b"%x\r\n%s\r\n" % (len(p), p) for p in packed]
    assert [reader.feed(f) for f in framed] == parts
    rest = packer.flush()
    response = head + b"".join(framed) + (b"%x\r\n%s\r\n" % (len(rest), rest)) + b"0\r\n\r\n"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(response)), max_size=8)))
    got, whole = read(*(response[a:b] for a, b in pairwise([0, *cuts, len(response)])))
    assert (got, whole.complete) == (b"".join(parts), True)


@pytest.mark.parametrize(
    "response",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -4\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: br\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\nno gzip at all",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000,
        CHUNKED + b"zz\r\n",
        CHUNKED + b"0x3\r\nabc\r\n",
        CHUNKED + b"-1\r\n",
        CHUNKED + b"\r\n",
        CHUNKED + b"2\r\nabc\r\n",
        CHUNKED + b"1" * 5000,
    ],
)
def test_what_is_not_http(response: bytes) -> None:
    with pytest.raises(BadResponse):
        read(response)


def test_a_packet_that_inflates_without_end_is_refused() -> None:
    bomb = gzip.compress(bytes(40 << 20))
    with pytest.raises(BadResponse, match="more than 16 MiB"):
        read(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n" + bomb)


def test_end_of_connection_ends_only_an_unframed_body() -> None:
    _, unframed = read(b"HTTP/1.1 200 OK\r\n\r\nx")
    assert unframed.eof()
    _, chunked = read(CHUNKED + b"1\r\nx\r\n")
    assert not chunked.eof()
    assert not chunked.reusable
