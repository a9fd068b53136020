"""``specbench plan``: what a sweep would do, in which order and for how long."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from specbench.cli.config_file import read_config
from specbench.cli.preview import Finding, Preview, make_preview
from specbench.config.grid import Arm
from specbench.config.open_check import FIRST_LOOK, expected_check_s
from specbench.sweep.prepare import load_title
from specbench.verdict.exit_codes import ExitCode

if TYPE_CHECKING:
    from specbench.config.plan import AdaptivePlan

SCHEMA = "specbench.plan/1"


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def plan(
        config: Annotated[Path, typer.Argument(help="The config file.", show_default=False)],
        as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    ) -> None:
        """Show what a sweep would do; start nothing."""
        preview = make_preview(read_config(config, check_paths=False))
        if as_json:
            text = msgspec.json.format(msgspec.json.encode(plan_data(preview)), indent=2).decode()
            typer.echo(preview.loaded.redact(text))
        else:
            show_plan(preview, Console(highlight=False, markup=False, emoji=False))
        if preview.fatal:
            raise typer.Exit(int(ExitCode.USAGE))


def plan_data(preview: Preview) -> dict[str, Any]:
    """The plan as data; times are seconds."""
    plan = preview.plan
    return {
        "schema": SCHEMA,
        "name": preview.loaded.config.name,
        "target": _target(preview),
        "engine": preview.engine,
        "engine_missing": preview.missing,
        "arms": [
            {
                "id": item.arm.id,
                "method": item.arm.method,
                "draft": item.arm.draft,
                "k": item.arm.k,
                "settings": item.arm.settings,
                "command": item.command,
            }
            for item in preview.arms
        ],
        "loads": [
            {
                "id": cell.load.id,
                "concurrency": cell.load.concurrency,
                "kind": cell.load.kind,
                "requests": cell.requests,
                "warmup_requests": cell.warmup_requests,
                "requests_sha256": preview.mixes[cell.load.id].digest,
                "repeats": preview.mixes[cell.load.id].repeats,
                "estimate_s": round(cell.estimate_s, 1),
            }
            for cell in plan.cells_per_launch
        ],
        "source": msgspec.to_builtins(preview.account),
        "launches": [
            {
                "number": launch.number,
                "round": launch.round,
                "arm": launch.arm.id,
                "loads": [cell.load.id for cell in launch.cells],
                "estimate_s": round(launch.estimate_s, 1),
            }
            for launch in plan.launches
        ],
        "estimate_s": round(plan.estimate_s, 1),
        "estimate_basis": {"startup": plan.startup_basis, "tokens_per_s": plan.speed_basis},
        "rounds_in_budget": plan.rounds_in_budget,
        "adaptive": None if plan.adaptive is None else dataclasses.asdict(plan.adaptive),
        "problems": [
            {"where": f.place, "key": f.key, "message": f.message, "mend": f.mend, "fatal": f.fatal}
            for f in preview.findings
        ],
    }


def show_plan(preview: Preview, console: Console) -> None:
    """Print the plan for a person."""
    plan = preview.plan
    console.print(Text(f"{preview.loaded.config.name}: {_target(preview)} on {preview.engine}", style="bold"))
    if preview.missing:
        console.print(Text(f"The engine cannot run here: {preview.missing}", style="yellow"))
    launches = len(plan.launches)
    cells = sum(len(launch.cells) for launch in plan.launches)
    if plan.adaptive is None:
        console.print(
            f"{len(plan.arms)} arms x {len(plan.rounds)} rounds x {len(plan.loads)} loads = {cells} cells "
            f"in {launches} launches; about {_about(plan.estimate_s)}"
        )
    else:
        console.print(_adaptive_text(plan.adaptive, sum(a.speculates for a in plan.arms)), soft_wrap=True)
    _show_arms(preview, console)
    _show_loads(preview, console)
    _show_order(preview, console)
    _show_time(preview, console)
    _show_open_check(preview, console)
    _show_findings(preview.findings, console)


def _adaptive_text(adaptive: AdaptivePlan, arms: int) -> str:
    rounds = f"{adaptive.explore_rounds} round{'' if adaptive.explore_rounds == 1 else 's'}"
    if not adaptive.explore_rounds:
        first = ""
    elif len(adaptive.explored) == arms:
        first = f"{rounds} of all {arms} speculative arms to pick the best, then "
    else:
        first = (
            f"{rounds} of {len(adaptive.explored)} of the {arms} speculative arms and a curve over K to pick "
            "the best, then "
        )
    return (
        f"adaptive: {first}{adaptive.least_confirming} to {adaptive.most_confirming} rounds of that arm and the "
        f"baseline until the answer is clear; about {_about(adaptive.least_s)} to {_about(adaptive.most_s)}"
    )


def _show_arms(preview: Preview, console: Console) -> None:
    _heading(console, "Arms")
    table = _table("arm", "method", "draft", "K", "settings")
    for item in preview.arms:
        arm = item.arm
        table.add_row(
            arm.id,
            arm.method or "no speculation",
            _redacted(preview, arm.draft) or "",
            "" if arm.k is None else str(arm.k),
            _redacted(preview, _settings(arm)) or "",
        )
    console.print(table)
    _heading(console, "Commands")
    for item in preview.arms:
        console.print(Text(f"# {item.arm.id}", style="dim"))
        # One line each, however long, so that it can be copied.
        console.print(item.command or "(known when the engine is installed)", soft_wrap=True)


def _show_loads(preview: Preview, console: Console) -> None:
    workload = preview.loaded.config.workload
    _heading(console, "Loads")
    table = _table("load", "arrivals", "requests", "warm-up", "about", right=(2, 3, 4))
    for cell in preview.plan.cells_per_launch:
        timed = workload.seconds is not None and cell.load.kind == "closed"
        requests = f"for {_about(workload.seconds or 0)}" if timed else f"{cell.requests}"
        table.add_row(
            cell.load.id,
            load_title(cell.load),
            requests,
            str(cell.warmup_requests),
            _about(cell.estimate_s),
        )
    console.print(table)
    console.print(
        f"Requests from {workload.source} ({preview.account.used} prompts), up to "
        f"{workload.max_output_tokens} output tokens, temperature {workload.sampling.temperature:g}; "
        "the same in every arm and round."
    )
    for sentence in preview.account.sentences():
        console.print(Text(f"note: {sentence}", style="yellow"), soft_wrap=True)


def _show_order(preview: Preview, console: Console) -> None:
    _heading(console, "Order")
    learners = preview.plan.learners
    for round_ in preview.plan.rounds:
        loads = ", ".join(dict.fromkeys(c.load.id for x in round_.launches for c in x.cells))
        console.print(
            f"round {round_.number} (about {_about(round_.estimate_s)}; loads {loads})", soft_wrap=True
        )
        for launch in round_.launches:
            alone = f", only {launch.cells[0].load.id}" if launch.arm.id in learners else ""
            console.print(f"  {launch.number:>3}  {launch.arm.id}{alone}", soft_wrap=True)
    if learners:
        console.print(
            f"{', '.join(sorted(learners))} drafts from every answer that it gave and cannot be made to "
            "forget: each of its cells has a launch of its own.",
            soft_wrap=True,
        )


def _show_time(preview: Preview, console: Console) -> None:
    plan = preview.plan
    launch = plan.launches[0]
    _heading(console, "Time")
    about = "at most" if plan.adaptive else "about"
    console.print(
        f"{about} {_about(plan.estimate_s)} in all, {_about(launch.estimate_s)} per launch: "
        f"start-up {_about(launch.startup_s)} ({plan.startup_basis}), "
        f"then the cells by tokens/s ({plan.speed_basis}), as if every arm were as fast as that.",
        soft_wrap=True,
    )


def _show_open_check(preview: Preview, console: Console) -> None:
    config = preview.loaded.config
    check = config.measure.open_check
    if check is None:
        return
    least = min(FIRST_LOOK, check.rounds)
    shares = " and ".join(f"{share:g}" for share in check.shares)
    most = expected_check_s(config, preview.plan.launches[0].startup_s)
    console.print(
        f"Then the open-loop check of the recommended arm, if there is one: {least} to {check.rounds} pairs of "
        f"launches at {shares} of the baseline's requests/s, {check.requests} requests each, at most "
        f"{_about(most)} more by this estimate.",
        soft_wrap=True,
    )


def _show_findings(findings: tuple[Finding, ...], console: Console) -> None:
    if not findings:
        return
    _heading(console, "Problems")
    for finding in findings:
        mark, style = ("error", "red") if finding.fatal else ("note", "yellow")
        console.print(
            Text.assemble(
                (mark, style), f" {finding.place}: {finding.key}: {finding.message}: {finding.mend}"
            ),
            soft_wrap=True,
        )


def _about(seconds: float) -> str:
    """As exact as an estimate deserves: ``50 s``, ``15 min``, ``2 h 10 min``."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, style="bold"))


def _table(*columns: str, right: tuple[int, ...] = ()) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i in right else "left", overflow="fold")
    return table


def _target(preview: Preview) -> str:
    target = preview.loaded.config.target
    return preview.loaded.redact(f"{target.model}@{target.revision}" if target.revision else target.model)


def _settings(arm: Arm) -> str:
    settings = [f"{key}={value}" for key, value in arm.settings.items()]
    return ", ".join(settings + [f"--{key} {value}" for key, value in arm.args.items()] + sorted(arm.env))


def _redacted(preview: Preview, text: str | None) -> str | None:
    return None if text is None else preview.loaded.redact(text)
