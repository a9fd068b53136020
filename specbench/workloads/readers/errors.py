"""What can be wrong with a file, a row, or neither."""

from __future__ import annotations

from pathlib import Path


class ReadError(Exception):
    """A file that cannot be read as asked; the message says where, what and the mend.

    ``line`` is a physical line, or a record number when ``by_record`` is set.
    """

    def __init__(self, path: Path, reason: str, line: int | None = None, *, by_record: bool = False) -> None:
        mark = "#" if by_record else ":"
        place = f"{path}: " if line is None else f"{path}{mark}{line}: "
        super().__init__(place + reason)
        self.path = path
        self.reason = reason
        self.line = line


class BadRow(Exception):
    """A malformed row: stops a strict read, is counted and listed otherwise."""


class Drop(Exception):
    """A well-formed row that cannot be used; the message is the reason's name."""


class NotARow(Exception):
    """A line that belongs to the file and not to its rows, such as a header."""
