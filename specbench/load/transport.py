"""Requests over HTTP/1.1, timed where the bytes arrive.

A protocol of its own instead of a general HTTP client, for three reasons that bear on the numbers: the
time of a packet is taken in the socket callback and not a task switch later; bytes that came before a broken
end are never lost; and a chunk costs about half the CPU, so that the client stays out of the
measurement (the arm without speculation sends the most chunks and would be held back first).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from specbench.load import body
from specbench.load.classify import ERROR_BODY_BYTES, Fault, http_fault, unstreamed_fault
from specbench.load.http1 import BadResponse, ResponseReader
from specbench.load.progress import Progress
from specbench.load.receive import Receiver
from specbench.load.record import ErrorClass, RequestRecord
from specbench.observe.client import require_open_files, require_ports
from specbench.workloads.request import Request

CONNECT_TIMEOUT_S: Final = 10.0
REUSE_WITHIN_S: Final = 2.0
"""Idle connections older than this are not used again: servers close theirs after about 5 s (uvicorn), and a
request that meets the closing is lost through no fault of the engine."""
DRAIN_S: Final = 0.25
"""How long the end of the body may lag behind ``[DONE]`` before the connection is given up."""


class Prepared(NamedTuple):
    """A request as bytes, ready before its time."""

    request: Request
    payload: bytes


class Transport(Protocol):
    """What a schedule needs of a client."""

    def prepare(self, request: Request) -> Prepared:
        """Encode a request; done ahead of the timed part."""

    async def send(
        self, prepared: Prepared, record: RequestRecord, *, epoch_s: float, progress: Progress
    ) -> None:
        """Send and receive, filling ``record`` with times since ``epoch_s`` (of ``time.perf_counter``).

        Failures are written into the record; only cancellation is raised, after it was recorded too.
        """


class HttpTransport:
    """Made by `open_client`. A connection carries one request at a time; there are as many as needed."""

    def __init__(
        self,
        base_url: str,
        served_model: str,
        *,
        stall_timeout_s: float,
        total_timeout_s: float,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        extra_chat: Mapping[str, Any] | None = None,
        ca: str | None = None,
    ) -> None:
        url = urlsplit(base_url)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError(f"{base_url!r} is not an http(s) address such as http://127.0.0.1:8000")
        self.served_model = served_model
        self._host = url.hostname
        self._port = url.port or (443 if url.scheme == "https" else 80)
        self._prefix = url.path.rstrip("/")
        self._ssl = ssl.create_default_context(cafile=ca) if url.scheme == "https" else None
        self._stall_s = stall_timeout_s
        self._total_s = total_timeout_s
        self._connect_s = connect_timeout_s
        self._extra_body = dict(extra_body or {})
        self._extra_chat = {**self._extra_body, **(extra_chat or {})}
        fixed = {
            "Host": url.netloc.rpartition("@")[2],
            "Accept": "text/event-stream",
            "Content-Type": "application/json",
            **(headers or {}),
        }
        if any(c in f"{name}{value}" for name, value in fixed.items() for c in "\r\n"):
            raise ValueError("a request header must not hold a line break")
        self._fixed_headers = "".join(f"{name}: {value}\r\n" for name, value in fixed.items())
        self._addresses: list[str] = []
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()
        self._watch: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        """Resolve the host once and start to watch for stalls.

        Raises:
            ConnectionError: the host name has no address.
        """
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(self._host, self._port, type=1)
        except OSError as e:
            raise ConnectionError(f"cannot find the host {self._host!r}: {e}") from None
        self._addresses = list(dict.fromkeys(str(info[4][0]) for info in found))
        self._tick()

    def close(self) -> None:
        """Drop every connection; requests in flight end as resets."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        for connection in (*self._idle, *self._busy):
            connection.abort()
        self._idle.clear()

    def prepare(self, request: Request) -> Prepared:
        """Head and body of a request in one piece.

        Raises:
            ValueError: the request cannot be encoded.
        """
        extra = self._extra_body if request.messages is None else self._extra_chat
        content = body.encode(request, self.served_model, extra=extra)
        head = (
            f"POST {self._prefix}{body.path(request)} HTTP/1.1\r\n{self._fixed_headers}"
            f"Content-Length: {len(content)}\r\n\r\n"
        )
        return Prepared(request, head.encode("latin-1") + content)

    async def send(
        self, prepared: Prepared, record: RequestRecord, *, epoch_s: float, progress: Progress
    ) -> None:
        """See `Transport.send`."""
        receiver = Receiver(record, progress)
        connection: _Connection | None = None
        try:
            connection = await self._acquire()
            self._busy.add(connection)
            fault = await connection.exchange(prepared.payload, receiver, epoch_s)
            receiver.end(connection.ended_s - epoch_s, fault)
        except _NotConnected as e:
            receiver.end(perf_counter() - epoch_s, Fault(ErrorClass.CONNECT, str(e)))
        except asyncio.CancelledError:
            if connection is not None:
                connection.abort()
            receiver.end(perf_counter() - epoch_s, Fault(ErrorClass.CANCELLED, "cancelled before its end"))
            raise
        finally:
            if connection is not None:
                self._busy.discard(connection)
                if connection.reusable:
                    self._idle.append(connection)
                else:
                    connection.abort()

    async def _acquire(self) -> _Connection:
        oldest = perf_counter() - REUSE_WITHIN_S
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable and connection.ended_s >= oldest:
                return connection
            connection.abort()
        return await self._connect()

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        where = f"{self._host}:{self._port}"
        failure: Exception | None = None
        for address in self._addresses:
            try:
                async with asyncio.timeout(self._connect_s):
                    _, connection = await loop.create_connection(
                        _Connection,
                        address,
                        self._port,
                        ssl=self._ssl,
                        server_hostname=self._host if self._ssl is not None else None,
                    )
                    return connection
            except TimeoutError:
                raise _NotConnected(f"no connection to {where} within {self._connect_s:g} s") from None
            except OSError as e:
                failure = e
        raise _NotConnected(f"cannot connect to {where}: {failure}")

    def _tick(self) -> None:
        """One timer for all connections: re-arming one per packet would cost more than reading the packet."""
        now = perf_counter()
        for connection in self._busy:
            connection.check(now, self._stall_s, self._total_s)
        period = max(0.02, min(1.0, self._stall_s / 10, self._total_s / 10, DRAIN_S))
        self._watch = asyncio.get_running_loop().call_later(period, self._tick)


