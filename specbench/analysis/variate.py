"""The acceptance control variate: the speed-up at the acceptance of all the arm's cells, not of this cell's prompts.

With few requests in flight, a cell's throughput depends on how well its few prompts could be drafted. Throughput is
steps per second times tokens per step, and tokens per step (tau) belong to the content, not to the load, so every
cell of the arm says something about them:

    X_cv = X_window * tau_pool / tau_window

In simulation the spread of a ratio falls from 7.9 % to 1.1 % at 1 in flight with 24 requests, from 4.2 % to 1.6 % at
4 and from 2.9 % to 1.8 % at 16; at 32 there is nothing to gain (docs/method.md, "The acceptance control variate").
It is an estimate with an assumption, tested here and shown beside the plain ratio; no verdict rests on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from specbench.analysis.acceptance import figures, pool
from specbench.analysis.compare import PairedRatio

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from specbench.analysis.cell import Cell

MAX_CONCURRENCY: Final = 16
"""Above it a cell holds enough requests for its own acceptance."""

MAX_Z: Final = 3.0
"""Loads whose tau differs from the rest by more standard errors are not of one content."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Tokens and chunks after the first, of each request that ended in a window: one chunk is one step."""

    tokens: tuple[int, ...]
    chunks: tuple[int, ...]

    @property
    def log_tau(self) -> float:
        """Logarithm of tokens per step, all requests together (not the mean of their ratios)."""
        return math.log(sum(self.tokens) / sum(self.chunks))

    @property
    def variance(self) -> float:
        """Of ``log_tau`` over prompts: ``sum((tokens - tau chunks)^2) / sum(tokens)^2`` (ratio estimator)."""
        tau = math.exp(self.log_tau)
        squares = math.fsum((t - tau * c) ** 2 for t, c in zip(self.tokens, self.chunks, strict=True))
        return squares / sum(self.tokens) ** 2


@dataclass(frozen=True, slots=True)
class Adjusted:
    """The adjusted speed-up of an arm at a load, or why there is none; ``note`` says what it rests on."""

    ratio: PairedRatio | None
    note: str


def adjust(
    ratios: Mapping[int, float], cells: Sequence[Cell], others: Mapping[str, Sequence[Cell]]
) -> Adjusted:
    """Put the cells of an arm at a load to the acceptance pooled over all its loads.

    Args:
        ratios: round to plain ratio at the load.
        cells: the arm's valid cells there.
        others: the arm's valid cells at its other closed loads, by load id.
    """
    if not cells or not ratios:
        return Adjusted(None, "no valid pair")
    concurrency = cells[0].record.concurrency
    if cells[0].record.load_kind != "closed" or concurrency > MAX_CONCURRENCY:
        return Adjusted(
            None, f"not for more than {MAX_CONCURRENCY} in flight: a cell's own acceptance is enough"
        )
    own = {c.record.round: tau for c in cells if (tau := _tau(c)) is not None}
    rounds = sorted(set(own) & set(ratios))
    if not rounds:
        return Adjusted(None, "the engine does not count its steps")
    every = [*cells, *(c for x in others.values() for c in x)]
    pooled = figures(pool(c.window_counters for c in every if c.window_counters is not None)).tokens_per_step
    if pooled is None:
        return Adjusted(None, "the engine does not count its steps")
    z = _heterogeneity(cells, others)
    if z is not None and abs(z) > MAX_Z:
        return Adjusted(
            None,
            f"tokens per step differ between loads by {abs(z):.1f} standard errors: no common acceptance to use",
        )
    loads = 1 + len([x for x in others.values() if x])
    ratio = PairedRatio(tuple(ratios[r] * pooled / own[r] for r in rounds))
    tested = "" if z is None else f", which agree (z = {z:.1f})"
    return Adjusted(
        ratio, f"at {pooled:.2f} tokens per step, pooled over {loads} load{'' if loads == 1 else 's'}{tested}"
    )


def _tau(cell: Cell) -> float | None:
    counters = cell.window_counters
    return None if counters is None else figures(counters).tokens_per_step


def _heterogeneity(cells: Sequence[Cell], others: Mapping[str, Sequence[Cell]]) -> float | None:
    """This load's log tau minus that of the others, in standard errors over prompts; null without others.

    One cell of each load counts: the rounds repeat its prompts.
    """
    here = next((c.steps for c in cells if c.steps is not None), None)
    rest = [s for x in others.values() if (s := next((c.steps for c in x if c.steps is not None), None))]
    if here is None or not rest:
        return None
    there = Steps(tuple(t for s in rest for t in s.tokens), tuple(c for s in rest for c in s.chunks))
    error = math.sqrt(here.variance + there.variance)
    return (here.log_tau - there.log_tau) / error if error > 0 else None
