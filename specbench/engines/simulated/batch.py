"""A fast path for studies: many sequences in lockstep, by the engine's own verifiers, on a tabulated model.

Where `EngineCore` serves requests, this writes millions of tokens. The next token's law is a row of a table
that the last two tokens and the prompt choose, so a scorer knows every law exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from specbench.engines.simulated.lm import Floats, Ints
from specbench.engines.simulated.sampling import (
    Probabilities,
    SamplingArrays,
    distribution,
    draw,
    log_probabilities,
)
from specbench.engines.simulated.speculation import Drafts, Verifier
from specbench.engines.simulated.tokenizer import EOS
from specbench.engines.simulated.verifiers import VERIFIERS

Bools = npt.NDArray[np.bool_]

Drafting = Literal["none", "sampled", "greedy"]
"""Without speculation; drafts drawn from q and judged by it; the draft's best token, which is certain."""

VOCABULARY: Final = 64
ROWS: Final = 4096
DRAFT_LIKENESS: Final = 0.93
END_LOGIT: Final = -7.5
"""Of the end of text, below the best word; an output of 256 tokens ends early about one time in ten."""


class TableModel:
    """Target and draft as tables of logits [ROWS, VOCABULARY].

    The spread of a row's logits is log-normal around 3.6, cut to 0.8 to 14: mean entropy near 1.6 nat, as a
    small language model's at temperature 1.
    """

    def __init__(self, seed: int = 1) -> None:
        rng = np.random.default_rng(seed)
        spread = np.clip(np.exp(rng.normal(np.log(3.6), 0.55, ROWS)), 0.8, 14.0)[:, None]
        words = rng.standard_normal((ROWS, VOCABULARY))
        other = rng.standard_normal((ROWS, VOCABULARY))
        blend = DRAFT_LIKENESS * words + (1 - DRAFT_LIKENESS**2) ** 0.5 * other
        self.logits: Floats = (spread * words).astype(np.float32)
        self.draft_logits: Floats = (spread * blend).astype(np.float32)
        for table in (self.logits, self.draft_logits):
            table[:, EOS] = table[:, EOS + 1 :].max(axis=-1) + END_LOGIT

    def rows(self, last: Ints, before: Ints, prompt: Ints) -> Ints:
        """The row that the last two tokens and the prompt's number choose."""
        return (last * 7919 + before * 104729 + prompt * 1299709 + 13) % ROWS

    def rows_of(self, tokens: Ints, prompts: Ints) -> Ints:
        """The row that each token [n, L] was drawn from, prompts [n]."""
        start = np.broadcast_to(np.array([_BEFORE, _LAST]), (len(tokens), 2))
        text = np.concatenate([start, tokens], axis=1)
        return self.rows(text[:, 1:-1], text[:, :-2], prompts[:, None])

    def log_probabilities(self) -> tuple[Probabilities, Probabilities]:
        """log p and log q of every row at temperature 1."""
        return log_probabilities(self.logits), log_probabilities(self.draft_logits)


_LAST, _BEFORE = 1, 2


@dataclass(slots=True)
class Written:
    """Outputs [n, L]; what lies at or beyond ``lengths`` means nothing.

    Attributes:
        tokens: token ids.
        lengths: tokens of each output, its end of text included.
        position: place in the engine step, from 0.
        after_rejection: first token of a step that followed a rejected draft.
    """

    tokens: Ints
    lengths: Ints
    position: Ints
    after_rejection: Bools


