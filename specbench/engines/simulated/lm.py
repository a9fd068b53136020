"""A small categorical language model and the drafts that imitate it.

The next token's logits are a deterministic function of the last three tokens, of a digest of the
whole history (so that greedy text does not run in circles and every prompt has its own answer) and
of quoted text in the prompt, which the model likes to copy. All parts are table look-ups that are
added elementwise, so a row of logits is bit-identical whatever batch it is computed in.
"""

from __future__ import annotations

import itertools
import zlib
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from specbench.engines.simulated.tokenizer import EOS, QUOTE, VOCABULARY_SIZE

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Digests = npt.NDArray[np.uint64]

HISTORY_ROWS: Final = 1024
TABLE_WEIGHTS: Final = (0.72, 0.48, 0.28, 0.42)
"""Shares of the last token, the one before, the third last and the history; squares add up to 1."""

SPREAD: Final = 4.3
"""Standard deviation of a logit; 4.3 gives a mean entropy near 1.6 nat over 254 words."""

NEVER: Final = -60.0
COPY_AFTER_TWO: Final = 22.0
COPY_AFTER_ONE: Final = 14.0
OPEN_ONE_IN: Final = 4
"""Where nothing matches, one context in four wants to begin a quotation."""
END_ABOVE: Final = 4.0
"""At an ending the end-of-text logit lies this far above the best word: it gets about 0.96."""
NO_END_BELOW: Final = 12.0

_PRIME: Final = 0x9E3779B97F4A7C15
_MASK: Final = (1 << 64) - 1
_START: Final = 0x243F6A8885A308D3


class CopySource:
    """Closed quotations of a prompt: how they begin, and what followed each token and pair of tokens."""

    __slots__ = ("after_one", "after_two", "openings")

    def __init__(self) -> None:
        self.openings: list[int] = []
        self.after_one: dict[int, int] = {}
        self.after_two: dict[tuple[int, int], int] = {}

    def add(self, span: list[int]) -> None:
        """Make a quotation copyable; the first occurrence of a pair wins."""
        self.openings += span[:1]
        for a, b in itertools.pairwise(span):
            self.after_one.setdefault(a, b)
        for a, b, c in zip(span, span[1:], span[2:], strict=False):
            self.after_two.setdefault((a, b), c)

    def copy(self) -> CopySource:
        """An independent copy."""
        other = CopySource()
        other.openings = list(self.openings)
        other.after_one = dict(self.after_one)
        other.after_two = dict(self.after_two)
        return other


class Context:
    """Everything the model knows of one sequence, updated token by token."""

    __slots__ = ("copies", "digest", "last", "open_quote")

    def __init__(self) -> None:
        self.last: tuple[int, int, int] = (EOS, EOS, EOS)
        self.digest = _START
        self.copies: CopySource | None = None
        self.open_quote: list[int] | None = None

    def read(self, token: int) -> None:
        """Append a token. The model never writes a quote mark, so only prompts add copy sources."""
        self.last = (self.last[1], self.last[2], token)
        digest = ((self.digest ^ (token + 1)) * _PRIME) & _MASK
        self.digest = digest ^ (digest >> 32)
        if token == QUOTE:
            if self.open_quote is None:
                self.open_quote = []
            else:
                # A new object: contexts read earlier must not see this quotation.
                self.copies = self.copies.copy() if self.copies else CopySource()
                self.copies.add(self.open_quote)
                self.open_quote = None
        elif self.open_quote is not None:
            self.open_quote.append(token)

    def snapshot(self) -> Context:
        """The context as it is now; reading on does not change it (nothing more will be quoted in it)."""
        other = Context()
        other.last, other.digest, other.copies = self.last, self.digest, self.copies
        return other


@dataclass(slots=True)
class Contexts:
    """A batch of n contexts as arrays: last tokens [n, 3] (oldest first), digests [n], copy sources."""

    last: Ints
    digest: Digests
    copies: list[CopySource | None]

    @classmethod
    def of(cls, contexts: list[Context]) -> Contexts:
        """Pack contexts."""
        return cls(
            last=np.array([c.last for c in contexts], dtype=np.int64).reshape(-1, 3),
            digest=np.array([c.digest for c in contexts], dtype=np.uint64),
            copies=[c.copies for c in contexts],
        )

    @classmethod
    def before_each(cls, tokens: list[int]) -> Contexts:
        """The contexts that every token after the first was written in, len(tokens) - 1 of them."""
        context = Context()
        before: list[Context] = []
        for token in tokens[:-1]:
            context.read(token)
            before.append(context.snapshot())
        return cls.of(before)

    def after(self, tokens: Ints) -> Contexts:
        """The contexts one token later, tokens [n]."""
        last = np.empty_like(self.last)
        last[:, :2] = self.last[:, 1:]
        last[:, 2] = tokens
        digest = (self.digest ^ (tokens + 1).astype(np.uint64)) * np.uint64(_PRIME)
        digest ^= digest >> np.uint64(32)
        return Contexts(last, digest, self.copies)


