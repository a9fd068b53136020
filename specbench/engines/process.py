"""One engine process from start to a stop that leaves nothing behind.

The engine runs in its own session under a guard process (see `guard`), which does the stopping.
Nothing is ever killed by name.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import psutil

from specbench.engines import guard, ledger, ports
from specbench.engines.base import EngineMissing, LaunchSpec
from specbench.engines.uncancelled import uncancelled
from specbench.observe.host import nvidia_gpus

HEAD_BYTES: Final = 1 << 20
TAIL_BYTES: Final = 4 << 20
DROPPED_ENV: Final = ("PROMETHEUS_MULTIPROC_DIR",)
"""A stale folder of metric files makes an engine's counters wrong."""

_POLL_S: Final = 0.02
_HANDSHAKE_S: Final = 20.0
_PORT_WAIT_S: Final = 5.0
_GPU_WAIT_S: Final = 20.0
GPU_SLACK_BYTES: Final = 256 << 20
"""So much may a GPU's memory in use differ without anything being left there."""


@dataclass(frozen=True, slots=True)
class StopReport:
    """How an engine ended.

    Attributes:
        how: ``terminated`` on SIGTERM, ``killed`` when something needed SIGKILL,
            ``already_dead`` when the engine had ended before it was asked to, ``left_running`` when it was
            not started here.
        returncode: of the engine's first process; negative for a signal, null when it is not known.
        killed: ``"pid name"`` of every process that needed SIGKILL.
        left: ``"pid name"`` of processes that are still there; empty unless the kernel holds them.
        port_free: whether a new engine could listen on the port.
        gpu_held_bytes: most memory that a GPU has in use above its level before the launch, after a
            bounded wait; other users of the GPU count too. Null without GPUs.
        seconds: how long stopping took.
    """

    how: Literal["terminated", "killed", "already_dead", "left_running"]
    returncode: int | None
    killed: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    port_free: bool = True
    gpu_held_bytes: int | None = None
    seconds: float = 0.0

    @property
    def clean(self) -> bool:
        """Whether nothing of the engine is left."""
        return not self.left and self.port_free


