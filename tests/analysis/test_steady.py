"""Steadiness: healthy cells are left alone, however few their requests; an engine that slows down is not."""

from __future__ import annotations

import heapq
import math
from pathlib import Path

import numpy as np
import pytest

from specbench.analysis.run import analyse
from specbench.analysis.steady import MIN_CHUNKS, Steadiness, steadiness
from specbench.analysis.window import Window, steady_window
from specbench.load.record import RequestRecord
from tests.synthetic import Pace, SyntheticRun


def cell(
    concurrency: int,
    per_slot: int,
    rng: np.random.Generator,
    *,
    speculative: bool,
    slower_after: float = math.inf,
    slower_by: float = 1.0,
) -> list[RequestRecord]:
    """A closed loop with log-normal lengths, noisy steps, and acceptance that differs between requests."""
    slots = [(0.0, s) for s in range(concurrency)]
    records = []
    for i in range(max(16, per_slot * concurrency)):
        t, slot = heapq.heappop(slots)
        tokens = max(2, int(rng.lognormal(math.log(60), 0.6)))
        sizes = 1 + rng.binomial(4, rng.beta(4, 2.5), tokens) if speculative else np.ones(tokens, int)
        sizes = sizes[: int(np.searchsorted(np.cumsum(sizes), tokens)) + 1]
        steps = 0.01 * np.exp(0.15 * rng.standard_normal(len(sizes)))
        at = t + 0.02
        times = []
        for step in steps:
            at += step * (slower_by if at > slower_after else 1.0)
            times.append(at)
        records.append(
            RequestRecord(
                id=f"q{i}",
                index=i,
                category="a",
                intended_s=t,
                sent_s=t,
                end_s=times[-1],
                chunk_s=times,
                chunk_tokens=sizes.tolist(),
                output_tokens=int(sizes.sum()),
                finish_reason="stop",
            )
        )
        heapq.heappush(slots, (times[-1] + 0.001, slot))
    return records


@pytest.mark.parametrize("speculative", [False, True])
@pytest.mark.parametrize(("concurrency", "per_slot"), [(1, 6), (4, 6), (16, 6), (4, 20)])
def test_healthy_cells_are_left_alone(concurrency: int, per_slot: int, speculative: bool) -> None:
    rng = np.random.default_rng(concurrency * 100 + per_slot)
    looked = flagged = 0
    for _ in range(60):
        records = cell(concurrency, per_slot, rng, speculative=speculative)
        found = steadiness(records, steady_window(records, concurrency))
        looked += found is not None
        flagged += found is not None and found.problem is not None
    assert looked >= 50
    assert flagged == 0


@pytest.mark.parametrize("speculative", [False, True])
@pytest.mark.parametrize("concurrency", [1, 8])
def test_an_engine_that_slows_down_is_not_steady(concurrency: int, speculative: bool) -> None:
    found = 0
    for seed in range(20):
        healthy = cell(concurrency, 20, np.random.default_rng(seed), speculative=speculative)
        window = steady_window(healthy, concurrency)
        records = cell(
            concurrency,
            20,
            np.random.default_rng(seed),
            speculative=speculative,
            slower_after=window.start_s + 0.6 * window.length_s,
            slower_by=1.5,
        )
        seen = steadiness(records, steady_window(records, concurrency))
        assert seen is not None
        found += seen.problem is not None and "slower" in seen.problem
    assert found >= 18


def test_tokens_would_have_flagged_what_chunks_do_not() -> None:
    """Why chunks: a run of easy prompts makes more tokens, not more steps."""
    easy = RequestRecord(id="e", index=0, category="a", intended_s=0.0, sent_s=0.0, finish_reason="stop")
    easy.chunk_s = [i * 0.01 for i in range(1, 1001)]
    easy.chunk_tokens = [1] * 500 + [5] * 500
    found = steadiness([easy], Window(0.0, 10.0, 1))
    assert found is not None
    assert found.problem is None
    assert found.difference == pytest.approx(0.0, abs=0.01)


def test_too_few_chunks_are_not_judged() -> None:
    record = RequestRecord(id="e", index=0, category="a", intended_s=0.0, sent_s=0.0, finish_reason="stop")
    record.chunk_s = [0.01 * i for i in range(1, MIN_CHUNKS)]
    record.chunk_tokens = [1] * len(record.chunk_s)
    assert steadiness([record], Window(0.0, 2.0, 1)) is None


@pytest.mark.parametrize(
    ("seen", "problem"),
    [
        (Steadiness(z=3.5, difference=0.05, cut=0.6), None),  # certain, but small
        (Steadiness(z=2.5, difference=0.2, cut=0.4), None),  # large, but uncertain
        (Steadiness(z=2.5, difference=0.2, cut=0.6), "20% slower"),
        (Steadiness(z=-3.5, difference=-0.2, cut=0.0), "20% faster"),
    ],
)
def test_what_counts_as_a_problem(seen: Steadiness, problem: str | None) -> None:
    assert seen.problem is None if problem is None else problem in (seen.problem or "")


def test_a_cell_that_is_not_steady_is_invalid(tmp_path: Path) -> None:
    pace: dict[tuple[str, int, int], Pace | str | None] = {}
    for n in (1, 2):
        pace["baseline", 4, n] = Pace(0.01)
        pace["ngram-k4", 4, n] = Pace(0.008, slower_after_s=2.8 if n == 2 else None)
    run = analyse(SyntheticRun(loads=(4,), rounds=2, per_slot=12).write(tmp_path, pace))
    first, second = run.at["ngram-k4", "c4"].cells
    assert first.valid
    assert "not steady" in second.invalid[0]