def seed_of(*parts: object) -> int:
    """A stable seed from names and numbers."""
    return zlib.crc32("\x00".join(map(str, parts)).encode())


class _Tables:
    """Seeded score tables that share one shape of dependence on the context."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        sizes = (VOCABULARY_SIZE,) * 3 + (HISTORY_ROWS,)
        self._tables: list[Floats] = [
            rng.standard_normal((rows, VOCABULARY_SIZE), dtype=np.float32) * np.float32(weight * SPREAD)
            for rows, weight in zip(sizes, TABLE_WEIGHTS, strict=True)
        ]

    def scores(self, contexts: Contexts) -> Floats:
        """Scores [n, V] of every word."""
        last_one, last_two, last_three, history = self._tables
        scores = last_one[contexts.last[:, 2]]
        scores += last_two[contexts.last[:, 1]]
        scores += last_three[contexts.last[:, 0]]
        scores += history[(contexts.digest % np.uint64(HISTORY_ROWS)).astype(np.int64)]
        return scores


class LanguageModel:
    """The target.

    Args:
        seed: another seed is another model.
        mean_output_tokens: mean length of natural outputs; lengths are geometric.
    """

    def __init__(self, seed: int, mean_output_tokens: float = 120.0) -> None:
        self._tables = _Tables(seed)
        self._end_threshold = np.uint64(min(_MASK, int(_MASK / mean_output_tokens)))

    def scores(self, contexts: Contexts) -> Floats:
        """Scores [n, V] of the words alone, before copying and the end of text."""
        return self._tables.scores(contexts)

    def logits(self, scores: Floats, contexts: Contexts) -> Floats:
        """Logits [n, V]: the wish to copy and the end of text added to ``scores``, in place."""
        _add_copies(scores, contexts)
        scores[:, (EOS, QUOTE)] = NEVER
        best = scores.max(axis=1)
        ends = contexts.digest < self._end_threshold
        scores[:, EOS] = best + np.where(ends, np.float32(END_ABOVE), np.float32(-NO_END_BELOW))
        return scores

    def next_logits(self, contexts: Contexts) -> Floats:
        """Logits [n, V] of the next token."""
        return self.logits(self.scores(contexts), contexts)

    def score_prompt(self, tokens: list[int]) -> Floats:
        """Logits [len(tokens) - 1, V] that predict each token after the first, given those before it."""
        return self.next_logits(Contexts.before_each(tokens))


def _add_copies(scores: Floats, contexts: Contexts) -> None:
    rows: list[int] = []
    tokens: list[int] = []
    boosts: list[float] = []
    for row, source in enumerate(contexts.copies):
        if source is None:
            continue
        a, b = int(contexts.last[row, 1]), int(contexts.last[row, 2])
        token, boost = source.after_two.get((a, b)), COPY_AFTER_TWO
        if token is None:
            token, boost = source.after_one.get(b), COPY_AFTER_ONE
        if token is None and source.openings:
            choice, chance = divmod(int(contexts.digest[row]), OPEN_ONE_IN)
            token = source.openings[choice % len(source.openings)] if chance == 0 else None
        if token is not None:
            rows.append(row)
            tokens.append(token)
            boosts.append(boost)
    if rows:
        scores[rows, tokens] += np.array(boosts, dtype=np.float32)


class DraftModel:
    """A cheap imitation of the target: its scores blended with unrelated ones.

    Args:
        target: the model to imitate.
        seed: another seed makes other mistakes.
        quality: correlation of the draft's word scores with the target's, 0 to 1; 1 is the target itself.
    """

    def __init__(self, target: LanguageModel, seed: int, quality: float) -> None:
        self._target = target
        self._tables = _Tables(seed)
        self._quality = np.float32(quality)
        self._noise = np.float32((1.0 - quality**2) ** 0.5)

    def logits(self, target_scores: Floats, contexts: Contexts) -> Floats:
        """Draft logits [n, V] from the target's word scores [n, V] of the same contexts."""
        scores = target_scores * self._quality
        if self._noise:
            noise = self._tables.scores(contexts)
            noise *= self._noise
            scores += noise
        return self._target.logits(scores, contexts)


class DraftAlone(LanguageModel):
    """A draft served by itself, as if it were a target: what a client asks for the draft's own law.

    Args:
        target: the model that the draft imitates.
        draft: the draft.
    """

    def __init__(self, target: LanguageModel, draft: DraftModel) -> None:
        self._of = target
        self._draft = draft

    def scores(self, contexts: Contexts) -> Floats:
        """Scores [n, V] of the words alone, of the target."""
        return self._of.scores(contexts)

    def logits(self, scores: Floats, contexts: Contexts) -> Floats:
        """The draft's logits [n, V] from the target's scores."""
        return self._draft.logits(scores, contexts)
