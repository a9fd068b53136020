"""``specbench calibrate CONFIG``: is this machine fit to measure on?"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from specbench.cli.config_file import read_config
from specbench.cli.errors import CliError
from specbench.cli.live import Lines
from specbench.cli.sweep import prepared_or_error, run_until_signal
from specbench.runs.calibrations import write_calibration
from specbench.runs.files import RunFileError
from specbench.runs.rundir import RunDir
from specbench.sweep.calibrate import calibration_from, calibration_of
from specbench.sweep.conductor import Conductor, SweepStopped
from specbench.sweep.prepare import manifest
from specbench.verdict.exit_codes import ExitCode
from specbench.verdict.words import ratio_text


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("calibrate")(calibrate)


def calibrate(
    config: Annotated[Path, typer.Argument(help="The config file.", show_default=False)],
    pairs: Annotated[int, typer.Option("--pairs", min=2, max=50, help="Pairs of launches.")] = 3,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of run directories.", show_default=False)
    ] = None,
) -> None:
    """Measure the baseline against itself; equal launches must come out equal.

    The result is kept for this hardware and engine build. Where it failed, sweeps give no verdict (exit code 30)
    until a later calibration passes. Exit code 0 is passed, 30 failed.
    """
    console = Console()
    loaded = read_config(config)
    prepared = calibration_of(prepared_or_error(loaded), pairs)
    try:
        run = RunDir.create(out or Path(loaded.config.out), f"{loaded.config.name}-calibration")
        run.write_manifest(manifest(prepared, run))
        with run.lock():
            run_until_signal(Conductor(prepared, run, Lines(console)).conduct)
        record = calibration_from(run)
    except SweepStopped as error:
        raise CliError(str(error), ExitCode.ENGINE) from error
    except RunFileError as error:
        raise CliError(str(error), ExitCode.ENVIRONMENT) from error
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print("Interrupted. Engines are stopped; nothing was kept as a calibration.")
        raise typer.Exit(int(ExitCode.INTERRUPTED)) from None
    if len(record.ratios) < 2:
        raise CliError(f"{record.reason}; look at {run.path}", ExitCode.INVALID)
    try:
        path = write_calibration(record)
    except RunFileError as error:
        raise CliError(str(error), ExitCode.ENVIRONMENT) from error
    for load, ratios in record.by_load.items():
        console.print(f"{load:>8}  {', '.join(map(ratio_text, ratios))}", highlight=False)
    spread = f"; pairs spread by {record.log_sd:.1%}" if record.log_sd is not None else ""
    console.print(
        f"{'passed' if record.passed else 'FAILED'}: {record.reason}{spread}", highlight=False, soft_wrap=True
    )
    console.print(f"kept in {path}", highlight=False, soft_wrap=True)
    raise typer.Exit(int(ExitCode.OK if record.passed else ExitCode.INVALID))
