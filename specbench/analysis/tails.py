"""Tail latencies, launch by launch: the percentile of each cell, and its ratio over the baseline's of the round.

The interval of a percentile comes from launches, not from requests: requests of one launch share its bursts, so
that an interval over requests covers 55 to 62 % at a nominal 90 %, one over per-launch percentiles 85 to 88 %
(docs/method.md, "Tails"). A percentile needs enough values beyond it and is not estimable below that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from specbench.analysis.cell import Cell
    from specbench.analysis.latency import CellTimes

MIN_FOR_P95: Final = 200
MIN_FOR_P99: Final = 1000


@dataclass(frozen=True, slots=True)
class TailMetric:
    """A percentile of a cell's times; ``minimum`` values are needed to tell it."""

    id: str
    title: str
    quantile: float
    minimum: int


METRICS: Final = (
    TailMetric("ttft_p95", "TTFT p95", 0.95, MIN_FOR_P95),
    TailMetric("tpot_p99", "TPOT p99", 0.99, MIN_FOR_P99),
    TailMetric("chunk_gap_p99", "chunk gap p99", 0.99, MIN_FOR_P99),
)


@dataclass(frozen=True, slots=True)
class Tail:
    """Round to arm's percentile over the baseline's; more than 1 is worse. Rounds without both are absent."""

    metric: TailMetric
    per_round: Mapping[int, float]
    why_null: str | None = None


def percentile(cell: Cell, metric: TailMetric) -> float | None:
    """Seconds; null where the cell is not valid or has too few values."""
    if not cell.valid or cell.times is None:
        return None
    values = _values(cell.times, metric)
    return float(np.quantile(values, metric.quantile)) if len(values) >= metric.minimum else None


def tail(metric: TailMetric, arm: Sequence[Cell], baseline: Sequence[Cell]) -> Tail:
    """Compare the cells of an arm with those of the baseline, by round."""
    base = {c.record.round: v for c in baseline if (v := percentile(c, metric))}
    own = {c.record.round: v for c in arm if (v := percentile(c, metric))}
    per_round = {r: own[r] / base[r] for r in sorted(set(own) & set(base))}
    if per_round:
        return Tail(metric, per_round)
    most = max(
        (len(_values(c.times, metric)) for c in (*arm, *baseline) if c.valid and c.times is not None),
        default=0,
    )
    if not most:
        return Tail(metric, {}, "not estimable: no valid cells")
    return Tail(
        metric,
        {},
        f"not estimable: {metric.minimum} values per cell are needed, at most {most} were measured",
    )


def _values(times: CellTimes, metric: TailMetric) -> NDArray[np.float64]:
    by_metric = {"ttft": times.ttft_s, "tpot": times.tpot_s, "chunk_gap": times.chunk_gap_s}
    return by_metric[metric.id.rpartition("_")[0]]
