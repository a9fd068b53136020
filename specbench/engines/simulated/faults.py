"""Misbehaviour on order: which request goes wrong, and how events are framed."""

from __future__ import annotations

import subprocess
from enum import Enum, auto
from typing import Final

from specbench.engines.simulated.options import Faults

CHILD_LIFETIME_S: Final = 300


class Misbehaviour(Enum):
    """What goes wrong with one request."""

    HTTP_400 = auto()
    HTTP_500 = auto()
    DIE = auto()
    STALL = auto()
    ERROR_EVENT = auto()
    TRUNCATE = auto()


class FaultPlan:
    """Counts requests and says what happens to each."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._requests = 0
        self._finished = 0

    def next_request(self) -> Misbehaviour | None:
        """The fate of the request that has just arrived."""
        self._requests += 1
        f = self._faults
        if f.http_500_every and self._requests % f.http_500_every == 0:
            return Misbehaviour.HTTP_500
        if f.http_400_every and self._requests % f.http_400_every == 0:
            return Misbehaviour.HTTP_400
        for after, fate in (
            (f.die_after_requests, Misbehaviour.DIE),
            (f.error_in_stream_after, Misbehaviour.ERROR_EVENT),
            (f.truncate_stream_after, Misbehaviour.TRUNCATE),
            (f.stall_after, Misbehaviour.STALL),
        ):
            if after is not None and self._requests > after:
                return fate
        return None

    def finished_one(self) -> bool:
        """Count a finished request; True when all counters must restart now."""
        self._finished += 1
        return self._finished == self._faults.counters_reset_after

    def event(self, data: bytes) -> bytes:
        """One server-sent event in the style on order."""
        style = self._faults.sse_style
        if style == "plain":
            return b"data: " + data + b"\n\n"
        if style == "crlf":
            return b"data: " + data + b"\r\n\r\n"
        if style == "nospace":
            return b"data:" + data + b"\n\n"
        return b": keep-alive\n\nevent: message\ndata: " + data + b"\n\n"


def spawn_stubborn_child() -> int:
    """Start a child that ignores SIGTERM, as a worker of a hung engine would; returns its pid."""
    child = subprocess.Popen(["/bin/sh", "-c", f"trap '' TERM; exec sleep {CHILD_LIFETIME_S}"])
    return child.pid
