"""Regret, its thresholds, and the explanation of first differences."""

from __future__ import annotations

import numpy as np
import pytest

from specbench.parity.counting import Counted
from specbench.parity.data import Role, ScoredSequence, Tokens
from specbench.parity.greedy import first_divergences, greedy_tests, logit_ulp, regrets
from tests.parity.test_data import output


def with_regrets(regret: list[float], spacing: float = 0.0, seed: int = 0) -> Tokens:
    """Tokens whose regrets are given; gaps between the two best logprobs lie on a grid if asked."""
    n = len(regret)
    rng = np.random.default_rng(seed)
    gap = rng.exponential(3.0, n)
    if spacing:
        gap = spacing * np.round(gap / spacing)
    top = np.stack([np.full(n, -0.1), -0.1 - gap], axis=1).astype(np.float32)
    return Tokens.of(
        [output(n, 2, seed, top_logprobs=top, logprobs=(-0.1 - np.array(regret)).astype(np.float32))]
    )


def test_regret_is_the_distance_to_the_best_token() -> None:
    tokens = with_regrets([0.0, 0.25, 2.0])
    np.testing.assert_allclose(regrets(tokens), [0.0, 0.25, 2.0], atol=1e-6)


@pytest.mark.parametrize("ulp", [0.5, 0.25, 0.125, 0.0625])
def test_the_spacing_of_half_precision_logits_is_seen(ulp: float) -> None:
    assert logit_ulp(with_regrets([0.0] * 500, spacing=ulp)) == ulp


def test_full_precision_has_no_spacing() -> None:
    assert logit_ulp(with_regrets([0.0] * 500)) == 0.0


def test_one_large_regret_fails_by_rule_unless_the_baseline_has_such() -> None:
    quiet = with_regrets([0.0] * 999 + [0.2])
    found = greedy_tests(with_regrets([0.0] * 999 + [1.6]), quiet)
    assert (found.hard_nat, found.soft_nat) == (1.5, 0.25)
    assert found.p_hard == 0.0
    noisy = with_regrets([0.0] * 999 + [0.9])
    found = greedy_tests(with_regrets([0.0] * 999 + [1.6]), noisy)
    assert found.hard_nat == pytest.approx(1.8)
    assert found.p_hard == 1.0


def test_soft_threshold_follows_the_engines_noise() -> None:
    coarse = with_regrets([0.0] * 1000, spacing=0.25)
    assert greedy_tests(coarse, coarse).soft_nat == pytest.approx(0.5)
    noisy = with_regrets([0.7] * 10 + [0.0] * 990)
    assert greedy_tests(noisy, noisy).soft_nat == pytest.approx(0.7, abs=1e-5)


def test_soft_test_compares_with_the_baseline() -> None:
    base = with_regrets([0.3] * 20 + [0.0] * 19_980)
    assert greedy_tests(with_regrets([0.3] * 20 + [0.0] * 19_980), base).p_soft > 0.3
    assert greedy_tests(with_regrets([0.3] * 80 + [0.0] * 19_920), base).p_soft < 1e-6


def test_nothing_seen_bounds_the_bug_rate_at_three_over_n() -> None:
    assert Counted(0, 65_536, 0, 65_536).excess_upper95 == pytest.approx(3.0 / 65_536, rel=0.01)
    assert Counted(5, 65_536, 5, 65_536).excess_upper95 > 3.0 / 65_536
    assert Counted(0, 0, 0, 0).excess_upper95 == 1.0
    # Where the baseline has events too, seeing fewer promises nothing more.
    assert Counted(0, 1000, 50, 1000).excess_upper95 == pytest.approx(3.0 / 1000, rel=0.01)


def pair(margin: float) -> tuple[ScoredSequence, ScoredSequence]:
    ids = np.arange(10, dtype=np.int32)
    other = ids.copy()
    other[4:] = 99
    top_ids = np.stack([other, ids], axis=1).astype(np.int32)
    top = np.tile(np.array([-0.5, -0.5 - margin], dtype=np.float32), (10, 1))
    arm = output(
        10,
        2,
        output_ids=ids,
        prompt_id="p",
        top_ids=top_ids,
        top_logprobs=top,
        logprobs=top[:, 1].copy(),
        positions=np.tile([0, 1], 5).astype(np.int32),
        after_rejection=np.tile([True, False], 5),
        temperature=0.0,
    )
    base = output(10, 2, role=Role.A, output_ids=other, prompt_id="p", temperature=0.0)
    return arm, base


@pytest.mark.parametrize(("margin", "cause"), [(0.0, "tie"), (0.2, "rounding"), (0.9, "unexplained")])
def test_first_difference_and_why(margin: float, cause: str) -> None:
    arm, base = pair(margin)
    (d,) = first_divergences([arm], [base], soft_nat=0.25)
    assert (d.index, d.position, d.after_rejection, d.cause) == (4, 0, True, cause)
    assert d.margin_nat == pytest.approx(margin, abs=1e-6)


def test_equal_outputs_do_not_diverge() -> None:
    arm, _ = pair(0.2)
    assert first_divergences([arm], [arm], soft_nat=0.25) == []
    assert first_divergences([arm], [], soft_nat=0.25) == []
