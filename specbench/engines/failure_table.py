"""Tables of known failures: what a log says, what it means, what to do."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from specbench.engines.base import Failure, FailureClass

MAX_LINE_CHARS: Final = 400
TAIL_LINES: Final = 8

Say = str | Callable[["re.Match[str]"], str]

CRASHES: Final[dict[int, tuple[str, str]]] = {
    signal.SIGILL: (
        "an illegal instruction",
        "This build needs a newer CPU (`specbench doctor` shows its instruction sets): use another build.",
    ),
    signal.SIGSEGV: ("a memory fault", "Try another version; report it to the engine."),
    signal.SIGABRT: ("an abort", "Read the last lines of its log; report it to the engine."),
    signal.SIGBUS: ("a bus error", "Give it more shared memory (/dev/shm; docker run --shm-size)."),
}
"""Signals by which a program ends itself: what it is called, and what to do."""


@dataclass(frozen=True, slots=True)
class Row:
    """One known failure. A text may name groups of the pattern as ``{1}``; a function gets the match."""

    pattern: re.Pattern[str]
    kind: FailureClass
    summary: Say
    mend: Say


def row(pattern: str, kind: FailureClass, summary: Say, mend: Say) -> Row:
    """A row whose pattern matches anywhere, ``^`` and ``$`` at lines."""
    return Row(re.compile(pattern, re.MULTILINE), kind, summary, mend)


def find(table: Iterable[Row], places: Iterable[str], shown: tuple[str, ...] = ()) -> Failure | None:
    """The first row that matches the first place it can; ``shown`` are the log lines to quote."""
    for place in places:
        for known in table:
            match = known.pattern.search(place)
            if match:
                lines = shown or (_line_of(place, match),)
                return Failure(known.kind, _say(known.summary, match), _say(known.mend, match), lines)
    return None


def tail(text: str) -> tuple[str, ...]:
    """The last lines that are not empty."""
    lines = [line.rstrip()[:MAX_LINE_CHARS] for line in text.splitlines() if line.strip()]
    return tuple(lines[-TAIL_LINES:])


def _line_of(text: str, match: re.Match[str]) -> str:
    start = text.rfind("\n", 0, match.end()) + 1
    return text[start:].partition("\n")[0][:MAX_LINE_CHARS]


def _say(text: Say, match: re.Match[str]) -> str:
    if isinstance(text, str):
        return text.format(match[0], *(group or "?" for group in match.groups()))
    said = text(match)
    return said[:1].upper() + said[1:] + ("" if said.endswith((".", "?")) else ".")