def write(
    model: TableModel,
    prompts: Ints,
    max_tokens: int,
    rng: np.random.Generator,
    *,
    drafting: Drafting = "none",
    k: int = 4,
    verifier: str = "standard",
    temperature: float = 1.0,
    top_p: float = 1.0,
    logit_noise: float = 0.0,
) -> Written:
    """Let the model answer prompts (their numbers, [n]); sampling parameters as in a request.

    Args:
        logit_noise: sd of rounding-like noise on the target's logits, fresh for every row.
    """
    judge = VERIFIERS[verifier] if drafting != "none" else Verifier()
    n, k = len(prompts), k if drafting != "none" else 0
    one = _sampling(1, temperature, top_p)
    target_table = judge.law(model.logits, _sampling(ROWS, temperature, top_p))
    draft_table = distribution(model.draft_logits, _sampling(ROWS, temperature, 1.0))
    argmax = model.draft_logits.argmax(axis=-1)
    out = _Sheet(n, max_tokens + k + 1)
    last, before = np.full(n, _LAST), np.full(n, _BEFORE)
    cut_before = np.zeros(n, dtype=bool)
    alive = np.arange(n)
    while len(alive):
        b = len(alive)
        who, one_back, two_back = prompts[alive], last[alive], before[alive]
        rows, tokens = np.empty((k + 1, b), dtype=np.int64), np.empty((k + 1, b), dtype=np.int64)
        for j in range(k):
            rows[j] = model.rows(one_back, two_back, who)
            sampled = drafting == "sampled" and not judge.drafts_are_argmax
            tokens[j] = draw(draft_table[rows[j]], rng.random(b)) if sampled else argmax[rows[j]]
            one_back, two_back = tokens[j], one_back
        rows[k] = model.rows(one_back, two_back, who)
        if logit_noise:
            noise = rng.standard_normal((k + 1, b, VOCABULARY), dtype=np.float32)
            noisy = model.logits[rows] + noise * np.float32(logit_noise)
            target = judge.law(noisy, one)
        else:
            target = target_table[rows]
        certain = drafting == "greedy" or temperature == 0.0
        drafts = Drafts(tokens[:k].copy(), np.full(b, k), None if certain else draft_table[rows[:k]])
        accepted, final = judge.verify(target, drafts, rng.random((k + 1, b)))
        tokens[accepted, np.arange(b)] = final
        counts = judge.garble(tokens, accepted + 1, VOCABULARY, rng)
        ended = out.add(alive, tokens, counts, cut_before[alive], max_tokens)
        here = np.arange(b)
        newest = tokens[counts - 1, here]
        older = np.where(counts > 1, tokens[np.maximum(counts - 2, 0), here], last[alive])
        cut = (accepted < k) & (counts == accepted + 1)
        if judge.stale_share:
            stale = cut & (rng.random(b) < judge.stale_share)
            newest = np.where(stale, drafts.tokens[np.minimum(accepted, k - 1), here], newest)
        last[alive], before[alive], cut_before[alive] = newest, older, cut
        alive = alive[~ended]
    return out.result(max_tokens)


class _Sheet:
    """Where outputs are written down."""

    def __init__(self, n: int, width: int) -> None:
        self.tokens = np.zeros((n, width), dtype=np.int64)
        self.position = np.zeros((n, width), dtype=np.int64)
        self.after = np.zeros((n, width), dtype=bool)
        self.lengths = np.zeros(n, dtype=np.int64)

    def add(self, who: Ints, tokens: Ints, counts: Ints, after: Bools, limit: int) -> Bools:
        """Append ``counts`` tokens of a step each; returns whose output has ended."""
        ended = np.zeros(len(who), dtype=bool)
        for j in range(len(tokens)):
            here = np.flatnonzero((counts > j) & ~ended)
            at = self.lengths[who[here]]
            self.tokens[who[here], at] = tokens[j, here]
            self.position[who[here], at] = j
            if j == 0:
                self.after[who[here], at] = after[here]
            self.lengths[who[here]] += 1
            ended[here] = tokens[j, here] == EOS
        ended |= self.lengths[who] >= limit
        return ended

    def result(self, limit: int) -> Written:
        return Written(
            self.tokens[:, :limit],
            np.minimum(self.lengths, limit),
            self.position[:, :limit],
            self.after[:, :limit],
        )


def _sampling(n: int, temperature: float, top_p: float) -> SamplingArrays:
    return SamplingArrays(
        np.full(n, temperature), np.full(n, top_p), np.zeros(n, dtype=np.int64), np.zeros(n)
    )
