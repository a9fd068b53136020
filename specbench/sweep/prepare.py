"""Everything that is decided before the first launch, and the check that a resume asks the same question."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from specbench import __version__
from specbench.config.attach import same_server
from specbench.config.grid import expand_arms, expand_loads
from specbench.config.identity import cell_identity, differences, digest, meaning
from specbench.config.ladders import ladders
from specbench.config.model import closed_id
from specbench.config.open_check import FIRST_LOOK, check_load_id
from specbench.config.plan import LaunchPlan, Plan, make_plan
from specbench.engines.base import context_kept, lossy, memory
from specbench.engines.checks import sweep_problems
from specbench.engines.known_bugs import wrong_output
from specbench.engines.registry import make_engine
from specbench.observe.host import machine
from specbench.observe.processors import ProcessorError, require_cpus
from specbench.observe.production import ProductionError
from specbench.runs import records as r
from specbench.runs.calibrations import read_calibration
from specbench.runs.checks import OpenCheckLoad, OpenCheckRecord
from specbench.runs.journal import utc_now
from specbench.sweep.arrivals import arrival_problems
from specbench.sweep.task_note import task_problems
from specbench.sweep.traffic import production_traffic
from specbench.workloads.build import build_workload

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from specbench.config.grid import Load
    from specbench.config.identity import CellIdentity
    from specbench.config.model import Config, EngineConfig
    from specbench.config.source import LoadedConfig
    from specbench.engines.base import Engine, Problem
    from specbench.runs.checks import ConfirmsRecord, ProductionRecord
    from specbench.runs.rundir import RunDir
    from specbench.workloads.build import BuiltWorkload
    from specbench.workloads.loading import SourceAccount
    from specbench.workloads.request import CellMix


class RefusedError(Exception):
    """The sweep must not start; the message says why and the mend."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A sweep, ready to start.

    ``check_mixes`` are of the open-loop check, with arrivals at 1 per second.
    """

    loaded: LoadedConfig
    engines: dict[str, Engine]
    """By the name that arms use; the main engine's is empty."""
    versions: dict[str, str]
    plan: Plan
    mixes: dict[str, CellMix]
    meaning: dict[str, Any]
    problems: tuple[Problem, ...]
    account: SourceAccount
    check_mixes: dict[str, CellMix] = field(default_factory=dict)
    production: ProductionRecord | None = None
    confirms: ConfirmsRecord | None = None

    def engine_name(self, arm: str) -> str:
        """Name of the engine that an arm runs on; empty for the main one, and for what is no arm of the plan."""
        return next((a.engine for a in self.plan.arms if a.id == arm), "")

    def engine(self, arm: str) -> Engine:
        """The engine that an arm runs on."""
        return self.engines[self.engine_name(arm)]

    def engine_config(self, arm: str) -> EngineConfig:
        """The config section of the engine that an arm runs on."""
        return self.loaded.config.engine_named(self.engine_name(arm))

    def identity(self, launch: LaunchPlan, load: Load) -> CellIdentity:
        """Identity of one cell of a launch."""
        return cell_identity(
            self.loaded.config,
            launch.arm,
            load,
            launch.round,
            self.versions[launch.arm.engine],
            self.mixes[load.id].digest,
            self.loaded.variables,
        )


def launch_id(launch: LaunchPlan) -> str:
    """``r01-03-ngram-k4``: round, number in the sweep, arm."""
    return f"r{launch.round:02d}-{launch.number:02d}-{launch.arm.id}"


def prepare(loaded: LoadedConfig) -> Prepared:
    """Plan, build the request mixes and look at the engine; starts nothing.

    Raises:
        UnknownEngine, EngineMissing: the engine cannot be used.
        GridError, WorkloadError: the config cannot be carried out.
        RefusedError: the engine would refuse an arm, or ``verdict.traffic_from`` cannot be used.
    """
    config = loaded.config
    engines = {
        name: make_engine(config.target, config.engine_named(name)) for name in ("", *config.other_engines)
    }
    arms = expand_arms(config)
    unique = sweep_problems(engines, arms, expand_loads(config), config.workload.sampling.temperature)
    _refuse(loaded, unique)
    if config.measure.client_cpus is not None:
        try:
            require_cpus(config.measure.client_cpus)
        except ProcessorError as error:
            key = "measure.client_cpus"
            raise RefusedError(f"{loaded.where(key)}: {key}: {error}") from None
    try:
        production = production_traffic(loaded)
    except ProductionError as error:
        key = "verdict.traffic_from"
        raise RefusedError(f"{loaded.where(key)}: {key}: {error}") from None
    versions = {name: engine.version() for name, engine in engines.items()}
    workload, plan = lay_out(config, loaded.base_dir, engines)
    _refuse(loaded, arrival_problems(plan.loads, workload.mixes))
    problems = (*unique, *task_problems(config, workload.account.used))
    mixes = workload.mixes
    digests = {k: m.digest for k, m in {**mixes, **workload.check}.items()}
    content = meaning(config, versions[""], digests, loaded.variables, versions)
    return Prepared(
        loaded,
        engines,
        versions,
        plan,
        mixes,
        content,
        problems,
        workload.account,
        workload.check,
        production,
    )


