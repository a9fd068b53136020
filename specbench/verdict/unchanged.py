"""Speed counts for an arm only when its output is the baseline's: what the parity check does to decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from specbench.analysis.run import RunAnalysis
    from specbench.runs.parity import ArmParity

NOT_RUN: Final = "parity was not run: that outputs are unchanged is not shown"


def parity_of(run: RunAnalysis, arm: str) -> ArmParity | None:
    """The parity result of an arm; null when parity was not run."""
    return None if run.parity is None else next((a for a in run.parity.arms if a.arm == arm), None)


def changed(run: RunAnalysis, arm: str) -> str | None:
    """Why an arm is NO-GO whatever its speed; null when its output was not found to be another."""
    found = parity_of(run, arm)
    if found is None or found.decision != "FAIL":
        return None
    return f"the output is not the baseline's: {found.headline}"


def unshown(run: RunAnalysis, arm: str) -> str | None:
    """Why an arm cannot be GO yet though it is fast enough; null without a check, or when it passed."""
    found = parity_of(run, arm)
    if found is None or found.decision != "INCONCLUSIVE":
        return None
    return f"that the output is the baseline's is not shown: {found.headline}"


def parity_grade(run: RunAnalysis) -> list[tuple[Literal["B", "C"], str]]:
    """What parity leaves of the evidence, over the arms that are judged."""
    if run.parity is None:
        return [("C", NOT_RUN)]
    found: list[tuple[Literal["B", "C"], str]] = []
    for arm in run.parity.arms:
        if run.confirmed not in {None, arm.arm}:
            continue
        if arm.decision == "INCONCLUSIVE":
            found.append(("C", f"parity of {arm.arm} is not shown: {arm.headline}"))
        elif arm.decision == "PASS" and arm.tier == "smoke":
            found.append(("B", f"parity of {arm.arm} passed on a small sample (tier smoke)"))
    return found
