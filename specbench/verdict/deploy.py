"""What to deploy at which load: the range in which an arm pays, and the K by load that is worth measuring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specbench.engines.vllm_setting_problems import SCHEDULE
from specbench.verdict.policy import Crossover, KRange, crossovers, schedules

if TYPE_CHECKING:
    from specbench.analysis.run import RunAnalysis
    from specbench.runs.records import ArmRecord
    from specbench.verdict.rule import Verdict


@dataclass(frozen=True, slots=True)
class EnableRange:
    """From the lowest measured concurrency up to which an arm is GO.

    Attributes:
        last: highest concurrency of the unbroken range.
        beyond: lowest measured concurrency above it; null when it is GO up to the highest one.
        crossover: between those two, where that can be told.
    """

    arm: str
    first: int
    last: int
    beyond: int | None
    crossover: Crossover | None


@dataclass(frozen=True, slots=True)
class Suggestion:
    """K by load as an arm that has not been measured; ``arm`` is the one with the highest K, to start from."""

    arm: ArmRecord
    ranges: tuple[KRange, ...]

    @property
    def edges(self) -> tuple[int, ...]:
        """The loads on both sides of every switch."""
        return tuple(sorted({c for x in self.ranges[:-1] for c in (x.last, x.last + 1)}))


def enable_ranges(run: RunAnalysis, verdict: Verdict) -> tuple[EnableRange, ...]:
    """Of every arm that is GO at the lowest measured concurrency."""
    crossed = {x.arm: x for x in crossovers(run)}
    loads = sorted((x for x in run.manifest.loads if x.kind == "closed"), key=lambda x: x.concurrency)
    found = []
    for arm in run.manifest.arms:
        if arm.method is None:
            continue
        go = [verdict.at[arm.id, x.id].decision == "GO" for x in loads]
        n = go.index(False) if False in go else len(go)
        if n:
            beyond = loads[n].concurrency if n < len(loads) else None
            crossover = crossed.get(arm.id) if beyond is not None else None
            found.append(
                EnableRange(arm.id, loads[0].concurrency, loads[n - 1].concurrency, beyond, crossover)
            )
    return tuple(found)


def suggestions(run: RunAnalysis, verdict: Verdict) -> tuple[Suggestion, ...]:
    """K by load of every family that ran with several Ks; and of the recommended arm, off above its range
    where that is followed by a NO-GO."""
    arms = {a.id: a for a in run.manifest.arms}
    out = {a for a, d in verdict.arms.items() if d.decision == "INVALID" or d.parity}
    found = []
    for schedule in schedules(run):
        used = {schedule.arms[x.k] for x in schedule.ranges if x.k}
        if not used & out:
            found.append(Suggestion(arms[schedule.arms[max(x.k for x in schedule.ranges)]], schedule.ranges))
    choice = verdict.choice
    if choice is None or any(s.arm.family == arms[choice.arm].family for s in found):
        return tuple(found)
    arm = arms[choice.arm]
    own = next((x for x in enable_ranges(run, verdict) if x.arm == arm.id), None)
    if own is None or own.beyond is None or arm.k is None or SCHEDULE in arm.settings:
        return tuple(found)
    closed = {x.concurrency: x.id for x in run.manifest.loads if x.kind == "closed"}
    if verdict.at[arm.id, closed[own.beyond]].decision != "NO-GO":
        return tuple(found)  # what is not settled there is no reason to switch off
    highest = max(closed)
    return (*found, Suggestion(arm, (KRange(1, own.last, arm.k), KRange(own.last + 1, highest, 0))))