def lay_out(config: Config, base_dir: Path, engines: Mapping[str, Engine]) -> tuple[BuiltWorkload, Plan]:
    """What is sent and in which order, with what the engines' methods ask of both.

    Args:
        base_dir: where relative paths start.
        engines: by the name that arms use.

    Raises:
        GridError, WorkloadError: the config cannot be carried out.
    """
    arms = expand_arms(config)
    workload = build_workload(config, base_dir, max(context_kept(engines[a.engine], a) for a in arms))
    learners = {a.id for a in arms if memory(engines[a.engine], a) == "always"}
    return workload, make_plan(config, workload.trace, learners)


def _refuse(loaded: LoadedConfig, problems: Iterable[Problem]) -> None:
    fatal = [p for p in problems if p.fatal]
    if fatal:
        raise RefusedError("\n".join(f"{loaded.where(p.key)}: {p.key}: {p.message}: {p.mend}" for p in fatal))


def manifest(prepared: Prepared, run: RunDir) -> r.Manifest:
    """What is written down before the first launch."""
    config, plan = prepared.loaded.config, prepared.plan
    requests = [q for m in prepared.mixes.values() for q in m.measured]
    traffic = traffic_shares(config, plan.loads)
    if prepared.production is not None:
        traffic = {load.id: prepared.production.share.get(load.id, 0.0) for load in plan.loads}
    sampling = config.workload.sampling
    here = machine()
    return r.Manifest(
        run_id=run.id,
        name=config.name,
        created_utc=utc_now(),
        specbench=__version__,
        config=prepared.loaded.resolved,
        config_text=prepared.loaded.safe_text,
        meaning=prepared.meaning,
        meaning_digest=digest(prepared.meaning),
        target=config.target.model,
        engine_kind=config.engine.kind,
        engine_version=prepared.versions[""],
        other_engines={
            name: f"{config.other_engines[name].kind} {version}"
            for name, version in prepared.versions.items()
            if name
        },
        machine=msgspec.to_builtins(here),
        git=git_state(prepared.loaded.base_dir),
        arms=tuple(
            r.ArmRecord(
                id=a.id,
                method=a.method,
                draft=a.draft,
                k=a.k,
                settings=dict(a.settings),
                args=dict(a.args),
                engine=a.engine,
                memory=memory(prepared.engines[a.engine], a),
                lossy=lossy(prepared.engines[a.engine], a),
                wrong_output=wrong_output(
                    prepared.engines[a.engine], a, config.workload.sampling.temperature
                ),
                same_server=same_server(a, plan.arms),
                matched=a.matched,
            )
            for a in plan.arms
        ),
        loads=tuple(
            r.LoadRecord(
                id=load.id,
                concurrency=load.concurrency,
                requests=len(prepared.mixes[load.id].measured),
                workload_digest=prepared.mixes[load.id].digest,
                repeats=prepared.mixes[load.id].repeats,
                kind=load.kind,
                rate_per_s=load.open.rate if load.open is not None else None,
                title=load_title(load),
            )
            for load in plan.loads
        ),
        launches=tuple(
            r.PlannedLaunchRecord(
                id=launch_id(x), round=x.round, arm=x.arm.id, loads=tuple(c.load.id for c in x.cells)
            )
            for x in plan.launches
        ),
        rounds=config.measure.rounds,
        min_speedup=config.verdict.min_speedup,
        confidence=config.verdict.confidence,
        traffic=traffic,
        ttft_p95_limit_ms=config.verdict.limits.ttft_p95_ms,
        tpot_p95_limit_ms=config.verdict.limits.tpot_p95_ms,
        workload=(
            f"{config.workload.source}, at most {config.workload.max_output_tokens} output tokens "
            f"({config.workload.output_mode} end), temperature {sampling.temperature:g}"
        ),
        categories=tuple(sorted({q.category for q in requests})),
        output_mode=config.workload.output_mode,
        text_sources=tuple(sorted({q.text_source for q in requests})),
        source=prepared.account,
        rule=_rule(config, plan),
        calibration=read_calibration(here.fingerprint, f"{config.engine.kind} {prepared.versions['']}"),
        production=prepared.production,
        open_check=_open_check(prepared),
        confirms=prepared.confirms,
    )


