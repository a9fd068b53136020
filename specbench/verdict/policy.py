"""From speed-ups at single loads to what to do between them: up to which load an arm pays, and K by load.

Both read the measured loads only; between two of them the logarithm of the speed-up is taken as a straight line
in the logarithm of the concurrency. What comes out is a suggestion with its interval, never a verdict.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from specbench.analysis.compare import paired

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from specbench.analysis.compare import PairedRatio
    from specbench.analysis.run import RunAnalysis
    from specbench.runs.records import ArmRecord

SAME: Final = 0.01
"""A K whose speed-up is within this (log units) of the best one is kept: switching is not free."""

LOWER_BOUND: Final = 0.80
"""Confidence of the interval whose lower end ranks the Ks of a load: 10 % lie below it."""


@dataclass(frozen=True, slots=True)
class Crossover:
    """The concurrency above which an arm no longer reaches the required speed-up.

    ``low`` and ``high`` are where the lower and the upper bounds of the speed-ups cross; null where they do not
    within the measured loads. Switching at ``low`` never deploys what may not pay.
    """

    arm: str
    concurrency: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class KRange:
    """From ``first`` to ``last`` requests in a batch, draft ``k`` tokens; 0 is not to speculate."""

    first: int
    last: int
    k: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """K by load of one method and draft."""

    method: str
    draft: str | None
    ranges: tuple[KRange, ...]
    arms: Mapping[int, str] = field(default_factory=dict)
    """K to the arm that drafted as many."""


def crossing(points: Sequence[tuple[int, float]], threshold: float) -> float | None:
    """Where a speed-up that starts above the threshold first falls to it; null when it starts below or never does.

    Args:
        points: (concurrency, speed-up), by concurrency.
    """
    for (c0, s0), (c1, s1) in itertools.pairwise(points):
        if s0 < threshold:
            return None
        if s1 < threshold:
            share = math.log(s0 / threshold) / math.log(s0 / s1)
            return math.exp(math.log(c0) + share * math.log(c1 / c0))
    return None


def crossovers(run: RunAnalysis) -> tuple[Crossover, ...]:
    """Of every speculative arm that falls below the required speed-up between two measured concurrencies."""
    found = []
    threshold, confidence = run.manifest.min_speedup, run.manifest.confidence
    for arm in run.manifest.arms:
        if arm.method is None or run.confirmed not in {None, arm.id}:
            continue
        ratios = _closed(run, arm.id)
        values = [(c, r.value) for c, r in ratios if r.value is not None]
        at = crossing(values, threshold)
        if at is None:
            continue
        bounds = [(c, b) for c, r in ratios if (b := r.interval(confidence)) is not None]
        whole = len(bounds) == len(values)
        found.append(
            Crossover(
                arm.id,
                at,
                crossing([(c, b[0]) for c, b in bounds], threshold) if whole else None,
                crossing([(c, b[1]) for c, b in bounds], threshold) if whole else None,
            )
        )
    return tuple(found)


def schedules(run: RunAnalysis) -> tuple[Schedule, ...]:
    """K by load, for methods that ran with several Ks and change it over the measured concurrencies.

    At each concurrency the K with the highest lower bound; 0 where none is faster than the baseline, and the K before
    it where that one is not clearly worse. A range
    ends at the concurrency that it was measured at, so that the next K takes over at the low end of the gap.
    """
    if run.manifest.rule.strategy == "adaptive":
        return ()  # the Ks were not measured alike
    families: dict[str, dict[int, ArmRecord]] = {}
    for arm in run.manifest.arms:
        if arm.method is not None and arm.k is not None:
            families.setdefault(arm.family, {})[arm.k] = arm
    found = []
    for members in families.values():
        arms = {k: arm.id for k, arm in members.items()}
        some = next(iter(members.values()))
        ranges = _ranges(run, arms)
        if len(arms) > 1 and len({x.k for x in ranges}) > 1:
            found.append(Schedule(some.method or "", some.draft, ranges, arms))
    return tuple(found)


def _closed(run: RunAnalysis, arm: str) -> list[tuple[int, PairedRatio]]:
    loads = sorted((x for x in run.manifest.loads if x.kind == "closed"), key=lambda x: x.concurrency)
    return [(x.concurrency, run.at[arm, x.id].speedup) for x in loads if run.at[arm, x.id].speedup.per_round]


def _ranges(run: RunAnalysis, arms: Mapping[int, str]) -> tuple[KRange, ...]:
    """The best K of each load; one that is not clearly better than the K before it does not take its place."""
    by_k = {k: dict(_closed(run, arm)) for k, arm in arms.items()}
    load_ids = {x.concurrency: x.id for x in run.manifest.loads if x.kind == "closed"}
    loads = sorted(set.intersection(*(set(x) for x in by_k.values()))) if by_k else []
    ranges: list[KRange] = []
    for c in loads:
        lows = {0: 0.0}
        for k, ratios in by_k.items():
            bounds = ratios[c].interval(LOWER_BOUND)
            if bounds is None:
                return ()
            lows[k] = math.log(bounds[0])
        best = max(lows, key=lambda k: (lows[k], -k))
        before = ranges[-1] if ranges else None
        if before is not None and not _takes_over(run, arms, load_ids[c], best, before.k, lows):
            ranges[-1] = KRange(before.first, c, before.k)
        else:
            ranges.append(KRange(before.last + 1 if before is not None else 1, c, best))
    return tuple(ranges)


def _takes_over(
    run: RunAnalysis, arms: Mapping[int, str], load: str, best: int, before: int, lows: Mapping[int, float]
) -> bool:
    """Whether a load's best K is worth a switch from the K of the load before it.

    Two Ks that both pay are compared with each other, paired within rounds: their own intervals hold the spread of
    the baseline too, and their ranks change by chance.
    """
    if lows[best] - lows[before] < SAME:
        return False
    if best == 0 or before == 0 or lows[before] < 0:
        return True
    between = paired(run.ratios[arms[best], load], run.ratios[arms[before], load], "no round has both")
    bounds = between.interval(LOWER_BOUND)
    return bounds is not None and bounds[0] > 1
