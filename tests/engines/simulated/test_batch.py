"""The fast path writes what the engine's verifiers make of a model whose laws are known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from specbench.engines.simulated.batch import VOCABULARY, Drafting, TableModel, Written, write
from specbench.engines.simulated.tokenizer import EOS

MODEL = TableModel()
PROMPTS = np.arange(64)
K = 4


def written(
    drafting: Drafting, verifier: str = "standard", temperature: float = 1.0, seed: int = 1
) -> Written:
    rng = np.random.default_rng(seed)
    return write(MODEL, PROMPTS, 96, rng, drafting=drafting, k=K, verifier=verifier, temperature=temperature)


def here(w: Written) -> np.ndarray:
    kept: np.ndarray = np.arange(w.tokens.shape[1]) < w.lengths[:, None]
    return kept


@pytest.mark.parametrize("drafting", ["sampled", "greedy"])
@pytest.mark.parametrize(
    "verifier", ["standard", "block_verification", "typical_acceptance", "temperature_off_5"]
)
def test_greedy_text_is_the_baselines(drafting: Drafting, verifier: str) -> None:
    base, own = written("none", temperature=0.0), written(drafting, verifier, temperature=0.0, seed=2)
    assert (base.lengths == own.lengths).all()
    assert (base.tokens[here(base)] == own.tokens[here(own)]).all()


def test_steps_have_their_places() -> None:
    w = written("sampled")
    for i in range(len(PROMPTS)):
        places = w.position[i, : w.lengths[i]]
        assert places[0] == 0
        assert places.max() == K
        steps = np.diff(places)
        assert ((steps == 1) | (places[1:] == 0)).all()
        # A step that gave all K + 1 tokens has rejected nothing; any other step has.
        starts = np.flatnonzero(places == 0)[1:]
        assert (w.after_rejection[i, starts] == (places[starts - 1] < K)).all()
    assert (written("none").position == 0).all()


def test_outputs_end_at_the_end_of_text() -> None:
    w = write(MODEL, np.arange(2000) % 64, 256, np.random.default_rng(3))
    ended = w.lengths < 256
    assert 0.02 < ended.mean() < 0.2
    assert (w.tokens[np.flatnonzero(ended), w.lengths[ended] - 1] == EOS).all()
    inner = (w.tokens == EOS) & (np.arange(256) < w.lengths[:, None] - 1)
    assert not inner.any()


@pytest.mark.parametrize("drafting", ["none", "sampled", "greedy"])
def test_first_tokens_have_the_models_law(drafting: Drafting) -> None:
    n = 20_000
    w = write(MODEL, np.full(n, 7), 2, np.random.default_rng(4), drafting=drafting, k=1)
    row = MODEL.rows_of(w.tokens[:1, :1], np.array([7]))[0, 0]
    p = np.exp(MODEL.log_probabilities()[0][row])
    seen = np.bincount(w.tokens[:, 0], minlength=VOCABULARY)
    enough = p * n > 5
    observed = np.append(seen[enough], seen[~enough].sum())
    expected = np.append(p[enough], p[~enough].sum()) * n
    assert stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 1e-4


def test_a_stale_entry_is_read_after_a_rejection_only() -> None:
    fresh, stale = written("sampled", seed=5), written("sampled", "stale_kv_5", seed=5)
    assert (fresh.tokens[:, 0] == stale.tokens[:, 0]).all()
    assert (fresh.tokens != stale.tokens).any()
