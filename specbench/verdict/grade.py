"""How much evidence a verdict rests on: the worst of its parts. Grades: docs/method.md, "Evidence"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from specbench.verdict.unchanged import parity_grade

if TYPE_CHECKING:
    from specbench.analysis.run import RunAnalysis

Grade = Literal["A", "B", "C", "D"]


def grade(run: RunAnalysis, arm: str | None = None) -> tuple[Grade, tuple[str, ...]]:
    """The grade and what holds it down.

    Args:
        arm: the one that a GO names; rounds that another arm lost do not weaken it.

    A: at least 3 interleaved rounds, real text with natural ends, parity passed. B: fewer than 3 rounds.
    C: one round, servers not started anew, or parity not shown. D: forced lengths, filler text, or arms that
    do not match: no verdict.
    """
    found: list[tuple[Grade, str]] = []
    if run.manifest.output_mode == "forced":
        found.append(("D", "output lengths were forced"))
    if any(s.startswith("filler") for s in run.manifest.text_sources):
        found.append(("D", "the prompts are filler text"))
    if any(d.kind == "unexplained" for d in run.differences):
        found.append(("D", "an arm differs from the baseline in more than speculation"))
    judged = arm or run.confirmed
    pairs = {
        f"{x.arm.id} at {x.load.id}": len(x.speedup.per_round)
        for x in run.at.values()
        if x.arm.method is not None and x.speedup.per_round and judged in {None, x.arm.id}
    }
    fewest = min(pairs, key=lambda where: pairs[where], default=None)
    if fewest is None:
        found.append(("D", "no arm has a valid pair with the baseline"))
    elif pairs[fewest] < 2:
        found.append(("C", f"{fewest} has a single valid round"))
    elif pairs[fewest] < 3:
        found.append(("B", f"{fewest} has only {pairs[fewest]} valid rounds"))
    if any(load.repeats for load in run.manifest.loads):
        found.append(("C", "the workload has fewer prompts than a cell needs: prompts repeat"))
    if any(x.stop is not None and x.stop.get("how") == "left_running" for x in run.launches):
        found.append(("C", "the servers ran already: every round measured the same launch"))
    found += parity_grade(run)
    worst: Grade = max((g for g, _ in found), default="A")
    return worst, tuple(text for g, text in sorted(found, reverse=True))
