"""Guardrails of non-inferiority in a sweep of fixed rounds: is a tail latency worse by no more than its margin?

As in an adaptive sweep (`verdict.guards`), but looked at once, when all rounds are there, so that each side has
the whole error. Over G arms a pass is taken at the error / G, as a GO in speed is: one of several arms that are
all too slow at the tail would pass by luck. A failure needs no correction.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from specbench.verdict.guards import GuardState, interval, logs, non_inferior
from specbench.verdict.words import interval_text

if TYPE_CHECKING:
    from specbench.analysis.run import RunAnalysis
    from specbench.analysis.tails import Tail

Guards = dict[tuple[str, str, str], GuardState]
"""(metric, arm, load) to its state; metrics without a margin or an estimate are absent."""


def tail_guards(run: RunAnalysis) -> Guards:
    """The guardrails of every speculative arm at every load; none for an adaptive sweep, whose campaign has its
    own."""
    if run.manifest.rule.strategy == "adaptive":
        return {}
    alpha = (1 - run.manifest.confidence) / 2
    arms = sum(1 for a in run.manifest.arms if a.method is not None)
    found: Guards = {}
    for (metric, arm, load), tail in run.tails.items():
        margin = run.manifest.rule.margins.get(metric)
        if margin is None or not tail.per_round:
            continue
        ratios = logs(tail.per_round)
        passed = non_inferior(ratios, margin, alpha / arms) == "pass"
        failed = non_inferior(ratios, margin, alpha) == "fail"
        found[metric, arm, load] = "pass" if passed else "fail" if failed else "open"
    return found


def tail_text(tail: Tail, margin: float, state: GuardState, where: str, alpha: float) -> str:
    """What a guardrail found: ``TTFT p95 at c4 is 1.31 times the baseline's [1.22, 1.40]: more than …``.

    Args:
        where: `` at c4``, or empty.
        alpha: outside the interval on each side.
    """
    ratios = logs(tail.per_round)
    bounds = interval(ratios, alpha)
    ratio = math.exp(math.fsum(ratios) / len(ratios))
    text = f"{tail.metric.title}{where} is {ratio:.2f} times the baseline's"
    if bounds:
        text += f" {interval_text(bounds)}"
    limit = f"{1 + margin:.2f}"
    if state == "fail":
        return f"{text}: more than the allowed {limit}"
    return f"{text}: whether it keeps the allowed {limit} is open"
