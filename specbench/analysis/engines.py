"""Engines of one run beside each other: their baselines, and the fastest arm of each, at every load.

Rounds pair engines as they pair arms: the same requests, close in time. Output throughput is compared for
closed loads, the inverse of the mean latency for others, as between arms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specbench.analysis.compare import PairedRatio, paired
from specbench.analysis.run import BASELINE, ArmLoad, RunAnalysis, speed

if TYPE_CHECKING:
    from specbench.runs.records import LoadRecord


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """One engine at one load; ratios are over the main engine's baseline, null for that one itself."""

    engine: str
    load: LoadRecord
    baseline: ArmLoad
    baseline_ratio: PairedRatio
    fastest: ArmLoad
    fastest_ratio: PairedRatio


def engines_at_loads(run: RunAnalysis) -> tuple[EngineLoad, ...]:
    """Every engine at every load; empty for a run of one engine."""
    names = ["", *run.manifest.other_engines]
    if len(names) == 1:
        return ()
    rows = []
    for load in run.manifest.loads:
        reference = _speeds(run.at[BASELINE, load.id])
        for name in names:
            own = [
                x
                for (_, at), x in run.at.items()
                if at == load.id and x.arm.engine == name and not x.arm.matched
            ]
            baseline = next(x for x in own if x.arm.method is None)
            fastest = max(own, key=lambda x: _mean(_speeds(x)))
            rows.append(
                EngineLoad(
                    engine=name,
                    load=load,
                    baseline=baseline,
                    baseline_ratio=_against(baseline, reference),
                    fastest=fastest,
                    fastest_ratio=_against(fastest, reference),
                )
            )
    return tuple(rows)


def _against(x: ArmLoad, reference: dict[int, float]) -> PairedRatio:
    if x.arm.id == BASELINE:
        return PairedRatio((), "this is what the others are compared with")
    return paired(_speeds(x), reference, "no round has a valid cell of both")


def _speeds(x: ArmLoad) -> dict[int, float]:
    return {c.record.round: s for c in x.valid if (s := speed(c)) is not None}


def _mean(speeds: dict[int, float]) -> float:
    return sum(speeds.values()) / len(speeds) if speeds else 0.0