class EngineProcess:
    """A started engine. Use `start`; call `stop` exactly when the engine is no longer wanted."""

    def __init__(
        self, spec: LaunchSpec, log_path: Path, child: subprocess.Popen[bytes], control: socket.socket
    ) -> None:
        self.spec = spec
        self.log_path = log_path
        self.pid = 0
        """Process id of the command that was started, which is also its session id."""
        self.started_at = time.monotonic()
        self._guard = child
        self._control = control
        self._inbox = b""
        self._returncode: int | None = None
        self._stopped: dict[str, Any] | None = None
        self._stopping: asyncio.Task[StopReport] | None = None
        self._seen: dict[int, float] = {}
        self._entry: Path | None = None
        self._log_start = log_path.stat().st_size
        self._gpu_used = [gpu.used_bytes for gpu in nvidia_gpus()]

    @classmethod
    def start(cls, spec: LaunchSpec, log_path: Path, cwd: Path, grace_s: float = 10.0) -> EngineProcess:
        """Start the command of ``spec`` in ``cwd``; its output is appended to ``log_path``.

        Args:
            grace_s: time between SIGTERM and SIGKILL when specbench dies without a `stop`.

        Raises:
            EngineMissing: the command does not exist or cannot be executed.
        """
        env = {**os.environ, "PYTHONUNBUFFERED": "1", **spec.env}
        for name in DROPPED_ENV:
            env.pop(name, None)
        log_path.parent.mkdir(parents=True, exist_ok=True)
        ours, theirs = socket.socketpair()
        with log_path.open("ab") as log, theirs:
            child = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", guard.__file__),
                    *(str(theirs.fileno()), str(grace_s), "--", *spec.argv),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=cwd,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
            process = cls(spec, log_path, child, ours)
        process._handshake()
        return process

    def poll(self) -> int | None:
        """The exit code of the engine (negative for a signal), null while it runs."""
        self._receive()
        # A killed guard cannot report; the engine then got SIGTERM from the kernel, and nobody saw its end.
        unguarded = self._returncode is None and self._guard.poll() is not None
        if unguarded and not _alive(self.pid, self._seen.get(self.pid)):
            self._returncode = -9
        return self._returncode

    def pids(self) -> frozenset[int]:
        """The engine's live processes, those included that made their own session."""
        if self._guard.poll() is None:
            found = {p.pid for p in guard.descendants(self._guard.pid)}
        else:
            table = guard.processes()
            known = {pid for pid, created in self._seen.items() if _alive(pid, created)}
            known |= {p.pid for p in table.values() if p.session == self.pid and self._is_younger(p.pid)}
            found = known | {p.pid for pid in known for p in guard.descendants(pid)}
        for pid in found - self._seen.keys():
            with contextlib.suppress(psutil.Error):
                self._seen[pid] = psutil.Process(pid).create_time()
        return frozenset(found)

    def log_text(self) -> str:
        """What this launch printed: all of it, or its first 1 MiB and last 4 MiB."""
        size = self.log_path.stat().st_size - self._log_start
        with self.log_path.open("rb") as log:
            log.seek(self._log_start)
            if size <= HEAD_BYTES + TAIL_BYTES:
                return log.read(HEAD_BYTES + TAIL_BYTES).decode("utf-8", "replace")
            head = log.read(HEAD_BYTES)
            log.seek(self._log_start + size - TAIL_BYTES)
            tail = log.read(TAIL_BYTES)
        cut = f"\n... {size - HEAD_BYTES - TAIL_BYTES} bytes left out ...\n"
        return head.decode("utf-8", "replace") + cut + tail.decode("utf-8", "replace")

    def read_log(self, offset: int = 0, limit: int = TAIL_BYTES) -> tuple[str, int]:
        """Whole new lines since ``offset`` (bytes of this launch) and the next offset."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_start + offset)
            data = log.read(limit)
        whole = data[: data.rfind(b"\n") + 1] if len(data) < limit else data
        return whole.decode("utf-8", "replace"), offset + len(whole)

    async def stop(self, grace_s: float) -> StopReport:
        """Stop the engine and everything it started; safe to call again, and finished even if cancelled.

        SIGTERM to the process group, ``grace_s`` seconds, then SIGKILL to whatever is left of the tree.
        A second call gives the first one's report.
        """
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(grace_s))
        return await uncancelled(self._stopping)

    async def _stop(self, grace_s: float) -> StopReport:
        started = time.monotonic()
        already_dead = self.poll() is not None
        with contextlib.suppress(OSError):
            self._control.sendall(json.dumps({"stop": grace_s}).encode() + b"\n")
        # The guard always answers within its own bounds; the rest is for a guard that was stopped itself.
        deadline = started + grace_s + guard.ORPHAN_GRACE_S + guard.KILL_WAIT_S + 5.0
        while self._stopped is None and self._guard.poll() is None and time.monotonic() < deadline:
            self._receive()
            await asyncio.sleep(_POLL_S)
        self._receive()
        stopped = self._stopped or await self._stop_without_guard(grace_s)
        self._control.close()
        if self._guard.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._guard.wait, 5.0)
        port_free = ports.is_free(self.spec.port)
        deadline = time.monotonic() + _PORT_WAIT_S
        while not port_free and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_S)
            port_free = ports.is_free(self.spec.port)
        gpu_held_bytes = self._gpu_held_bytes()
        deadline = time.monotonic() + _GPU_WAIT_S
        while (gpu_held_bytes or 0) > GPU_SLACK_BYTES and time.monotonic() < deadline:
            await asyncio.sleep(0.25)  # a driver frees memory a moment after the process has ended
            gpu_held_bytes = self._gpu_held_bytes()
        if not stopped["left"]:
            ledger.forget(self._entry)
        if self._returncode is None:
            self._returncode = stopped["returncode"]
        killed = tuple(stopped["killed"])
        return StopReport(
            how="already_dead" if already_dead else "killed" if killed else "terminated",
            returncode=self._returncode,
            killed=killed,
            left=tuple(stopped["left"]),
            port_free=port_free,
            gpu_held_bytes=gpu_held_bytes,
            seconds=time.monotonic() - started,
        )

    def _gpu_held_bytes(self) -> int | None:
        if not self._gpu_used:
            return None
        now = [gpu.used_bytes for gpu in nvidia_gpus()]
        return max((max(0, b - a) for a, b in zip(self._gpu_used, now, strict=False)), default=None)

    async def _stop_without_guard(self, grace_s: float) -> dict[str, Any]:
        """The guard is gone: do its work on the processes that were seen, and on the session."""
        killed: dict[int, str] = {}
        for patience_s, force in ((grace_s, False), (guard.KILL_WAIT_S, True)):
            deadline = time.monotonic() + patience_s
            told: set[int] = set()
            while (alive := self.pids()) and time.monotonic() < deadline:
                for pid in alive - told:
                    with contextlib.suppress(psutil.Error):
                        found = psutil.Process(pid)
                        if force:
                            killed[pid] = f"{pid} {found.name()}"
                        # psutil checks the creation time, so a reused pid is not hit.
                        found.kill() if force else found.terminate()
                    told.add(pid)
                await asyncio.sleep(_POLL_S)
        return {
            "returncode": self._returncode,
            "killed": list(killed.values()),
            "left": [f"{pid} of an unguarded engine" for pid in sorted(self.pids())],
        }

    def _handshake(self) -> None:
        self._control.settimeout(_HANDSHAKE_S)
        first: dict[str, Any] = {}
        try:
            while b"\n" not in self._inbox:
                data = self._control.recv(4096)
                if not data:
                    break
                self._inbox += data
        except TimeoutError:
            pass
        self._control.setblocking(False)
        line, newline, rest = self._inbox.partition(b"\n")
        if newline:
            first, self._inbox = json.loads(line), rest
        if "pid" not in first:
            self._control.close()
            self._guard.wait(5.0) if newline else self._guard.kill()
            reason = first.get("error", "its guard process did not answer")
            raise EngineMissing(
                f"cannot start {self.spec.argv[0]!r}: {reason}. "
                "Set engine.command to a command that runs here, with its whole path if it is not on PATH."
            )
        self.pid = int(first["pid"])
        with contextlib.suppress(psutil.Error):
            self._seen[self.pid] = psutil.Process(self.pid).create_time()
            self._entry = ledger.record(
                ledger.Entry(
                    arm=self.spec.arm_id,
                    pid=self.pid,
                    created=self._seen[self.pid],
                    guard_pid=self._guard.pid,
                    guard_created=psutil.Process(self._guard.pid).create_time(),
                    port=self.spec.port,
                    log=str(self.log_path.absolute()),
                )
            )

    def _receive(self) -> None:
        if self._control.fileno() < 0:
            return
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while data := self._control.recv(4096):
                self._inbox += data
        while b"\n" in self._inbox:
            line, _, self._inbox = self._inbox.partition(b"\n")
            message = json.loads(line)
            if "exit" in message:
                self._returncode = int(message["exit"])
            elif "stopped" in message:
                self._stopped = message["stopped"]

    def _is_younger(self, pid: int) -> bool:
        """Whether a process is not older than the engine, so that its session id cannot be a reused one."""
        try:
            return psutil.Process(pid).create_time() >= self._seen.get(self.pid, 0.0)
        except psutil.Error:
            return False


def _alive(pid: int, created: float | None) -> bool:
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and (
            created is None or process.create_time() == created
        )
    except psutil.Error:
        return False
