"""Standard streams that outlive their reader.

A pipe whose reader ended (``specbench sweep ... | head``) or a terminal that was hung up makes every write fail.
That must not end a measurement, nor turn the exit code of a command that did its work into another one.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import Any, Final, TextIO

_READER_GONE: Final = frozenset({errno.EPIPE, errno.EIO})


class Unbroken:
    """A text stream that writes to nowhere once nobody reads it; otherwise as the stream that it wraps."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write; the number of characters, whether somebody reads them or not."""
        try:
            return self._stream.write(text)
        except OSError as error:
            self._give_up(error)
            return len(text)

    def flush(self) -> None:
        """Flush."""
        try:
            self._stream.flush()
        except OSError as error:
            self._give_up(error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _give_up(self, error: OSError) -> None:
        """Let the descriptor lead to nowhere: what is still in buffers above it goes there too."""
        if error.errno not in _READER_GONE:
            raise error
        leads_nowhere(self._stream)


def leads_nowhere(stream: TextIO) -> None:
    """Let a stream's descriptor lead to nowhere, and with it what its buffers still hold."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def outlive_readers() -> None:
    """Let standard output and error outlive their readers."""
    if sys.stdout is not None and not isinstance(sys.stdout, Unbroken):
        sys.stdout = Unbroken(sys.stdout)
    if sys.stderr is not None and not isinstance(sys.stderr, Unbroken):
        sys.stderr = Unbroken(sys.stderr)
