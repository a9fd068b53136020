"""``specbench sweep CONFIG``: measure, compare, judge."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import uvloop
from rich.console import Console

from specbench.cli.config_file import read_config
from specbench.cli.diagnosis import Level, quiet_check
from specbench.cli.errors import CliError
from specbench.cli.gate import InconclusiveOption, exit_code
from specbench.cli.live import Lines, LivePanel, duration_text
from specbench.cli.output import finish
from specbench.config.grid import GridError
from specbench.engines.base import EngineMissing
from specbench.engines.registry import UnknownEngine
from specbench.observe.host import machine
from specbench.runs.files import RunFileError
from specbench.runs.rundir import RunDir
from specbench.sweep.conductor import Conductor, SweepStopped
from specbench.sweep.confirm import confirming, confirming_name
from specbench.sweep.prepare import Prepared, RefusedError, check_resume, manifest, prepare
from specbench.verdict.exit_codes import ExitCode
from specbench.workloads.requests_file import WorkloadError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextlib import AbstractContextManager

    from specbench.config.source import LoadedConfig


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("sweep")(sweep)


def sweep(
    config: Annotated[Path, typer.Argument(help="The config file.", show_default=False)],
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Finish the newest run of this config (or --run): only what is missing."
        ),
    ] = False,
    run: Annotated[
        Path | None,
        typer.Option(
            "--run",
            help="The run directory to resume; with --confirm-policy alone, the run whose policy is measured.",
            show_default=False,
        ),
    ] = None,
    confirm_policy: Annotated[
        bool,
        typer.Option(
            "--confirm-policy",
            help="Measure the K by load that the newest run of this config (or --run) suggests, in a new run.",
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of run directories.", show_default=False)
    ] = None,
    gate: Annotated[bool, typer.Option("--gate", help="End with the verdict's exit code.")] = False,
    inconclusive: InconclusiveOption = "fail",
    plain: Annotated[bool, typer.Option("--plain", help="Plain lines instead of a live display.")] = False,
) -> None:
    """Launch every arm, replay the workload, compare with the baseline and judge.

    Ctrl-C stops the engines and keeps what was measured; the same command with --resume finishes it.
    """
    console = Console()
    loaded = read_config(config)
    folder = out or Path(loaded.config.out)
    try:
        if confirm_policy:
            prepared, run = _confirming(loaded, folder, resume, run)
        else:
            prepared = prepared_or_error(loaded)
        directory = _directory(prepared, folder, resume or run is not None, run)
        with directory.lock():
            stopped = _conduct(prepared, directory, console, plain)
        if stopped is not None:
            console.print(f"[yellow]The sweep stopped: {stopped}[/]")
        code = finish(directory, console)
    except RunFileError as error:
        raise CliError(str(error), ExitCode.ENVIRONMENT) from error
    if gate or loaded.config.gate or code is ExitCode.ENGINE:
        raise typer.Exit(exit_code(code, inconclusive))


def _confirming(
    loaded: LoadedConfig, folder: Path, resume: bool, run: Path | None
) -> tuple[Prepared, Path | None]:
    """The sweep that measures a suggested policy, and the run to resume.

    Raises:
        CliError: there is no such run, it suggests nothing, or the engine cannot do it.
    """
    name = loaded.config.name
    mine: RunDir | None = None
    if resume:
        mine = RunDir.open(run) if run else RunDir.latest(folder, confirming_name(name))
        record = mine.manifest().confirms if mine is not None else None
        if mine is None or record is None:
            raise CliError(f"{run or folder} holds no run of --confirm-policy to resume: leave out --resume")
        first: RunDir | None = RunDir.open(mine.path.parent / record.run_id)
    else:
        first = RunDir.open(run) if run else RunDir.latest(folder, name)
    if first is None:
        raise CliError(
            f"{folder} holds no run of {name!r}, so there is no policy to confirm: run the sweep first"
        )
    try:
        found = confirming(loaded, first)
    except RefusedError as error:
        raise CliError(str(error)) from error
    prepared = dataclasses.replace(prepared_or_error(found.loaded), confirms=found.confirms)
    return prepared, mine.path if mine is not None else None


def prepared_or_error(loaded: LoadedConfig) -> Prepared:
    """`prepare`, with its foreseen failures as errors of the command line; lesser problems are warned of.

    Raises:
        CliError: the config cannot be carried out, or the engine cannot be used.
    """
    try:
        prepared = prepare(loaded)
    except (GridError, WorkloadError, UnknownEngine, RefusedError) as error:
        raise CliError(str(error)) from error
    except EngineMissing as error:
        raise CliError(f"{error}\nRun `specbench doctor {loaded.path}`.", ExitCode.ENVIRONMENT) from error
    busy = quiet_check(machine())
    if busy.level is Level.WARN:
        typer.secho(f"warning: {busy.message}: {busy.mend}", err=True, fg=typer.colors.YELLOW)
    for problem in prepared.problems:
        typer.secho(
            f"warning: {problem.key}: {problem.message}: {problem.mend}", err=True, fg=typer.colors.YELLOW
        )
    return prepared


def _directory(prepared: Prepared, folder: Path, resume: bool, run: Path | None) -> RunDir:
    if resume:
        directory = RunDir.open(run) if run else RunDir.latest(folder, prepared.loaded.config.name)
        if directory is None:
            raise CliError(
                f"{folder} holds no run of {prepared.loaded.config.name!r} to resume: leave out --resume"
            )
        try:
            check_resume(prepared, directory)
        except RefusedError as error:
            raise CliError(str(error)) from error
        return directory
    directory = RunDir.create(folder, prepared.loaded.config.name)
    directory.write_manifest(manifest(prepared, directory))
    return directory


def _conduct(prepared: Prepared, directory: RunDir, console: Console, plain: bool) -> str | None:
    """Run it; returns why it stopped early, or None."""
    live = console.is_terminal and not plain
    watcher = LivePanel(console) if live else Lines(console)
    shown: AbstractContextManager[object] = (
        watcher if isinstance(watcher, LivePanel) else contextlib.nullcontext()
    )
    conductor = Conductor(prepared, directory, watcher)
    try:
        with shown:
            run_until_signal(conductor.conduct)
    except SweepStopped as error:
        return str(error)
    except (KeyboardInterrupt, asyncio.CancelledError):
        done = sum(1 for c in directory.cells() if c.status != "interrupted")
        planned = (
            f"of {sum(len(x.cells) for x in prepared.plan.launches)} cells are"
            if prepared.plan.adaptive is None
            else "cells are"
        )
        console.print(
            f"\nInterrupted. Engines are stopped; {done} {planned} kept in {directory.path}.\n"
            f"Finish it with: specbench sweep {prepared.loaded.path} "
            f"{'--confirm-policy ' if prepared.confirms else ''}--resume --run {directory.path}",
            highlight=False,
            soft_wrap=True,
        )
        raise typer.Exit(int(ExitCode.INTERRUPTED)) from None
    console.print(f"Measured in {duration_text(directory.active_s())}.", highlight=False)
    return None


def run_until_signal(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run it; SIGINT, SIGTERM and SIGHUP end it in order, with the engines stopped.

    An ignored SIGHUP stays ignored: that is how ``nohup`` keeps a sweep alive without its terminal.
    """

    async def main() -> None:
        task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                loop.add_signal_handler(number, lambda: task.cancel() if task else None)
        await work()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
