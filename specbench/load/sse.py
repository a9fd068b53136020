"""Server-sent events from bytes, as the WHATWG event-stream rules say.

However a network cuts the stream into packets, the same events come out: no line is stripped, no packet is
taken for an event, a character may be cut in two, and a keep-alive comment may stand anywhere.
"""

from __future__ import annotations

from typing import Final

import msgspec

MAX_EVENT_BYTES: Final = 16 << 20
"""An event that is still open after this many bytes is not one: some server streams without blank lines."""

_BOM: Final = b"\xef\xbb\xbf"


class EventTooLarge(ValueError):
    """An event did not end within `MAX_EVENT_BYTES`."""


class Event(msgspec.Struct, frozen=True, gc=False):
    """One dispatched event: its data lines joined by LF, and its ``event:`` name if it had one."""

    data: bytes
    name: bytes = b""


class EventStream:
    """Incremental reader of one response body."""

    __slots__ = ("_open", "_skip_lf", "_started")

    def __init__(self) -> None:
        self._open = bytearray()
        self._skip_lf = False
        self._started = False

    @property
    def unfinished(self) -> bytes:
        """Bytes after the last complete event; the standard throws them away at the end of a stream."""
        return bytes(self._open)

    def feed(self, packet: bytes) -> list[Event]:
        """Take the next bytes of the body and give the events that are complete now.

        Raises:
            EventTooLarge: an event has grown past `MAX_EVENT_BYTES`.
        """
        if self._skip_lf or b"\r" in packet:
            packet = self._to_lf(packet)
        whole = not self._open and packet.endswith(b"\n\n")
        if whole and packet.startswith(b"data: ") and packet.find(b"\n") == len(packet) - 2:
            # The usual case: one event of one line in a packet, nothing to keep, to split or to join.
            self._started = True
            return [Event(packet[6:-2])]
        if whole:
            complete = packet
        else:
            seen = len(self._open)
            self._open += packet
            cut = self._open.rfind(b"\n\n", max(0, seen - 1))
            if cut < 0:
                if len(self._open) > MAX_EVENT_BYTES:
                    raise EventTooLarge(f"an event did not end within {MAX_EVENT_BYTES} bytes")
                return []
            complete = bytes(self._open[: cut + 2])
            del self._open[: cut + 2]
        if not self._started:
            self._started = True
            complete = complete.removeprefix(_BOM)
        events = []
        for block in complete.split(b"\n\n"):
            if block.startswith(b"data:") and b"\n" not in block:
                events.append(Event(block[6:] if block.startswith(b"data: ") else block[5:]))
            elif block:
                event = _parse(block)
                if event is not None:
                    events.append(event)
        return events

    def _to_lf(self, packet: bytes) -> bytes:
        """Line ends become LF. A CR ends its line at once; the LF of a CRLF may come in the next packet."""
        if not packet:
            return packet
        if self._skip_lf and packet.startswith(b"\n"):
            packet = packet[1:]
            self._skip_lf = False
            if not packet:
                return packet
        self._skip_lf = packet.endswith(b"\r")
        return packet.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _parse(block: bytes) -> Event | None:
    """One block of lines without a blank line inside; None when it carries no data (comments, ids)."""
    data: list[bytes] = []
    name = b""
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        if field == b"data":
            data.append(value.removeprefix(b" "))
        elif field == b"event":
            name = value.removeprefix(b" ")
    return Event(b"\n".join(data), name) if data else None
