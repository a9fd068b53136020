"""Sampling parameters do what they say."""

from __future__ import annotations

import numpy as np

from specbench.engines.simulated.sampling import SamplingArrays, distribution, draw, log_probabilities

LOGITS = np.log(np.array([[0.5, 0.3, 0.15, 0.05]])).astype(np.float32)


def ask(temperature: float = 1.0, top_p: float = 1.0, top_k: int = 0, min_p: float = 0.0) -> list[float]:
    one = SamplingArrays(np.array([temperature]), np.array([top_p]), np.array([top_k]), np.array([min_p]))
    return [round(float(x), 4) for x in distribution(LOGITS, one)[0]]


def test_temperature_one_is_the_model() -> None:
    assert ask() == [0.5, 0.3, 0.15, 0.05]


def test_zero_temperature_is_one_hot_and_ignores_the_rest() -> None:
    assert ask(temperature=0.0, top_p=0.1) == [1.0, 0.0, 0.0, 0.0]


def test_top_p_keeps_the_token_that_crosses() -> None:
    assert ask(top_p=0.6) == [0.625, 0.375, 0.0, 0.0]


def test_top_k_keeps_k_tokens() -> None:
    assert ask(top_k=3) == [0.5263, 0.3158, 0.1579, 0.0]


def test_min_p_is_relative_to_the_best() -> None:
    assert ask(min_p=0.5) == [0.625, 0.375, 0.0, 0.0]


def test_rows_keep_their_own_parameters() -> None:
    logits = np.repeat(LOGITS, 3, axis=0)[None]
    mixed = SamplingArrays(
        np.array([0.0, 1.0, 1.0]), np.array([1.0, 0.6, 1.0]), np.array([0, 0, 1]), np.zeros(3)
    )
    p = distribution(logits, mixed)[0]
    expected = np.array([[1.0, 0.0, 0.0, 0.0], [0.625, 0.375, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
    np.testing.assert_allclose(p, expected, atol=1e-6)


def test_draw_never_gives_a_token_of_no_weight() -> None:
    weights = np.array([[0.0, 0.0, 2.0, 0.0, 1.0]] * 3)
    assert draw(weights, np.array([0.0, 0.5, 0.999999])).tolist() == [2, 2, 4]


def test_log_probabilities_add_up_to_one() -> None:
    np.testing.assert_allclose(np.exp(log_probabilities(LOGITS)).sum(axis=-1), 1.0)
