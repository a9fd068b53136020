"""The end of a sweep in a terminal: the verdict, a table per load, the flags to deploy."""

from __future__ import annotations

from typing import Final

from rich.console import Console, Group
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from specbench.report import formatting as fmt
from specbench.report import tables
from specbench.report.model import Result
from specbench.report.policy_text import (
    MATCHED_TITLE,
    OPEN_TITLE,
    TASK_TITLE,
    matched_lines,
    open_check_lines,
    policy_pieces,
    task_lines,
)
from specbench.report.policy_text import TITLE as POLICY_TITLE
from specbench.report.tables import Cell, LoadRow

WIDE: Final = 110
"""Columns from which the table of a load shows all it knows."""

SHORT_ARM: Final = 12
LONG_ARM: Final = 20
"""Characters of an arm's name that leave room for all columns at 80; longer names are folded."""

MOST_NOTES: Final = 8
"""Warnings and failures shown here; the report has all."""

_STYLE: Final = {
    "GO": "bold green",
    "NO-GO": "bold red",
    "INCONCLUSIVE": "bold yellow",
    "INVALID": "bold magenta",
    "reference": "dim",
}
_ASCII: Final = str.maketrans({"–": "-", "…": "~", "•": "*", "—": "-"})


def render(result: Result, console: Console) -> None:
    """Print the result. Colour and box characters are left out where the console cannot show them."""
    printer = Printer(console)
    console.print(printer.verdict(result))
    for load in tables.ordered_loads(result):
        printer.load(result, load)
    printer.notes(result)
    printer.failures(result)
    printer.checks(result)
    printer.policy(result)
    printer.deploy(result)


