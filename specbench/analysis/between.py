"""Two runs of the same question beside each other: a recorded one and a new one, of another build for example.

Launches of two runs are not paired: they ran at other times. So the ratio of two runs is that of geometric
means over launches, with Welch's t interval on the logarithms (B. L. Welch, Biometrika 34, 1947): the launch is
the statistical unit here too, and neither spreads nor numbers of launches have to be equal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import special

from specbench.analysis.compare import mix_rounds
from specbench.analysis.run import speed
from specbench.analysis.tails import METRICS, percentile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from specbench.analysis.cell import Cell
    from specbench.analysis.run import RunAnalysis

MAX_LAUNCHES: Final = 100


@dataclass(frozen=True, slots=True)
class UnpairedRatio:
    """After over before, each a figure per launch; above 0."""

    before: tuple[float, ...]
    after: tuple[float, ...]

    @property
    def value(self) -> float | None:
        """Ratio of the geometric means; null unless both have a launch."""
        if not self.before or not self.after:
            return None
        return math.exp(_mean_log(self.after) - _mean_log(self.before))

    @property
    def why_null(self) -> str | None:
        """Why there is no ratio."""
        missing = [name for name, x in (("recorded", self.before), ("new", self.after)) if not x]
        return f"no valid round in the {' and the '.join(missing)} run" if missing else None

    def interval(self, confidence: float) -> tuple[float, float] | None:
        """Two-sided Welch interval at ``confidence`` (0 to 1); null unless both have two launches."""
        value, spread = self.value, self._standard_error()
        if value is None or spread is None:
            return None
        error, freedom = spread
        half = float(special.stdtrit(freedom, (1 + confidence) / 2)) * error if error else 0.0
        return math.exp(math.log(value) - half), math.exp(math.log(value) + half)

    def _standard_error(self) -> tuple[float, float] | None:
        """Of the log ratio, with its degrees of freedom (Welch and Satterthwaite)."""
        if min(len(self.before), len(self.after)) < 2:
            return None
        parts = [(_variance_log(x) / len(x), len(x) - 1) for x in (self.before, self.after)]
        variance = math.fsum(v for v, _ in parts)
        freedom = variance**2 / math.fsum(v**2 / n for v, n in parts) if variance else 1.0
        return math.sqrt(variance), freedom

    def launches_needed(self, threshold: float, confidence: float, power: float = 0.9) -> int | None:
        """Launches of each run after which the interval would clear the threshold with the given power.

        The smallest n with ``(t[conf, 2n-2] + t[power, 2n-2]) sqrt(sum of variances / n) <= |gap|``, taking
        today's spreads as the truth. Null when it cannot be said, or when it would be more than 100.
        """
        value = self.value
        if value is None or value == threshold or min(len(self.before), len(self.after)) < 2:
            return None
        gap = abs(math.log(value) - math.log(threshold))
        variance = _variance_log(self.before) + _variance_log(self.after)
        n = np.arange(2, MAX_LAUNCHES + 1)
        freedom = 2 * n - 2
        t = special.stdtrit(freedom, (1 + confidence) / 2) + special.stdtrit(freedom, power)
        enough = np.flatnonzero(t * np.sqrt(variance / n) <= gap)
        return int(n[enough[0]]) if len(enough) else None


@dataclass(frozen=True, slots=True)
class Between:
    """One arm in two runs.

    Attributes:
        speed: load to output tokens/s of launches (a closed loop; elsewhere 1 / mean latency).
        over_mix: the same over the traffic; of each launch its speed relative to the recorded run, so that
            shares are of the recorded run's serving time.
        speedup: load to the speed-up over the baseline of the same run; absent for the baseline.
        speedup_over_mix: the same over the traffic; null for the baseline.
        tokens_per_step: load to tokens per step of a request, accepted drafts and one more.
        tails: (metric, load) to a percentile of each launch, in seconds; more is worse.
        tail_ratios: the same over the baseline of the same run; absent for the baseline.
    """

    arm: str
    speed: Mapping[str, UnpairedRatio]
    over_mix: UnpairedRatio
    speedup: Mapping[str, UnpairedRatio]
    speedup_over_mix: UnpairedRatio | None
    tokens_per_step: Mapping[str, UnpairedRatio]
    tails: Mapping[tuple[str, str], UnpairedRatio]
    tail_ratios: Mapping[tuple[str, str], UnpairedRatio]


def between(before: RunAnalysis, after: RunAnalysis, arm: str, loads: Sequence[str]) -> Between:
    """Compare an arm that both runs have, at loads that both have. The traffic is the new run's."""
    speculative = next(x for x in after.manifest.arms if x.id == arm).method is not None
    cells = {load: (before.at[arm, load].valid, after.at[arm, load].valid) for load in loads}
    speeds = {load: tuple(_by_round(x) for x in both) for load, both in cells.items()}
    speed_of = {load: UnpairedRatio(_values(b), _values(a)) for load, (b, a) in speeds.items()}
    return Between(
        arm=arm,
        speed=speed_of,
        over_mix=_mix(after.manifest.traffic, speeds),
        speedup={
            load: UnpairedRatio(*(x.at[arm, load].speedup.per_round for x in (before, after)))
            for load in loads
        }
        if speculative
        else {},
        speedup_over_mix=UnpairedRatio(*(x.mix[arm].per_round for x in (before, after)))
        if speculative
        else None,
        tokens_per_step={
            load: UnpairedRatio(_tokens_per_step(b), _tokens_per_step(a)) for load, (b, a) in cells.items()
        },
        tails={
            (metric.id, load): UnpairedRatio(
                *(tuple(v for c in x if (v := percentile(c, metric))) for x in both)
            )
            for load, both in cells.items()
            for metric in METRICS
        },
        tail_ratios={
            (metric.id, load): UnpairedRatio(
                *(_values(x.tails[metric.id, arm, load].per_round) for x in (before, after))
            )
            for load in loads
            for metric in METRICS
        }
        if speculative
        else {},
    )


