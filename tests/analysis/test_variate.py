"""The acceptance control variate: less noise where prompts differ, refused where loads do."""

from __future__ import annotations

import numpy as np
import pytest

from specbench.analysis.cell import Cell
from specbench.analysis.variate import Steps, adjust
from specbench.observe.counters import EngineCounters
from specbench.runs.records import CellRecord


def cell(
    round_: int, taus: list[float], *, concurrency: int = 1, counted: bool = True, kind: str = "closed"
) -> Cell:
    """A cell whose requests took 100 steps each at the given tokens per step."""
    record = CellRecord(
        id=f"r{round_}-c{concurrency}",
        identity={},
        arm="a",
        load=f"c{concurrency}",
        concurrency=concurrency,
        round=round_,
        launch="l",
        status="ok",
        started_utc="",
        load_kind=kind,  # type: ignore[arg-type]
    )
    tokens = [round(100 * t) for t in taus]
    counters = EngineCounters(
        generation_tokens=float(sum(tokens) + len(taus)),
        first_outputs=float(len(taus)),
        decode_outputs=100.0 * len(taus),
    )
    return Cell(
        record,
        window_counters=counters if counted else None,
        steps=Steps(tuple(tokens), (100,) * len(tokens)),
    )


def test_cells_are_put_to_the_pooled_acceptance() -> None:
    # Tokens per step 2 and 3: pooled 2.5. The first cell was unlucky, the second lucky.
    found = adjust({1: 1.0, 2: 1.5}, [cell(1, [2.0]), cell(2, [3.0])], {})
    assert found.ratio is not None
    assert found.ratio.per_round == pytest.approx((1.25, 1.25))
    assert found.note == "at 2.50 tokens per step, pooled over 1 load"


def test_it_takes_the_noise_of_prompts_away() -> None:
    """Speed-up = 0.5 x tokens per step, 24 prompts per cell at 1 in flight, many more at 16."""
    rng = np.random.default_rng(2)
    plain, adjusted = [], []
    for _ in range(60):
        here = rng.normal(2.4, 0.8, 24).clip(1, 5).tolist()
        there = rng.normal(2.4, 0.8, 400).clip(1, 5).tolist()
        ratio = 0.5 * float(np.mean(here))
        found = adjust({1: ratio}, [cell(1, here)], {"c16": [cell(1, there, concurrency=16)]})
        assert found.ratio is not None, found.note
        plain.append(np.log(ratio))
        adjusted.append(np.log(found.ratio.per_round[0]))
    assert np.std(adjusted) < 0.4 * np.std(plain)
    assert np.mean(adjusted) == pytest.approx(np.mean(plain), abs=0.03)


def test_loads_of_other_content_are_refused() -> None:
    rng = np.random.default_rng(3)
    here = rng.normal(2.0, 0.2, 50).tolist()
    there = rng.normal(3.0, 0.2, 50).tolist()
    found = adjust({1: 1.1}, [cell(1, here)], {"c4": [cell(1, there, concurrency=4)]})
    assert found.ratio is None
    assert "differ between loads" in found.note


def test_equal_content_is_rarely_refused() -> None:
    rng = np.random.default_rng(4)
    refused = 0
    for _ in range(300):
        here, there = rng.normal(2.4, 0.8, 30).clip(1, 5), rng.normal(2.4, 0.8, 120).clip(1, 5)
        others = {"c4": [cell(1, there.tolist(), concurrency=4)]}
        refused += adjust({1: 1.1}, [cell(1, here.tolist())], others).ratio is None
    assert refused <= 5


@pytest.mark.parametrize(
    ("cells", "note"),
    [
        ([], "no valid pair"),
        ([cell(1, [2.0], concurrency=32)], "not for more than 16"),
        ([cell(1, [2.0], kind="open")], "not for more than 16"),
        ([cell(1, [2.0], counted=False)], "does not count its steps"),
    ],
)
def test_where_it_does_not_apply(cells: list[Cell], note: str) -> None:
    found = adjust({1: 1.1}, cells, {})
    assert found.ratio is None
    assert note in found.note
