"""The group-sequential test against its own promises: level, coverage, the published figures."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from specbench.analysis import boundaries as b
from specbench.analysis.sequential import VariancePrior, step

LOOKS = (3, 4, 5, 6, 8)
THETA = 1.05


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    b.boundaries.cache_clear()


@pytest.mark.parametrize(
    ("looks", "prior", "expected"),
    [
        (LOOKS, 0, (5.03, 4.21, 3.48, 3.05, 2.46)),
        ((2, *LOOKS), 4, (3.16, 3.07, 2.86, 2.68, 2.54, 2.22)),
    ],
)
def test_simulation_gives_the_known_boundaries_of_linear_spending(
    looks: tuple[int, ...], prior: int, expected: tuple[float, ...]
) -> None:
    assert b.simulate(looks, 0.05, prior, samples=200_000, power=1.0) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize(("looks", "alpha", "prior"), b.SHIPPED)
def test_shipped_boundaries_are_what_simulation_gives(
    looks: tuple[int, ...], alpha: float, prior: int
) -> None:
    shipped = b.SHIPPED[looks, alpha, prior]
    assert b.simulate(looks, alpha, prior, samples=200_000, seed=7) == pytest.approx(shipped, rel=0.03)


def test_the_first_boundary_is_students() -> None:
    # P(|t| with 2 df > c) = 2 * 0.05 * sqrt(3 / 8) has a closed form: t = x sqrt(2 / (1 - x^2)), x = 1 - p.
    x = 1 - 2 * 0.05 * math.sqrt(3 / 8)
    assert b.boundaries(LOOKS, 0.05)[0] == pytest.approx(x * math.sqrt(2 / (1 - x * x)), rel=1e-4)


def test_other_looks_are_simulated_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(b, "SAMPLES", 20_000)
    monkeypatch.setattr(b.simulate, "__defaults__", (20_000, b.SEED, b.SPENDING_POWER))
    first = b.boundaries((3, 5), 0.05)
    (kept,) = tmp_path.rglob("*.json")
    assert json.loads(kept.read_text()) == list(first)
    b.boundaries.cache_clear()
    monkeypatch.setattr(b, "simulate", lambda *_: pytest.fail("simulated again"))
    assert b.boundaries((3, 5), 0.05) == first


@pytest.mark.parametrize("damage", ["", "[]", "[1.0]", '["a", "b"]', "{}", "[NaN, 1.0]"])
def test_a_damaged_cache_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setattr(b.simulate, "__defaults__", (20_000, b.SEED, b.SPENDING_POWER))
    first = b.boundaries((3, 5), 0.05)
    (kept,) = tmp_path.rglob("*.json")
    kept.write_text(damage)
    b.boundaries.cache_clear()
    assert b.boundaries((3, 5), 0.05) == first


@pytest.mark.parametrize(("looks", "alpha"), [((), 0.05), ((1, 2), 0.05), ((3, 3), 0.05), ((3, 4), 0.6)])
def test_impossible_looks_are_refused(looks: tuple[int, ...], alpha: float) -> None:
    with pytest.raises(ValueError, match=r"looks|alpha"):
        b.boundaries(looks, alpha)


@pytest.mark.parametrize("sd", [0.005, 0.03])
def test_level_at_the_threshold_and_coverage_of_the_interval(sd: float) -> None:
    rng = np.random.default_rng(11)
    campaigns = 2000
    go = no = covered = 0
    for _ in range(campaigns):
        x = rng.normal(math.log(THETA), sd, 8).tolist()
        s = step(x, THETA, LOOKS, 0.05)
        go, no = go + (s.decision == "above"), no + (s.decision == "below")
        at_stop = step(x[: s.pairs], THETA, LOOKS, 0.05)
        assert at_stop.decision == s.decision
        low, high = at_stop.interval or (math.inf, -math.inf)
        covered += low <= THETA <= high
    assert 0.03 <= go / campaigns <= 0.07
    assert 0.03 <= no / campaigns <= 0.07
    assert 0.87 <= covered / campaigns <= 0.93


def test_the_interval_covers_whatever_the_truth_is() -> None:
    rng = np.random.default_rng(12)
    covered = 0
    for _ in range(2000):
        x = rng.normal(math.log(1.12), 0.03, 8).tolist()
        n = step(x, THETA, LOOKS, 0.05).pairs
        low, high = step(x[:n], THETA, LOOKS, 0.05).interval or (0.0, 0.0)
        covered += low <= 1.12 <= high
    assert covered / 2000 >= 0.89


def test_a_prior_decides_sooner_and_keeps_the_level() -> None:
    rng = np.random.default_rng(13)
    false, with_prior, without = 0, [], []
    for _ in range(1000):
        prior = VariancePrior(4, 0.03**2 * rng.chisquare(4) / 4)
        null = rng.normal(math.log(THETA), 0.03, 8).tolist()
        false += step(null, THETA, LOOKS, 0.05, prior).decision == "above"
        real = rng.normal(math.log(1.15), 0.03, 8).tolist()
        with_prior.append(step(real, THETA, LOOKS, 0.05, prior).pairs)
        without.append(step(real, THETA, LOOKS, 0.05).pairs)
    assert 0.025 <= false / 1000 <= 0.07
    assert np.mean(with_prior) < np.mean(without) - 0.5


def test_a_prior_that_the_pairs_contradict_is_dropped() -> None:
    pairs = [0.3, -0.2, 0.5]
    assert step(pairs, THETA, LOOKS, 0.05, VariancePrior(4, 1e-6)).prior_dropped
    assert (
        step(pairs, THETA, LOOKS, 0.05, VariancePrior(4, 1e-6)).interval
        == step(pairs, THETA, LOOKS, 0.05).interval
    )


def test_a_pooled_prior_knows_that_arms_share_their_baseline() -> None:
    assert VariancePrior.pooled([[0.1], []]) is None
    assert VariancePrior.pooled([[0.1, 0.1]]) is None
    one = VariancePrior.pooled([[0.0, 0.2]])
    assert one is not None
    assert one.df == 1
    assert one.variance == pytest.approx(0.02)
    five = VariancePrior.pooled([[0.0, 0.2]] * 5)
    assert five is not None
    assert five.df == 2  # and not 5 degrees of freedom
    assert five.variance == pytest.approx(0.02)


def test_before_the_first_look_nothing_is_said() -> None:
    s = step([0.5, 0.5], THETA, LOOKS, 0.05)
    assert (s.decision, s.pairs, s.interval, s.spent) == ("open", 0, None, False)


def test_a_decision_is_final_and_agrees_with_its_interval() -> None:
    clear = [0.20, 0.21, 0.19]
    s = step(clear, THETA, LOOKS, 0.05)
    assert (s.decision, s.pairs) == ("above", 3)
    later = step([*clear, 0.1, 0.1, 0.1, -0.1, -0.1], THETA, LOOKS, 0.05)
    assert (later.decision, later.pairs) == ("above", 3)
    assert later.interval is not None
    assert later.interval[0] > THETA
    # Pairs that exclude all that was seen before are shown as they are, and the decision stays.
    contradicted = step([*clear, -0.5, -0.5, -0.5, -0.5, -0.5], THETA, LOOKS, 0.05)
    assert contradicted.decision == "above"
    assert contradicted.interval is not None
    assert contradicted.interval[0] < THETA
    loses = step([-x for x in clear], THETA, LOOKS, 0.05)
    assert loses.decision == "below"
    assert loses.interval is not None
    assert loses.interval[1] < THETA
