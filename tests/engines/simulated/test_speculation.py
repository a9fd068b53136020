"""Speculative sampling keeps the target's law, step by step, and the known bugs do not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from specbench.engines.simulated.sampling import Probabilities, draw
from specbench.engines.simulated.speculation import Drafts, NgramLookup
from specbench.engines.simulated.verifiers import LOSSLESS, VERIFIERS

N = 40_000
V = 6
ALARM = 1e-4


def laws(seed: int) -> tuple[Probabilities, Probabilities]:
    """Target and draft law of a first token, and of the second token given the first: [1 + V, V] each."""
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(V, 0.8), size=1 + V), rng.dirichlet(np.full(V, 0.8), size=1 + V)


def two_tokens(verifier: str, *, certain: bool, seed: int = 5) -> tuple[Probabilities, Probabilities]:
    """p-values: of the first token's law, and of the second's given the first (one draft of one token)."""
    p, q = laws(seed)
    rng = np.random.default_rng(seed + 1)
    if certain:
        q = np.eye(V)[q.argmax(axis=-1)]
    tokens = draw(np.repeat(q[:1], N, axis=0), rng.random(N))[None]
    target = np.stack([np.repeat(p[:1], N, axis=0), p[1 + tokens[0]]])
    proposals = None if certain else np.repeat(q[None, :1], N, axis=1)
    drafts = Drafts(tokens, np.ones(N, dtype=np.int64), proposals)
    accepted, last = VERIFIERS[verifier].verify(target, drafts, rng.random((2, N)))
    first = np.where(accepted == 1, tokens[0], last)
    firsts = [chi_square(first, p[0])]
    seconds = [
        chi_square(last[(accepted == 1) & (first == x)], p[1 + x])
        for x in range(V)
        if ((accepted == 1) & (first == x)).sum() > 500
    ]
    return np.array(firsts), np.array(seconds)


def chi_square(tokens: np.ndarray, law: Probabilities) -> float:
    seen = np.bincount(tokens, minlength=V)
    enough = law * len(tokens) > 5
    if not enough.all():
        seen = np.append(seen[enough], seen[~enough].sum())
        law = np.append(law[enough], law[~enough].sum())
        enough = law > 0
        seen, law = seen[enough], law[enough]
    return float(stats.chisquare(seen, law * seen.sum()).pvalue)


@pytest.mark.parametrize("verifier", LOSSLESS)
@pytest.mark.parametrize("certain", [False, True])
@pytest.mark.parametrize("seed", [5, 6, 7])
def test_lossless_verification_keeps_the_law(verifier: str, certain: bool, seed: int) -> None:
    first, second = two_tokens(verifier, certain=certain, seed=seed)
    assert first.min() > ALARM
    assert second.size
    assert second.min() > ALARM


def test_block_verification_accepts_more() -> None:
    rng = np.random.default_rng(9)
    k, n = 4, 5_000
    p, q = rng.dirichlet(np.full(V, 0.8), size=(k + 1)), rng.dirichlet(np.full(V, 0.8), size=k)
    tokens = np.stack([draw(np.repeat(q[j : j + 1], n, axis=0), rng.random(n)) for j in range(k)])
    target, proposals = (np.repeat(x[:, None], n, axis=1) for x in (p, q))
    drafts = Drafts(tokens, np.full(n, k), proposals)
    uniforms = rng.random((k + 1, n))
    one_by_one, _ = VERIFIERS["standard"].verify(target, drafts, uniforms)
    together, _ = VERIFIERS["block_verification"].verify(target, drafts, uniforms)
    assert together.mean() > one_by_one.mean()


@pytest.mark.parametrize(
    "bug",
    [
        *("argmax_at_temperature", "residual_not_subtracted", "lenient_acceptance", "typical_acceptance"),
        *("lenient_acceptance_half", "position_off_by_one"),
    ],
)
def test_bugs_of_acceptance_break_the_law_of_the_first_token(bug: str) -> None:
    first, _ = two_tokens(bug, certain=False)
    assert first.min() < ALARM


@pytest.mark.parametrize("bug", ["greedy_bonus", "cool_bonus", "shifted_bonus"])
def test_bugs_of_the_bonus_break_the_law_of_the_token_after_the_draft(bug: str) -> None:
    first, second = two_tokens(bug, certain=False)
    assert first.min() > ALARM
    assert second.min() < ALARM


def test_greedy_is_a_match_of_best_tokens() -> None:
    target = np.eye(V)[np.array([[2, 2], [3, 3], [4, 4]])]
    drafts = Drafts(np.array([[2, 2], [3, 5]]), np.array([2, 2]))
    accepted, last = VERIFIERS["standard"].verify(target, drafts, np.full((3, 2), 0.99))
    assert accepted.tolist() == [2, 1]
    assert last.tolist() == [4, 3]


@pytest.mark.parametrize("verifier", sorted(VERIFIERS))
def test_every_verifier_serves_mixed_steps(verifier: str) -> None:
    """Sequences with and without drafts in one step, greedy and sampled."""
    rng = np.random.default_rng(3)
    target = np.concatenate(
        [rng.dirichlet(np.ones(V), size=(3, 2)), np.eye(V)[rng.integers(V, size=(3, 1))]], 1
    )
    drafts = Drafts(rng.integers(V, size=(2, 3)), np.array([2, 0, 1]))
    accepted, last = VERIFIERS[verifier].verify(target, drafts, rng.random((3, 3)))
    assert (accepted <= drafts.lengths).all()
    assert ((last >= 0) & (last < V)).all()


def test_damage_ends_a_step_at_the_damaged_token() -> None:
    rng = np.random.default_rng(4)
    tokens, counts = np.full((5, 20_000), 50), np.full(20_000, 4)
    new = VERIFIERS["random_token_1e-2"].garble(tokens, counts, 40, rng)
    hit = new < 4
    changed = tokens[new - 1, np.arange(20_000)] != 50
    assert (changed | ~hit).all()
    assert changed.mean() == pytest.approx(1 - 0.99**4, abs=0.01)
    assert (tokens[4] == 50).all()
    assert VERIFIERS["standard"].garble(tokens, counts, 40, rng) is counts


def test_sequences_without_a_draft_get_one_token() -> None:
    target = np.eye(V)[np.array([[2, 2], [3, 3]])]
    accepted, last = VERIFIERS["standard"].verify(
        target, Drafts(np.array([[2, 2]]), np.array([1, 0])), np.full((2, 2), 0.5)
    )
    assert accepted.tolist() == [1, 0]
    assert last.tolist() == [3, 2]


def test_lookup_prefers_the_longest_match_then_the_earliest() -> None:
    lookup = NgramLookup([1, 2, 3, 7, 9, 2, 3, 8, 1, 2, 3], min_n=2, max_n=4)
    assert lookup.propose(2) == [7, 9]
    lookup = NgramLookup([2, 3, 7, 2, 3, 8, 2, 3], min_n=2, max_n=4)
    assert lookup.propose(1) == [7]


def test_lookup_is_silent_on_new_text_and_short_near_the_end() -> None:
    lookup = NgramLookup([1, 2, 3, 4], min_n=2, max_n=3)
    assert lookup.propose(4) == []
    for token in (1, 2):
        lookup.append(token)
    assert lookup.propose(9) == [3, 4, 1, 2]
