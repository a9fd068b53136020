"""Calibrations of this machine: what a baseline against itself showed, kept per hardware and engine build.

They lie under ``$XDG_STATE_HOME/specbench/calibrations`` (``~/.local/state`` without it): a run copies the one that
applies into its manifest, so that judging it later needs nothing from here.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from specbench.runs.files import RunFileError, read_json, write_json
from specbench.runs.records import CALIBRATION_SCHEMA, CalibrationRecord


def calibration_path(fingerprint: str, engine: str) -> Path:
    """Where the calibration of a machine and an engine build (``vllm 0.32.0``) is kept."""
    root = os.environ.get("XDG_STATE_HOME")
    folder = Path(root) if root and Path(root).is_absolute() else Path.home() / ".local" / "state"
    name = hashlib.sha256(f"{fingerprint}\n{engine}".encode()).hexdigest()[:16]
    return folder / "specbench" / "calibrations" / f"{name}.json"


def read_calibration(fingerprint: str, engine: str) -> CalibrationRecord | None:
    """The latest calibration, or None. A damaged file counts as none: it is made again by `specbench calibrate`."""
    path = calibration_path(fingerprint, engine)
    if not path.is_file():
        return None
    try:
        found = read_json(path, CalibrationRecord, CALIBRATION_SCHEMA)
    except RunFileError:
        return None
    return found if (found.fingerprint, found.engine) == (fingerprint, engine) else None


def write_calibration(record: CalibrationRecord) -> Path:
    """Keep a calibration; an earlier one of the same machine and build is replaced.

    Raises:
        RunFileError: it cannot be written.
    """
    path = calibration_path(record.fingerprint, record.engine)
    write_json(path, record)
    return path
