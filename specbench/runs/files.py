"""Files that are either whole or absent, whatever kills the process."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

if TYPE_CHECKING:
    from pathlib import Path


_T = TypeVar("_T")


class RunFileError(RuntimeError):
    """A file of a run directory cannot be written or read; the message names it and the mend."""


def write_atomic(path: Path, data: bytes) -> None:
    """Write to a temporary name in the same folder, fsync, rename.

    Raises:
        RunFileError: disk full, no permission, ...; whatever was there before is untouched.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise RunFileError(
            f"cannot write {path}: {error.strerror or error}; free space or fix permissions, then --resume"
        ) from error


def write_json(path: Path, value: Any) -> None:
    """Atomic, indented, key order kept. NaN and infinity become null by msgspec's own rule."""
    write_atomic(path, msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")


def read_json(path: Path, kind: type[_T], schema: str) -> _T:
    """Read a versioned record.

    Raises:
        RunFileError: missing, damaged, or of a schema that this version does not know.
    """
    data = read_regular(path)
    try:
        found = msgspec.json.decode(data, type=_Header).schema
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _damaged(path, error) from error
    if found != schema:
        raise RunFileError(
            f"{path} has schema {found!r}, this specbench reads {schema!r}; use the version that wrote it"
        )
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _damaged(path, error) from error


def read_regular(path: Path) -> bytes:
    """The content of a file; never waits for one that is a pipe.

    Raises:
        RunFileError: missing, not a regular file, or not readable.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise RunFileError(f"{path} is not a regular file; {_mend(path)}")
        return path.read_bytes()
    except OSError as error:
        raise RunFileError(f"cannot read {path}: {error.strerror or error}; {_mend(path)}") from error


def _damaged(path: Path, error: Exception) -> RunFileError:
    return RunFileError(f"{path} is damaged: {error}; {_mend(path)}")


def _mend(path: Path) -> str:
    if path.parent.parent.name in ("cells", "launches"):
        return f"move {path.parent} out of the run and --resume: what was measured elsewhere is kept"
    return f"put {path.name} back from a copy, or start a new run: without it this one cannot be judged"


class _Header(msgspec.Struct):
    schema: str
