"""Tail latencies per launch, and their ratio."""

from __future__ import annotations

import numpy as np
import pytest

from specbench.analysis.cell import Cell
from specbench.analysis.latency import CellTimes
from specbench.analysis.tails import METRICS, percentile, tail
from specbench.runs.records import CellRecord

TTFT, TPOT, GAP = METRICS


def cell(round_: int, n: int, scale: float = 1.0, *, valid: bool = True) -> Cell:
    record = CellRecord(
        id=f"r{round_}",
        identity={},
        arm="a",
        load="c1",
        concurrency=1,
        round=round_,
        launch="l",
        status="ok" if valid else "failed",
        started_utc="",
    )
    values = np.linspace(0.0, 1.0, n) * scale
    return Cell(record, times=CellTimes(1.0, 1, 1, values, values, values, {}))


def test_the_percentile_is_of_one_launch() -> None:
    assert percentile(cell(1, 201, 2.0), TTFT) == pytest.approx(1.9)
    assert percentile(cell(1, 1001), TPOT) == pytest.approx(0.99)
    assert percentile(cell(1, 199), TTFT) is None
    assert percentile(cell(1, 999), GAP) is None
    assert percentile(cell(1, 500, valid=False), TTFT) is None


def test_pairs_are_of_one_round() -> None:
    arm = [cell(1, 300, 1.1), cell(2, 300, 1.3), cell(3, 300, 9.0)]
    base = [cell(2, 300), cell(1, 300), cell(4, 300)]
    assert tail(TTFT, arm, base).per_round == pytest.approx({1: 1.1, 2: 1.3})


def test_too_few_values_are_not_estimable_and_say_so() -> None:
    found = tail(TPOT, [cell(1, 300)], [cell(1, 700)])
    assert found.per_round == {}
    assert found.why_null == "not estimable: 1000 values per cell are needed, at most 700 were measured"
    assert tail(TPOT, [], []).why_null == "not estimable: no valid cells"
