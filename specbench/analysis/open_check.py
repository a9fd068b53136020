"""The open-loop check of a run: which arm at which rates, and its tail latencies beside the baseline's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from specbench.analysis.tails import METRICS, Tail, tail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specbench.analysis.cell import Cell
    from specbench.runs.records import Manifest

PLANNED: Final = "open_check_planned"
"""Journal event with the arm and the rates, written before the first launch of the check."""

FINISHED: Final = "open_check_finished"


@dataclass(frozen=True, slots=True)
class CheckedRate:
    """One rate: the cells of the arm and of the baseline, and their tails, paired within rounds."""

    id: str
    share: float
    rate_per_s: float
    arm: tuple[Cell, ...]
    baseline: tuple[Cell, ...]
    tails: dict[str, Tail]


@dataclass(frozen=True, slots=True)
class OpenCheck:
    """What the check measured.

    Attributes:
        arm: the one that was recommended after the closed loads; null when none was, or not known yet.
        baseline: that it is compared with.
        load: the closed load whose requests/s the rates are shares of.
        requests_per_s: of the baseline there.
        rates: empty as long as they are not known.
        over: whether it came to its end, and ``why``.
    """

    arm: str | None = None
    baseline: str | None = None
    load: str | None = None
    requests_per_s: float | None = None
    rates: tuple[CheckedRate, ...] = ()
    over: bool = False
    why: str = ""


def open_check(
    manifest: Manifest, cells: Sequence[Cell], events: Sequence[dict[str, Any]]
) -> OpenCheck | None:
    """From the manifest, the cells and the journal; null when the run has none."""
    if manifest.open_check is None:
        return None
    planned = next((e for e in events if e.get("event") == PLANNED), None)
    finished = next((e for e in events if e.get("event") == FINISHED), None)
    over, why = finished is not None, str(finished.get("reason", "")) if finished else ""
    if planned is None:
        return OpenCheck(over=over, why=why)
    arm, baseline = str(planned["arm"]), str(planned["baseline"])
    rates = []
    for load in manifest.open_check.loads:
        own = tuple(c for c in cells if c.record.load == load.id and c.record.arm == arm)
        base = tuple(c for c in cells if c.record.load == load.id and c.record.arm == baseline)
        tails = {metric.id: tail(metric, own, base) for metric in METRICS}
        rate = float(planned["rates"][load.id])
        rates.append(CheckedRate(load.id, load.share, rate, own, base, tails))
    return OpenCheck(
        arm, baseline, str(planned["load"]), float(planned["requests_per_s"]), tuple(rates), over, why
    )


def requests_per_s(cells: Sequence[Cell]) -> float | None:
    """Requests finished per second of a closed load: output tokens/s over tokens per request, mean over cells."""
    found = [
        c.times.output_tokens_per_s / c.mean_output_tokens
        for c in cells
        if c.times is not None and c.times.output_tokens_per_s and c.mean_output_tokens
    ]
    return sum(found) / len(found) if found else None
