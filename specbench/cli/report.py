"""``specbench report RUN``: judge again from the run directory alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from specbench.cli.errors import CliError
from specbench.cli.output import finish
from specbench.cli.run_argument import RunArgument, readable
from specbench.report.build import build
from specbench.report.jsonfile import to_json
from specbench.report.junit import to_junit
from specbench.report.markdown import to_markdown
from specbench.report.model import Result
from specbench.runs.rundir import RunDir

_PRINTERS: Final[dict[str, Callable[[Result], bytes]]] = {
    "json": to_json,
    "markdown": lambda result: to_markdown(result).encode(),
    "junit": to_junit,
}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("report")(report)


def report(
    run: RunArgument,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for the report files; the run if absent.", show_default=False),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format", help="Print one format instead: json, markdown or junit.", show_default=False
        ),
    ] = None,
) -> None:
    """Recompute the numbers, the verdict and every report from a run directory. Needs no engine."""
    with readable(run):
        if format_ is None:
            finish(RunDir.open(run), Console(), out)
            return
        if format_ not in _PRINTERS:
            raise CliError(f"--format {format_}: choose one of {', '.join(_PRINTERS)}")
        typer.echo(_PRINTERS[format_](build(RunDir.open(run))).decode())
