"""Every test has its own state folder, and no test may leave a process behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from specbench.engines.base import LaunchSpec
from specbench.engines.process import EngineProcess

Start = Callable[[LaunchSpec], EngineProcess]


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ledger that belongs to the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start an engine process that is stopped when the test ends, however it ends."""
    started: list[EngineProcess] = []

    def begin(spec: LaunchSpec) -> EngineProcess:
        process = EngineProcess.start(spec, tmp_path / "engine.log", tmp_path)
        started.append(process)
        return process

    yield begin
    for process in started:
        if process._stopping is None:
            asyncio.run(process.stop(0.0))


def wait_for(process: EngineProcess, word: str, timeout_s: float = 20.0) -> str:
    """The log once a line begins with ``word``."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        text = process.log_text()
        if any(line.startswith(word) for line in text.splitlines()):
            return text
        assert process.poll() is None, text
        time.sleep(0.02)
    raise AssertionError(f"{word!r} was never printed: {process.log_text()}")
