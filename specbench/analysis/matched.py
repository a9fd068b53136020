"""The speed-up taken apart by the matched baseline: arm / baseline = (matched / baseline) x (arm / matched)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from specbench.analysis.compare import PairedRatio, paired
from specbench.analysis.differences import is_side_effect
from specbench.analysis.run import speed

if TYPE_CHECKING:
    from specbench.analysis.run import ArmLoad, RunAnalysis
    from specbench.runs.records import LaunchRecord

MISSING: Final = "no round has a valid cell of both"


@dataclass(frozen=True, slots=True)
class Parts:
    """One arm at one load.

    Attributes:
        side_effects: matched baseline over the baseline: what the side effects do without speculation.
        speculation: arm over the matched baseline: what speculation does beside them.
        unmatched: side effects that the matched baseline does not have, or has and the arm has not.
    """

    arm: str
    load: str
    side_effects: PairedRatio
    speculation: PairedRatio
    unmatched: tuple[str, ...]


def matched_parts(run: RunAnalysis) -> tuple[Parts, ...]:
    """Of every arm on an engine with a matched baseline, over the rounds that have all three."""
    found = []
    for arm in run.manifest.arms:
        matched = next((a for a in run.manifest.arms if a.matched and a.engine == arm.engine), None)
        if arm.method is None or matched is None:
            continue
        for load in run.manifest.loads:
            own, other, base = (
                _speeds(run.at[name, load.id], run.at[arm.id, load.id])
                for name in (arm.id, matched.id, arm.baseline)
            )
            both = {r: s for r, s in other.items() if r in own and r in base}
            found.append(
                Parts(
                    arm.id,
                    load.id,
                    paired(both, base, MISSING),
                    paired(own, both, MISSING),
                    _unmatched(run, arm.id, matched.id),
                )
            )
    return tuple(found)


def _speeds(x: ArmLoad, arm: ArmLoad) -> dict[int, float]:
    """Round to speed, of the arm's stage."""
    cells = (c for c in x.cells if c.valid and c.record.stage == arm.stage)
    return {c.record.round: s for c in cells if (s := speed(c)) is not None}


def _unmatched(run: RunAnalysis, arm: str, matched: str) -> tuple[str, ...]:
    a, b = _settings(run, arm), _settings(run, matched)
    return tuple(
        f"{name}: {b.get(name)!r}, with speculation {a.get(name)!r}"
        for name in sorted(set(a) & set(b))
        if a[name] != b[name] and is_side_effect(name)
    )


def _settings(run: RunAnalysis, arm: str) -> dict[str, object]:
    ready: LaunchRecord | None = next(
        (x for x in run.launches_of(arm) if x.status != "failed" and x.version is not None), None
    )
    return ready.settings if ready is not None else {}
