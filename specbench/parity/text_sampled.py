"""Sampled texts of an arm and of the baseline's two launches: frequencies, lengths and loops, without any score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from specbench.parity.counting import Counted
from specbench.parity.text_data import TextOutput

TRIGRAM: Final = 3
FEATURES: Final = 1024
"""Tokens or trigrams that are told apart: the most frequent ones of all outputs; the rest counts as one."""

PERMUTATIONS: Final = 49_999
ENOUGH: Final = 20
"""Permuted statistics that reach the real one and end the counting: their rate is then known well enough
(sequential Monte Carlo, Besag and Clifford 1991)."""
BATCH: Final = 500
SEED: Final = 20_251

LOOP_CHARACTERS: Final = 240
LOOP_PERIOD: Final = 80
"""An output loops when its last characters repeat one passage of at most this length over and over."""

Matrix = npt.NDArray[np.float32]


def _said(output: TextOutput) -> Sequence[str]:
    """Tokens without the end of text, which not every server lists."""
    found = output.tokens or ()
    ended = output.finish_reason == "stop" and found and not output.text.endswith(found[-1])
    return found[:-1] if ended else found


def units(output: TextOutput, *, tokens: bool) -> Sequence[str]:
    """What is counted: tokens, or overlapping trigrams of characters."""
    if tokens:
        return _said(output)
    return [output.text[i : i + TRIGRAM] for i in range(max(0, len(output.text) - TRIGRAM + 1))]


def histograms(outputs: Sequence[TextOutput], *, tokens: bool) -> Matrix:
    """Frequencies [n, features] in each output, of sum 1; zero for an empty one."""
    counted = [Counter(units(x, tokens=tokens)) for x in outputs]
    total: Counter[str] = Counter()
    for one in counted:
        total += one
    # Ordered by count, then by name: the same features whoever comes first.
    chosen = sorted(total, key=lambda unit: (-total[unit], unit))[: FEATURES - 1]
    column = {unit: i for i, unit in enumerate(chosen)}
    found = np.zeros((len(outputs), len(chosen) + 1), dtype=np.float32)
    for row, one in zip(found, counted, strict=True):
        for unit, count in one.items():
            row[column.get(unit, len(chosen))] += count
        row /= max(1, sum(one.values()))
    return found


def p_frequencies(groups: Sequence[Sequence[TextOutput]], *, tokens: bool, seed: int = SEED) -> float:
    """Does the first output of each group come from the law of the others? A permutation test.

    Statistic: squared distance between the mean histogram of the first outputs and that of all others (an MMD
    with a linear kernel). Permuted is which output of a group is the first: a group holds outputs of one
    prompt, exchangeable when the arm is lossless, and differences between prompts cancel.

    Args:
        groups: one per prompt, all of the same size of 2 or more; the arm's output first.

    Returns:
        p = (1 + k) / (1 + N), k of N permuted statistics at or above the real one; k / N when k reaches
        `ENOUGH` before all are counted.
    """
    if not groups:
        return 1.0
    size = len(groups[0])
    flat = histograms([x for group in groups for x in group], tokens=tokens)
    of_group = flat.reshape(len(groups), size, -1)
    # Mean of the chosen less mean of the others is size / (size - 1) times this: the factor changes no rank.
    centred: Matrix = of_group - of_group.mean(axis=1, keepdims=True)
    real = float(np.square(centred[:, 0].sum(axis=0, dtype=np.float64)).sum())
    if real == 0.0:
        return 1.0
    rng = np.random.default_rng(seed)
    rows = centred.reshape(len(groups) * size, -1)
    offsets = np.arange(len(groups)) * size
    reached, done = 0, 0
    while done < PERMUTATIONS:
        batch = min(BATCH, PERMUTATIONS - done)
        chosen = np.zeros((batch, len(rows)), dtype=np.float32)
        picks = rng.integers(0, size, (batch, len(groups))) + offsets
        np.put_along_axis(chosen, picks, np.float32(1.0), axis=1)
        sums = np.square((chosen @ rows).astype(np.float64)).sum(axis=1)
        # A permutation that is the real choice must not fall below it by rounding.
        hits = np.flatnonzero(sums >= real * (1 - 1e-6))
        if reached + len(hits) >= ENOUGH:
            return ENOUGH / (done + int(hits[ENOUGH - reached - 1]) + 1)
        reached += len(hits)
        done += batch
    return (1 + reached) / (1 + PERMUTATIONS)


def sizes(outputs: Iterable[TextOutput], *, tokens: bool) -> npt.NDArray[np.int64]:
    """Length of each output: tokens, or characters."""
    return np.array([len(_said(x)) if tokens else len(x.text) for x in outputs], dtype=np.int64)


def p_sizes(arm: npt.NDArray[np.int64], baseline: npt.NDArray[np.int64]) -> float:
    """Two-sided Mann-Whitney test that outputs are equally long."""
    from scipy import stats  # half a second: not for every command

    if not len(arm) or not len(baseline) or np.ptp(np.concatenate([arm, baseline])) == 0:
        return 1.0
    return float(stats.mannwhitneyu(arm, baseline, alternative="two-sided", method="asymptotic").pvalue)


def loops(text: str) -> bool:
    """Whether a text ends in a loop."""
    end = text[-LOOP_CHARACTERS - LOOP_PERIOD :]
    if len(end) < LOOP_CHARACTERS + LOOP_PERIOD:
        return False
    last = end[LOOP_PERIOD:]
    return any(last == end[LOOP_PERIOD - period : len(end) - period] for period in range(1, LOOP_PERIOD + 1))


def count_loops(arm: Iterable[TextOutput], baseline: Iterable[TextOutput]) -> Counted:
    """Looping outputs of both."""
    mine, theirs = ([loops(x.text) for x in group] for group in (arm, baseline))
    return Counted(sum(mine), len(mine), sum(theirs), len(theirs))