class _NotConnected(Exception):
    """No connection; the message says why."""


class _Connection(asyncio.Protocol):
    """One connection, one exchange at a time."""

    def __init__(self) -> None:
        self.ended_s = perf_counter()
        """When the last exchange ended (``time.perf_counter``)."""
        self._wire: asyncio.Transport | None = None
        self._outcome: asyncio.Future[Fault | None] | None = None
        self._started_s = self._heard_s = self.ended_s

    @property
    def reusable(self) -> bool:
        """Whether another request may be sent here."""
        return self._wire is not None and not self._wire.is_closing() and self._outcome is None

    async def exchange(self, payload: bytes, receiver: Receiver, epoch_s: float) -> Fault | None:
        """Send a request and feed its answer to ``receiver``; gives what went wrong, if anything did."""
        if self._wire is None:
            return Fault(ErrorClass.RESET, "the server closed the connection before the request was sent")
        self._reader = ResponseReader()
        self._receiver = receiver
        self._epoch_s = epoch_s
        self._streams = False
        self._text = b""
        self._outcome = asyncio.get_running_loop().create_future()
        self._started_s = self._heard_s = perf_counter()
        receiver.record.sent_s = self._started_s - epoch_s
        self._wire.write(payload)
        return await self._outcome

    def abort(self) -> None:
        """Close at once, whatever is under way."""
        if self._wire is not None:
            self._wire.abort()

    def check(self, now: float, stall_s: float, total_s: float) -> None:
        """End an exchange that takes too long."""
        if self._outcome is None or self._outcome.done():
            return
        if self._receiver.done:
            if now - self._heard_s > DRAIN_S:
                self._end(None, keep=False)
        elif now - self._started_s > total_s:
            self._end(Fault(ErrorClass.TIMEOUT, f"not finished within {total_s:g} s"), keep=False)
        elif now - self._heard_s > stall_s:
            self._end(Fault(ErrorClass.TIMEOUT, f"stalled: no byte for {stall_s:g} s"), keep=False)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._wire = transport  # type: ignore[assignment]  # a stream protocol gets a stream transport

    def data_received(self, data: bytes) -> None:
        """Called by the loop for each packet: this is where time is taken."""
        now = perf_counter()
        if self._outcome is None or self._outcome.done():
            self.abort()  # bytes that nobody asked for: the connection is out of step
            return
        self._heard_s = now
        reader = self._reader
        knew_status = reader.status is not None
        try:
            part = reader.feed(data)
        except BadResponse as e:
            self._end(Fault(ErrorClass.BAD_EVENT, str(e)), keep=False)
            return
        if not knew_status and reader.status is not None:
            self._receiver.record.http_status = reader.status
            self._streams = reader.status == 200 and "json" not in reader.headers.get("content-type", "")
        if part:
            if self._streams:
                self._receiver.feed(part, now - self._epoch_s)
                if self._receiver.failed:
                    self._end(None, keep=False)
                    return
            else:
                self._text += part
                if len(self._text) >= ERROR_BODY_BYTES and not reader.complete:
                    self._end(self._refusal(), keep=False)
                    return
        if reader.complete:
            self._end(self._refusal(), keep=reader.reusable)

    def eof_received(self) -> None:
        """Called by the loop when the server closed its side; the loop then closes ours."""
        if self._outcome is None or self._outcome.done():
            return
        reader = self._reader
        if reader.eof():
            self._end(self._refusal(), keep=False)
        elif reader.status is None:
            self._end(Fault(ErrorClass.RESET, "the server closed without an answer"), keep=False)
        elif self._streams:
            self._end(None, keep=False)  # the receiver knows whether the stream was whole
        else:
            self._end(self._refusal(), keep=False)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop, also after our own abort."""
        self._wire = None
        if self._outcome is not None and not self._outcome.done():
            reason = f": {exc}" if exc is not None else ""
            self._end(Fault(ErrorClass.RESET, f"the connection was lost{reason}"), keep=False)

    def _refusal(self) -> Fault | None:
        status = self._reader.status
        if self._streams or status is None:
            return None
        return http_fault(status, self._text) if status != 200 else unstreamed_fault(self._text)

    def _end(self, fault: Fault | None, *, keep: bool) -> None:
        outcome = self._outcome
        self.ended_s = perf_counter()
        if outcome is not None and not outcome.done():
            outcome.set_result(fault)
        if keep:
            self._outcome = None
        else:
            self.abort()


@asynccontextmanager
async def open_client(
    base_url: str,
    served_model: str,
    *,
    connections: int,
    stall_timeout_s: float,
    total_timeout_s: float,
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
    headers: Mapping[str, str] | None = None,
    extra_body: Mapping[str, Any] | None = None,
    extra_chat: Mapping[str, Any] | None = None,
    ca: str | None = None,
) -> AsyncIterator[HttpTransport]:
    """A client for one server, closed at the end.

    Args:
        connections: most requests in flight; checked against the open-file limit, never a cap.
        stall_timeout_s: longest silence of the server inside a request, its queue included.
        total_timeout_s: longest life of a request from its sending.
        headers: added to every request, an ``Authorization`` for instance.
        extra_body: added to every body.
        extra_chat: added to those of chat requests besides.
        ca: PEM file of the authority that signed the server's certificate; the system's if null.

    Raises:
        OpenFileLimitError: this process may not hold that many connections, or lacks ports for them.
        ConnectionError: the host name has no address.
        ValueError: ``base_url`` is not an http(s) address.
    """
    require_open_files(connections)
    require_ports(connections)
    transport = HttpTransport(
        base_url,
        served_model,
        stall_timeout_s=stall_timeout_s,
        total_timeout_s=total_timeout_s,
        connect_timeout_s=connect_timeout_s,
        headers=headers,
        extra_body=extra_body,
        extra_chat=extra_chat,
        ca=ca,
    )
    await transport.open()
    try:
        yield transport
    finally:
        transport.close()
