"""``specbench parity CONFIG`` and ``specbench parity RUN``: does speculation leave the output alone?"""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from specbench.cli.config_file import read_config
from specbench.cli.errors import CliError
from specbench.cli.live import Lines
from specbench.cli.sweep import prepared_or_error, run_until_signal
from specbench.config.model import Config
from specbench.parity.run import judge_run
from specbench.runs.files import RunFileError
from specbench.runs.rundir import RunDir
from specbench.sweep.conductor import Conductor
from specbench.sweep.prepare import manifest
from specbench.verdict.exit_codes import ExitCode

if TYPE_CHECKING:
    from specbench.config.source import LoadedConfig
    from specbench.runs.parity import ArmParity, Interval, ParityResult

TIERS: Final = ("smoke", "gate", "nightly")

_STYLE: Final = {"PASS": "bold green", "FAIL": "bold red", "INCONCLUSIVE": "bold yellow"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("parity")(parity)


def parity(
    target: Annotated[
        Path,
        typer.Argument(metavar="CONFIG|RUN", help="A config file, or a run directory.", show_default=False),
    ],
    tier: Annotated[
        str | None,
        typer.Option(
            "--tier", help="smoke, gate or nightly; parity.tier if absent, or else gate.", show_default=False
        ),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option("--run", help="Finish this run: only what is missing in it.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of run directories.", show_default=False)
    ] = None,
) -> None:
    """Test whether every speculative arm writes what the baseline would have written.

    CONFIG launches the arms, lets them write, has the baseline score every token, and judges. RUN judges
    stored outputs again. Exit code 0 is PASS, 11 FAIL, 20 INCONCLUSIVE.
    """
    console = Console()
    try:
        if target.is_dir():
            directory = RunDir.open(target)
            result = judge_run(directory)
            if result is None:
                raise CliError(f"{target} holds no parity check: give a config file to run one")
            directory.write_parity_result(result)
        else:
            directory, result = _check(read_config(target), tier, run, out, console)
    except RunFileError as error:
        no_run = target.is_dir() and not (target / "manifest.json").exists()
        raise CliError(str(error), ExitCode.USAGE if no_run else ExitCode.ENVIRONMENT) from error
    show(result, console)
    console.print(f"{directory.parity_path / 'result.json'}", highlight=False, soft_wrap=True)
    raise typer.Exit(int(exit_code(result)))


def _check(
    loaded: LoadedConfig, tier: str | None, run: Path | None, out: Path | None, console: Console
) -> tuple[RunDir, ParityResult]:
    loaded = _with_tier(loaded, tier)
    prepared = prepared_or_error(loaded)
    if run is not None:
        directory = RunDir.open(run)
    else:
        directory = RunDir.create(out or Path(loaded.config.out), f"{loaded.config.name}-parity")
        directory.write_manifest(manifest(prepared, directory))
    conductor = Conductor(prepared, directory, Lines(console))
    with directory.lock():
        try:
            run_until_signal(conductor.conduct_parity)
        except (KeyboardInterrupt, asyncio.CancelledError):
            console.print(
                f"\nInterrupted. Engines are stopped; finish it with: specbench parity {loaded.path} "
                f"--run {directory.path}",
                highlight=False,
                soft_wrap=True,
            )
            raise typer.Exit(int(ExitCode.INTERRUPTED)) from None
    for arm, reason in conductor.parity.failures.items():
        typer.secho(f"warning: {arm}: {reason}", err=True, fg=typer.colors.YELLOW)
    result = judge_run(directory)
    assert result is not None
    if not directory.parity_outputs(scored=True) and not directory.parity_texts():
        first = next(iter(conductor.parity.failures.values()), "no output was collected")
        raise CliError(f"nothing could be scored: {first}", ExitCode.ENGINE)
    return directory, result


def _with_tier(loaded: LoadedConfig, tier: str | None) -> LoadedConfig:
    chosen = tier or loaded.config.parity.tier or "gate"
    if chosen not in TIERS:
        raise CliError(f"--tier {chosen}: choose one of {', '.join(TIERS)}")
    section = {**loaded.config.parity.model_dump(), "tier": chosen}
    # Validated again, so that nothing enters a config past its checks.
    changed = type(loaded.config.parity).model_validate(section)
    config: Config = loaded.config.model_copy(update={"parity": changed})
    return dataclasses.replace(loaded, config=config)


def exit_code(result: ParityResult) -> ExitCode:
    """The worst arm's."""
    decisions = {arm.decision for arm in result.arms}
    if "FAIL" in decisions:
        return ExitCode.NO_GO_PARITY
    return ExitCode.OK if decisions == {"PASS"} else ExitCode.INCONCLUSIVE


def show(result: ParityResult, console: Console) -> None:
    """A table of the arms, and for those that did not pass the reasons."""
    table = Table(title=f"Parity, tier {result.tier}", title_justify="left", pad_edge=False)
    for name, right in (("arm", False), ("decision", False), ("tokens", True), ("dT/T", True)):
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    table.add_column("top-1", justify="right", no_wrap=True)
    table.add_column("bug rate <", justify="right", no_wrap=True)
    table.add_column("texts differ", justify="right", no_wrap=True)
    for arm in result.arms:
        table.add_row(
            arm.arm,
            Text(arm.decision, style=_STYLE[arm.decision]),
            f"{arm.tokens:,}",
            _range(_widest([x.d_beta for x in arm.loads]), sign=-1),
            _range(_widest([x.d_top1 for x in arm.loads]), sign=1),
            "unknown" if arm.bug_rate_upper95 is None else f"{arm.bug_rate_upper95:.1e}",
            _differing(arm),
        )
    console.print(table)
    console.print(
        "dT/T and top-1 (share of likeliest tokens): 90% intervals of arm less baseline. Bug rate: per "
        "token, 95% bound. Texts differ: greedy outputs that are not the baseline's word for word (usual).",
        style="dim",
        highlight=False,
    )
    for arm in result.arms:
        console.print(Text(f"{arm.arm}: {arm.decision}: {arm.headline}"), soft_wrap=True)
        for reason in arm.reasons:
            if reason != arm.headline:
                console.print(Text(f"  {reason}"), soft_wrap=True)
        if arm.task is not None and arm.task.words not in (arm.headline, *arm.reasons):
            console.print(Text(f"  {arm.task.words}"), soft_wrap=True)
        if arm.loads and not any(x.has_draft_direction for x in arm.loads):
            console.print(
                Text("  leakage along the draft alone cannot be seen for this method (docs/parity.md)"),
                soft_wrap=True,
            )


def _widest(intervals: list[Interval | None]) -> Interval | None:
    return max((x for x in intervals if x is not None), key=lambda x: max(-x.low, x.high), default=None)


def _range(interval: Interval | None, *, sign: int) -> str:
    if interval is None:
        return "unknown"
    low, high = sorted((sign * interval.low, sign * interval.high))
    return f"{low:+.1%} to {high:+.1%}"


def _differing(arm: ArmParity) -> str:
    total = sum(x.divergences for x in arm.loads)
    unexplained = sum(x.divergences_unexplained for x in arm.loads)
    return f"{total} ({unexplained} not by rounding)" if unexplained else str(total)
