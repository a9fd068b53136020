"""Greedy texts of two servers: where they part, and whether the baseline's own alternatives explain it.

Up to the first difference both have read the same text, so the baseline's alternatives there are the law that
the arm should have followed. After it everything differs, and nothing more is to be learnt from the pair.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from scipy import special

from specbench.parity.data import Floats
from specbench.parity.greedy import GRID_TOLERANCE_NAT, HARD_NAT, SOFT_NAT, SOFT_QUANTILE, spacing
from specbench.parity.text_data import TextOutput

TIES_PER_WORD: Final = 0.05
"""Share of words at which rounding alone may part two greedy texts, at most: a fiftieth of the greedy choices
of a bfloat16 model are exact ties, a word is one or two of them, and this is twice that."""

_WORDS: Final = re.compile(r"[A-Za-z0-9]{1,8}|\S")
"""A place without tokens: a short word, a part of a long one, any other sign. Rarely more than two tokens."""

ByPrompt = Mapping[str, TextOutput]

Cause = Literal["tie", "rounding", "unexplained", "untold"]


@dataclass(frozen=True, slots=True)
class Parting:
    """The first difference of a pair of greedy outputs.

    Attributes:
        index: place in tokens, or in words where the server tells none; from 0.
        margin_nat: of the other's token below the baseline's best one, by the baseline's alternatives there.
            Infinite when it is none of them; null where they were not told.
    """

    index: int
    margin_nat: float | None


@dataclass(frozen=True, slots=True)
class Pair:
    """Greedy outputs of a prompt by two servers; ``parting`` is null when they are equal.

    Attributes:
        seen: places that were compared, the one of the parting included.
    """

    seen: int
    parting: Parting | None


def leaves_at(pair: Pair) -> int:
    """Places that are equal from the start."""
    return pair.seen if pair.parting is None else pair.parting.index


def by_tokens(other: TextOutput, baseline: TextOutput) -> Pair:
    """Compare two outputs that have tokens."""
    assert other.tokens is not None
    assert baseline.tokens is not None
    assert baseline.top is not None  # the two come together
    n = min(len(other.tokens), len(baseline.tokens))
    for i in range(n):
        if other.tokens[i] != baseline.tokens[i]:
            top = dict(reversed(baseline.top[i]))  # of two tokens spelled alike the likelier one
            if not top:
                return Pair(i + 1, Parting(i, None))
            best = max(top.values())
            return Pair(i + 1, Parting(i, best - top.get(other.tokens[i], -math.inf)))
    if len(other.tokens) != len(baseline.tokens):
        # One of them ended. Not every server lists the end of text among its tokens, so that no alternative
        # can be looked up; lengths are a test of their own.
        return Pair(n + 1, Parting(n, None))
    return Pair(n, None)


def spelt_alike(others: ByPrompt, baseline: ByPrompt) -> bool:
    """Whether two servers spell tokens alike (`` the`` by one is ``\u0120the`` by another).

    Where they do not, tokens part long before the texts do; in most pairs, then no token may be compared.
    """
    parted, early = 0, 0
    for prompt, other in others.items():
        base = baseline.get(prompt)
        if base is None or other.tokens is None or base.tokens is None:
            continue
        at = leaves_at(by_tokens(other, base))
        if at == min(len(other.tokens), len(base.tokens)):
            continue
        parted += 1
        same = len(os.path.commonprefix([other.text, base.text]))  # noqa: RUF071 - texts, not paths
        needed = len("".join(base.tokens[:at])) + max(len(other.tokens[at]), len(base.tokens[at]))
        early += same > needed
    return early <= parted / 2


def by_words(other: TextOutput, baseline: TextOutput) -> Pair:
    """Compare two outputs that are texts alone."""
    mine, theirs = _WORDS.findall(other.text), _WORDS.findall(baseline.text)
    n = min(len(mine), len(theirs))
    for i in range(n):
        if mine[i] != theirs[i]:
            return Pair(i + 1, Parting(i, None))
    if len(mine) != len(theirs):
        return Pair(n + 1, Parting(n, None))
    return Pair(n, None if other.text == baseline.text else Parting(n, None))


def pairs(
    others: ByPrompt,
    baseline: ByPrompt,
    prompts: Iterable[str],
    *,
    tokens: bool,
) -> list[Pair]:
    """Pairs of some prompts, which both have."""
    compare = by_tokens if tokens else by_words
    return [compare(others[p], baseline[p]) for p in prompts]


@dataclass(frozen=True, slots=True)
class Explained:
    """Partings of an arm from the baseline A, and of the baseline's second launch A' from A, by cause."""

    prompts: int
    soft_nat: float
    arm: dict[Cause, int]
    again: dict[Cause, int]
    hard: int
    """Unexplained ones of the arm that are none of the alternatives, or more than 1.5 nat below the best."""

    @property
    def p(self) -> float:
        """One-sided, Fisher's exact: more prompts part without explanation than between A' and A."""
        return fisher(self.arm["unexplained"], self.again["unexplained"], self.prompts)


def explain(arm: list[Pair], again: list[Pair], baseline: Iterable[TextOutput]) -> Explained:
    """Sort the partings by cause; both lists are of the same prompts against the same outputs of A."""
    gaps = np.array(
        [a[0][1] - a[1][1] for x in baseline for a in x.top or () if len(a) > 1], dtype=np.float64
    )
    ulp = spacing(gaps) if len(gaps) else 0.0
    own = [p.parting.margin_nat for p in again if p.parting is not None and p.parting.margin_nat is not None]
    finite: Floats = np.array([m for m in own if math.isfinite(m)])
    # The next of the margins at or above it, so that A' does not count against itself for being few.
    quantile = float(np.quantile(finite, SOFT_QUANTILE, method="higher")) if len(finite) else 0.0
    # Beyond the hard limit nothing is rounding, whatever A' did.
    soft = min(HARD_NAT, max(SOFT_NAT, 2 * ulp, quantile))

    def count(found: list[Pair]) -> dict[Cause, int]:
        causes: dict[Cause, int] = {"tie": 0, "rounding": 0, "unexplained": 0, "untold": 0}
        for pair in found:
            if pair.parting is not None:
                causes[_cause(pair.parting.margin_nat, soft, ulp)] += 1
        return causes

    margins = [p.parting.margin_nat for p in arm if p.parting is not None]
    hard = sum(m is not None and m > HARD_NAT for m in margins)
    return Explained(len(arm), soft, count(arm), count(again), hard)


def _cause(margin: float | None, soft: float, ulp: float) -> Cause:
    if margin is None:
        return "untold"
    if margin <= max(ulp, GRID_TOLERANCE_NAT):
        return "tie"
    return "rounding" if margin <= soft else "unexplained"


def fisher(arm: int, again: int, prompts: int) -> float:
    """One-sided exact p-value of ``arm`` against ``again`` events, of so many prompts each."""
    from scipy import stats  # half a second: not for every command

    total = arm + again
    return 1.0 if not arm else float(stats.hypergeom.sf(arm - 1, 2 * prompts, total, prompts))


def fewest_seen(again: int, prompts: int, p: float) -> int | None:
    """The fewest unexplained partings that would have given a p-value below ``p``; null if none would."""
    return next((k for k in range(1, prompts + 1) if fisher(k, again, prompts) < p), None)


@dataclass(frozen=True, slots=True)
class Earliness:
    """How many texts part and how early, where nothing is known of the reasons.

    Attributes:
        differ, differ_again: prompts whose texts part; of arm and A, of A' and A.
        per_word: rate at which the arm's part from A's, per word that was still the same.
        p_earlier: one-sided Mann-Whitney: the arm's part earlier than those of A'. Rounding of other kernels
            may do that, so it says nothing alone.
        p_ties: one-sided, exact: they part at more than `TIES_PER_WORD`.
    """

    prompts: int
    differ: int
    differ_again: int
    per_word: float
    p_earlier: float
    p_ties: float

    @property
    def p(self) -> float:
        """Both at once: earlier than A', and more often than ties can explain."""
        return max(self.p_earlier, self.p_ties)


def earliness(arm: list[Pair], again: list[Pair]) -> Earliness:
    """Compare the places at which texts part; equal texts part beyond all of them."""
    from scipy import stats

    mine, theirs = (
        np.array([np.inf if p.parting is None else p.parting.index for p in x]) for x in (arm, again)
    )
    earlier = 1.0
    if len(mine) and len(np.unique(np.concatenate([mine, theirs]))) > 1:
        top = 1 + max(p.seen for p in (*arm, *again))
        x, y = np.minimum(mine, top), np.minimum(theirs, top)
        earlier = float(stats.mannwhitneyu(x, y, alternative="less", method="asymptotic").pvalue)
    differ, seen = int(np.isfinite(mine).sum()), sum(p.seen for p in arm)
    return Earliness(
        prompts=len(arm),
        differ=differ,
        differ_again=int(np.isfinite(theirs).sum()),
        per_word=differ / seen if seen else 0.0,
        p_earlier=earlier,
        p_ties=float(special.bdtrc(differ - 1, seen, TIES_PER_WORD)) if differ else 1.0,
    )
