"""Build, start and read the sink server (`sink.c`)."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

HERE = Path(__file__).resolve().parent
BUILT = HERE.parents[1] / ".cache" / "client-benchmark"


@dataclass(frozen=True, slots=True)
class Sent:
    """A request as the server saw it; times are nanoseconds of the machine's monotonic clock."""

    number: int
    tag: int
    received_ns: int
    chunk_ns: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Sink:
    """A running server."""

    url: str
    process: psutil.Process

    def stats(self) -> dict[str, int]:
        """Counters since the start or the last reset."""
        stats: dict[str, int] = json.loads(self._get("/stats"))
        return stats

    def log(self) -> list[Sent]:
        """Every request so far."""
        rows = (tuple(map(int, line.split())) for line in self._get("/log").splitlines())
        return [Sent(number, tag, received, list(times)) for number, tag, received, *times in rows]

    def cpu_s(self) -> float:
        """CPU time that the server has used."""
        used = self.process.cpu_times()
        return used.user + used.system

    def _get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:  # noqa: S310 - always our own
            text: Any = answer.read().decode()
            return str(text)


def build() -> Path:
    """Compile the server if its source is newer than the program.

    Raises:
        SystemExit: there is no C compiler, or it refuses.
    """
    program, source = BUILT / "sink", HERE / "sink.c"
    if program.exists() and program.stat().st_mtime >= source.stat().st_mtime:
        return program
    BUILT.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, source], check=True)
    except FileNotFoundError:
        sys.exit("the sink server needs a C compiler: install gcc (Debian: apt install gcc libc6-dev)")
    except subprocess.CalledProcessError:
        sys.exit(f"the C compiler refused {source} (its message is above)")
    return program


@contextmanager
def serving(
    chunks_per_s: float,
    *,
    tokens_per_chunk: int = 1,
    ttft_ms: float = 20.0,
    core: int = 0,
    step: bool = False,
) -> Iterator[Sink]:
    """A sink on a free port, pinned to a core, ended at the end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        *("taskset", "-c", str(core), str(build())),
        *(str(port), str(chunks_per_s), str(tokens_per_chunk), str(ttft_ms), *(["step"] if step else [])),
    ]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        if child.stdout.readline() != "ready\n":
            sys.exit(f"the sink server did not start: {' '.join(command)}")
        yield Sink(f"http://127.0.0.1:{port}", psutil.Process(child.pid))
    finally:
        child.kill()
        child.wait()
