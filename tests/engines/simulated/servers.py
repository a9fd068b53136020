"""Real servers of the simulated engine, started and stopped by tests."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specbench.engines.ports import free_port
from specbench.engines.vllm_dialect import counters_from_vllm
from specbench.observe.counters import EngineCounters
from specbench.observe.prometheus import parse

DRAFT_MODEL = {"method": "draft_model", "model": "sim/draft", "num_speculative_tokens": 4}
NGRAM = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 2, "prompt_lookup_max": 4}
WAIT_S = 20.0


@dataclass
class Running:
    """A server process and its address."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(self.url + path, timeout=WAIT_S) as response:
            return bytes(response.read())

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        request = urllib.request.Request(self.url + path, json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S) as response:
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def raw(self, body: dict[str, Any], path: str = "/v1/completions", timeout_s: float = WAIT_S) -> bytes:
        """The bytes of an answer, as far as they came."""
        request = urllib.request.Request(self.url + path, json.dumps(body).encode())
        received = b""
        with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=timeout_s) as response:
            for line in response:
                received += line
        return received

    def stream(self, body: dict[str, Any], path: str = "/v1/completions") -> list[Any]:
        """The decoded events of a stream; a trailing ``[DONE]`` becomes the text itself."""
        usage = {"include_usage": True, "continuous_usage_stats": True}
        raw = self.raw({"stream": True, "stream_options": usage, "return_token_ids": True, **body}, path)
        events = [line[6:] for line in raw.decode().split("\n") if line.startswith("data: ")]
        return [event if event == "[DONE]" else json.loads(event) for event in events]

    def counters(self) -> EngineCounters:
        return counters_from_vllm(parse(self.get("/metrics").decode()))

    def wait_for_exit(self) -> int:
        return self.process.wait(WAIT_S)


@dataclass
class Stream:
    """What a client counts in a stream."""

    ids: list[int] = field(default_factory=list)
    chunk_tokens: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    completion_tokens: int = 0


def read_completion(events: list[Any]) -> Stream:
    """Add up a completions or chat stream."""
    stream = Stream()
    for event in events:
        if event == "[DONE]":
            continue
        stream.completion_tokens = event["usage"]["completion_tokens"]
        for choice in event["choices"]:
            if choice.get("token_ids"):
                stream.ids += choice["token_ids"]
                stream.chunk_tokens.append(len(choice["token_ids"]))
            stream.finish_reason = choice["finish_reason"] or stream.finish_reason
    return stream


def command(*flags: str, port: int, speculation: dict[str, Any] | None, sim: dict[str, Any]) -> list[str]:
    """A server's command line; fifty times faster than real unless told otherwise."""
    words = [sys.executable, "-m", "specbench.engines.simulated", "--port", str(port)]
    words += ["--model", "sim/target", "--served-model-name", "target"]
    words += ["--sim", json.dumps({"time_scale": 0.02, **sim})]
    if speculation is not None:
        words += ["--speculative-config", json.dumps(speculation)]
    return words + list(flags)


@contextlib.contextmanager
def launched(
    folder: Path,
    *flags: str,
    speculation: dict[str, Any] | None = None,
    sim: dict[str, Any] | None = None,
    ready: bool = True,
) -> Iterator[Running]:
    """A server in a process group of its own, which is gone afterwards."""
    port = free_port()
    log = folder / f"server-{port}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command(*flags, port=port, speculation=speculation, sim=sim or {}),
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    running = Running(process, f"http://127.0.0.1:{port}", log)
    try:
        if ready:
            wait_until_ready(running)
        yield running
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(WAIT_S)


def wait_until_ready(running: Running) -> None:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        assert running.process.poll() is None, running.log.read_text()
        with contextlib.suppress(OSError):
            running.get("/health")
            return
        time.sleep(0.02)
    raise AssertionError(f"not ready: {running.log.read_text()}")
