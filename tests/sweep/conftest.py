"""Small sweeps on the simulated engine, driven through the command line as a user would."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from specbench.runs.rundir import RunDir


def measure(**changes: Any) -> dict[str, Any]:
    """The ``measure`` section. Time is scaled down, so the client may be late here."""
    return {"warmup_per_slot": 1, "client_lag_limit": 5.0, **changes}


@dataclass
class Bench:
    """One config in a folder of its own."""

    folder: Path

    @property
    def config(self) -> Path:
        return self.folder / "sweep.yaml"

    def write(self, sim: dict[str, Any] | None = None, **changes: Any) -> None:
        """A config of two arms, two loads and two rounds that takes about ten seconds."""
        content: dict[str, Any] = {
            "name": "tiny",
            "target": "sim-target",
            "engine": {
                "kind": "simulated",
                "args": {
                    "max-model-len": 2048,
                    "max-num-seqs": 8,
                    "sim": {"time_scale": 0.05, **(sim or {})},
                },
                "stop_timeout": 2,
            },
            "arms": [{"method": "draft_model", "draft": "sim-draft", "k": 3, "name": "draft"}],
            "loads": {"closed": [1, 2]},
            "workload": {
                "source": "chat",
                "requests_per_slot": 6,
                "min_requests": 6,
                "max_output_tokens": 24,
            },
            "measure": measure(rounds=2),
        }
        content.update(changes)
        self.config.write_text(yaml.safe_dump(content))

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "specbench.cli", *args]

    def run(self, *args: str, timeout: float = 90) -> subprocess.CompletedProcess[str]:
        """``specbench ARGS`` to its end."""
        env = {**os.environ, "COLUMNS": "120"}
        return subprocess.run(
            self.command(*args),
            cwd=self.folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def sweep(self, *args: str) -> subprocess.CompletedProcess[str]:
        return self.run("sweep", str(self.config), *args)

    def start(self, *args: str) -> subprocess.Popen[str]:
        """``specbench sweep`` in the background, its output unread until the end."""
        return subprocess.Popen(
            self.command("sweep", str(self.config), *args),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def the_run(self) -> RunDir:
        found = RunDir.latest(self.folder / "runs", "tiny")
        assert found is not None
        return found

    def events(self) -> list[str]:
        found = RunDir.latest(self.folder / "runs", "tiny")
        return [e["event"] for e in found.journal.read()] if found else []

    def interrupt(
        self,
        process: subprocess.Popen[str],
        when: Callable[[], bool],
        sign: int = signal.SIGINT,
        timeout: float = 60,
    ) -> str:
        """Signal the process once ``when`` holds; returns what it printed."""
        deadline = time.monotonic() + timeout
        while not when():
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < deadline, "the moment to interrupt never came"
            time.sleep(0.01)
        os.kill(process.pid, sign)
        return process.communicate(timeout=30)[0]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def engines_of(folder: Path) -> list[psutil.Process]:
    """Simulated engines that still run for a run under ``folder`` (their working directory is the run)."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(folder) in process.cwd() and "specbench.engines.simulated" in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found
