"""From two analysed runs to a `Comparison`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specbench.analysis.between import geometric
from specbench.analysis.comparable import changes, left_out
from specbench.analysis.run import analyse
from specbench.report.comparison_model import ArmChange, Change, Comparison, RunName
from specbench.verdict.regression import NO_SLOWER, NO_WORSE, judge_regression

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specbench.analysis.between import Between, UnpairedRatio
    from specbench.runs.records import Manifest
    from specbench.runs.rundir import RunDir
    from specbench.verdict.regression import Regression
    from specbench.verdict.rule import Decided


def compare(
    before: RunDir,
    after: RunDir,
    *,
    required: float = NO_WORSE,
    slowest: float = NO_SLOWER,
    only: Sequence[str] = (),
) -> Comparison:
    """Judge a new run against a recorded one; see `judge_regression`.

    Raises:
        RunFileError: a file of a run is missing or damaged.
    """
    old, new = analyse(before), analyse(after)
    found = judge_regression(old, new, required=required, slowest=slowest, only=only)
    confidence = new.manifest.confidence
    comparable = found.decision != "INVALID" or bool(found.arms)
    return Comparison(
        name=new.manifest.name,
        verdict=found.decision,
        exit_code=int(found.exit_code),
        headline=found.headline,
        reasons=found.reasons,
        required=required,
        slowest=slowest,
        confidence=confidence,
        before=_name(old.manifest),
        after=_name(new.manifest),
        arms=(*_over_traffic(found, confidence), *_at_loads(found, confidence)),
        changes=changes(old, new),
        left_out=left_out(old.manifest, new.manifest) if comparable else (),
    )


def _name(manifest: Manifest) -> RunName:
    engines = [f"{manifest.engine_kind} {manifest.engine_version}", *manifest.other_engines.values()]
    return RunName(
        run_id=manifest.run_id,
        created_utc=manifest.created_utc,
        target=manifest.target,
        engine=", ".join(engines),
        specbench=manifest.specbench,
    )


def _over_traffic(found: Regression, confidence: float) -> list[ArmChange]:
    return [_arm(arm, None, decided, found.between[arm], confidence) for arm, decided in found.arms.items()]


def _at_loads(found: Regression, confidence: float) -> list[ArmChange]:
    return [
        _arm(arm, load, found.at[arm, load], found.between[arm], confidence)
        for load in found.loads
        for arm in found.arms
    ]


def _arm(arm: str, load: str | None, decided: Decided, x: Between, confidence: float) -> ArmChange:
    speedup = x.speedup_over_mix if load is None else x.speedup.get(load)
    return ArmChange(
        arm=arm,
        load=load,
        decision=decided.decision,
        reasons=decided.reasons,
        speed=_change(x.over_mix if load is None else x.speed[load], confidence),
        speedup=None if speedup is None else _change(speedup, confidence),
        tokens_per_step=None if load is None else _change(x.tokens_per_step[load], confidence),
        tails=None
        if load is None
        else {
            metric: _change(ratio, confidence, 1000.0)
            for (metric, at), ratio in x.tails.items()
            if at == load and (ratio.before or ratio.after)
        },
    )


def _change(ratio: UnpairedRatio, confidence: float, unit: float = 1.0) -> Change:
    bounds = ratio.interval(confidence)
    return Change(
        before=geometric([unit * x for x in ratio.before]),
        after=geometric([unit * x for x in ratio.after]),
        ratio=ratio.value,
        low=bounds[0] if bounds else None,
        high=bounds[1] if bounds else None,
        launches=(len(ratio.before), len(ratio.after)),
        why_null=ratio.why_null,
    )
