"""Which engine processes specbench has started on this machine and not yet seen end.

One small JSON file per launch in the user's state folder. It is only for `specbench doctor`: a guard
process stops engines when specbench dies, so an entry without its guard means that even the guard was
killed. Writing is best effort; a machine without a state folder loses the report, not the sweep.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True)
class Entry:
    """One launch. ``created`` is the engine's creation time, seconds since the epoch."""

    arm: str
    pid: int
    created: float
    guard_pid: int
    guard_created: float
    port: int
    log: str


@dataclass(frozen=True, slots=True)
class Leftover:
    """An engine that nobody looks after any more, and its live processes as ``(pid, name)``."""

    entry: Entry
    processes: tuple[tuple[int, str], ...]


def folder() -> Path:
    """Where the entries are, by the XDG rules; not created here."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "specbench" / "engines"


def record(entry: Entry) -> Path | None:
    """Write an entry; None when that is not possible."""
    with contextlib.suppress(OSError, RuntimeError):
        path = folder() / f"{entry.pid}-{int(entry.created)}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(entry)), encoding="utf-8")
        return path
    return None


def forget(path: Path | None) -> None:
    """Remove an entry, if there is one."""
    if path is not None:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def leftovers() -> tuple[Leftover, ...]:
    """Engines whose guard is gone but that still have processes; entries without any are removed."""
    found = []
    for path in sorted(folder().glob("*.json")):
        try:
            entry = Entry(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            forget(path)
            continue
        if _same(entry.guard_pid, entry.guard_created):
            continue
        alive = _session(entry)
        if alive:
            found.append(Leftover(entry, alive))
        else:
            forget(path)
    return tuple(found)


def _same(pid: int, created: float) -> bool:
    try:
        process = psutil.Process(pid)
        return abs(process.create_time() - created) < 1.0 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _session(entry: Entry) -> tuple[tuple[int, str], ...]:
    """Live processes of the engine's session that are not older than the engine."""
    members = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if (
                os.getsid(process.pid) == entry.pid
                and process.create_time() > entry.created - 1.0
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                members.append((process.pid, process.name()))
    return tuple(members)
