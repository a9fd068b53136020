"""A reader that goes away does not change what a command does."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from specbench.cli.streams import Unbroken


def _piped_to_nobody(*args: str, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    """A command whose standard output has no reader from the start."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        return subprocess.run(
            [sys.executable, "-m", "specbench.cli", *args],
            cwd=cwd,
            stdout=writing,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writing)


@pytest.mark.parametrize("command", ["engines", "schema"])
def test_a_command_without_a_reader_ends_well(command: str, tmp_path: Path) -> None:
    done = _piped_to_nobody(command, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_error_keeps_its_exit_code(tmp_path: Path) -> None:
    done = _piped_to_nobody("plan", "nowhere.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert b"nowhere.yaml" in done.stderr


def test_what_is_read_is_written_and_the_rest_goes_nowhere() -> None:
    reading, writing = os.pipe()
    stream = Unbroken(io.TextIOWrapper(os.fdopen(writing, "wb")))
    assert stream.write("seen") == 4
    stream.flush()
    assert os.read(reading, 10) == b"seen"
    os.close(reading)
    assert stream.write("unseen") == 6
    stream.flush()
    assert stream.write("on") == 2
    stream.flush()
    assert stream.encoding
    stream.close()


def test_a_disk_that_is_full_is_still_an_error() -> None:
    class Full(io.StringIO):
        def write(self, text: str, /) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        Unbroken(Full()).write("x")
