"""What a sweep needs of a server, whether it started it or found it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from specbench.engines.base import LaunchSpec
    from specbench.engines.process import StopReport


class Running(Protocol):
    """A server from its launch to its stop; `EngineProcess` is one that is a child of this program."""

    spec: LaunchSpec
    started_at: float

    def poll(self) -> int | None:
        """The exit code (negative for a signal), null while it runs."""

    def pids(self) -> frozenset[int]:
        """Its live processes; empty when they cannot be seen."""

    def log_text(self) -> str:
        """What it printed during this launch."""

    def read_log(self, offset: int) -> tuple[str, int]:
        """What it printed after an offset, and the offset to go on from."""

    async def stop(self, grace_s: float) -> StopReport:
        """Leave nothing behind."""
