"""What `specbench plan` knows about a sweep before anything starts: gathered here, printed elsewhere."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from specbench.cli.errors import CliError
from specbench.config.grid import Arm
from specbench.config.plan import Plan
from specbench.config.source import LoadedConfig
from specbench.engines.base import Engine, EngineMissing, Problem
from specbench.engines.checks import sweep_problems
from specbench.engines.registry import UnknownEngine, make_engine
from specbench.observe.production import ProductionError
from specbench.sweep.arrivals import arrival_problems
from specbench.sweep.prepare import lay_out
from specbench.sweep.task_note import task_problems
from specbench.sweep.traffic import production_traffic
from specbench.workloads.loading import SourceAccount
from specbench.workloads.request import CellMix
from specbench.workloads.requests_file import WorkloadError

PORT: Final = 64999
"""Stands for the port in a command line and is shown as PORT."""


@dataclass(frozen=True, slots=True)
class ArmPreview:
    """An arm and the exact command that starts it; null when the engine cannot say without being there."""

    arm: Arm
    command: str | None


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to mend or to know: ``place`` is ``file:line``, ``fatal`` means a sweep would refuse."""

    place: str
    key: str
    message: str
    mend: str
    fatal: bool


@dataclass(frozen=True, slots=True)
class Preview:
    """Everything to show.

    Attributes:
        engine: kind and version; ``missing`` says why there is no version.
        mixes: the requests of a cell, by load id.
        account: what became of the source's rows.
    """

    loaded: LoadedConfig
    plan: Plan
    engine: str
    missing: str | None
    arms: tuple[ArmPreview, ...]
    mixes: dict[str, CellMix]
    account: SourceAccount
    findings: tuple[Finding, ...]

    @property
    def fatal(self) -> bool:
        """Whether a sweep would refuse this config."""
        return any(finding.fatal for finding in self.findings)


def make_preview(loaded: LoadedConfig) -> Preview:
    """Plan a sweep, without starting anything.

    Raises:
        CliError: the engine kind or the workload is unknown.
    """
    config = loaded.config
    try:
        engines = {
            name: make_engine(config.target, config.engine_named(name))
            for name in ("", *config.other_engines)
        }
    except UnknownEngine as error:
        raise CliError(f"{loaded.where('engine.kind')}: {error}") from None
    try:
        workload, plan = lay_out(config, loaded.base_dir, engines)
    except WorkloadError as error:
        raise CliError(_placed(loaded, error)) from None
    shown, missing = [], []
    for name, engine in engines.items():
        kind = config.engine_named(name).kind
        try:
            shown.append(f"{kind} {engine.version().removeprefix(f'{kind}-')}")
        except EngineMissing as error:
            shown.append(kind)
            missing.append(str(error))
    return Preview(
        loaded=loaded,
        plan=plan,
        engine=", ".join(shown),
        missing="; ".join(missing) or None,
        arms=tuple(ArmPreview(arm, _command(loaded, engines[arm.engine], arm)) for arm in plan.arms),
        mixes=workload.mixes,
        account=workload.account,
        findings=(
            *_findings(loaded, arrival_problems(plan.loads, workload.mixes)),
            *_engine_findings(loaded, engines, plan),
            *_path_findings(loaded),
            *_workload_findings(loaded, workload.mixes, workload.account),
            *_budget_findings(loaded, plan),
            *_traffic_findings(loaded),
            *_findings(loaded, task_problems(config, workload.account.used)),
        ),
    )


def _command(loaded: LoadedConfig, engine: Engine, arm: Arm) -> str | None:
    try:
        spec = engine.launch(arm, PORT)
    except EngineMissing:
        return None
    words = [f"{name}={shlex.quote(value)}" for name, value in sorted(spec.env.items())]
    words += [shlex.quote(word) for word in spec.argv]
    return loaded.redact(" ".join(words)).replace(str(PORT), "PORT")


def _engine_findings(loaded: LoadedConfig, engines: dict[str, Engine], plan: Plan) -> list[Finding]:
    temperature = loaded.config.workload.sampling.temperature
    return _findings(loaded, sweep_problems(engines, plan.arms, plan.loads, temperature))


def _findings(loaded: LoadedConfig, problems: Iterable[Problem]) -> list[Finding]:
    return [
        Finding(
            place=loaded.where(problem.key),
            key=problem.key,
            message=loaded.redact(problem.message),
            mend=problem.mend,
            fatal=problem.fatal,
        )
        for problem in problems
    ]


def _path_findings(loaded: LoadedConfig) -> list[Finding]:
    """A plan may be made where the models are not."""
    findings = []
    for line in loaded.missing:
        place, key, message = line.removeprefix(f"{loaded.path}:").split(": ", 2)
        findings.append(
            Finding(
                f"{loaded.path}:{place}",
                key,
                message.removesuffix(": correct the path"),
                "correct the path, or run the sweep where it exists",
                fatal=False,
            )
        )
    return findings


def _workload_findings(
    loaded: LoadedConfig, mixes: dict[str, CellMix], account: SourceAccount
) -> list[Finding]:
    place, key = loaded.where("workload.source"), "workload.source"
    findings = []
    largest = max(mixes.values(), key=lambda mix: len(mix.measured))
    if largest.repeats:
        findings.append(
            Finding(
                place,
                key,
                f"{account.used} prompts for cells of up to {len(largest.measured)} requests: prompts repeat",
                "add prompts: a prefix cache and the `suffix` method do better on repeats than in production",
                fatal=False,
            )
        )
    fillers = {
        request.text_source for request in largest.measured if request.text_source.startswith("filler")
    }
    if fillers:
        findings.append(
            Finding(
                place,
                key,
                f"some prompts are filler text ({', '.join(sorted(fillers))})",
                "use real text: acceptance on filler says nothing, so there will be no verdict",
                fatal=False,
            )
        )
    return findings


def _budget_findings(loaded: LoadedConfig, plan: Plan) -> list[Finding]:
    rounds = len(plan.rounds)
    if plan.rounds_in_budget is None or plan.rounds_in_budget >= rounds:
        return []
    return [
        Finding(
            loaded.where("measure.time_budget"),
            "measure.time_budget",
            f"about {plan.rounds_in_budget} of {rounds} rounds fit",
            "raise the budget, or measure fewer arms or loads",
            fatal=False,
        )
    ]


def _traffic_findings(loaded: LoadedConfig) -> list[Finding]:
    """What `sweep` would refuse of a production dump, and what of it no load covers."""
    key = "verdict.traffic_from"
    place = loaded.where(key)
    try:
        found = production_traffic(loaded)
    except ProductionError as error:
        return [Finding(place, key, str(error), "correct the file, or give verdict.traffic", fatal=True)]
    if found is None or not (found.below or found.above):
        return []
    outside = f"{found.below:.1%} below and {found.above:.1%} above the measured concurrencies"
    mend = "add concurrencies to loads.closed that cover it"
    return [Finding(place, key, f"of production's busy time {outside}", mend, fatal=False)]


def _placed(loaded: LoadedConfig, error: WorkloadError) -> str:
    """Problems that name a config key get its place; those of a requests file have their own."""
    return "\n".join(
        f"{loaded.where(key)}: {problem}"
        if (key := problem.split(":", 1)[0]).startswith("workload.")
        else problem
        for problem in error.problems
    )
