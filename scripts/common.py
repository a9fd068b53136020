"""What the set-up scripts share. Standard library only: they run before anything is installed."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NoReturn

ROOT = Path(__file__).resolve().parent.parent


def fail(what: str, mend: str) -> NoReturn:
    """End the script with one readable message."""
    sys.exit(f"\nset-up failed: {what}\n  what to do: {mend}")


def say(text: str) -> None:
    """Tell the person who waits what happens now."""
    print(f"==> {text}", flush=True)


def digest(*files: Path) -> str:
    """SHA-256 over the contents of the files: when it is unchanged, what they built is still current."""
    h = hashlib.sha256()
    for file in files:
        h.update(file.read_bytes())
        h.update(b"\0")
    return h.hexdigest()


def need_disk(folder: Path, gib: float) -> None:
    """Refuse to start what would fill the disk half-way."""
    free = shutil.disk_usage(folder).free / 2**30
    if free < gib:
        fail(
            f"{folder} has {free:.1f} GiB free and this step needs {gib:g} GiB",
            "free some space or check out the repository on a larger disk",
        )


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Let one set-up at a time work on a folder; a second one waits and then finds the work done."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as handle:
        _lock(handle, file)
        yield


def _lock(handle: IO[str], file: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"another set-up holds {file.relative_to(ROOT)}; waiting for it")
        fcntl.flock(handle, fcntl.LOCK_EX)


def run(
    command: list[str | Path],
    what: str,
    mend: str,
    *,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
) -> None:
    """Run a step with its output shown; a failure becomes one message that says what to do."""
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=env, check=False)
    if done.returncode != 0:
        fail(f"{what} ended with code {done.returncode} (its own message is above)", mend)
