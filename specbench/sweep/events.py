"""What a sweep tells whoever watches it. The conductor calls; a watcher shows, and never decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specbench.engines.base import Failure
    from specbench.load.progress import Progress
    from specbench.runs.records import CellRecord, PlannedLaunchRecord


class Watcher:
    """Does nothing; override what you want to show. Called on the event loop: return at once."""

    def sweep_started(self, run_path: str, launches: int, cells: int, estimate_s: float, basis: str) -> None:
        """Before the first launch; ``launches`` and ``cells`` are those still to do."""

    def launch_started(self, launch: PlannedLaunchRecord, number: int, total: int) -> None:
        """An engine process is being started."""

    def launch_phase(self, phase: str) -> None:
        """What the engine's log says that it is doing."""

    def launch_ready(self, startup_s: float) -> None:
        """The engine serves."""

    def launch_failed(self, failure: Failure) -> None:
        """The launch is given up."""

    def cell_started(self, load: str, requests: int, progress: Progress) -> None:
        """A cell begins; ``progress`` changes while it runs."""

    def cell_phase(self, phase: str) -> None:
        """``warm-up``, ``measuring``, ``settling``."""

    def cell_done(self, record: CellRecord, tokens_per_s: float | None) -> None:
        """A cell is on disk. ``tokens_per_s`` is the whole cell's, for orientation only."""

    def time_left(self, seconds: float) -> None:
        """A new estimate of what remains."""

    def launch_stopped(self) -> None:
        """The engine is gone."""

    def warning(self, message: str) -> None:
        """Something a reader should know; it is in the journal too."""
