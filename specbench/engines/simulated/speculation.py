"""Speculative sampling: where drafts come from and how the target verifies them.

Arrays are position-first: K drafts of b sequences are [K, b], the target's K+1 distributions are
[K+1, b, V]. A greedy request is the limit of a one-hot target, so one code path serves both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from specbench.engines.simulated.lm import Ints
from specbench.engines.simulated.sampling import Probabilities, draw


@dataclass(slots=True)
class Drafts:
    """Proposed tokens.

    Attributes:
        tokens: [K, b]; entries at or beyond ``lengths`` mean nothing.
        lengths: [b], drafts of each sequence; 0 where there was nothing to propose.
        probabilities: [K, b, V] the law the drafts were drawn from; null when each was certain (one-hot).
    """

    tokens: Ints
    lengths: Ints
    probabilities: Probabilities | None = None


class Verifier:
    """Lossless speculative sampling (Leviathan et al. 2211.17192, Chen et al. 2302.01318).

    A subclass that changes one of the three steps is a bug that a parity check should find.
    """

    def verify(self, target: Probabilities, drafts: Drafts, uniforms: Probabilities) -> tuple[Ints, Ints]:
        """Accepted drafts [b] and the token after them [b].

        Args:
            target: [K+1, b, V].
            drafts: the proposals.
            uniforms: [K+1, b]: K acceptance draws, then the draw of the last token.
        """
        k, b = drafts.tokens.shape
        sequences = np.arange(b)
        accepted = np.zeros(b, dtype=np.int64)
        if k:
            hit = uniforms[:k] < self.acceptance(target[:k], drafts)
            hit &= np.arange(k)[:, None] < drafts.lengths
            accepted = np.cumprod(hit, axis=0).sum(axis=0)
        weights = target[accepted, sequences]
        rejected = np.flatnonzero(accepted < drafts.lengths)
        bonus = np.flatnonzero(accepted >= drafts.lengths)
        if len(rejected):
            at = accepted[rejected]
            proposal = None if drafts.probabilities is None else drafts.probabilities[at, rejected]
            weights[rejected] = self.residual(weights[rejected], drafts.tokens[at, rejected], proposal)
        if len(bonus):
            weights[bonus] = self.bonus(weights[bonus])
        return accepted, draw(weights, uniforms[k])

    def acceptance(self, target: Probabilities, drafts: Drafts) -> Probabilities:
        """Chance [K, b] of accepting each draft x: min(1, p(x) / q(x))."""
        p, q = _chosen(target, drafts)
        return np.divide(p, q, out=np.ones_like(p), where=q > p)

    def residual(self, p: Probabilities, tokens: Ints, q: Probabilities | None) -> Probabilities:
        """Weights [n, V] of the token that replaces a rejected one: (p - q)+."""
        if q is None:
            left = p.copy()
            left[np.arange(len(tokens)), tokens] = 0.0
        else:
            left = np.maximum(p - q, 0.0)
        # Nothing is left only where p equals q up to rounding; p is then the right law.
        empty = left.sum(axis=-1) <= 0.0
        left[empty] = p[empty]
        return left

    def bonus(self, p: Probabilities) -> Probabilities:
        """Weights [n, V] of the token after an all-accepted (or absent) draft: p itself."""
        return p


def _chosen(target: Probabilities, drafts: Drafts) -> tuple[Probabilities, Probabilities]:
    index = drafts.tokens[..., None]
    p = np.take_along_axis(target, index, axis=-1)[..., 0]
    if drafts.probabilities is None:
        return p, np.ones_like(p)
    return p, np.take_along_axis(drafts.probabilities, index, axis=-1)[..., 0]


class ArgmaxAtTemperature(Verifier):
    """Bug: drafts are judged as if the request were greedy, whatever its temperature."""

    def acceptance(self, target: Probabilities, drafts: Drafts) -> Probabilities:
        agrees: Probabilities = (target.argmax(axis=-1) == drafts.tokens).astype(np.float64)
        return agrees

    def residual(self, p: Probabilities, tokens: Ints, q: Probabilities | None) -> Probabilities:  # noqa: ARG002
        best = np.zeros_like(p)
        np.put_along_axis(best, p.argmax(axis=-1)[:, None], 1.0, axis=-1)
        return best


class ResidualNotSubtracted(Verifier):
    """Bug: a rejected token is replaced by a draw from p, not from (p - q)+."""

    def residual(self, p: Probabilities, tokens: Ints, q: Probabilities | None) -> Probabilities:  # noqa: ARG002
        return p


class LenientAcceptance(Verifier):
    """Bug: drafts are accepted with min(1, p / (0.8 q))."""

    def acceptance(self, target: Probabilities, drafts: Drafts) -> Probabilities:
        p, q = _chosen(target, drafts)
        return np.divide(p, 0.8 * q, out=np.ones_like(p), where=0.8 * q > p)


class GreedyBonus(Verifier):
    """Bug: the token after an all-accepted draft is the most likely one, whatever the temperature."""

    def bonus(self, p: Probabilities) -> Probabilities:
        best = np.zeros_like(p)
        np.put_along_axis(best, p.argmax(axis=-1)[:, None], 1.0, axis=-1)
        return best


VERIFIERS: Final[dict[str, Verifier]] = {
    "standard": Verifier(),
    "argmax_at_temperature": ArgmaxAtTemperature(),
    "residual_not_subtracted": ResidualNotSubtracted(),
    "lenient_acceptance": LenientAcceptance(),
    "greedy_bonus": GreedyBonus(),
}


class NgramLookup:
    """Prompt lookup: the tokens that followed an earlier occurrence of the text's end.

    The longest match of ``min_n`` to ``max_n`` tokens wins, among equals the earliest.
    """

    __slots__ = ("_ends", "_max_n", "_min_n", "tokens")

    def __init__(self, tokens: list[int], min_n: int, max_n: int) -> None:
        self._min_n, self._max_n = min_n, max_n
        self.tokens: list[int] = []
        self._ends: dict[tuple[int, ...], int] = {}
        for token in tokens:
            self.append(token)

    def append(self, token: int) -> None:
        """Add a token to the text; n-grams that end before it become findable."""
        n_tokens = len(self.tokens)
        for n in range(self._min_n, min(self._max_n, n_tokens) + 1):
            self._ends.setdefault(tuple(self.tokens[n_tokens - n :]), n_tokens)
        self.tokens.append(token)

    def propose(self, k: int) -> list[int]:
        """Up to ``k`` tokens; none when the end of the text is new."""
        n_tokens = len(self.tokens)
        for n in range(min(self._max_n, n_tokens), self._min_n - 1, -1):
            start = self._ends.get(tuple(self.tokens[n_tokens - n :]))
            if start is not None:
                return self.tokens[start : start + k]
        return []
