"""The parent of one engine process, which outlives specbench just long enough to clean up.

Run as a script: ``python -I -S guard.py CONTROL_FD GRACE_S -- COMMAND...``; the standard library only. The
command gets the guard's own standard streams.

The guard makes itself the *subreaper* of everything it starts: a process that was orphaned, or that made
its own session, stays its descendant and is found. When specbench dies, however it dies, the control
socket closes and the guard stops the engine. Engines do not do this themselves: a vLLM API server that
is killed leaves its engine core behind, with the memory.

Lines of JSON on the control socket, guard to specbench: ``{"pid": 12}`` or ``{"error": "...", "errno": 2}``
at once, ``{"exit": 0}`` when the engine ends, ``{"stopped": {...}}`` last. Specbench to guard:
``{"stop": GRACE_S}``.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.05
ORPHAN_GRACE_S = 5.0
"""How long helpers of an engine may take to notice that it has ended."""
KILL_WAIT_S = 10.0


class Proc(NamedTuple):
    """A live process as ``/proc`` shows it; pid and start together are never reused."""

    pid: int
    parent: int
    session: int
    start: int
    name: str


def processes() -> dict[int, Proc]:
    """All live processes (no zombies) by pid."""
    found = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            stat = Path(entry.path, "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        head, _, tail = stat.rpartition(")")
        fields = tail.split()
        if fields[0] in "ZX" and int(fields[17]) <= 1:
            continue  # with more threads only the first one has ended, and the memory is still held
        pid = int(entry.name)
        found[pid] = Proc(pid, int(fields[1]), int(fields[3]), int(fields[19]), head.partition("(")[2])
    return found


def descendants(root: int) -> list[Proc]:
    """Every live process below ``root``, which itself is left out."""
    table = processes()
    below: list[Proc] = []
    frontier = {root}
    while frontier:
        children = [p for p in table.values() if p.parent in frontier]
        below += children
        frontier = {p.pid for p in children}
    return below


def send_signal(proc: Proc, signum: int) -> None:
    """Signal exactly this process, never another one that got its pid meanwhile."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        handle = os.pidfd_open(proc.pid)
        try:
            now = processes().get(proc.pid)
            if now is not None and now.start == proc.start:
                signal.pidfd_send_signal(handle, signum)
        finally:
            os.close(handle)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


class Guard:
    """Starts the command, reports its end, and stops it with everything below it."""

    def __init__(self, control: socket.socket, grace_s: float) -> None:
        self._control = control
        self._grace_s = grace_s
        self._owner = os.getppid()
        self._engine = 0
        self._returncode: int | None = None
        self._inbox = b""

    def run(self, command: list[str]) -> None:
        """Live as long as the engine is wanted."""
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        ended: list[int] = []
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN:  # as nohup leaves it
                signal.signal(signum, lambda number, _: ended.append(number))
        signal.signal(signal.SIGCHLD, lambda *_: None)
        try:
            # The guard has one thread, so preexec_fn is safe here.
            child = subprocess.Popen(
                command,
                start_new_session=True,
                preexec_fn=lambda: _prctl(PR_SET_PDEATHSIG, signal.SIGTERM),
            )
        except OSError as error:
            self._tell({"error": error.strerror or str(error), "errno": error.errno})
            return
        self._engine = child.pid
        self._tell({"pid": child.pid})
        grace_s = None
        while grace_s is None and not ended and os.getppid() == self._owner:
            # The timeout is only for the parent check: another process may hold a copy of the socket.
            readable, _, _ = select.select([self._control.fileno(), wake_read], [], [], 1.0)
            if wake_read in readable:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_read, 4096)
            self._reap()
            if self._control.fileno() in readable:
                grace_s = self._read_stop()
        self._tell({"stopped": self._stop(self._grace_s if grace_s is None else grace_s)})

    def _read_stop(self) -> float | None:
        """The grace of a stop order; the default when the other end is gone; null if nothing whole came."""
        data = self._control.recv(4096)
        if not data:
            return self._grace_s
        self._inbox += data
        line, newline, _ = self._inbox.partition(b"\n")
        return float(json.loads(line)["stop"]) if newline else None

    def _tell(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            self._control.sendall(json.dumps(message).encode() + b"\n")

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._engine:
                self._returncode = os.waitstatus_to_exitcode(status)
                self._tell({"exit": self._returncode})

    def _stop(self, grace_s: float) -> dict[str, Any]:
        started = time.monotonic()
        me = os.getpid()
        self._reap()
        died_before = self._returncode is not None
        if not died_before:  # not reaped yet, so the number of its group is still its own
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._engine, signal.SIGTERM)
        deadline = started + grace_s
        told: set[tuple[int, int]] = set()
        left = descendants(me)
        while left and time.monotonic() < deadline:
            if self._returncode is not None:
                # The engine is gone: what it left behind is asked once more, each by itself.
                deadline = min(deadline, time.monotonic() + ORPHAN_GRACE_S) if not told else deadline
                for proc in left:
                    if (proc.pid, proc.start) not in told:
                        told.add((proc.pid, proc.start))
                        send_signal(proc, signal.SIGTERM)
            time.sleep(POLL_S)
            self._reap()
            left = descendants(me)
        killed: dict[tuple[int, int], str] = {}
        deadline = time.monotonic() + KILL_WAIT_S
        while left and time.monotonic() < deadline:
            for proc in left:
                killed[proc.pid, proc.start] = f"{proc.pid} {proc.name}"
                send_signal(proc, signal.SIGKILL)
            time.sleep(POLL_S)
            self._reap()
            left = descendants(me)
        while not left and self._returncode is None and time.monotonic() < deadline:
            time.sleep(POLL_S)  # dead, but the kernel has not given out its exit code yet
            self._reap()
        return {
            "returncode": self._returncode,
            "died_before": died_before,
            "killed": list(killed.values()),
            "left": [f"{proc.pid} {proc.name}" for proc in left],
            "seconds": time.monotonic() - started,
        }


def main(argv: list[str]) -> None:
    """Entry point: ``CONTROL_FD GRACE_S -- COMMAND...``."""
    control, grace_s, _, *command = argv
    Guard(socket.socket(fileno=int(control)), float(grace_s)).run(command)


if __name__ == "__main__":
    main(sys.argv[1:])
