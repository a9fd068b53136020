"""A whole run, analysed: cells, speed-ups paired within rounds, and what differed between arms."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from specbench.analysis.cell import Cell, load_cell
from specbench.analysis.compare import PairedRatio, mix, mix_rounds, paired
from specbench.analysis.differences import Difference, settings_differences
from specbench.analysis.open_check import OpenCheck, open_check
from specbench.analysis.pace import seconds_per_round
from specbench.analysis.sequential import Design, VariancePrior
from specbench.analysis.tails import METRICS, Tail, tail
from specbench.analysis.variate import Adjusted, adjust

if TYPE_CHECKING:
    from specbench.runs.parity import ParityResult
    from specbench.runs.records import ArmRecord, LaunchRecord, LoadRecord, Manifest
    from specbench.runs.rundir import RunDir

BASELINE = "baseline"

Stage = Literal["explore", "confirm"]


@dataclass(frozen=True, slots=True)
class ArmLoad:
    """One arm at one load: its cells in the order of rounds, and its speed-up over the baseline.

    In an adaptive sweep ``stage`` is the kind of rounds that the numbers come from: those that confirm, for the
    arm that was confirmed and the baseline; those that explore, for the others.
    """

    arm: ArmRecord
    load: LoadRecord
    cells: tuple[Cell, ...]
    speedup: PairedRatio
    stage: Stage | None = None

    @property
    def valid(self) -> tuple[Cell, ...]:
        """The cells that may be used, of the stage."""
        return tuple(c for c in self.cells if c.valid and c.record.stage == self.stage)


@dataclass(frozen=True, slots=True)
class RunAnalysis:
    """Everything that judging and reporting need, in memory.

    ``ratios`` maps (arm, load) to round to the ratio over the baseline of that round, of every stage;
    ``stages`` maps the rounds of an adaptive sweep to their stage, and ``confirmed`` is the arm that was
    confirmed in it. ``tails`` maps (metric, arm, load) to the tail latencies. ``parity`` is what the parity
    check found; null without one.
    """

    manifest: Manifest
    launches: tuple[LaunchRecord, ...]
    at: dict[tuple[str, str], ArmLoad]
    mix: dict[str, PairedRatio]
    differences: tuple[Difference, ...]
    planned_cells: int
    ratios: dict[tuple[str, str], dict[int, float]] = field(default_factory=dict)
    tails: dict[tuple[str, str, str], Tail] = field(default_factory=dict)
    stages: dict[int, Stage] = field(default_factory=dict)
    confirmed: str | None = None
    campaign_over: bool | None = None
    parity: ParityResult | None = None
    open_check: OpenCheck | None = None
    seconds_per_round: float | None = None
    """Of a round that would be added: all arms, or the confirmed one and the baseline; null before the first."""

    def adjusted(self, arm: str, load: str) -> Adjusted:
        """The speed-up with the acceptance control variate, or why there is none."""
        x = self.at[arm, load]
        others = {
            other: y.valid
            for (name, other), y in self.at.items()
            if name == arm and other != load and y.load.kind == "closed"
        }
        rounds = {c.record.round for c in x.valid}
        ratios = {r: s for r, s in self.ratios[arm, load].items() if r in rounds}
        return adjust(ratios, x.valid, others)

    def launches_of(self, arm: str) -> list[LaunchRecord]:
        """The launches of an arm, in order."""
        return [x for x in self.launches if x.arm == arm]

    @property
    def complete(self) -> bool:
        """Whether every planned cell has a result (a failure is one), or the campaign came to its end."""
        if self.open_check is not None and not self.open_check.over:
            return False
        if self.campaign_over is not None:
            return self.campaign_over
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
    stages: dict[int, Stage] = {c.record.round: c.record.stage for c in cells if c.record.stage is not None}
    speculative = {a.id: a for a in manifest.arms if a.method is not None}
    confirmed = next(
        (
            speculative[c.record.arm]
            for c in cells
            if c.record.stage == "confirm" and c.record.arm in speculative
        ),
        None,
    )
    stage_of = {a.id: _stage(manifest, a, confirmed) for a in manifest.arms}
    ratios = {
        (arm.id, load.id): _ratios(speeds[arm.id, load.id], speeds[arm.baseline, load.id])
        for arm in manifest.arms
        if arm.method is not None
        for load in manifest.loads
    }
    for arm in manifest.arms:
        stage = stage_of[arm.id]
        for load in manifest.loads:
            own = tuple(c for c in cells if c.record.arm == arm.id and c.record.load == load.id)
            ratio = paired(
                _of_stage(speeds[arm.id, load.id], stages, stage),
                speeds[arm.baseline, load.id],
                _why_no_pair(own, cells, load.id, arm.baseline),
            )
            if stage == "confirm" and arm.method is not None:
                explored = [by_round for (_, x), by_round in ratios.items() if x == load.id]
                ratio = _designed(manifest, ratio, explored, stages)
            at[arm.id, load.id] = ArmLoad(arm, load, own, ratio, stage)
    mixes = {}
    by_load = {
        a.id: [(manifest.traffic.get(x.id, 0.0), ratios[a.id, x.id]) for x in manifest.loads]
        for a in manifest.arms
        if a.method is not None
    }
    for name, shares in by_load.items():
        stage = stage_of[name]
        mixes[name] = mix([(w, _of_stage(own, stages, stage)) for w, own in shares])
        if stage == "confirm":
            explored = [mix_rounds(x) for x in by_load.values()]
            mixes[name] = _designed(manifest, mixes[name], explored, stages)
    events = run.journal.read()
    timed = {c.record.launch for c in cells}
    again = [a.id for a in manifest.arms if confirmed is None or a.id in (confirmed.id, confirmed.baseline)]
    return RunAnalysis(
        manifest=manifest,
        launches=launches,
        parity=run.parity_result(),
        at=at,
        mix=mixes,
        differences=settings_differences(manifest, launches),
        planned_cells=sum(len(x.loads) for x in manifest.launches),
        ratios=ratios,
        stages=stages,
        confirmed=confirmed.id if confirmed is not None else None,
        tails=_tails(at),
        open_check=open_check(manifest, cells, events),
        seconds_per_round=seconds_per_round(events, [x for x in launches if x.id in timed], again),
        campaign_over=any(e.get("event") == "campaign_stopped" for e in events)
        if manifest.rule.strategy == "adaptive"
        else None,
    )


def _tails(at: dict[tuple[str, str], ArmLoad]) -> dict[tuple[str, str, str], Tail]:
    return {
        (metric.id, arm, load): tail(metric, x.valid, [c for c in at[x.arm.baseline, load].cells if c.valid])
        for (arm, load), x in at.items()
        if x.arm.method is not None
        for metric in METRICS
    }


def _designed(
    manifest: Manifest, ratio: PairedRatio, by_arm: list[dict[int, float]], stages: dict[int, Stage]
) -> PairedRatio:
    """With the test that was registered, of a ratio that more rounds were added to until it was clear."""
    rule = manifest.rule
    prior = None
    if rule.variance_prior:
        prior = VariancePrior.pooled(
            [[math.log(x) for r, x in sorted(own.items()) if stages.get(r) == "explore"] for own in by_arm]
        )
    design = Design(manifest.min_speedup, rule.looks, (1 - manifest.confidence) / 2, prior)
    return dataclasses.replace(ratio, design=design)


def _stage(manifest: Manifest, arm: ArmRecord, confirmed: ArmRecord | None) -> Stage | None:
    if manifest.rule.strategy == "full":
        return None
    if confirmed is None:
        return "explore" if manifest.rule.explore_rounds else "confirm"
    with_it = arm.id in {confirmed.id, confirmed.baseline} or (arm.matched and arm.engine == confirmed.engine)
    return "confirm" if with_it else "explore"


def _of_stage(speeds: dict[int, float], stages: dict[int, Stage], stage: Stage | None) -> dict[int, float]:
    return {r: s for r, s in speeds.items() if stages.get(r) == stage}


def _speeds(cells: list[Cell], arm: str, load: str) -> dict[int, float]:
    return {
        c.record.round: s
        for c in cells
        if c.record.arm == arm and c.record.load == load and c.valid and (s := speed(c)) is not None
    }


def speed(cell: Cell) -> float | None:
    """What is compared between arms, greater is faster: output tokens/s of a closed loop; 1 / mean end-to-end
    latency of other loads, whose throughput is the offered one in every arm."""
    if cell.open_times is not None:
        latency = cell.open_times.mean_latency_s
        return 1 / latency if latency else None
    return cell.times.output_tokens_per_s if cell.times is not None else None


def _ratios(own: dict[int, float], base: dict[int, float]) -> dict[int, float]:
    return {r: s / base[r] for r, s in own.items() if r in base}


def _why_no_pair(own: tuple[Cell, ...], cells: list[Cell], load: str, baseline: str) -> str:
    if not own:
        return "not measured"
    if not any(c.valid for c in own):
        return "no valid cell of this arm"
    base = [c for c in cells if c.record.arm == baseline and c.record.load == load and c.valid]
    return (
        "no valid baseline cell"
        if not base
        else "no round has a valid cell of both this arm and the baseline"
    )
