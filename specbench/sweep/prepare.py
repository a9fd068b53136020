"""Everything that is decided before the first launch, and the check that a resume asks the same question."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from specbench import __version__
from specbench.config.identity import cell_identity, differences, digest, meaning
from specbench.config.plan import LaunchPlan, Plan, make_plan
from specbench.engines.registry import make_engine
from specbench.observe.host import machine
from specbench.runs import records as r
from specbench.runs.journal import utc_now
from specbench.workloads.mix import build_cell_mix, load_source

if TYPE_CHECKING:
    from pathlib import Path

    from specbench.config.grid import Load
    from specbench.config.identity import CellIdentity
    from specbench.config.source import LoadedConfig
    from specbench.engines.base import Engine, Problem
    from specbench.runs.rundir import RunDir
    from specbench.workloads.request import CellMix


class RefusedError(Exception):
    """The sweep must not start; the message says why and the mend."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A sweep, ready to start."""

    loaded: LoadedConfig
    engine: Engine
    engine_version: str
    plan: Plan
    mixes: dict[str, CellMix]
    meaning: dict[str, Any]
    problems: tuple[Problem, ...]

    def identity(self, launch: LaunchPlan, load: Load) -> CellIdentity:
        """Identity of one cell of a launch."""
        return cell_identity(
            self.loaded.config,
            launch.arm,
            load,
            launch.round,
            self.engine_version,
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
        RefusedError: the engine would refuse an arm.
    """
    config = loaded.config
    engine = make_engine(config.target, config.engine)
    plan = make_plan(config)
    problems = [p for arm in plan.arms for p in engine.problems(arm, arm.entry)]
    unique = tuple({(p.key, p.message): p for p in problems}.values())
    fatal = [p for p in unique if p.fatal]
    if fatal:
        raise RefusedError("\n".join(f"{loaded.where(p.key)}: {p.key}: {p.message}: {p.mend}" for p in fatal))
    version = engine.version()
    source = load_source(config.workload, loaded.base_dir)
    mixes = {
        load.id: build_cell_mix(
            config.workload, source, load, config.measure.warmup_per_slot, config.measure.order_seed
        )
        for load in plan.loads
    }
    content = meaning(config, version, {k: m.digest for k, m in mixes.items()}, loaded.variables)
    return Prepared(loaded, engine, version, plan, mixes, content, unique)


def manifest(prepared: Prepared, run: RunDir) -> r.Manifest:
    """What is written down before the first launch."""
    config, plan = prepared.loaded.config, prepared.plan
    requests = [q for m in prepared.mixes.values() for q in m.measured]
    weights = config.verdict.traffic or {load.concurrency: 1.0 for load in plan.loads}
    total = sum(weights.values())
    sampling = config.workload.sampling
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
        engine_version=prepared.engine_version,
        machine=msgspec.to_builtins(machine()),
        git=git_state(prepared.loaded.base_dir),
        arms=tuple(
            r.ArmRecord(
                id=a.id, method=a.method, draft=a.draft, k=a.k, settings=dict(a.settings), args=dict(a.args)
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
        traffic={load.id: weights.get(load.concurrency, 0.0) / total for load in plan.loads},
        ttft_p95_limit_ms=config.verdict.limits.ttft_p95_ms,
        tpot_p95_limit_ms=config.verdict.limits.tpot_p95_ms,
        workload=(
            f"{config.workload.source}, at most {config.workload.max_output_tokens} output tokens "
            f"({config.workload.output_mode} end), temperature {sampling.temperature:g}"
        ),
        categories=tuple(sorted({q.category for q in requests})),
        output_mode=config.workload.output_mode,
        text_sources=tuple(sorted({q.text_source for q in requests})),
    )


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
    changed = differences(old.meaning, prepared.meaning)
    # The rule is fixed before the first launch: changed afterwards it could be fitted to the data.
    rule = differences(old.config.get("verdict"), prepared.loaded.resolved["verdict"])
    changed += [f"verdict.{line}" for line in rule]
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
