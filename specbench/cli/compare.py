"""``specbench compare RECORDED NEW``: is the new run as fast as the recorded one?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from specbench.cli.errors import CliError
from specbench.cli.gate import InconclusiveOption, exit_code
from specbench.cli.run_argument import readable
from specbench.report.comparison import compare as compare_runs
from specbench.report.comparison_model import Comparison
from specbench.report.comparison_views import (
    comparison_json,
    comparison_junit,
    comparison_markdown,
    render_comparison,
)
from specbench.runs.rundir import RunDir
from specbench.verdict.regression import NO_SLOWER, NO_WORSE

_PRINTERS: Final[dict[str, Callable[[Comparison], bytes]]] = {
    "json": comparison_json,
    "markdown": lambda result: comparison_markdown(result).encode(),
    "junit": comparison_junit,
}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("compare")(compare)


def compare(
    recorded: Annotated[Path, typer.Argument(help="The recorded run directory.", show_default=False)],
    new: Annotated[Path, typer.Argument(help="The new run directory.", show_default=False)],
    min_ratio: Annotated[
        float,
        typer.Option("--min-ratio", min=0.5, max=2.0, help="New over recorded speed-up that must be kept."),
    ] = NO_WORSE,
    min_speed: Annotated[
        float,
        typer.Option(
            "--min-speed",
            min=0.1,
            max=2.0,
            help="New over recorded speed that must be kept: coarse, since a machine differs from day to day.",
        ),
    ] = NO_SLOWER,
    arm: Annotated[
        list[str] | None,
        typer.Option("--arm", help="Judge this arm only; may be repeated.", show_default=False),
    ] = None,
    inconclusive: InconclusiveOption = "fail",
    format_: Annotated[
        str | None,
        typer.Option(
            "--format", help="Print one format instead: json, markdown or junit.", show_default=False
        ),
    ] = None,
) -> None:
    """Test a new run against a recorded one of the same question; exit 0 only if nothing was lost.

    For example before and after an upgrade of the engine, on the same machine. Exit code 10 is a regression of a
    speed-up or a speed, 11 another output, 12 a tail latency or memory, 20 INCONCLUSIVE, 30 runs that cannot be
    compared.
    """
    if format_ is not None and format_ not in _PRINTERS:
        raise CliError(f"--format {format_}: choose one of {', '.join(_PRINTERS)}")
    with readable(recorded, new):
        runs = [RunDir.open(path) for path in (recorded, new)]
        for run in runs:
            _check_arms(run, arm or ())
        result = compare_runs(runs[0], runs[1], required=min_ratio, slowest=min_speed, only=arm or ())
    if format_ is None:
        render_comparison(result, Console())
    else:
        typer.echo(_PRINTERS[format_](result).decode(), nl=False)
    raise typer.Exit(exit_code(result.exit_code, inconclusive))


def _check_arms(run: RunDir, names: Sequence[str]) -> None:
    known = [x.id for x in run.manifest().arms]
    for name in names:
        if name not in known:
            raise CliError(f"--arm {name}: {run.path} has no such arm; it has {', '.join(known)}")
