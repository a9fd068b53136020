"""What happened, in order: append-only JSON lines, each on disk before the sweep goes on."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from specbench.runs.files import RunFileError, read_regular

if TYPE_CHECKING:
    from pathlib import Path


def utc_now() -> str:
    """The time as ``2026-01-31T12:00:00.123Z``."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Journal:
    """One file, opened per event so that nothing is held across a fork."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, event: str, **fields: Any) -> None:
        """Add one event and fsync.

        Raises:
            RunFileError: it could not be written.
        """
        line = msgspec.json.encode({"t": utc_now(), "event": event, **fields}) + b"\n"
        try:
            with self.path.open("ab+") as file:
                if file.tell() and _last_byte(file.fileno(), file.tell()) != b"\n":
                    line = b"\n" + line
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise RunFileError(f"cannot write {self.path}: {error.strerror or error}") from error

    def read(self) -> list[dict[str, Any]]:
        """All whole events; a line torn by a crash is left out.

        Raises:
            RunFileError: it is there and cannot be read.
        """
        if not self.path.exists():
            return []
        events = []
        for line in read_regular(self.path).split(b"\n"):
            if not line.strip():
                continue
            try:
                event = msgspec.json.decode(line)
            except (msgspec.DecodeError, RecursionError):
                continue
            if isinstance(event, dict) and isinstance(event.get("event"), str):
                events.append(event)
        return events


def _last_byte(fd: int, size: int) -> bytes:
    return os.pread(fd, 1, size - 1)
