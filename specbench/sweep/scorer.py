"""Run a scorer: a command of the user's that reads the outputs of a parity check and writes their scores.

It runs under the guard that engines have (`specbench.engines.guard`), in a session of its own, so that it and
all it started end with it, at its time limit, at an interruption, and when specbench itself is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Final

from specbench.engines import guard
from specbench.engines.uncancelled import uncancelled

GRACE_S: Final = 2.0
"""Between SIGTERM and SIGKILL."""

MAX_BYTES: Final = 64 << 20
"""More than this on standard output or standard error is no answer."""

LAST_LINES: Final = 3
LINE_CHARACTERS: Final = 200
_FOLDER: Final = ".task-"
_POLL_S: Final = 0.02
_STOP_S: Final = GRACE_S + guard.ORPHAN_GRACE_S + guard.KILL_WAIT_S + 5.0


class ScorerFailed(RuntimeError):
    """There are no scores; the message says why and the mend."""


async def run_scorer(command: Sequence[str], cwd: Path, asked: bytes, timeout_s: float, log: Path) -> bytes:
    """What the command printed, given ``asked`` on standard input; its standard error goes to ``log``.

    Raises:
        ScorerFailed: it could not be started, took too long, printed too much, or ended with an error.
        OSError: the files for it could not be written.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    for stale in log.parent.glob(f"{_FOLDER}*"):  # of a scoring that was killed; the run is locked
        shutil.rmtree(stale, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_FOLDER, dir=log.parent) as folder:
        given, printed = Path(folder, "in"), Path(folder, "out")
        running = _Running.start(command, cwd, asked, given, printed, log)
        try:
            code = await running.wait(timeout_s, (printed, log))
        except ScorerFailed as error:
            await running.stop()
            raise ScorerFailed(f"{error}{_last_words(log)}") from None
        finally:
            left = await running.stop()
        if left:
            raise ScorerFailed(f"processes of it are still there: {', '.join(left)}; end them")
        if code != 0:
            how = f"ended with code {code}" if code > 0 else f"was ended by signal {-code}"
            words = _last_words(log) or " (it wrote nothing to standard error)"
            raise ScorerFailed(f"the scorer {how}{words}; correct parity.task.command or the script")
        return _content(printed)


def read_scores(printed: bytes, ids: Collection[str]) -> dict[str, float]:
    """Scores by id from lines of JSON ``{"id": ..., "score": 0..1}``; true and false are 1 and 0.

    Args:
        ids: what was asked; each must be answered once.

    Raises:
        ScorerFailed: with the number of the first line that is wrong.
    """
    scores: dict[str, float] = {}
    lines: dict[str, int] = {}
    for number, line in enumerate(printed.split(b"\n"), start=1):
        if not line.strip():
            continue
        where = f"line {number} of the scorer's output"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            raise ScorerFailed(
                f"{where} is not JSON: {_shown(line.decode('utf-8', 'replace'))}; print scores alone to standard "
                "output, and all else to standard error"
            ) from None
        if not isinstance(row, dict) or not isinstance(row.get("id"), str) or "score" not in row:
            raise ScorerFailed(
                f'{where} has no id and score: {_shown(row)}; print {{"id": ..., "score": ...}}'
            )
        name, score = row["id"], row["score"]
        if name not in ids:
            raise ScorerFailed(f"{where} scores {_shown(name)}, which was not asked; copy the id as it came")
        if name in lines:
            raise ScorerFailed(
                f"{where} scores {name} again, after line {lines[name]}; print one line per id"
            )
        if not isinstance(score, int | float) or not 0.0 <= score <= 1.0:
            raise ScorerFailed(
                f"{where}: the score of {name} is {_plain(json.dumps(score))}; give a number from 0 to 1"
            )
        lines[name], scores[name] = number, float(score)
    missing = [name for name in ids if name not in scores]
    if missing:
        raise ScorerFailed(
            f"{len(missing)} of {len(ids)} outputs have no score, the first is {missing[0]}; print a line for every "
            "id, with 0 for what cannot be scored"
        )
    return scores