class Printer:
    """Text that the console's encoding can write, never read as rich markup."""

    def __init__(self, console: Console) -> None:
        self._console = console
        encoding = console.encoding.lower()
        self._encoding = None if encoding.startswith("utf") else encoding

    def text(self, content: str, style: str = "") -> Text:
        safe = fmt.clean(content)
        if self._encoding is not None:
            safe = safe.translate(_ASCII).encode(self._encoding, "replace").decode(self._encoding)
        return Text(safe, style=style)

    def verdict(self, result: Result) -> Panel:
        style = _STYLE[result.verdict]
        bullets = [self._bullet(fmt.one_line(reason)) for reason in result.reasons]
        if not result.complete:
            bullets.append(self._bullet("This run is not complete.", "yellow"))
        grade = f"Evidence grade {result.grade}"
        if result.grade_reasons:
            grade += f": {'; '.join(fmt.one_line(r) for r in result.grade_reasons)}"
        return Panel(
            Group(
                self.text(fmt.one_line(result.headline), "bold"),
                *bullets,
                Text(),
                self.text(grade, "dim"),
            ),
            title=self.text(f" {result.verdict} ", style),
            title_align="left",
            border_style=style.split()[-1],
            padding=(1, 2),
        )

    def load(self, result: Result, load: str) -> None:
        title = tables.load_title(result, load)
        share = result.traffic.get(load)
        heading = self.text(title, "bold")
        if share is not None:
            heading.append_text(self.text(f"  {fmt.share(share)} of traffic", "dim"))
        self._console.print()
        self._console.print(heading)
        rows = tables.load_rows(result, load)
        if not rows:
            self._console.print(self.text("Nothing was run at this load.", "dim"))
            return
        wide = self._console.width >= WIDE
        self._console.print(self._table(rows, wide))
        for row in rows:
            if not row.is_baseline and row.decision != "GO" and row.reasons:
                self._console.print(self._bullet(f"{row.arm}: {'; '.join(row.reasons)}", "dim"))
        told = {reason for row in rows for reason in row.reasons}
        nulls = (cell for row in rows for _, cell in _columns(row, wide) if fmt.DASH in cell.text)
        for reason in tables.null_reasons(nulls):
            if reason not in told:
                self._console.print(self._bullet(reason, "dim", mark=fmt.DASH))

    def _table(self, rows: list[LoadRow], wide: bool) -> Table:
        longest = max(len(row.arm) for row in rows)
        gap = 1 if longest > SHORT_ARM and not wide else 2
        table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="dim", expand=False)
        table.add_column("\nArm", overflow="fold", min_width=max(SHORT_ARM, min(longest, LONG_ARM)))
        columns = _columns(rows[0], wide)
        for name, _ in columns:
            table.add_column(self.text(name), justify="right", no_wrap=True)
        table.add_column("\nDecision", no_wrap=True)
        for row in rows:
            table.add_row(
                self.text(row.arm),
                *(
                    self.text(cell.text, "bold" if name == "\nSpeedup" else "")
                    for name, cell in _columns(row, wide)
                ),
                self.text(row.decision, _STYLE[row.decision]),
            )
        return table

    def notes(self, result: Result) -> None:
        groups = tables.grouped([*result.warnings, *result.engine_differences])
        if not groups:
            return
        self._heading("Warnings")
        for group in groups[:MOST_NOTES]:
            more = len(group.messages) - 1
            tail = f" (and {more} more like it)" if more else ""
            self._console.print(self._bullet(group.messages[0] + tail))
            if group.action:
                self._console.print(Padding(self.text(group.action, "dim"), (0, 0, 0, 2), expand=False))
        self._more(len(groups))

    def failures(self, result: Result) -> None:
        if not result.failures:
            return
        self._heading("Failures")
        for failure in result.failures[:MOST_NOTES]:
            where, summary = fmt.one_line(failure.where), fmt.one_line(failure.summary)
            self._console.print(self._bullet(f"{where}: {summary}", "red"))
            if failure.mend:
                self._console.print(
                    Padding(self.text(fmt.one_line(failure.mend), "dim"), (0, 0, 0, 2), expand=False)
                )
        self._more(len(result.failures))

    def deploy(self, result: Result) -> None:
        if result.recommended is None:
            return
        self._heading(f"Deploy {fmt.one_line(result.recommended.arm)} (GO at {tables.deploy_loads(result)})")
        # Not wrapped: a command that is broken by the terminal's width cannot be copied.
        flags = self.text(fmt.command(result.recommended.flags), "green")
        self._console.print(flags, soft_wrap=True)

    def policy(self, result: Result) -> None:
        pieces = policy_pieces(result)
        # One arm that is GO everywhere says no more than what is to be deployed.
        if len(pieces) < 2 and not any(piece.more for piece in pieces):
            return
        self._heading(POLICY_TITLE)
        for piece in pieces:
            self._console.print(self._bullet(piece.text))
            for text in piece.more:
                self._console.print(Padding(self.text(text, "dim"), (0, 0, 0, 2), expand=False))
            if piece.flags:
                self._console.print(self.text(fmt.command(piece.flags), "green"), soft_wrap=True)

    def checks(self, result: Result) -> None:
        for title, lines in (
            (MATCHED_TITLE, matched_lines(result)),
            (OPEN_TITLE, open_check_lines(result)),
            (TASK_TITLE, task_lines(result)),
        ):
            if lines:
                self._heading(title)
            for line in lines:
                self._console.print(self._bullet(line))

    def _heading(self, content: str) -> None:
        self._console.print()
        self._console.print(self.text(content, "bold"))

    def _more(self, total: int) -> None:
        if total > MOST_NOTES:
            self._console.print(self._bullet(f"{total - MOST_NOTES} more in the report", "dim"))

    def _bullet(self, content: str, style: str = "", mark: str = "•") -> Table:
        """A paragraph that hangs on its mark."""
        grid = Table.grid(padding=(0, 1, 0, 0))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        grid.add_row(self.text(mark, "dim"), self.text(content, style))
        return grid


def _columns(row: LoadRow, wide: bool) -> list[tuple[str, Cell]]:
    """Heading (two lines) and cell of every column between the arm and its decision."""
    columns = [("Tokens\n/s", row.tokens_per_s), ("\nSpeedup", row.speedup)]
    if wide:
        return [
            *columns,
            ("TTFT ms\np50", row.ttft_p50),
            ("\np95", row.ttft_p95),
            ("TPOT ms\np50", row.tpot_p50),
            ("\np95", row.tpot_p95),
            ("Accept\nlength", row.length),
            ("\nrate", row.rate),
            ("\nCoverage", row.coverage),
        ]
    return [
        *columns,
        ("TTFT\np95 ms", row.ttft_p95),
        ("TPOT\np95 ms", row.tpot_p95),
        ("Accept\nlength", row.length),
    ]
