"""A server that writes exactly the bytes a test scripts, packet by packet, and counts what reaches it."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"


def event(payload: dict[str, Any]) -> bytes:
    """An event in the usual framing."""
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


def text_event(text: str, *, ids: list[int] | None = None, **more: Any) -> bytes:
    """An event of the completions endpoint; ``finish`` and ``total`` (cumulative usage) are short forms."""
    finish, total = more.pop("finish", None), more.pop("total", None)
    choice: dict[str, Any] = {"index": 0, "text": text, "finish_reason": finish}
    if ids is not None:
        choice["token_ids"] = ids
    payload: dict[str, Any] = {"object": "text_completion", "choices": [choice], **more}
    if total is not None:
        payload["usage"] = {"prompt_tokens": 7, "completion_tokens": total}
    return event(payload)


def chunked(data: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%s\r\n" % (len(data), data)


@dataclass
class Wire:
    """The server's end of one request."""

    server: ScriptedServer
    head: bytes
    body: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    open: bool = True

    async def packets(self, *packets: bytes) -> None:
        """Write packets far enough apart to arrive one by one."""
        for packet in packets:
            self.writer.write(packet)
            await self.writer.drain()
            await asyncio.sleep(0.002)

    async def stream(self, *packets: bytes, end: bytes = LAST_CHUNK) -> None:
        """A streamed answer: head, each packet as its own chunk, and an end (``b""`` leaves it open)."""
        await self.packets(HEAD, *(chunked(p) for p in packets))
        if end:
            await self.packets(end)

    async def answer(self, status: str, body: bytes, content_type: str = "application/json") -> None:
        """A plain answer."""
        head = f"HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n\r\n"
        await self.packets(head.encode() + body)

    def close(self) -> None:
        """End the connection with a FIN."""
        self.open = False
        self.writer.close()

    def reset(self) -> None:
        """End the connection with an RST."""
        self.open = False
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Script = Callable[[Wire], Awaitable[None]]


@dataclass
class ScriptedServer:
    """Answers every request with the script of its number (the last script repeats)."""

    scripts: list[Script]
    url: str = ""
    bodies: list[bytes] = field(default_factory=list)
    connections: int = 0
    in_flight: int = 0
    in_flight_seen: list[int] = field(default_factory=list)
    lost: int = 0
    """Requests whose client went away before the script ended."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                body = await reader.readexactly(length)
                script = self.scripts[min(len(self.bodies), len(self.scripts) - 1)]
                self.bodies.append(body)
                self.in_flight += 1
                self.in_flight_seen.append(self.in_flight)
                wire = Wire(self, head, body, reader, writer)
                try:
                    await script(wire)
                except (ConnectionError, asyncio.CancelledError):
                    self.lost += 1
                    raise
                finally:
                    self.in_flight -= 1
                if not wire.open:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(*scripts: Script) -> AsyncIterator[ScriptedServer]:
    """A scripted server on a free port of 127.0.0.1."""
    scripted = ScriptedServer(list(scripts))
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(scripted.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", 0, backlog=1024)
    port = server.sockets[0].getsockname()[1]
    scripted.url = f"http://127.0.0.1:{port}"
    try:
        yield scripted
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def good_stream(tokens: int = 4, pause_s: float = 0.0) -> Script:
    """A well-behaved engine: ids and continuous usage, final usage, ``[DONE]``."""

    async def script(wire: Wire) -> None:
        wire.writer.write(HEAD)
        for i in range(1, tokens + 1):
            await asyncio.sleep(pause_s)
            finish = "length" if i == tokens else None
            wire.writer.write(chunked(text_event(" t", ids=[i], total=i, finish=finish)))
        usage = {"prompt_tokens": 7, "completion_tokens": tokens, "total_tokens": 7 + tokens}
        wire.writer.write(chunked(event({"choices": [], "usage": usage}) + DONE) + LAST_CHUNK)
        await wire.writer.drain()

    return script


async def hang(wire: Wire) -> None:
    """Read on until the client goes away."""
    await wire.reader.read()
    raise ConnectionResetError