class _Running:
    """A command under its guard."""

    def __init__(self, name: str, child: subprocess.Popen[bytes], control: socket.socket) -> None:
        self._name = _plain(name)
        self._guard, self._control = child, control
        self._inbox = b""
        self._told: dict[str, Any] = {}
        self._stopping: asyncio.Task[list[str]] | None = None

    @classmethod
    def start(
        cls, command: Sequence[str], cwd: Path, asked: bytes, given: Path, printed: Path, log: Path
    ) -> _Running:
        given.write_bytes(asked)
        ours, theirs = socket.socketpair()
        with theirs, given.open("rb") as stdin, printed.open("wb") as stdout, log.open("wb") as stderr:
            child = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", guard.__file__),
                    *(str(theirs.fileno()), str(GRACE_S), "--", *command),
                ],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=cwd,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        ours.setblocking(False)
        return cls(command[0], child, ours)

    async def wait(self, timeout_s: float, files: Sequence[Path]) -> int:
        """The exit code; negative for a signal."""
        deadline = time.monotonic() + timeout_s
        while True:
            ended = self._guard.poll() is not None
            self._receive()
            if "error" in self._told:
                raise ScorerFailed(
                    f"the scorer {self._name} cannot be started: {self._told['error']}; set parity.task.command to a "
                    "command that runs here: a script needs its interpreter before it, or `chmod +x` and a #! line"
                )
            if "exit" in self._told:
                return int(self._told["exit"])
            if ended:
                raise ScorerFailed("the process that guards the scorer was killed; try again")
            if time.monotonic() > deadline:
                raise ScorerFailed(
                    f"the scorer did not end in {timeout_s:g} s and was stopped; raise parity.task.timeout"
                )
            if any(file.stat().st_size > MAX_BYTES for file in files):
                raise ScorerFailed(f"the scorer printed more than {MAX_BYTES >> 20} MiB; print scores alone")
            await asyncio.sleep(_POLL_S)

    async def stop(self) -> list[str]:
        """End it and everything it started, also when cancelled meanwhile; what is still there, if anything is."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop())
        return await uncancelled(self._stopping)

    async def _stop(self) -> list[str]:
        with contextlib.suppress(OSError):
            self._control.sendall(json.dumps({"stop": GRACE_S}).encode() + b"\n")
        deadline = time.monotonic() + _STOP_S
        while self._guard.poll() is None and time.monotonic() < deadline:
            self._receive()
            await asyncio.sleep(_POLL_S)
        self._receive()
        self._control.close()
        if "stopped" in self._told:
            return list(self._told["stopped"]["left"])
        # Without a guard: the session is what can still be told.
        session = self._told.get("pid")
        for proc in [p for p in guard.processes().values() if p.session == session]:
            guard.send_signal(proc, 9)
        deadline = time.monotonic() + guard.KILL_WAIT_S
        left = [p for p in guard.processes().values() if p.session == session]
        while left and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_S)
            left = [p for p in guard.processes().values() if p.session == session]
        return [f"{p.pid} {p.name}" for p in left]

    def _receive(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while data := self._control.recv(4096):
                self._inbox += data
        while b"\n" in self._inbox:
            line, _, self._inbox = self._inbox.partition(b"\n")
            self._told |= json.loads(line)


def _content(path: Path) -> bytes:
    return path.read_bytes()


def _last_words(log: Path) -> str:
    """The last lines of standard error, for a message; the whole is in the file."""
    with log.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - 8192))
        lines = [x for x in file.read().decode("utf-8", "replace").splitlines() if x.strip()]
    if not lines:
        return ""
    words = " / ".join(_plain(x) for x in lines[-LAST_LINES:])
    return f' (its last lines: "{words}"; all of them: parity/{log.name})'


def _shown(value: object) -> str:
    return _plain(value if isinstance(value, str) else json.dumps(value))


def _plain(text: str) -> str:
    safe = "".join(c if c.isprintable() else " " for c in text).strip()
    return safe if len(safe) <= LINE_CHARACTERS else f"{safe[:LINE_CHARACTERS]}..."
