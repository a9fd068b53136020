"""A request as a source file records it, before it becomes what every arm sends."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

OutputMode = Literal["natural", "forced"]


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request came from: for error messages and credit.

    ``line`` is the 1-based physical line on which the record starts (after decompression);
    for JSON arrays and Parquet, which have no lines, it is the 1-based record number.
    """

    file: str
    line: int
    id: str | None = None
    """The id in the file, before it was made unique."""


class Prefix(msgspec.Struct, frozen=True, kw_only=True):
    """Prompt content known only as block ids: equal leading ids mean an equal leading text."""

    block_tokens: int
    ids: tuple[int, ...]
    scope: Literal["global", "session"] = "global"
    rounding: Literal["ceil", "floor"] = "ceil"
    """Whether the last, partial block of the prompt has an id (``ceil``) or not (``floor``)."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt of which only the length, and perhaps what it shares, is known."""

    prompt_tokens: int
    prefix: Prefix | None = None


class SourceRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One recorded request. Exactly one of ``messages``, ``prompt`` and ``shape`` is set.

    ``prompt_tokens`` and ``output_tokens`` are what the file recorded, null when it did not:
    they are never derived from text or from ``max_tokens``, the cap that was asked for.
    """

    id: str
    source: Source
    arrival_s: float | None = None
    """Seconds after the earliest time in the file; null when the file has no times."""
    session_id: str | None = None
    turn: int | None = None
    after: str | None = None
    """Id of the request that must finish before this one is sent."""
    delay_s: float | None = None
    """Think or tool time between the end of ``after`` and this request."""
    messages: tuple[dict[str, Any], ...] | None = None
    prompt: str | None = None
    shape: Shape | None = None
    tools: tuple[dict[str, Any], ...] | None = None
    sampling: dict[str, Any] | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    output_mode: OutputMode = "natural"
    max_tokens: int | None = None
    text_source: str = "recorded"
    """``recorded``, ``matched:<corpus>``, ``filler:<kind>``, or ``none`` for a bare shape."""
    category: str | None = None
    weight: float = 1.0
    """How many requests of the source this one stands for (after stratified sampling)."""
    reference: str | None = None
    """The answer that the source recorded, when it has one."""

    def __post_init__(self) -> None:
        """Hold the one-of rule, also for requests decoded from a file.

        Raises:
            ValueError: when not exactly one of the three is set.
        """
        given = (self.messages is not None) + (self.prompt is not None) + (self.shape is not None)
        if given != 1:
            raise ValueError("set exactly one of messages, prompt and shape")

    def text(self) -> str | None:
        """All prompt text in order, newline-joined between messages; null for a bare shape."""
        if self.prompt is not None:
            return self.prompt
        if self.messages is None:
            return None
        contents = (message.get("content") for message in self.messages)
        return "\n".join(content for content in contents if isinstance(content, str))


MAX_BAD_LINES = 10_000
"""Bad lines listed in a report; ``bad`` counts on beyond them."""


class ReadReport(msgspec.Struct, kw_only=True):
    """What became of every row: ``rows_read == loaded + sum(dropped) + bad`` always holds."""

    format: str
    rows_read: int = 0
    loaded: int = 0
    dropped: dict[str, int] = msgspec.field(default_factory=dict)
    """Well-formed rows that cannot be used, by reason."""
    bad: int = 0
    """Malformed rows; only other than zero when bad rows are skipped."""
    bad_lines: list[tuple[int, str]] = msgspec.field(default_factory=list)
    """(line or record, reason) of the malformed rows."""
    warnings: dict[str, int] = msgspec.field(default_factory=dict)
    """Repairs, by name: nothing in the file was changed without a count here."""
    notes: dict[str, int] = msgspec.field(default_factory=dict)
    """Choices that are no repairs, by name, such as ``later_turns_left_out``."""

    def drop(self, reason: str) -> None:
        """Count a well-formed row that cannot be used."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    def bad_row(self, line: int, reason: str) -> None:
        """Count and list a malformed row."""
        self.bad += 1
        if len(self.bad_lines) < MAX_BAD_LINES:
            self.bad_lines.append((line, reason))

    def warn(self, name: str, times: int = 1) -> None:
        """Count a repair."""
        self.warnings[name] = self.warnings.get(name, 0) + times

    def note(self, name: str, times: int = 1) -> None:
        """Count a choice that changed nothing in the file's own words."""
        self.notes[name] = self.notes.get(name, 0) + times
