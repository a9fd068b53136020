"""The verifiers there are: two lossless ones, and bugs as engines have had them.

Each bug is a switch of the simulation (``sim.verifier``), so that a parity check can be shown to find it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from specbench.engines.simulated.lm import Floats, Ints
from specbench.engines.simulated.sampling import Probabilities, SamplingArrays, distribution, draw
from specbench.engines.simulated.speculation import Drafts, Verifier, chosen
from specbench.engines.simulated.tokenizer import EOS


class BlockVerification(Verifier):
    """Lossless: drafts are judged together, not one by one (Sun et al. 2403.10444, algorithm 2)."""

    def verify(self, target: Probabilities, drafts: Drafts, uniforms: Probabilities) -> tuple[Ints, Ints]:
        """See `Verifier.verify`."""
        k, b = drafts.tokens.shape
        if not k:
            return super().verify(target, drafts, uniforms)
        sequences = np.arange(b)
        q = drafts.probabilities
        if q is None:
            q = np.zeros((k, b, target.shape[-1]))
            np.put_along_axis(q, drafts.tokens[..., None], 1.0, axis=-1)
        p_chosen, q_chosen = chosen(target[:k], drafts)
        share = np.ones(b)  # the running min(1, p/q) of the block
        accepted, kept = np.zeros(b, dtype=np.int64), np.ones(b)
        for j in range(k):
            ratio = np.divide(p_chosen[j], q_chosen[j], out=np.zeros(b), where=q_chosen[j] > 0)
            share = np.minimum(share * ratio, 1.0)
            chance = share.copy()
            if j + 1 < k:
                left = np.maximum(share[:, None] * target[j + 1] - q[j + 1], 0.0).sum(axis=-1)
                whole = left + 1.0 - share
                inner = np.divide(left, whole, out=np.ones(b), where=whole > 1e-12)
                chance = np.where(j + 1 < drafts.lengths, inner, chance)
            hit = (uniforms[j] < chance) & (j < drafts.lengths)
            accepted = np.where(hit, j + 1, accepted)
            kept = np.where(hit, share, kept)
        weights = target[accepted, sequences]
        cut = np.flatnonzero(accepted < drafts.lengths)
        left = np.maximum(kept[cut, None] * weights[cut] - q[accepted[cut], cut], 0.0)
        some = left.sum(axis=-1) > 0.0
        weights[cut[some]] = left[some]
        return accepted, draw(weights, uniforms[k])


class TypicalAcceptance(Verifier):
    """Lossy by design (Medusa, 2401.10774): a draft passes when p(x) > min(e, sqrt(e) exp(-H)), e = 0.3."""

    epsilon = 0.3

    def acceptance(self, target: Probabilities, drafts: Drafts) -> Probabilities:
        p, _ = chosen(target, drafts)
        entropy = -(target * np.log(np.where(target > 0, target, 1.0))).sum(axis=-1)
        passes: Probabilities = (
            p > np.minimum(self.epsilon, np.sqrt(self.epsilon) * np.exp(-entropy))
        ).astype(np.float64)
        return passes

    def residual(self, p: Probabilities, tokens: Ints, q: Probabilities | None) -> Probabilities:  # noqa: ARG002
        return p


class ArgmaxAtTemperature(Verifier):
    """Bug: drafts are judged as if the request were greedy, whatever its temperature."""

    def acceptance(self, target: Probabilities, drafts: Drafts) -> Probabilities:
        agrees: Probabilities = (target.argmax(axis=-1) == drafts.tokens).astype(np.float64)
        return agrees

    def residual(self, p: Probabilities, tokens: Ints, q: Probabilities | None) -> Probabilities:  # noqa: ARG002
        return _best(p)


class GreedyDraftAsSampled(Verifier):
    """Bug: the draft proposes its best token, but is judged by the q of a sampled one."""

    drafts_are_argmax = True


class ResidualNotSubtracted(Verifier):
    """Bug: a rejected token is replaced by a draw from p, not from (p - q)+."""

    def residual(self, p: Probabilities, tokens: Ints, q: Probabilities | None) -> Probabilities:  # noqa: ARG002
        return p


class LenientAcceptance(Verifier):
    """Bug: drafts are accepted with min(1, p / (share q))."""

    def __init__(self, share: float) -> None:
        self.share = share

    def acceptance(self, target: Probabilities, drafts: Drafts) -> Probabilities:
        p, q = chosen(target, drafts)
        return np.divide(p, self.share * q, out=np.ones_like(p), where=self.share * q > p)


class GreedyBonus(Verifier):
    """Bug: the token after an all-accepted draft is the most likely one, whatever the temperature."""

    def bonus(self, p: Probabilities) -> Probabilities:
        return _best(p)


class CoolBonus(Verifier):
    """Bug: the token after an all-accepted draft is drawn at 0.9 of the temperature."""

    def bonus(self, p: Probabilities) -> Probabilities:
        cooler: Probabilities = p ** (1 / 0.9)
        return cooler


class ShiftedBonus(Verifier):
    """Bug: the token after an all-accepted draft is drawn from the logits of one position before."""

    def last_row(self, accepted: Ints, lengths: Ints) -> Ints:
        return np.where(accepted >= lengths, np.maximum(accepted - 1, 0), accepted)


class PositionOffByOne(Verifier):
    """Bug: the token that replaces a rejected draft is drawn from the logits of one position after."""

    def last_row(self, accepted: Ints, lengths: Ints) -> Ints:
        return np.where(accepted < lengths, accepted + 1, accepted)


class TemperatureOff(Verifier):
    """Bug: the temperature is wrong by a factor."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def law(self, logits: Floats, sampling: SamplingArrays) -> Probabilities:
        warm = sampling.temperature * self.factor
        return distribution(logits, SamplingArrays(warm, sampling.top_p, sampling.top_k, sampling.min_p))


