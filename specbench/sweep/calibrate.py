"""The launches of a calibration, baseline against baseline, and what they show."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from specbench.analysis.cell import load_cell
from specbench.analysis.compare import PairedRatio, mix_rounds
from specbench.analysis.run import speed
from specbench.config.plan import Plan, further_round
from specbench.runs.journal import utc_now
from specbench.runs.records import CalibrationRecord
from specbench.verdict.calibration import judge_equal

if TYPE_CHECKING:
    from specbench.runs.rundir import RunDir
    from specbench.sweep.prepare import Prepared


def calibration_of(prepared: Prepared, pairs: int) -> Prepared:
    """The same config with the main engine's baseline alone, launched twice per pair; parity and the
    open-loop check are left out."""
    plan = prepared.plan
    baseline = next(a for a in plan.arms if a.is_baseline and not a.engine)
    seed = prepared.loaded.config.measure.order_seed
    rounds = tuple(further_round(plan, n, n, [baseline], seed) for n in range(1, 2 * pairs + 1))
    alone = Plan(
        arms=(baseline,),
        loads=plan.loads,
        rounds=rounds,
        startup_basis=plan.startup_basis,
        speed_basis=plan.speed_basis,
        estimate_s=sum(x.estimate_s for x in rounds),
        rounds_in_budget=None,
    )
    config = prepared.loaded.config
    quiet = config.parity.model_copy(update={"tier": None})
    loaded = dataclasses.replace(prepared.loaded, config=config.model_copy(update={"parity": quiet}))
    return dataclasses.replace(prepared, loaded=loaded, plan=alone, check_mixes={})


def calibration_from(run: RunDir) -> CalibrationRecord:
    """Compare the launches of a calibration's run: 1 with 2, 4 with 3, 5 with 6, ... so that a drift cancels.

    Raises:
        RunFileError: a file of the run is damaged.
    """
    manifest = run.manifest()
    speeds: dict[str, dict[int, float]] = {x.id: {} for x in manifest.loads}
    for record in run.cells():
        cell = load_cell(run, record)
        if cell.valid and (found := speed(cell)) is not None:
            speeds[record.load][record.round] = found
    pairs = range(1, max((x.round for x in manifest.launches), default=0) // 2 + 1)
    by_load = {
        load: {p: _ratio(own, p) for p in pairs if {2 * p - 1, 2 * p} <= set(own)}
        for load, own in speeds.items()
    }
    mixed = mix_rounds([(manifest.traffic.get(load, 0.0), own) for load, own in by_load.items()])
    ratios = tuple(mixed[p] for p in sorted(mixed))
    judged = judge_equal(ratios)
    return CalibrationRecord(
        created_utc=utc_now(),
        fingerprint=str(manifest.machine["fingerprint"]),
        engine=f"{manifest.engine_kind} {manifest.engine_version}",
        run_id=run.id,
        target=manifest.target,
        passed=judged.passed,
        reason=judged.reason,
        ratios=ratios,
        by_load={load: tuple(own[p] for p in sorted(own)) for load, own in by_load.items()},
        log_sd=PairedRatio(ratios).log_sd,
    )


def _ratio(own: dict[int, float], pair: int) -> float:
    """Second launch over first in odd pairs, first over second in even ones."""
    change = math.log(own[2 * pair] / own[2 * pair - 1])
    return math.exp(change if pair % 2 else -change)
