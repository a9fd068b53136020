"""What a person sees while a sweep runs: one live panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from specbench.sweep.events import Watcher

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console, RenderableType

    from specbench.engines.base import Failure
    from specbench.load.progress import Progress
    from specbench.runs.records import CellRecord, PlannedLaunchRecord

RATE_WINDOW_S = 3.0


def duration_text(seconds: float) -> str:
    """``45 s``, ``12 min``, ``1 h 05 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


class Lines(Watcher):
    """A line per event: for logs, CI and pipes. Also the base of the live panel."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.cells = self.cells_done = 0
        self.launch: PlannedLaunchRecord | None = None
        self.position = (0, 0)
        self.left_s: float | None = None
        self.left_at = 0.0

    def say(self, text: str, style: str = "") -> None:
        """One line, above the live panel if there is one."""
        self.console.print(Text(text, style=style))

    def sweep_started(self, run_path: str, launches: int, cells: int, estimate_s: float, basis: str) -> None:
        self.cells = cells
        self._left(estimate_s)
        self.say(f"Run {run_path}", "bold")
        self.say(f"{launches} launches, {cells} cells, about {duration_text(estimate_s)} ({basis}).")

    def launch_started(self, launch: PlannedLaunchRecord, number: int, total: int) -> None:
        self.launch, self.position = launch, (number, total)
        self.say(f"[{number}/{total}] round {launch.round}: {launch.arm}: starting")

    def launch_ready(self, startup_s: float) -> None:
        self.say(f"        ready after {startup_s:.0f} s")

    def launch_failed(self, failure: Failure) -> None:
        self.say(f"        failed ({failure.kind}): {failure.summary}", "red")
        self.say(f"        {failure.mend}", "red")

    def cell_done(self, record: CellRecord, tokens_per_s: float | None) -> None:
        self.cells_done += 1
        if record.status == "ok":
            speed = f"{tokens_per_s:.0f} tokens/s" if tokens_per_s is not None else "no tokens"
            left = f", about {duration_text(self.left_s)} left" if self.left_s and self.cells_done > 1 else ""
            self.say(f"        {record.arm} at {record.load}: {speed}, {record.duration_s or 0:.0f} s{left}")
            if record.client is not None and record.client.get("client_bound"):
                why = "; ".join(map(str, record.client.get("reasons") or ()))
                self.say(f"        not valid, client-bound: {why}: is other work running here?", "yellow")
        elif record.status == "failed" and record.failure is not None:
            self.say(f"        {record.arm} at {record.load}: failed: {record.failure.summary}", "red")
        else:
            self.say(f"        {record.arm} at {record.load}: {record.status}", "yellow")

    def time_left(self, seconds: float) -> None:
        self._left(seconds)

    def warning(self, message: str) -> None:
        self.say(f"warning: {message}", "yellow")

    def _left(self, seconds: float) -> None:
        self.left_s, self.left_at = seconds, time.monotonic()


class LivePanel(Lines):
    """The same lines, with a panel below them: arm, load, state, tokens/s now, time left."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.live = Live(get_renderable=self._render, console=console, refresh_per_second=2, transient=True)
        self.phase = ""
        self.phase_at = time.monotonic()
        self.load = ""
        self.progress: Progress | None = None
        self.rate: list[tuple[float, int]] = []

    def __enter__(self) -> LivePanel:
        self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.live.stop()

    def launch_started(self, launch: PlannedLaunchRecord, number: int, total: int) -> None:
        super().launch_started(launch, number, total)
        self.load, self.progress = "", None
        self._phase("starting")

    def launch_phase(self, phase: str) -> None:
        self._phase(phase)

    def cell_started(self, load: str, requests: int, progress: Progress) -> None:
        self.load, self.progress, self.rate = load, progress, []
        progress.planned = progress.planned or requests
        self._phase("warm-up")

    def cell_phase(self, phase: str) -> None:
        self._phase(phase)

    def launch_stopped(self) -> None:
        self.load, self.progress = "", None
        self._phase("stopped")

    def _phase(self, phase: str) -> None:
        self.phase, self.phase_at = phase, time.monotonic()

    def _tokens_per_s(self) -> float | None:
        if self.progress is None:
            return None
        now = time.monotonic()
        self.rate.append((now, self.progress.tokens))
        self.rate = [x for x in self.rate if now - x[0] <= RATE_WINDOW_S]
        (t0, n0), (t1, n1) = self.rate[0], self.rate[-1]
        return (n1 - n0) / (t1 - t0) if t1 > t0 else None

    def _render(self) -> RenderableType:
        if self.launch is None:
            return Text("")
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", justify="right")
        grid.add_column()
        number, total = self.position
        grid.add_row(
            "arm", Text(f"{self.launch.arm}  (round {self.launch.round}, launch {number} of {total})", "bold")
        )
        since = time.monotonic() - self.phase_at
        state = f"{self.phase} {since:.0f} s" if self.phase else ""
        grid.add_row("load", Text(f"{self.load or '-'}  {state}"))
        p = self.progress
        speed = self._tokens_per_s()
        if p is not None:
            grid.add_row(
                "requests",
                f"{p.completed} of {p.planned or '?'} done, {p.in_flight} in flight"
                + (f", {p.errors} failed" if p.errors else ""),
            )
            grid.add_row("now", f"{speed:.0f} tokens/s" if speed is not None else "-")
        if self.left_s is not None:
            left = max(0.0, self.left_s - (time.monotonic() - self.left_at))
            grid.add_row("left", f"about {duration_text(left)}")
        grid.add_row("cells", f"{self.cells_done} of {self.cells}")
        grid.add_row("", ProgressBar(total=max(1, self.cells), completed=self.cells_done, width=40))
        return Panel(grid, title="specbench", title_align="left", border_style="dim", expand=False)