def _open_check(prepared: Prepared) -> OpenCheckRecord | None:
    config = prepared.loaded.config
    check = config.measure.open_check
    if check is None or not prepared.check_mixes:
        return None
    mixes = {share: prepared.check_mixes[check_load_id(share)] for share in check.shares}
    return OpenCheckRecord(
        loads=tuple(
            OpenCheckLoad(
                id=check_load_id(share),
                share=share,
                requests=len(mix.measured),
                workload_digest=mix.digest,
                repeats=mix.repeats,
            )
            for share, mix in mixes.items()
        ),
        rounds=check.rounds,
        first_look=min(FIRST_LOOK, check.rounds),
        margins=config.verdict.margins.model_dump(exclude_none=True),
    )


def _rule(config: Config, plan: Plan) -> r.RuleRecord:
    """The part of the rule that says how many launches there are; fixed before the first one."""
    margins = config.verdict.margins.model_dump(exclude_none=True)
    if plan.adaptive is None:
        return r.RuleRecord(margins=margins, order_seed=config.measure.order_seed)
    order = config.verdict.load_order
    return r.RuleRecord(
        strategy="adaptive",
        looks=tuple(config.measure.looks),
        max_rounds=plan.adaptive.most_confirming,
        explore_rounds=plan.adaptive.explore_rounds,
        ladders=ladders(plan.arms) if plan.adaptive.explore_rounds else (),
        variance_prior=config.measure.variance_prior,
        margins=margins,
        load_order=tuple(x.id for x in sorted(plan.loads, key=lambda x: x.order))
        if order is None
        else tuple(closed_id(x) if isinstance(x, int) else x for x in order),
        order_seed=config.measure.order_seed,
    )


def traffic_shares(config: Config, loads: Sequence[Load]) -> dict[str, float]:
    """Share of each load in the traffic mix, adding up to 1.

    Without ``verdict.traffic``, equal shares of the closed loads; of all, when none is closed. Closed loads
    compare throughput and the others latency: by default the two are not mixed in one number.
    """
    if config.verdict.traffic is not None:
        named = {closed_id(k) if isinstance(k, int) else k: w for k, w in config.verdict.traffic.items()}
    else:
        named = {x.id: 1.0 for x in loads if x.kind == "closed"} or {x.id: 1.0 for x in loads}
    total = sum(named.values())
    return {load.id: named.get(load.id, 0.0) / total for load in loads}


def load_title(load: Load) -> str:
    """A load in words: ``16 in flight``, ``2 requests/s (Poisson)``, ``recorded arrivals, 2 x as long``."""
    if load.open is not None:
        process = "Poisson" if load.open.arrivals == "poisson" else f"gamma, CV {load.open.cv:g}"
        return f"{load.open.rate:g} requests/s ({process})"
    if load.trace is not None:
        scale = load.trace.time_scale
        return "recorded arrivals" + ("" if scale == 1 else f", times x {scale:g}")
    return f"{load.concurrency} in flight"


def check_resume(prepared: Prepared, run: RunDir) -> None:
    """A resume must ask the same question of the same engine.

    Raises:
        RefusedError: it does not; the message lists what changed.
    """
    old = run.manifest()
    if old.specbench.split(".")[:2] != __version__.split(".")[:2]:
        raise RefusedError(
            f"{run.path} was begun by specbench {old.specbench}, this is {__version__}: start a new run"
        )
    if old.confirms is not None and prepared.confirms is None:
        raise RefusedError(f"{run.path} confirms the policy of {old.confirms.run_id}: add --confirm-policy")
    changed = differences(old.meaning, prepared.meaning)
    # The rule is fixed before the first launch: changed afterwards it could be fitted to the data.
    before, rule_now = old.config.get("verdict") or {}, prepared.loaded.resolved["verdict"]
    rule = differences(before, {k: v for k, v in rule_now.items() if v is not None or k in before})
    changed += [f"verdict.{line}" for line in rule]
    was, now = old.production, prepared.production
    if was is not None and now is not None and was.sha256 != now.sha256:
        changed.append(f"verdict.traffic_from: the content of {was.file}")
    if changed:
        lines = "\n".join(f"  {line}" for line in changed[:20])
        raise RefusedError(
            f"{run.path} cannot be resumed, because these changed since it began:\n{lines}\n"
            "Change them back, or start a new run without --resume"
        )


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit and dirtiness of the repository that the config lies in; null outside one or without git."""

    def ask(*args: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(folder), *args], capture_output=True, text=True, timeout=10, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = ask("rev-parse", "HEAD")
    if commit is None:
        return None
    return {"commit": commit, "dirty": bool(ask("status", "--porcelain"))}
