"""Which processors the client runs on, so that it and the engine do not take turns on one."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

FEW: Final = 4
"""With fewer processors than this, taking one away from a CPU engine costs more than it brings."""


class ProcessorError(ValueError):
    """A list of processors that this process may not use."""


def parse_cpus(text: str) -> frozenset[int]:
    """``0-1,4`` as a set, as `taskset` reads it.

    Raises:
        ProcessorError: a range that runs backwards.
    """
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if high < low:
            raise ProcessorError(f"the range {part} runs backwards")
        found.update(range(low, high + 1))
    return frozenset(found)


def format_cpus(cpus: Collection[int]) -> str:
    """The inverse of `parse_cpus`, ranges joined."""
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and parts[-1][-1] == cpu - 1:
            parts[-1][1:] = [cpu]
        else:
            parts.append([cpu])
    return ",".join("-".join(map(str, part)) for part in parts)


def allowed_cpus() -> frozenset[int] | None:
    """Processors that this process may use now; null where the system has no such notion."""
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def require_cpus(text: str) -> frozenset[int]:
    """The processors of a config.

    Raises:
        ProcessorError: not all of them may be used here; the message says which may.
    """
    wanted, allowed = parse_cpus(text), allowed_cpus()
    if allowed is None:
        raise ProcessorError("this system cannot bind a process to processors: remove measure.client_cpus")
    if not wanted <= allowed:
        raise ProcessorError(
            f"this process may use the processors {format_cpus(allowed)}, not {format_cpus(wanted - allowed)}"
        )
    return wanted


def proposed_cpus() -> str | None:
    """What to write in ``measure.client_cpus``: the last processor; null when there are too few to give one."""
    allowed = allowed_cpus()
    return str(max(allowed)) if allowed is not None and len(allowed) >= FEW else None


@contextmanager
def on_cpus(cpus: Collection[int] | None) -> Iterator[None]:
    """Bind the calling thread, and what it starts, for a while; null leaves everything as it is."""
    before = allowed_cpus()
    if cpus is None or before is None:
        yield
        return
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
