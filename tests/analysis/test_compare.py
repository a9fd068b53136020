"""Paired ratios: values against hand arithmetic, error rate against simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench.analysis.compare import PairedRatio, mix, paired, rounds_needed


def test_geometric_mean_and_t_interval_by_hand() -> None:
    ratio = PairedRatio((1.1, 1.21))
    mean, sd = math.log(1.1) * 1.5, math.log(1.1) / math.sqrt(2)
    low, high = ratio.interval(0.90) or (0, 0)
    assert ratio.value == pytest.approx(math.exp(mean))
    # t quantile 0.95 with one degree of freedom
    assert math.log(high) - mean == pytest.approx(6.313751515 * sd / math.sqrt(2))
    assert mean - math.log(low) == pytest.approx(6.313751515 * sd / math.sqrt(2))


def test_one_round_has_a_value_and_no_interval() -> None:
    ratio = PairedRatio((1.3,))
    assert ratio.value == pytest.approx(1.3)
    assert ratio.interval(0.9) is None
    assert rounds_needed(ratio, 1.05, 0.9) is None


def test_only_rounds_that_both_have_are_paired() -> None:
    assert paired({1: 3.0, 2: 4.0}, {2: 2.0, 3: 1.0}, "none").per_round == (2.0,)
    assert paired({1: 3.0}, {2: 2.0}, "no common round").why_null == "no common round"


def test_mix_is_the_harmonic_mean_by_serving_time() -> None:
    ratio = mix([(0.5, {1: 2.0, 2: 1.0}), (0.5, {1: 1.0, 2: 1.0}), (0.0, {})])
    assert list(ratio.per_round) == pytest.approx([1 / (0.5 / 2 + 0.5), 1.0])
    assert mix([(1.0, {1: 1.0}), (1.0, {2: 1.0})]).value is None
    assert mix([(0.0, {1: 1.0})]).value is None


@given(
    st.lists(st.floats(0.2, 5), min_size=2, max_size=8),
    st.floats(0.2, 5),
)
def test_scaling_every_ratio_scales_value_and_interval(ratios: list[float], scale: float) -> None:
    a, b = PairedRatio(tuple(ratios)), PairedRatio(tuple(r * scale for r in ratios))
    assert a.value is not None
    assert b.value == pytest.approx(a.value * scale)
    low, high = a.interval(0.9) or (0, 0)
    assert b.interval(0.9) == pytest.approx((low * scale, high * scale), rel=1e-6)
    assert low <= a.value <= high


@pytest.mark.parametrize("n", [2, 3, 5])
def test_a_nominal_90_percent_interval_covers_90_percent(n: int) -> None:
    rng = np.random.default_rng(7)
    truth, hits, campaigns = 1.1, 0, 2000
    for _ in range(campaigns):
        low, high = PairedRatio(tuple(truth * np.exp(rng.normal(0, 0.03, n)))).interval(0.9) or (0, 0)
        hits += low <= truth <= high
    assert 0.88 <= hits / campaigns <= 0.92


def test_rounds_needed_falls_with_distance_and_grows_with_noise() -> None:
    near, far = PairedRatio((1.06, 1.10, 1.03)), PairedRatio((1.26, 1.30, 1.23))
    noisy = PairedRatio((0.9, 1.5, 1.2))
    assert (rounds_needed(near, 1.05, 0.9) or 0) > (rounds_needed(far, 1.05, 0.9) or 0)
    assert (rounds_needed(noisy, 1.05, 0.9) or 0) > (rounds_needed(far, 1.05, 0.9) or 0)


def test_rounds_needed_is_what_it_says() -> None:
    sd, arms, confidence = 0.03, 4, 0.9
    ratio = PairedRatio((math.exp(0.12 - sd / math.sqrt(2)), math.exp(0.12 + sd / math.sqrt(2))))
    n = rounds_needed(ratio, 1.05, confidence, arms)
    assert n is not None
    rng = np.random.default_rng(3)

    def share_decided(rounds: int) -> float:
        wins = 0
        for _ in range(400):
            again = PairedRatio(tuple(np.exp(rng.normal(0.12, sd, rounds))))
            low, _ = again.interval(1 - (1 - confidence) / arms) or (0, 0)
            wins += low > 1.05
        return wins / 400

    assert share_decided(n) > 0.85
    assert share_decided(n - 2) < share_decided(n)
