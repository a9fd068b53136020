"""A whole run, analysed: cells, speed-ups paired within rounds, and what differed between arms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specbench.analysis.cell import Cell, load_cell
from specbench.analysis.compare import PairedRatio, mix, paired
from specbench.analysis.differences import Difference, settings_differences

if TYPE_CHECKING:
    from specbench.runs.records import ArmRecord, LaunchRecord, LoadRecord, Manifest
    from specbench.runs.rundir import RunDir

BASELINE = "baseline"


@dataclass(frozen=True, slots=True)
class ArmLoad:
    """One arm at one load: its cells in the order of rounds, and its speed-up over the baseline."""

    arm: ArmRecord
    load: LoadRecord
    cells: tuple[Cell, ...]
    speedup: PairedRatio

    @property
    def valid(self) -> tuple[Cell, ...]:
        """The cells that may be used."""
        return tuple(c for c in self.cells if c.valid)


@dataclass(frozen=True, slots=True)
class RunAnalysis:
    """Everything that judging and reporting need, in memory."""

    manifest: Manifest
    launches: tuple[LaunchRecord, ...]
    at: dict[tuple[str, str], ArmLoad]
    mix: dict[str, PairedRatio]
    differences: tuple[Difference, ...]
    planned_cells: int

    def launches_of(self, arm: str) -> list[LaunchRecord]:
        """The launches of an arm, in order."""
        return [x for x in self.launches if x.arm == arm]

    @property
    def complete(self) -> bool:
        """Whether every planned cell has a result (a failure is one)."""
        done = sum(1 for x in self.at.values() for c in x.cells if c.record.status != "interrupted")
        return done >= self.planned_cells


def analyse(run: RunDir) -> RunAnalysis:
    """Read a run directory; no engine, no clock.

    Raises:
        RunFileError: a file is missing or damaged.
    """
    manifest = run.manifest()
    launches = tuple(run.launches())
    cells = [load_cell(run, record) for record in run.cells()]
    at: dict[tuple[str, str], ArmLoad] = {}
    speeds = {
        (arm.id, load.id): _speeds(cells, arm.id, load.id) for arm in manifest.arms for load in manifest.loads
    }
    for arm in manifest.arms:
        for load in manifest.loads:
            own = tuple(c for c in cells if c.record.arm == arm.id and c.record.load == load.id)
            ratio = paired(
                speeds[arm.id, load.id], speeds[BASELINE, load.id], _why_no_pair(own, cells, load.id)
            )
            at[arm.id, load.id] = ArmLoad(arm, load, own, ratio)
    mixes = {arm.id: _mix(manifest, speeds, arm.id) for arm in manifest.arms if arm.method is not None}
    return RunAnalysis(
        manifest=manifest,
        launches=launches,
        at=at,
        mix=mixes,
        differences=settings_differences(manifest, launches),
        planned_cells=sum(len(x.loads) for x in manifest.launches),
    )


def _speeds(cells: list[Cell], arm: str, load: str) -> dict[int, float]:
    return {
        c.record.round: c.times.output_tokens_per_s
        for c in cells
        if c.record.arm == arm
        and c.record.load == load
        and c.valid
        and c.times is not None
        and c.times.output_tokens_per_s is not None
    }


def _mix(manifest: Manifest, speeds: dict[tuple[str, str], dict[int, float]], arm: str) -> PairedRatio:
    by_load = []
    for load in manifest.loads:
        own, base = speeds[arm, load.id], speeds[BASELINE, load.id]
        by_load.append(
            (manifest.traffic.get(load.id, 0.0), {r: own[r] / base[r] for r in set(own) & set(base)})
        )
    return mix(by_load)


def _why_no_pair(own: tuple[Cell, ...], cells: list[Cell], load: str) -> str:
    if not own:
        return "not measured"
    if not any(c.valid for c in own):
        return "no valid cell of this arm"
    base = [c for c in cells if c.record.arm == BASELINE and c.record.load == load and c.valid]
    return (
        "no valid baseline cell"
        if not base
        else "no round has a valid cell of both this arm and the baseline"
    )
