"""Lengths and loops of outputs: what a broken end of text or a stuck decoder shows without any logprob."""

from __future__ import annotations

from typing import Final

import numpy as np

from specbench.parity.counting import Counted
from specbench.parity.data import Ints, Tokens

LOOP_TOKENS: Final = 48
"""An output loops when its last tokens repeat one passage of at most `LOOP_PERIOD` tokens over and over."""
LOOP_PERIOD: Final = 16


def lengths(tokens: Tokens) -> Ints:
    """Tokens of each output."""
    counts: Ints = np.bincount(tokens.sequence, minlength=tokens.outputs)
    return counts


def p_length(arm: Tokens, baseline: Tokens) -> float:
    """Two-sided Mann-Whitney test that outputs are equally long; outputs cut at the same cap are ties."""
    from scipy import stats  # half a second: not for every command

    own, base = lengths(arm), lengths(baseline)
    if np.ptp(np.concatenate([own, base])) == 0:
        return 1.0
    return float(stats.mannwhitneyu(own, base, alternative="two-sided", method="asymptotic").pvalue)


def loops(tokens: Tokens) -> int:
    """Outputs that end in a loop."""
    counts = lengths(tokens)
    need = LOOP_TOKENS + LOOP_PERIOD
    ends = np.cumsum(counts)[counts >= need]
    if not len(ends):
        return 0
    last = tokens.ids[ends[:, None] + np.arange(-need, 0)]
    looped = np.zeros(len(ends), dtype=bool)
    for period in range(1, LOOP_PERIOD + 1):
        looped |= (last[:, LOOP_PERIOD:] == last[:, LOOP_PERIOD - period : need - period]).all(axis=1)
    return int(looped.sum())


def count_loops(arm: Tokens, baseline: Tokens) -> Counted:
    """Looping outputs of both arms."""
    return Counted(loops(arm), arm.outputs, loops(baseline), baseline.outputs)
