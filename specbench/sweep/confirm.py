"""``--confirm-policy``: a config that measures what another run only suggests, K by load as an arm of its own.

Each K of a suggestion was measured by itself. Together they are a new arm: the engine may lose more at a switch
than the Ks say, K = 0 is not the baseline, and prefills count as running requests. So the arm is measured
against the baseline at the loads of the first run, and at the load below and the load above every switch.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from specbench.analysis.run import analyse
from specbench.config.grid import expand_arms
from specbench.config.model import ArmConfig, Config
from specbench.engines.schedule import schedule_problem, schedule_settings
from specbench.runs.checks import ConfirmsRecord
from specbench.sweep.prepare import RefusedError
from specbench.verdict.deploy import suggestions
from specbench.verdict.rule import judge

if TYPE_CHECKING:
    from specbench.config.grid import Arm
    from specbench.config.source import LoadedConfig
    from specbench.runs.records import ArmRecord, Manifest
    from specbench.runs.rundir import RunDir
    from specbench.verdict.deploy import Suggestion

SUFFIX: Final = "-policy"
"""Of the name of a run that confirms one."""

MAX_NAME: Final = 64


@dataclass(frozen=True, slots=True)
class Confirming:
    """The config to measure, and what it confirms."""

    loaded: LoadedConfig
    confirms: ConfirmsRecord


def confirming_name(name: str) -> str:
    """Name of the runs that confirm those of a config."""
    return name[: MAX_NAME - len(SUFFIX)] + SUFFIX


def confirming(loaded: LoadedConfig, run: RunDir) -> Confirming:
    """What would confirm the suggestion of a finished run of the same config.

    Raises:
        RefusedError: the run suggests no K by load, the engine cannot do it, or the config is another one.
        RunFileError: a file of the run is damaged.
    """
    analysis = analyse(run)
    manifest = analysis.manifest
    if not analysis.complete:
        raise RefusedError(f"{run.path} is not complete: finish it with --resume, then confirm its policy")
    found = suggestions(analysis, judge(analysis))
    if not found:
        raise RefusedError(_nothing(manifest, run))
    # The one that gains most at the lowest load, should there be several drafts.
    chosen = max(found, key=lambda s: analysis.mix[s.arm.id].value or 0.0)
    arm = _arm_of(loaded, chosen.arm, run)
    kind, version = manifest.engine_of(chosen.arm)
    if (problem := schedule_problem(kind, version, arm.method)) is not None:
        raise RefusedError(f"{run.path} suggests K by load ({_words(chosen)}), but {problem}")
    rows = [(x.first, x.last, x.k) for x in chosen.ranges]
    config = _config(loaded.config, arm, rows, chosen.edges, manifest)
    made = next(a for a in expand_arms(config) if a.speculates)
    note = (
        f"\n# --confirm-policy of {run.id}: arms, loads.closed and verdict.traffic of this run are its own.\n"
    )
    return Confirming(
        dataclasses.replace(loaded, config=config, text=loaded.text.rstrip("\n") + note),
        ConfirmsRecord(run_id=run.id, arm=made.id, ranges=tuple(rows), edges=chosen.edges),
    )


def _nothing(manifest: Manifest, run: RunDir) -> str:
    several = len({a.k for a in manifest.arms if a.k is not None}) > 1
    why = (
        "the best K is the same at every load that was measured, and the recommended arm (if any) is GO at all of them"
        if several
        else "there is one K, and its arm is GO at every load that was measured, or at none from the lowest up"
    )
    return (
        f"{run.path} suggests no K by load: {why}. To find one, sweep several K at low and high loads with "
        "measure.strategy: full"
    )


def _arm_of(loaded: LoadedConfig, record: ArmRecord, run: RunDir) -> Arm:
    for arm in expand_arms(loaded.config):
        same = (arm.method, arm.draft, arm.k, arm.engine) == (
            record.method,
            record.draft,
            record.k,
            record.engine,
        )
        if arm.id == record.id and same and arm.settings == record.settings and arm.args == record.args:
            return arm
    raise RefusedError(
        f"{loaded.path} has no arm {record.id} like that of {run.path}: name the config that the run was made with"
    )


def _config(
    config: Config, arm: Arm, rows: list[tuple[int, int, int]], edges: tuple[int, ...], manifest: Manifest
) -> Config:
    """The same sweep of one arm, with the loads beside the switches; traffic weighs as in the first run."""
    assert arm.entry is not None
    entry = config.arms[arm.entry]
    only = ArmConfig.model_validate(
        {
            "method": arm.method,
            "name": f"{entry.name or arm.method}-by-load",
            "draft": arm.draft,
            "k": max(k for *_, k in rows),
            "settings": schedule_settings(arm.settings, rows),
            "args": arm.args,
            "env": arm.env,
            "engine": arm.engine or None,
        }
    )
    traffic: dict[int | str, float] = {
        x.concurrency if x.kind == "closed" else x.id: manifest.traffic.get(x.id, 0.0) for x in manifest.loads
    }
    closed = sorted({*config.loads.closed, *edges})
    used: dict[str, Any] = {arm.engine: config.other_engines[arm.engine]} if arm.engine else {}
    return config.model_copy(
        update={
            "name": confirming_name(config.name),
            "arms": [only],
            "other_engines": used,
            "loads": config.loads.model_copy(update={"closed": closed}),
            "verdict": config.verdict.model_copy(
                update={"traffic": traffic, "traffic_from": None, "load_order": None}
            ),
        }
    )


def _words(suggestion: Suggestion) -> str:
    return ", ".join(f"{x.k} from {x.first} to {x.last}" for x in suggestion.ranges)
