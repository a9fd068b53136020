"""``specbench gate RUN``: the verdict as an exit code, for CI."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from specbench.cli.run_argument import RunArgument, readable
from specbench.report.build import build
from specbench.runs.rundir import RunDir
from specbench.verdict.exit_codes import ExitCode


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("gate")(gate)


InconclusiveOption = Annotated[
    Literal["fail", "pass"],
    typer.Option("--inconclusive", help="What an INCONCLUSIVE verdict ends with: exit code 20, or 0."),
]


def exit_code(code: int, inconclusive: Literal["fail", "pass"]) -> int:
    """The verdict's exit code, with INCONCLUSIVE as asked for."""
    passes = inconclusive == "pass" and code == ExitCode.INCONCLUSIVE
    return int(ExitCode.OK if passes else code)


def gate(run: RunArgument, inconclusive: InconclusiveOption = "fail") -> None:
    """Print the verdict and its reasons; exit 0 only for GO (10-12 NO-GO, 20 INCONCLUSIVE, 30 invalid)."""
    with readable(run):
        result = build(RunDir.open(run))
    typer.echo(f"{result.verdict} (grade {result.grade}): {result.headline}")
    for reason in result.reasons:
        typer.echo(f"  {reason}")
    raise typer.Exit(exit_code(result.exit_code, inconclusive))
