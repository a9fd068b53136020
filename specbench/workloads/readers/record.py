"""One row of a source file, with checked access to its fields."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any, Final

from specbench.workloads.readers.errors import BadRow, Drop

MAX_TOKENS: Final = 100_000_000
"""Above any context length there is: a larger count is a wrong column, not a long prompt."""

MAX_NANOSECONDS: Final = 2**62
"""Times this far from 1970 (146 years) are wrong columns; all arithmetic fits 64 bits below it."""

NANOSECONDS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}

_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_INSTANT = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?\s?(Z|z|UTC|[+-]\d\d:?\d\d|[+-]\d\d)?",
    re.ASCII,
)
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()


class Record:
    """A row with typed access. Absent, null and (in text tables) empty fields read as None.

    ``textual`` marks tables whose every field is text, where a quoted number is no repair.
    Repairs are collected in ``warnings`` and ``notes`` and count only if the row turns out well-formed.
    """

    __slots__ = ("data", "file", "notes", "number", "textual", "time_ns", "warnings")

    def __init__(self, data: Mapping[str, Any], *, number: int, file: str, textual: bool) -> None:
        self.data = data
        self.number = number
        self.file = file
        self.textual = textual
        self.time_ns: int | None = None
        self.warnings: list[str] = []
        self.notes: list[str] = []

    def value(self, *names: str) -> Any:
        """The first of the named fields that holds something."""
        return self.named_value(*names)[1]

    def named_value(self, *names: str) -> tuple[str, Any]:
        """The first of the named fields that holds something, with its name."""
        for name in names:
            value = self.data.get(name)
            if value is not None and not (self.textual and value == ""):
                return name, value
        return names[0], None

    def text(self, *names: str) -> str | None:
        """A string field.

        Raises:
            BadRow: the field holds something else.
        """
        name, value = self.named_value(*names)
        if value is not None and not isinstance(value, str):
            raise BadRow(f"{name} must be a string, got {kind(value)}")
        return value

    def ident(self, *names: str) -> str | None:
        """An id: a string, or an integer written as one."""
        name, value = self.named_value(*names)
        if value is None or (isinstance(value, str) and not value.strip()):
            return None
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise BadRow(f"{name} must be a string or an integer, got {kind(value)}")
        return str(value)

    def count(self, *names: str, data: Mapping[str, Any] | None = None) -> int | None:
        """A whole number >= 0, or None when absent. A number in quotes is read and counted as a repair.

        Raises:
            BadRow: not a whole number, negative, or beyond ``MAX_TOKENS``.
        """
        if data is None:
            name, value = self.named_value(*names)
        else:
            name, value = next(((n, data[n]) for n in names if data.get(n) is not None), (names[0], None))
        if type(value) is int and 0 <= value <= MAX_TOKENS:
            return value
        if value is None:
            return None
        if (
            self.textual
            and isinstance(value, str)
            and len(value) < 9
            and value.isascii()
            and value.isdecimal()
        ):
            return int(value)  # nearly every field of the large tables
        number = self.to_number(name, value)
        if number < 0:
            raise BadRow(f"{name} is negative: {value}")
        if number != int(number):
            raise BadRow(f"{name} must be a whole number, got {value}")
        if number > MAX_TOKENS:
            raise BadRow(f"{name} is beyond any context length: {value}")
        return int(number)

    def required_count(self, *names: str) -> int:
        """A whole number that must be there."""
        count = self.count(*names)
        if count is None:
            state = "is empty" if any(name in self.data for name in names) else "is missing"
            raise BadRow(f"{names[0]} {state}")
        return count

    def to_number(self, name: str, value: Any) -> float | int:
        """A finite number, also out of quotes (counted as a repair outside text tables).

        Raises:
            BadRow: not a finite number.
        """
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise BadRow(f"{name} must be a number, got {kind(value)}")
        if isinstance(value, str):
            digits = value.strip(" \t\r\n")
            if not _NUMBER.fullmatch(digits):
                raise BadRow(f"{name} must be a number, got {shown(value)}")
            if not self.textual:
                self.warnings.append("number_as_string")
            value = int(digits) if _INTEGER.fullmatch(digits) and len(digits) < 30 else float(digits)
        number: float | int = value
        if isinstance(number, float) and not math.isfinite(number):
            raise BadRow(f"{name} must be a finite number, got {number}")
        return number

    def seconds(self, *names: str, unit: str = "s") -> float | None:
        """A duration >= 0 in seconds, given in ``unit``."""
        name, value = self.named_value(*names)
        if value is None:
            return None
        number = self.to_number(name, value)
        if number < 0:
            raise BadRow(f"{name} is negative: {value}")
        return number * NANOSECONDS[unit] / 1e9

    def arrive(self, *names: str, unit: str | None = None, required: bool = False) -> None:
        """Take the arrival time of the row, exact to the nanosecond.

        Numbers are in ``unit``; without a unit only a date and time is accepted.

        Raises:
            BadRow: no time where one is required, or a value that is none.
        """
        name, value = self.named_value(*names)
        if value is None:
            if required:
                raise BadRow(f"{name} {'is empty' if name in self.data else 'is missing'}")
            return
        if isinstance(value, datetime):
            aware = value if value.tzinfo else value.replace(tzinfo=UTC)
            delta = aware - datetime(1970, 1, 1, tzinfo=UTC)
            self.arrive_at(name, (delta.days * 86400 + delta.seconds) * 10**9 + delta.microseconds * 1000)
        elif isinstance(value, str) and _INSTANT.match(value.strip()):
            self.arrive_at(name, instant_ns(name, value.strip()))
        elif unit is None:
            raise BadRow(f"{name} must be a date and time, got {shown(value)}")
        else:
            self.arrive_at(name, self.to_number(name, value) * NANOSECONDS[unit])

    def arrive_at(self, name: str, time_ns: float | int) -> None:
        """Take an arrival time in nanoseconds.

        Raises:
            BadRow: beyond what is a time.
        """
        if not abs(time_ns) < MAX_NANOSECONDS:
            raise BadRow(f"{name} is no time: {shown(self.data.get(name))}")
        self.time_ns = round(time_ns)

    def lengths(self, prompt: tuple[str, ...], output: tuple[str, ...]) -> tuple[int, int]:
        """Recorded prompt and output tokens of a row that has no text.

        Raises:
            Drop: ``zero_input`` or ``zero_output``, the mark of a failed request.
        """
        prompt_tokens, output_tokens = self.required_count(*prompt), self.required_count(*output)
        if prompt_tokens == 0:
            raise Drop("zero_input")
        if output_tokens == 0:
            raise Drop("zero_output")
        return prompt_tokens, output_tokens


def instant_ns(name: str, value: str) -> int:
    """Nanoseconds since 1970 of a date and time with up to nine fractional digits; no zone means UTC.

    Raises:
        BadRow: not such a time.
    """
    match = _INSTANT.fullmatch(value)
    if match is None:
        raise BadRow(f"{name} must be a date and time, got {shown(value)}")
    year, month, day, hour, minute, second = (int(match[i]) for i in range(1, 7))
    try:
        days = date(year, month, day).toordinal() - _EPOCH_ORDINAL
    except ValueError as error:
        raise BadRow(f"{name} is no date: {shown(value)} ({error})") from None
    if hour > 23 or minute > 59 or second > 60:
        raise BadRow(f"{name} is no time of day: {shown(value)}")
    total = days * 86400 + hour * 3600 + minute * 60 + second
    zone = match[8]
    if zone and zone[0] in "+-":
        digits = zone[1:].replace(":", "").ljust(4, "0")
        offset = int(digits[:2]) * 3600 + int(digits[2:]) * 60
        total += offset if zone[0] == "-" else -offset
    return total * 10**9 + int((match[7] or "").ljust(9, "0"))


def kind(value: Any) -> str:
    """The JSON name of a value's type, for messages."""
    if value is None:
        return "null"
    names = {bool: "true or false", int: "a number", float: "a number", str: "a string"}
    for cls, name in names.items():
        if isinstance(value, cls):
            return name
    return (
        "a list" if isinstance(value, (list, tuple)) else "an object" if isinstance(value, dict) else "data"
    )


def shown(value: Any) -> str:
    """A value as messages show it: short, and on one line."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