def _mix(
    traffic: Mapping[str, float], speeds: Mapping[str, tuple[Mapping[int, float], ...]]
) -> UnpairedRatio:
    """Every launch over the traffic, relative to the geometric mean of the recorded launches at each load.

    Only launches with a valid cell at every load of the traffic count.
    """
    weighted = [load for load, share in traffic.items() if share > 0]
    if not weighted or any(load not in speeds or not speeds[load][0] for load in weighted):
        return UnpairedRatio((), ())
    recorded = {load: math.exp(_mean_log(_values(speeds[load][0]))) for load in weighted}
    both = []
    for run in (0, 1):
        by_load = [
            (traffic[load], {r: x / recorded[load] for r, x in speeds[load][run].items()})
            for load in weighted
        ]
        both.append(_values(mix_rounds(by_load)))
    return UnpairedRatio(*both)


def _by_round(cells: Iterable[Cell]) -> dict[int, float]:
    return {c.record.round: s for c in cells if (s := speed(c))}


def _tokens_per_step(cells: Iterable[Cell]) -> tuple[float, ...]:
    return tuple(math.exp(c.steps.log_tau) for c in cells if c.steps is not None)


def _values(by_round: Mapping[int, float]) -> tuple[float, ...]:
    return tuple(by_round[r] for r in sorted(by_round))


def geometric(values: Sequence[float]) -> float | None:
    """Geometric mean; null of nothing."""
    return math.exp(_mean_log(values)) if values else None


def _mean_log(values: Sequence[float]) -> float:
    return math.fsum(math.log(x) for x in values) / len(values)


def _variance_log(values: Sequence[float]) -> float:
    mean = _mean_log(values)
    return math.fsum((math.log(x) - mean) ** 2 for x in values) / (len(values) - 1)
