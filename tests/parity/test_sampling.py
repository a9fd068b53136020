"""Scores are exact, valid on every lossless engine, and see what they should."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from specbench.parity.data import Tokens
from specbench.parity.eprocess import e_process
from specbench.parity.sampling import (
    Estimate,
    by_position,
    count_impossible,
    effects,
    guarded,
    outside_nucleus,
    two_sample,
)
from specbench.parity.scores import BASIC, Sums, contrast, omnibus, score
from tests.parity.study import sampled, scorer

LOSSLESS = [
    ("none", "standard"),
    ("sampled", "standard"),
    ("greedy", "standard"),
    ("sampled", "block_verification"),
]


def test_scores_and_their_covariance_match_enumeration() -> None:
    """Over all tokens of one context, u has mean 0 and the stated covariance."""
    s = scorer()
    row, vocabulary = 7, s.log_p.shape[1]
    ids = np.arange(vocabulary)
    tokens = Tokens(
        ids=ids,
        logprobs=s.log_p[row, ids].astype(np.float64),
        top_ids=np.repeat(s.top[row : row + 1], vocabulary, axis=0),
        top_logprobs=np.repeat(s.top_log_p[row : row + 1], vocabulary, axis=0),
        sequence=np.zeros(vocabulary, dtype=np.int64),
        outputs=1,
        positions=np.zeros(vocabulary, dtype=np.int64),
        after_rejection=np.zeros(vocabulary, dtype=np.int64),
        ranks=np.zeros(vocabulary, dtype=np.int64),
        draft_logprobs=np.repeat(s.top_log_q[row : row + 1], vocabulary, axis=0),
        proposed=np.full(vocabulary, s.draft_best[row]),
    )
    scores = score(tokens)
    p = np.exp(s.log_p[row].astype(np.float64))
    np.testing.assert_allclose(p @ scores.u, 0.0, atol=2e-6)
    np.testing.assert_allclose((scores.u.T * p) @ scores.u, scores.cov[0], atol=2e-5)


@pytest.mark.parametrize(("drafting", "verifier"), LOSSLESS)
def test_p_values_of_lossless_engines_are_uniform(drafting: str, verifier: str) -> None:
    tokens = sampled(5, verifier, drafting, outputs=1024, max_tokens=64)  # type: ignore[arg-type]
    scores = score(tokens)
    found: dict[str, list[float]] = {"S3": [], "S5": [], "position": []}
    for part in range(32):
        here = tokens.sequence // 32 == part
        sums = scores.where(here)
        found["S3"].append(omnibus(sums.first(BASIC)).p)
        found["S5"].append(omnibus(sums).p)
        found["position"].append(omnibus(scores.where(here & (tokens.positions == 0)).first(BASIC)).p)
    for name, p in found.items():
        assert stats.kstest(p, "uniform").pvalue > 1e-3, name


def test_choosing_tokens_by_the_outcome_would_blame_a_correct_engine() -> None:
    """Why strata count from the start of the step: the last token of one is not a fair sample."""
    tokens = sampled(6, outputs=256, max_tokens=128)
    last = np.append(tokens.positions[1:] == 0, True)
    scores = score(tokens)
    assert omnibus(scores.where(last)).p < 1e-12
    assert omnibus(scores.where(tokens.positions == 0)).p > 1e-3


@pytest.mark.parametrize(
    ("verifier", "drafting", "directions"),
    [
        ("typical_acceptance", "greedy", 3),
        ("argmax_at_temperature", "greedy", 3),
        ("temperature_off_5", "sampled", 3),
        ("lenient_acceptance_half", "sampled", 5),
        ("lenient_acceptance", "sampled", 5),
        ("residual_not_subtracted", "sampled", 5),
    ],
)
def test_bugs_show_in_their_directions(verifier: str, drafting: str, directions: int) -> None:
    scores = score(sampled(7, verifier, drafting))  # type: ignore[arg-type]
    assert omnibus(scores.total.first(directions)).p < 1e-4


@pytest.mark.parametrize("verifier", ["lenient_acceptance", "residual_not_subtracted"])
def test_leakage_along_the_draft_is_invisible_without_the_draft(verifier: str) -> None:
    assert omnibus(score(sampled(7, verifier)).total.first(BASIC)).p > 1e-4


def test_a_greedy_bonus_shows_at_its_place_in_the_step() -> None:
    arm, base = sampled(8, "greedy_bonus"), score(sampled(9, drafting="none")).total
    found = by_position(score(arm), arm, base)
    assert found.worst == "place 4 of the step"
    assert found.p < 1e-6


def test_effective_temperature_is_estimated() -> None:
    arm, base = score(sampled(10, "temperature_off_5", outputs=256)), score(sampled(11, drafting="none"))
    e = effects(arm, base)
    assert e.beta.low < 1 / 0.95 < e.beta.high + 0.01
    assert not e.d_beta.within(0.03)
    assert Estimate(0.0, -0.01, 0.02).within(0.03)
    assert not Estimate(0.0, -0.04, 0.02).within(0.03)


def test_noise_that_the_baseline_has_too_is_no_bug() -> None:
    """Strong noise between decoding and scoring tilts both arms; one sample alone would cry wolf."""
    arm = score(sampled(12, outputs=512, noise=0.45)).total.first(BASIC)
    base = score(sampled(13, drafting="none", outputs=1024, noise=0.45)).total.first(BASIC)
    found = guarded(arm, base)
    assert found.one.p < 1e-3
    assert found.p > 1e-3
    assert found.p == found.against.p


def test_guarded_is_the_one_sample_test_when_the_baseline_is_clean() -> None:
    arm, base = score(sampled(14, "temperature_off_5")).total, score(sampled(15, drafting="none")).total
    found = guarded(arm, base)
    assert found.p == found.one.p < 1e-4


def test_two_sample_test_needs_no_law() -> None:
    base = score(sampled(16, drafting="none", outputs=256, top_p=0.9))
    assert two_sample(score(sampled(17, outputs=256, top_p=0.9)), base, BASIC).p > 1e-3
    assert two_sample(score(sampled(17, "top_p_ignored", outputs=256, top_p=0.9)), base, BASIC).p < 1e-6


def test_tokens_outside_the_nucleus() -> None:
    assert outside_nucleus(sampled(18, top_p=0.9), 1.0, 0.9).sum() == 0
    ignored = sampled(18, "top_p_ignored", top_p=0.9)
    assert outside_nucleus(ignored, 1.0, 0.9).mean() > 0.05
    cool = sampled(19, temperature=0.7, top_p=0.9)
    assert outside_nucleus(cool, 0.7, 0.9).sum() == 0
    assert outside_nucleus(cool, 0.7, 0.5).sum() > 0
    assert not outside_nucleus(cool, 0.7, 1.0).any()


def test_random_tokens_are_impossible_ones() -> None:
    base = sampled(20, drafting="none", outputs=256)
    assert count_impossible(sampled(21, outputs=256), base).p_more > 1e-3
    assert count_impossible(sampled(21, "random_token_1e-2", outputs=256), base).p_more < 1e-6


def test_collinear_and_empty_directions_lower_the_degrees_of_freedom() -> None:
    v = np.array([[1.0, 1e3, 0.0], [1e3, 1e6, 0.0], [0.0, 0.0, 0.0]])
    found = omnibus(Sums(np.array([2.0, 2e3, 0.0]), v, 10))
    assert found.df == 1
    assert found.statistic == pytest.approx(4.0)
    nothing = Sums(np.zeros(3), np.zeros((3, 3)), 0)
    assert omnibus(nothing).p == 1.0
    assert contrast(nothing, nothing).p == 1.0


def test_e_process_stays_small_on_lossless_streams() -> None:
    tokens = sampled(22, outputs=1024, max_tokens=64)
    edges = np.searchsorted(tokens.sequence, np.arange(0, 1025, 32))
    most = [e_process(tokens.part(a, b)).log_max for a, b in itertools.pairwise(edges)]
    # P(M ever reaches 20) <= 0.05 in each of 32 streams: 7 or more has a chance below 0.001.
    assert sum(m >= np.log(20) for m in most) < 7


def test_e_process_tells_when_it_has_seen_enough() -> None:
    found = e_process(sampled(23, "greedy_bonus"))
    assert found.crossed is not None
    assert found.crossed < 16_000
    assert found.p < 0.001
    leak = e_process(sampled(23, "residual_not_subtracted"))
    assert leak.crossed is not None
    assert e_process(sampled(23, "residual_not_subtracted", with_draft=False)).crossed is None
