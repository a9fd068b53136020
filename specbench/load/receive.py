"""From the packets of one response stream to its record. No sockets here: bytes and times come in."""

from __future__ import annotations

from typing import Final

from specbench.load.classify import ERROR_BODY_BYTES, Fault, stream_fault
from specbench.load.dialect import UNKNOWN, BadEvent, DeltaDecoder
from specbench.load.progress import Progress
from specbench.load.record import ErrorClass, RequestRecord
from specbench.load.sse import EventStream, EventTooLarge

_DONE: Final = b"[DONE]"

_ABORTED: Final = frozenset({"abort", "error", "cancelled"})
"""Finish reasons with which an engine says that it gave up."""


class Receiver:
    """Fills a `RequestRecord` while its response arrives.

    Attributes:
        done: ``[DONE]`` has come; the rest of the body does not matter.
        failed: the stream has shown an error; reading on is useless.
    """

    __slots__ = ("_decoder", "_events", "_heard_s", "_progress", "_tokens", "done", "failed", "record")

    def __init__(self, record: RequestRecord, progress: Progress) -> None:
        self.record = record
        self.done = False
        self.failed = False
        self._progress = progress
        self._events = EventStream()
        self._decoder = DeltaDecoder()
        self._heard_s: float | None = None
        self._tokens = 0

    def feed(self, packet: bytes, now_s: float) -> None:
        """The next bytes of the body and when they came, in seconds since the cell's start."""
        if self.done or self.failed:
            return
        try:
            for event in self._events.feed(packet):
                if not event.data:
                    continue
                self._heard_s = now_s
                if event.data.startswith(_DONE):
                    self.done = True
                    return
                if not self._take(event.data, event.name, now_s):
                    return
        except (BadEvent, EventTooLarge) as e:
            self._fail(Fault(ErrorClass.BAD_EVENT, str(e)), now_s)

    def end(self, now_s: float, fault: Fault | None = None) -> None:
        """The response is over: the server ended it, or ``fault`` did. A finished request stays finished."""
        record = self.record
        if not self.failed:
            if record.finish_reason is None:
                self._fail(fault or self._truncated(), now_s)
            elif not record.chunk_s and not record.output_tokens:
                self._fail(self._no_tokens(), now_s)
            else:
                record.end_s = self._heard_s
        if record.output_tokens is not None and record.output_tokens > self._tokens:
            self._progress.tokens += record.output_tokens - self._tokens

    def _take(self, data: bytes, name: bytes, now_s: float) -> bool:
        """Enter one event; False when it ends the request as failed."""
        delta = self._decoder.decode(data)
        record = self.record
        if delta.error or name == b"error":
            self._fail(stream_fault(data, begun=bool(record.chunk_s)), now_s)
            return False
        if delta.tokens:
            record.chunk_s.append(now_s)
            record.chunk_tokens.append(delta.tokens)
            if delta.tokens != UNKNOWN:
                self._tokens += delta.tokens
                self._progress.tokens += delta.tokens
        if delta.token_ids:
            record.token_ids.extend(delta.token_ids)
        if record.text is not None and delta.text:
            record.text.append(delta.text)
        if delta.completion_tokens is not None:
            record.output_tokens = delta.completion_tokens
        if delta.prompt_tokens is not None:
            record.prompt_tokens = delta.prompt_tokens
        if delta.cached_tokens is not None:
            record.cached_tokens = delta.cached_tokens
        if delta.acceptance is not None:
            record.acceptance = delta.acceptance
        if delta.finish_reason is not None:
            record.finish_reason = delta.finish_reason
            if delta.finish_reason in _ABORTED:
                self._fail(
                    Fault(ErrorClass.STREAM_ERROR, f"the engine gave up: {delta.finish_reason}"), now_s
                )
                return False
        return True

    def _fail(self, fault: Fault, now_s: float) -> None:
        self.failed = True
        self.record.error_class = fault.kind
        self.record.error = fault.message
        self.record.end_s = now_s

    def _no_tokens(self) -> Fault:
        return Fault(ErrorClass.NO_TOKENS, f"finished ({self.record.finish_reason}) without a token")

    def _truncated(self) -> Fault:
        chunks = len(self.record.chunk_s)
        message = f"the stream ended without a finish reason after {chunks} token chunks"
        if self._heard_s is None and (rest := self._events.unfinished):
            message += f"; it began with {rest[:ERROR_BODY_BYTES].decode('utf-8', 'replace')!r}"
        return Fault(ErrorClass.TRUNCATED, message)
