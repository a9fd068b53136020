"""Does K by load do harm where it switches? Judged in a run that confirms a suggestion, at the loads around each
switch: a schedule may collapse there (prefills that count as running requests, other CUDA graphs) though both
its Ks are good.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from specbench.verdict.words import interval_text, ratio_text

if TYPE_CHECKING:
    from specbench.analysis.run import RunAnalysis

NO_HARM: Final = 0.97
"""Required ratio beside a switch: where K is 0 nothing can be gained, so it must only not be slower."""


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The outcome over all edges; a pass for a run that confirms nothing."""

    state: Literal["pass", "fail", "open"]
    reasons: tuple[str, ...] = ()


def confirmed(run: RunAnalysis) -> Confirmed:
    """Whether the arm does no harm on either side of each switch."""
    record = run.manifest.confirms
    if record is None:
        return Confirmed("pass")
    failed, left = [], []
    loads = {x.concurrency: x for x in run.manifest.loads if x.kind == "closed"}
    for c in record.edges:
        ratio = run.at[record.arm, loads[c].id].speedup
        k = next(k for first, last, k in reversed(record.ranges) if first <= c)
        bounds = ratio.interval(run.manifest.confidence)
        where = f"beside a switch of K, at {c} in flight (K = {k})"
        if bounds is None:
            left.append(f"{where}: {ratio_text(ratio.value)} without an interval")
            continue
        text = f"{where}: {ratio_text(ratio.value)} {interval_text(bounds)}"
        if bounds[1] < NO_HARM:
            failed.append(f"{text}, below the {ratio_text(NO_HARM)} that does no harm")
        elif bounds[0] < NO_HARM:
            left.append(f"{text} does not settle whether it keeps {ratio_text(NO_HARM)}")
    if failed:
        return Confirmed("fail", tuple(failed))
    return Confirmed("open" if left else "pass", tuple(left))
