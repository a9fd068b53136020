"""Arms that differ in K alone, and how few of them have to run to find the best K.

Throughput over K rises and falls once (marginal gains shrink with K while the cost of a step grows), and it
does so smoothly. A curve through a few values of K (`verdict.k_curve`) therefore finds the best one better than
the highest of many noisy ones: on 2,000 random machines with eight values of K and launches that differ by 2 %,
four launches and a curve end 0.2 % below the best K on average, two rounds of all eight (sixteen launches)
0.3 % (`benchmarks/decision/ladders.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from specbench.config.grid import Arm

RUNGS: Final = 4
"""Values of K that are explored. Ladders with fewer values are no ladders: all their arms run."""

Ladder = Mapping[str, int]
"""Arm to its K."""


def ladders(arms: Sequence[Arm]) -> tuple[dict[str, int], ...]:
    """Groups of at least four arms that differ in K alone, each in the order of K."""
    groups: list[tuple[Arm, dict[str, int]]] = []
    for arm in arms:
        if arm.k is None:
            continue
        same = replace(arm, id="", k=None)
        members = next((found for key, found in groups if key == same), None)
        if members is None:
            members = {}
            groups.append((same, members))
        members[arm.id] = arm.k
    sorted_groups = (dict(sorted(g.items(), key=lambda x: x[1])) for _, g in groups)
    return tuple(g for g in sorted_groups if len(g) >= RUNGS)


def rungs(ladder: Ladder, without: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """The four arms of a ladder to explore, evenly spread from the lowest K to the highest.

    Args:
        without: arms that cannot be used.
    """
    arms = [a for a in sorted(ladder, key=lambda a: ladder[a]) if a not in without]
    if len(arms) <= RUNGS:
        return tuple(arms)
    last = len(arms) - 1
    return tuple(arms[round(i * last / (RUNGS - 1))] for i in range(RUNGS))


def explored(
    arms: Sequence[str], among: Sequence[Ladder], without: frozenset[str] = frozenset()
) -> list[str]:
    """The arms that exploring rounds run: the rungs of every ladder, and every arm that is on none."""
    climbed = {a for ladder in among for a in ladder}
    chosen = {a for ladder in among for a in rungs(ladder, without)}
    return [a for a in arms if a not in without and (a not in climbed or a in chosen)]