class TopPIgnored(Verifier):
    """Bug: top_p, top_k and min_p of the request have no effect."""

    def law(self, logits: Floats, sampling: SamplingArrays) -> Probabilities:
        return distribution(logits, sampling.untruncated())


class TopPApplied(Verifier):
    """Bug: a top_p of 0.95 that nobody asked for."""

    def law(self, logits: Floats, sampling: SamplingArrays) -> Probabilities:
        top_p = np.minimum(sampling.top_p, 0.95)
        narrow = SamplingArrays(sampling.temperature, top_p, sampling.top_k, sampling.min_p)
        return distribution(logits, narrow)


class StaleKv(Verifier):
    """Bug: the KV entry of a rejected draft stays now and then, and the model goes on from it."""

    def __init__(self, share: float) -> None:
        self.stale_share = share


class RandomToken(Verifier):
    """Bug: a token is now and then replaced by any other."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def garble(self, tokens: Ints, counts: Ints, vocabulary: int, rng: np.random.Generator) -> Ints:
        return _replace(tokens, counts, rng, self.rate, rng.integers(2, vocabulary, tokens.shape))


class EarlyEnd(Verifier):
    """Bug: an output now and then ends where it should go on."""

    rate = 0.002

    def garble(self, tokens: Ints, counts: Ints, vocabulary: int, rng: np.random.Generator) -> Ints:  # noqa: ARG002
        return _replace(tokens, counts, rng, self.rate, np.full(tokens.shape, EOS))


LOSSLESS: Final = ("standard", "block_verification")

VERIFIERS: Final[dict[str, Verifier]] = {
    "standard": Verifier(),
    "block_verification": BlockVerification(),
    "typical_acceptance": TypicalAcceptance(),
    "argmax_at_temperature": ArgmaxAtTemperature(),
    "greedy_draft_as_sampled": GreedyDraftAsSampled(),
    "residual_not_subtracted": ResidualNotSubtracted(),
    "lenient_acceptance": LenientAcceptance(0.8),
    "lenient_acceptance_half": LenientAcceptance(0.5),
    "greedy_bonus": GreedyBonus(),
    "cool_bonus": CoolBonus(),
    "shifted_bonus": ShiftedBonus(),
    "position_off_by_one": PositionOffByOne(),
    "temperature_off_5": TemperatureOff(0.95),
    "temperature_off_2": TemperatureOff(0.98),
    "top_p_ignored": TopPIgnored(),
    "top_p_applied": TopPApplied(),
    "stale_kv_1": StaleKv(0.01),
    "stale_kv_5": StaleKv(0.05),
    "random_token_1e-2": RandomToken(1e-2),
    "random_token_1e-3": RandomToken(1e-3),
    "early_end": EarlyEnd(),
}
"""Name in ``sim.verifier`` to how drafts are verified; all but `LOSSLESS` are bugs or lossy."""


def _best(p: Probabilities) -> Probabilities:
    best = np.zeros_like(p)
    np.put_along_axis(best, p.argmax(axis=-1)[:, None], 1.0, axis=-1)
    return best


def _replace(tokens: Ints, counts: Ints, rng: np.random.Generator, rate: float, by: Ints) -> Ints:
    hit = (rng.random(tokens.shape) < rate) & (np.arange(len(tokens))[:, None] < counts)
    first = np.where(hit.any(axis=0), hit.argmax(axis=0), len(tokens))
    damaged = np.flatnonzero(first < len(tokens))
    tokens[first[damaged], damaged] = by[first[damaged], damaged]
    cut: Ints = np.minimum(counts, first + 1)
    return cut
