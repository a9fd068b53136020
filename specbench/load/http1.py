"""One HTTP/1.1 response from bytes: head, framing, end. No sockets here."""

from __future__ import annotations

import re
import zlib
from typing import Any, Final

MAX_HEAD_BYTES: Final = 64 << 10
_MAX_LINE_BYTES: Final = 4 << 10
_HEX: Final = frozenset(b"0123456789abcdefABCDEF")

# Body framings (RFC 9112 section 6.3).
_HEAD, _CHUNKED, _LENGTH, _UNTIL_CLOSE = range(4)
# Inside a chunked body.
_SIZE, _DATA, _DATA_END, _TRAILER = range(4)


_GZIP_OR_ZLIB: Final = 32 + zlib.MAX_WBITS
"""Window bits of `zlib` that read either header."""

_MAX_INFLATED: Final = 16 << 20
"""Bytes that one packet may become: a stream of events is never packed so tightly."""


class BadResponse(ValueError):
    """The bytes are not an HTTP/1.1 response."""


class ResponseReader:
    """Incremental reader of one response; interim 1xx responses are skipped.

    Attributes:
        status: null until the head is there.
        headers: lower-cased names; the last of a repeated name wins.
        complete: the whole body has come.
        reusable: the connection may carry another request afterwards.
    """

    __slots__ = (
        "_chunk",
        "_framing",
        "_held",
        "_inflate",
        "_left",
        "complete",
        "headers",
        "reusable",
        "status",
    )

    def __init__(self) -> None:
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.complete = False
        self.reusable = True
        self._framing = _HEAD
        self._chunk = _SIZE
        self._left = 0
        self._held = b""
        """Bytes of an unfinished head or line."""
        self._inflate: Any = None
        """Of a compressed body, which is never asked for but which some gateways send."""

    def feed(self, data: bytes) -> bytes:
        """Take bytes of the connection; gives the body bytes among them, decompressed where they were compressed.

        Raises:
            BadResponse: this is not HTTP, or its framing or compression is broken.
        """
        body = self._framed(data)
        return body if self._inflate is None or not body else self._inflated(body)

    def _framed(self, data: bytes) -> bytes:
        if self._framing == _HEAD:
            body = self._head(data)
            if body is None:
                return b""
            data = body
        if self.complete:
            self.reusable = self.reusable and not data
            return b""
        if self._framing == _CHUNKED:
            return self._chunked(data)
        if self._framing == _LENGTH:
            part = data[: self._left]
            self._left -= len(part)
            if self._left == 0:
                self.complete = True
                self.reusable = self.reusable and len(part) == len(data)
            return part
        return data

    def _inflated(self, body: bytes) -> bytes:
        try:
            out: bytes = self._inflate.decompress(body, _MAX_INFLATED)
        except zlib.error as error:
            raise BadResponse(f"the compressed answer is broken: {error}") from None
        if self._inflate.unconsumed_tail:
            raise BadResponse(f"a compressed packet holds more than {_MAX_INFLATED >> 20} MiB")
        return out

    def eof(self) -> bool:
        """The server closed its side; whether the response was whole."""
        self.reusable = False
        if self._framing == _UNTIL_CLOSE:
            self.complete = True
        return self.complete

    def _head(self, data: bytes) -> bytes | None:
        """Parse the head when it is there; gives what follows it."""
        data = self._held + data
        while True:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                if len(data) > MAX_HEAD_BYTES or not b"HTTP/".startswith(data[:5]):
                    raise BadResponse(f"not an HTTP/1.1 response: {data[:100]!r}")
                self._held = data
                return None
            status = self._parse_head(data[:end])
            data = data[end + 4 :]
            if status >= 200:
                break
        self._held = b""
        self.status = status
        self._choose_framing(status)
        return data

    def _parse_head(self, head: bytes) -> int:
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        code = rest[:3]
        if version not in ("HTTP/1.1", "HTTP/1.0") or not re.fullmatch("[1-9][0-9][0-9]", code):
            raise BadResponse(f"not an HTTP/1.1 response: {first[:100]!r}")
        self.headers = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon:
                raise BadResponse(f"broken header line: {line[:100]!r}")
            self.headers[name.strip().lower()] = value.strip()
        connection = self.headers.get("connection", "").lower()
        self.reusable = "close" not in connection and (version == "HTTP/1.1" or "keep-alive" in connection)
        return int(code)

    def _choose_framing(self, status: int) -> None:
        encoding = self.headers.get("content-encoding", "identity").lower()
        if encoding in ("gzip", "x-gzip", "deflate"):
            self._inflate = zlib.decompressobj(_GZIP_OR_ZLIB)
        elif encoding != "identity":
            raise BadResponse(
                f"the server compressed its answer ({encoding}) although that was not offered; only gzip and deflate "
                "can be read: turn compression off in the server or gateway"
            )
        length = self.headers.get("content-length")
        if status in (204, 304):
            self._framing, self.complete = _LENGTH, True
        elif "chunked" in self.headers.get("transfer-encoding", "").lower():
            self._framing = _CHUNKED
        elif length is not None:
            if not (length.isascii() and length.isdigit()):
                raise BadResponse(f"broken content-length: {length[:100]!r}")
            self._framing, self._left = _LENGTH, int(length)
            self.complete = self._left == 0
        else:
            self._framing, self.reusable = _UNTIL_CLOSE, False

    def _chunked(self, data: bytes) -> bytes:
        if self._chunk == _SIZE and not self._held:
            # The usual case, one whole chunk in a packet: no loop, one copy.
            stop = data.find(b"\r\n")
            if 0 < stop <= 8 and data[:stop].isalnum():
                size, start = _chunk_size(data[:stop]), stop + 2
                if size and start + size + 2 == len(data) and data.endswith(b"\r\n"):
                    return data[start:-2]
        if self._held:
            data = self._held + data
            self._held = b""
        parts = []
        at, end = 0, len(data)
        while at < end:
            if self._chunk == _DATA:
                part = data[at : at + self._left]
                parts.append(part)
                at += len(part)
                self._left -= len(part)
                if self._left == 0:
                    self._chunk = _DATA_END
            elif self._chunk == _DATA_END:
                if end - at < 2:
                    self._held = data[at:]
                    break
                if data[at : at + 2] != b"\r\n":
                    raise BadResponse("a chunk is longer than its size says")
                at += 2
                self._chunk = _SIZE
            else:
                stop = data.find(b"\r\n", at)
                if stop < 0:
                    self._held = data[at:]
                    if len(self._held) > _MAX_LINE_BYTES:
                        raise BadResponse("a chunk size line does not end")
                    break
                line = data[at:stop]
                at = stop + 2
                if self._chunk == _SIZE:
                    self._left = _chunk_size(line)
                    self._chunk = _DATA if self._left else _TRAILER
                elif not line:
                    self.complete = True
                    self.reusable = self.reusable and at == end
                    break
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _chunk_size(line: bytes) -> int:
    # int() alone would take signs, spaces, underscores and 0x.
    if len(line) <= 8 and line.isalnum() and line[1:2] not in (b"x", b"X"):
        try:
            return int(line, 16)
        except ValueError:
            raise BadResponse(f"broken chunk size: {line[:100]!r}") from None
    digits = line.partition(b";")[0].strip(b" \t")
    if not digits or len(digits) > 8 or not _HEX.issuperset(digits):
        raise BadResponse(f"broken chunk size: {line[:100]!r}")
    return int(digits, 16)
