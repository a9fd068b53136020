"""Streaming statistics against the plain ones."""

from __future__ import annotations

import numpy as np
import pytest

from specbench.workloads.readers.stats import (
    EXACT_BELOW,
    ArrivalCounter,
    Counts,
    PrefixCounter,
    copied_4grams,
)


@pytest.mark.parametrize("chunk", [1, 7, 5000])
def test_quantiles_are_those_of_numpy(chunk: int) -> None:
    values = np.random.default_rng(1).lognormal(6, 1.5, 3000).astype(np.int64)
    counts = Counts()
    for i in range(0, len(values), chunk):
        counts.add(values[i : i + chunk])
    summary = counts.summary()
    assert summary is not None
    for name, value in summary.quantiles.items():
        assert value == pytest.approx(float(np.quantile(values, int(name[1:]) / 100)), rel=1e-12)
    assert (summary.n, summary.min, summary.max) == (3000, values.min(), values.max())
    assert summary.mean == pytest.approx(values.mean())
    assert sum(n for _, _, n in summary.histogram) == 3000
    assert all(n == ((values >= a) & (values < b)).sum() for a, b, n in summary.histogram)


def test_unknown_values_are_left_out_and_huge_ones_rounded() -> None:
    counts = Counts()
    assert counts.summary() is None
    counts.add(np.array([-1, 0, -1, 3, EXACT_BELOW - 1, EXACT_BELOW, 12_345_678]))
    summary = counts.summary()
    assert summary is not None
    assert (summary.n, summary.min, summary.max) == (5, 0, 12_300_000)
    assert counts.total == 3 + 2 * EXACT_BELOW - 1 + 12_345_678


def arrivals(times_s: np.ndarray, chunk: int = 1000, reorder: int = 100) -> ArrivalCounter:
    counter = ArrivalCounter(reorder)
    times = np.round(times_s * 1e9).astype(np.int64)
    for i in range(0, len(times), chunk):
        counter.add(times[i : i + chunk])
    return counter


@pytest.mark.parametrize("chunk", [1, 13, 100_000])
def test_arrival_statistics_are_the_plain_ones(chunk: int) -> None:
    rng = np.random.default_rng(2)
    times = 1e6 + np.cumsum(rng.gamma(0.3, 1.0, 2000))
    shuffled = times.copy()
    for i in range(0, 2000, 50):
        shuffled[i : i + 20] = rng.permutation(shuffled[i : i + 20])
    summary = arrivals(shuffled, chunk).summary()
    assert summary is not None
    gaps = np.diff(times)
    assert summary.rate_per_s == pytest.approx(1 / gaps.mean(), rel=1e-6)
    assert summary.gap_cv == pytest.approx(gaps.std() / gaps.mean(), rel=1e-6)
    for width, found in ((1, summary.dispersion_1s), (60, summary.dispersion_60s)):
        whole = int((times[-1] - times[0]) // width)
        counts = np.bincount(((times - times[0]) // width).astype(int))[:whole]
        assert found == pytest.approx(counts.var(ddof=1) / counts.mean(), rel=1e-6)
    seconds = np.bincount((times - times[0]).astype(int))[:-1]
    assert summary.peak_to_mean_1s == pytest.approx(seconds.max() / seconds.mean(), rel=1e-6)
    assert sum(summary.timeline) == 2000
    assert len(summary.timeline) <= 1024


def test_a_poisson_process_has_dispersion_and_cv_of_one() -> None:
    times = np.cumsum(np.random.default_rng(3).exponential(0.1, 50_000))
    summary = arrivals(times).summary()
    assert summary is not None
    assert summary.gap_cv == pytest.approx(1, abs=0.03)
    assert summary.dispersion_1s == pytest.approx(1, abs=0.1)
    assert summary.rate_per_s == pytest.approx(10, rel=0.03)


def test_arrivals_that_cannot_be_told_are_null_with_a_reason() -> None:
    times = np.arange(1000.0)
    times[900] = 0.5
    late = arrivals(times, chunk=10, reorder=20).summary()
    assert late is not None
    assert (late.n, late.gap_cv) == (1000, None)
    assert "out of order by more than 20 rows" in (late.why_null or "")
    same = arrivals(np.ones(5)).summary()
    assert same is not None
    assert same.why_null == "all arrivals are at one time"
    few = arrivals(np.array([1.0, 2.0])).summary()
    assert few is not None
    assert few.why_null == "fewer than three arrivals"
    assert arrivals(np.array([])).summary() is None


def test_prefix_reuse_counts_leading_blocks_seen_before() -> None:
    counter = PrefixCounter()
    assert counter.summary() is None
    for ids in ((1, 2, 3), (1, 2, 4), (9, 2), (1, 2, 4, 5)):
        counter.add(ids, 16, None)
    summary = counter.summary()
    assert summary is not None
    assert (summary.requests, summary.blocks, summary.hit_ratio) == (4, 12, 5 / 12)
    by_session = PrefixCounter()
    for session in ("a", "b", "a"):
        by_session.add((1, 2), 64, session)
    found = by_session.summary()
    assert found is not None
    assert found.hit_ratio == 2 / 6


def test_copied_4grams() -> None:
    prompt = "def add(a, b): return a + b"
    assert copied_4grams(prompt, prompt) == (9, 9)
    assert copied_4grams(prompt, "return a + b;") == (1, 2)
    assert copied_4grams(prompt, "four new plain words here") == (0, 2)
    assert copied_4grams(prompt, "too short") == (0, 0)
