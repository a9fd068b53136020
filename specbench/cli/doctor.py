"""``specbench doctor``: can sweeps, or this config, run here, and what to mend if not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from specbench.cli.config_diagnosis import examine_config
from specbench.cli.diagnosis import Check, Level, examine_machine
from specbench.verdict.exit_codes import ExitCode

SCHEMA: Final = "specbench.doctor/1"
_STYLES: Final = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def doctor(
        config: Annotated[
            Path | None, typer.Argument(help="A config to look at, too.", show_default=False)
        ] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    ) -> None:
        """Check the machine, the engines and a config; start nothing."""
        checks = examine_machine(Path.cwd())
        if config is not None:
            checks += examine_config(config)
        failed = any(check.level is Level.FAIL for check in checks)
        if as_json:
            data = {"schema": SCHEMA, "ok": not failed, "checks": checks}
            typer.echo(msgspec.json.format(msgspec.json.encode(data), indent=2).decode())
        else:
            show(checks, Console(highlight=False, markup=False, emoji=False))
        if failed:
            raise typer.Exit(int(ExitCode.ENVIRONMENT))


def show(checks: list[Check], console: Console) -> None:
    """Print the checks for a person, each with its mend, and the sum."""
    width = max(len(check.area) for check in checks)
    for check in checks:
        line = Text.assemble(
            (f"{check.level.value:<5}", _STYLES[check.level]),
            (f"{check.area:<{width}}  ", "dim"),
            check.message,
        )
        console.print(line, soft_wrap=True)
        if check.mend:
            console.print(Text(f"{'':<{width + 5}}  {check.mend}", style="italic"), soft_wrap=True)
    counts = {level: sum(check.level is level for check in checks) for level in Level}
    console.print()
    console.print(
        f"{counts[Level.FAIL]} to mend, {counts[Level.WARN]} to know, {counts[Level.OK]} fine.",
        soft_wrap=True,
    )
