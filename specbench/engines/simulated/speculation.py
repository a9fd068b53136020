"""Speculative sampling: where drafts come from and how the target verifies them.

Arrays are position-first: K drafts of b sequences are [K, b], the target's K+1 distributions are
[K+1, b, V]. A greedy request is the limit of a one-hot target, so one code path serves both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specbench.engines.simulated.lm import Floats, Ints
from specbench.engines.simulated.sampling import Probabilities, SamplingArrays, distribution, draw


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

    The wrong verifiers of `verifiers` are subclasses that change one of its steps. Greedy requests come as
    one-hot targets.

    Attributes:
        drafts_are_argmax: sampled drafts are replaced by the draft's best token, its probabilities kept.
        stale_share: share of rejections after which the model goes on as if it had read the rejected draft.
    """

    drafts_are_argmax: bool = False
    stale_share: float = 0.0

    def law(self, logits: Floats, sampling: SamplingArrays) -> Probabilities:
        """The target's distributions [..., b, V] as the sampler makes them from logits [..., b, V]."""
        return distribution(logits, sampling)

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
        weights = target[self.last_row(accepted, drafts.lengths), sequences]
        rejected = np.flatnonzero(accepted < drafts.lengths)
        bonus = np.flatnonzero(accepted >= drafts.lengths)
        if len(rejected):
            at = accepted[rejected]
            proposal = None if drafts.probabilities is None else drafts.probabilities[at, rejected]
            weights[rejected] = self.residual(weights[rejected], drafts.tokens[at, rejected], proposal)
        if len(bonus):
            weights[bonus] = self.bonus(weights[bonus])
        return accepted, draw(weights, uniforms[k])

    def last_row(self, accepted: Ints, lengths: Ints) -> Ints:  # noqa: ARG002
        """Which of the target's K+1 rows the token after the accepted drafts is drawn from, [b]."""
        return accepted

    def acceptance(self, target: Probabilities, drafts: Drafts) -> Probabilities:
        """Chance [K, b] of accepting each draft x: min(1, p(x) / q(x))."""
        p, q = chosen(target, drafts)
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

    def garble(
        self,
        tokens: Ints,  # noqa: ARG002
        counts: Ints,
        vocabulary: int,  # noqa: ARG002
        rng: np.random.Generator,  # noqa: ARG002
    ) -> Ints:
        """Last chance to damage what a step gives out: tokens [K+1, b] in place; returns the new counts [b].

        A step ends at its first damaged token, so that everything after it is written knowing of it.
        """
        return counts


def chosen(target: Probabilities, drafts: Drafts) -> tuple[Probabilities, Probabilities]:
    """p and q [K, b] of the drafted tokens; q is 1 where drafts are certain."""
    index = drafts.tokens[..., None]
    p = np.take_along_axis(target, index, axis=-1)[..., 0]
    if drafts.probabilities is None:
        return p, np.ones_like(p)
    return p, np.take_along_axis(drafts.probabilities, index, axis=-1)[..., 0]


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
        return self.after(self.tokens[-self._max_n :], k)

    def after(self, end: list[int], k: int) -> list[int]:
        """Up to ``k`` tokens that followed another text's ``end`` here; none when it is new."""
        for n in range(min(self._max_n, len(end)), self._min_n - 1, -1):
            start = self._ends.get(tuple(end[len(end) - n :]))
            if start is not None:
                return self.tokens[start : start + k]
        return []


class LearningLookup(NgramLookup):
    """Prompt lookup, and where the text itself has nothing, the answers that the engine gave before.

    A stand-in for suffix decoding: what matters here is that it gets better at prompts it has served.
    """

    __slots__ = ("_answers",)

    def __init__(self, tokens: list[int], min_n: int, max_n: int, answers: NgramLookup) -> None:
        super().__init__(tokens, min_n, max_n)
        self._answers = answers

    def propose(self, k: int) -> list[int]:
        """Up to ``k`` tokens."""
        return super().propose(k) or self._answers.after(self.tokens[-self._max_n :], k)
