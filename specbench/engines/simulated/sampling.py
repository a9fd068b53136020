"""From logits to the distribution that a request asked for, and draws from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specbench.engines.simulated.lm import Floats, Ints

Probabilities = npt.NDArray[np.float64]

GREEDY_BELOW = 1e-5
"""vLLM treats a lower temperature as greedy and then ignores top_p, top_k and min_p."""


@dataclass(slots=True)
class SamplingArrays:
    """Sampling parameters of n rows. A ``top_k`` of 0 means all tokens."""

    temperature: Probabilities
    top_p: Probabilities
    top_k: Ints
    min_p: Probabilities

    def untruncated(self) -> SamplingArrays:
        """The same temperatures without top_p, top_k and min_p."""
        n = len(self.temperature)
        return SamplingArrays(self.temperature, np.ones(n), np.zeros(n, dtype=np.int64), np.zeros(n))


def distribution(logits: Floats, sampling: SamplingArrays) -> Probabilities:
    """Probabilities [..., n, V] of logits [..., n, V]; greedy rows put all mass on the first best token."""
    greedy = sampling.temperature < GREEDY_BELOW
    if greedy.all():
        return _one_hot(logits)
    temperature = np.where(greedy, 1.0, sampling.temperature)[:, None]
    scaled = logits / temperature
    scaled -= scaled.max(axis=-1, keepdims=True)
    p: Probabilities = np.exp(scaled, out=scaled)
    p /= p.sum(axis=-1, keepdims=True)
    if (sampling.top_k > 0).any():
        p = _keep_top_k(p, sampling.top_k)
    if (sampling.top_p < 1.0).any():
        p = _keep_top_p(p, sampling.top_p)
    if (sampling.min_p > 0.0).any():
        floor = sampling.min_p[:, None] * p.max(axis=-1, keepdims=True)
        p = _normalised(np.where(p >= floor, p, 0.0))
    if greedy.any():
        p[..., greedy, :] = _one_hot(logits[..., greedy, :])
    return p


def draw(weights: Probabilities, uniforms: Probabilities) -> Ints:
    """One token per row of weights [n, V] (not necessarily adding up to 1), by uniforms [n] in [0, 1)."""
    cumulative = np.cumsum(weights, axis=-1)
    targets = uniforms * cumulative[:, -1]
    tokens: Ints = np.minimum((cumulative <= targets[:, None]).sum(axis=-1), weights.shape[-1] - 1)
    return tokens


def log_probabilities(logits: Floats) -> Probabilities:
    """Log probabilities at temperature 1, [..., V]."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    wide -= np.log(np.exp(wide).sum(axis=-1, keepdims=True))
    return wide


def _one_hot(logits: Floats) -> Probabilities:
    p = np.zeros(logits.shape)
    np.put_along_axis(p, logits.argmax(axis=-1)[..., None], 1.0, axis=-1)
    return p


def _keep_top_k(p: Probabilities, top_k: Ints) -> Probabilities:
    size = p.shape[-1]
    k = np.where(top_k > 0, np.minimum(top_k, size), size)
    ranked = np.sort(p, axis=-1)[..., ::-1]
    columns = np.broadcast_to((k - 1)[:, None], (*p.shape[:-1], 1))
    floor = np.take_along_axis(ranked, columns, axis=-1)
    return _normalised(np.where(p >= floor, p, 0.0))


def _keep_top_p(p: Probabilities, top_p: Probabilities) -> Probabilities:
    """The smallest set of most likely tokens whose mass reaches top_p, the crossing one included."""
    order = np.argsort(-p, axis=-1, kind="stable")
    ranked = np.take_along_axis(p, order, axis=-1)
    mass_before = np.cumsum(ranked, axis=-1) - ranked
    keep = np.empty(p.shape, dtype=bool)
    np.put_along_axis(keep, order, (mass_before < top_p[:, None]) | (top_p[:, None] >= 1.0), axis=-1)
    return _normalised(np.where(keep, p, 0.0))


def _normalised(weights: Probabilities) -> Probabilities:
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights
