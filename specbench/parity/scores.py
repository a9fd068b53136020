"""Scores of sampled tokens: how far each lies from what the baseline's law expects, along a few directions.

Given the text before it, the next token of a lossless engine has the baseline's law p. For any function g
of the token that the past determines, ``u = g(x) - E_p g`` is then a martingale difference: sums of u have
mean 0 and variance ``sum Var_p g`` whatever the prompts, lengths and stops. Exact from top-k logprobs, by
taking all tokens outside the list as one category (docs/parity.md).

Directions: 0 log p, a tilt of temperature; 1 the likeliest token; 2 anything outside the list; 3 log q of
the draft model; 4 the token that the draft would propose. 3 and 4 only where a client can know them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import special

from specbench.parity.data import DRAFT_FLOOR, Bools, Floats, Ints, Tokens

BASIC: Final = 3
"""Directions that need nothing but the baseline's logprobs."""

NAMES: Final = ("log p", "likeliest token", "outside the list", "draft's log q", "draft's proposal")

LOGPROB_FLOOR: Final = -60.0
"""Engines write a masked token as minus infinity."""

RCOND: Final = 1e-8


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Scores of N tokens along D directions.

    Attributes:
        u: [N, D], centred.
        cov: [N, D, D], covariance of u by the baseline's law.
        sequence, outputs: as in `Tokens`.
        has_draft: whether directions 3 or 4 are there; they are zero otherwise.
    """

    u: Floats
    cov: Floats
    sequence: Ints
    outputs: int
    has_draft: bool

    @property
    def total(self) -> Sums:
        """Over all tokens."""
        return Sums(self.u.sum(axis=0), self.cov.sum(axis=0), len(self.u))

    def where(self, chosen: Bools) -> Sums:
        """Over some tokens, chosen by what was known before them (never by the token itself)."""
        return Sums(self.u[chosen].sum(axis=0), self.cov[chosen].sum(axis=0), int(chosen.sum()))

    def per_output(self) -> Floats:
        """Sums of u over each output, [outputs, D]."""
        columns = [np.bincount(self.sequence, column, self.outputs) for column in self.u.T]
        return np.stack(columns, axis=1)


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Sums of scores ``u`` [D] and of their covariance ``v`` [D, D] over ``n`` tokens."""

    u: Floats
    v: Floats
    n: int

    def first(self, directions: int) -> Sums:
        """The first few directions alone."""
        return Sums(self.u[:directions], self.v[:directions, :directions], self.n)

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.u + other.u, self.v + other.v, self.n + other.n)


BLOCK: Final = 8192
"""Tokens worked on at a time, so that the arrays stay in cache."""


def score(tokens: Tokens) -> Scores:
    """Scores of all tokens along all directions that the data allow."""
    d = len(NAMES)
    u, cov = np.zeros((len(tokens), d)), np.zeros((len(tokens), d, d))
    for start in range(0, len(tokens), BLOCK):
        cut = slice(start, start + BLOCK)
        _score_block(tokens.part(start, start + BLOCK), u[cut], cov[cut])
    has_draft = tokens.draft_logprobs is not None or tokens.proposed is not None
    return Scores(u, cov, tokens.sequence, tokens.outputs, has_draft)


def _score_block(tokens: Tokens, u: Floats, cov: Floats) -> None:
    weights, place, directions = directions_of(tokens)
    rows = np.arange(len(tokens))
    means: dict[int, Floats] = {}
    for a, g in directions.items():
        weighted = weights * g
        means[a] = weighted.sum(axis=1)
        u[:, a] = g[rows, place] - means[a]
        for b in means:
            both = np.einsum("nk,nk->n", weighted, directions[b]) - means[a] * means[b]
            cov[:, a, b] = cov[:, b, a] = both


def directions_of(tokens: Tokens) -> tuple[Floats, Ints, dict[int, Floats]]:
    """Weights [N, k+1] of the listed tokens and of the rest, the emitted token's column [N], and each g."""
    n, k = tokens.top_logprobs.shape
    listed = np.maximum(tokens.top_logprobs.astype(np.float64), LOGPROB_FLOOR)
    weights = np.empty((n, k + 1))
    np.exp(listed, out=weights[:, :k])
    weights[:, k] = np.maximum(1.0 - weights[:, :k].sum(axis=1), 0.0)
    log_p = np.empty((n, k + 1))
    log_p[:, :k] = listed
    log_p[:, k] = listed[:, -1] - 1.0  # of the unlisted tokens we only know that they are less likely
    top, tail = np.zeros((n, k + 1)), np.zeros((n, k + 1))
    top[:, 0] = 1.0
    tail[:, k] = 1.0
    directions = {0: log_p, 1: top, 2: tail}
    if tokens.draft_logprobs is not None:
        log_q = np.full((n, k + 1), DRAFT_FLOOR)
        log_q[:, :k] = tokens.draft_logprobs
        directions[3] = log_q
    if tokens.proposed is not None:
        proposed = np.zeros((n, k + 1))
        proposed[:, :k] = tokens.top_ids == tokens.proposed[:, None]
        directions[4] = proposed
    emitted = tokens.top_ids == tokens.ids[:, None]
    return weights, np.where(emitted.any(axis=1), emitted.argmax(axis=1), k), directions


@dataclass(frozen=True, slots=True)
class Omnibus:
    """A chi-square statistic over several directions, with its degrees of freedom and p-value."""

    statistic: float
    df: int
    p: float


def omnibus(sums: Sums) -> Omnibus:
    """``u' V^-1 u``: are the scores zero along all directions at once?"""
    return _quadratic(sums.u, sums.v)


def contrast(arm: Sums, baseline: Sums) -> Omnibus:
    """Are the tilts of an arm and of the baseline the same, whatever they are?

    The tilt ``V^-1 u`` estimates how far the law that was sampled from lies from the one that scored, per
    unit of each direction. Numerical noise between decoding and scoring tilts both arms alike.
    """
    inverse, baseline_inverse = _inverse(arm.v), _inverse(baseline.v)
    difference = inverse @ arm.u - baseline_inverse @ baseline.u
    return _quadratic(difference, inverse + baseline_inverse)


def hotelling(arm: Floats, baseline: Floats) -> Omnibus:
    """Two-sample test on per-output sums [n, D] and [m, D]; no law is assumed. ``df`` is the numerator's.

    The normal approximation is a little liberal with few outputs: use it with 256 or more.
    """
    n, m, d = len(arm), len(baseline), arm.shape[1]
    spread = np.atleast_2d(np.cov(arm.T)) / n + np.atleast_2d(np.cov(baseline.T)) / m
    found = _quadratic(arm.mean(axis=0) - baseline.mean(axis=0), spread)
    freedom = 2 * min(n, m) - 2
    if found.df == 0 or freedom <= d:
        return Omnibus(found.statistic, found.df, 1.0)
    f = found.statistic * (freedom - found.df + 1) / (freedom * found.df)
    return Omnibus(found.statistic, found.df, float(special.fdtrc(found.df, freedom - found.df + 1, f)))


def _quadratic(u: Floats, v: Floats) -> Omnibus:
    inverse, rank = _inverse_and_rank(v)
    statistic = float(u @ inverse @ u)
    return Omnibus(statistic, rank, float(special.chdtrc(rank, statistic)) if rank else 1.0)


def _inverse(v: Floats) -> Floats:
    return _inverse_and_rank(v)[0]


def _inverse_and_rank(v: Floats) -> tuple[Floats, int]:
    """Pseudo-inverse after scaling to correlations: directions have different units and may be collinear."""
    scale = np.sqrt(np.maximum(np.diag(v), 0.0))
    used = scale > 0.0
    inverse = np.zeros_like(v)
    if not used.any():
        return inverse, 0
    correlation = v[np.ix_(used, used)] / np.outer(scale[used], scale[used])
    values, vectors = np.linalg.eigh(correlation)
    kept = values > RCOND * values[-1]
    inner = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
    inverse[np.ix_(used, used)] = inner / np.outer(scale[used], scale[used])
    return inverse, int(kept.sum())
