"""Is a new run as fast as a recorded one? The rule of the verdict, with non-inferiority for its threshold.

Per arm over the traffic, and per load: GO when the lower bound of new over recorded speed clears the required
ratio (0.97 unless told otherwise), NO-GO when the upper bound is below it, INCONCLUSIVE otherwise. Tail latencies
that have a margin, limits, KV memory and parity guard it as they guard a GO. Every arm must pass: an
intersection of tests needs no correction. That any of G arms lost would be found G times as often by chance:
the bound for NO-GO is taken at the error / G.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from specbench.analysis.between import Between, UnpairedRatio, between
from specbench.analysis.comparable import incomparable, shared_loads
from specbench.analysis.tails import METRICS
from specbench.verdict.exit_codes import ExitCode
from specbench.verdict.rule import Decided, Decision, exceeded, why_invalid
from specbench.verdict.unchanged import changed
from specbench.verdict.words import interval_text, ratio_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specbench.analysis.run import RunAnalysis

NO_WORSE: Final = 0.97
"""New over recorded speed that counts as no regression: launches of equal builds differ by up to 3 %."""


@dataclass(frozen=True, slots=True)
class Regression:
    """The judgement of a new run against a recorded one; ``at`` maps (arm, load)."""

    decision: Decision
    exit_code: ExitCode
    headline: str
    reasons: tuple[str, ...]
    arms: dict[str, Decided]
    at: dict[tuple[str, str], Decided]
    between: dict[str, Between]
    loads: tuple[str, ...]


def judge_regression(
    before: RunAnalysis, after: RunAnalysis, *, required: float = NO_WORSE, only: Sequence[str] = ()
) -> Regression:
    """Apply the rule.

    Args:
        required: ratio of speeds, new over recorded, that must be kept.
        only: ids of the arms that are judged; all that both runs have if empty.
    """
    why = incomparable(before.manifest, after.manifest)
    if why:
        head = "The runs cannot be compared."
        return Regression("INVALID", ExitCode.INVALID, head, why, {}, {}, {}, ())
    loads = shared_loads(before.manifest, after.manifest)
    known = {x.id for x in before.manifest.arms}
    arms = [x.id for x in after.manifest.arms if x.id in known and (not only or x.id in only)]
    rule = _Rule(before, after, required, len(arms))
    found = {arm: between(before, after, arm, loads) for arm in arms}
    at = {(arm, load): rule.at(x, load) for arm, x in found.items() for load in loads}
    decided = {arm: rule.arm(x, loads) for arm, x in found.items()}
    decision, code, headline = _overall(decided, found, after, required)
    reasons = tuple(f"{arm}: {'; '.join(d.reasons)}" for arm, d in decided.items())
    return Regression(decision, code, headline, reasons, decided, at, found, loads)


@dataclass(frozen=True, slots=True)
class _Rule:
    before: RunAnalysis
    after: RunAnalysis
    required: float
    arms: int

    def arm(self, x: Between, loads: Sequence[str]) -> Decided:
        """Over the traffic."""
        weighted = [load for load, share in self.after.manifest.traffic.items() if share > 0]
        unknown = [load for load in weighted if load not in loads]
        if unknown:
            return Decided("INVALID", (f"the runs do not share {', '.join(unknown)}, part of the traffic",))
        return self._judged(x, x.over_mix, weighted, " over the traffic")

    def at(self, x: Between, load: str) -> Decided:
        """At one load."""
        return self._judged(x, x.speed[load], (load,), "")

    def _judged(self, x: Between, ratio: UnpairedRatio, loads: Sequence[str], where: str) -> Decided:
        if ratio.value is None:
            return Decided("INVALID", (ratio.why_null or "not measured", *self._why_invalid(x.arm, loads)))
        if (why := changed(self.after, x.arm)) is not None:
            return Decided("NO-GO", (why,), parity=True)
        failed, left = self._guards(x, loads)
        speed = self._speed(ratio, where)
        if failed:
            return Decided("NO-GO", (*failed, *speed.reasons), guardrail=True)
        if speed.decision == "GO" and left:
            return Decided("INCONCLUSIVE", (*speed.reasons, *left))
        return speed

    def _speed(self, ratio: UnpairedRatio, where: str) -> Decided:
        confidence, theta = self.after.manifest.confidence, ratio_text(self.required)
        bounds = ratio.interval(confidence)
        strict = ratio.interval(1 - (1 - confidence) / self.arms)
        if bounds is None or strict is None:
            counts = f"{len(ratio.before)} recorded and {len(ratio.after)} new"
            text = f"{ratio_text(ratio.value)} of the recorded speed{where}, from {counts} launches"
            return Decided(
                "INCONCLUSIVE", (f"{text}: without two of each there is no interval, so no claim",)
            )
        text = f"{ratio_text(ratio.value)} {interval_text(bounds)} of the recorded speed{where}"
        if bounds[0] > self.required:
            return Decided("GO", (f"{text}: at least {theta}",))
        if strict[1] < self.required:
            return Decided("NO-GO", (f"{text}: below the required {theta}",))
        needed = ratio.launches_needed(self.required, confidence)
        ask = (
            f"about {needed} launches in each run would"
            if needed is not None and needed > min(len(ratio.before), len(ratio.after))
            else "it is too close to call"
        )
        return Decided("INCONCLUSIVE", (f"{text} does not settle {theta}; {ask}",))

    def _guards(self, x: Between, loads: Sequence[str]) -> tuple[list[str], list[str]]:
        """What failed, and what could not be settled."""
        failed: list[str] = []
        left: list[str] = []
        confidence = self.after.manifest.confidence
        for load in loads:
            was = exceeded(self.before, self.before.at[x.arm, load])
            now = exceeded(self.after, self.after.at[x.arm, load])
            failed += [f"at {load}: {reason}" for reason in now if not was]
            for metric in METRICS:
                margin = self.after.manifest.rule.margins.get(metric.id)
                ratio = x.tails[metric.id, load]
                bounds = ratio.interval(confidence)
                if margin is None or ratio.value is None:
                    continue
                limit = ratio_text(1 + margin)
                text = f"{metric.title} at {load} is {ratio_text(ratio.value)} the recorded one"
                text += f" {interval_text(bounds)}" if bounds else ""
                strict = ratio.interval(1 - (1 - confidence) / self.arms)
                if strict is not None and strict[0] > 1 + margin:
                    failed.append(f"{text}: more than the allowed {limit}")
                elif bounds is None or bounds[1] >= 1 + margin:
                    left.append(f"{text}: whether it keeps the allowed {limit} is open")
        return failed, left

    def _why_invalid(self, arm: str, loads: Sequence[str]) -> list[str]:
        return [
            f"{name} run at {load}: {reason}"
            for name, run in (("recorded", self.before), ("new", self.after))
            for load in loads
            for reason in why_invalid(run.at[arm, load])
        ]


def _overall(
    arms: dict[str, Decided], found: dict[str, Between], after: RunAnalysis, required: float
) -> tuple[Decision, ExitCode, str]:
    theta = ratio_text(required)
    lost = [a for a, d in arms.items() if d.decision == "NO-GO"]
    if lost:
        if any(arms[a].parity for a in lost):
            return "NO-GO", ExitCode.NO_GO_PARITY, f"The new run changes the output: {' and '.join(lost)}."
        guard = all(arms[a].guardrail for a in lost)
        code = ExitCode.NO_GO_GUARDRAIL if guard else ExitCode.NO_GO_SPEED
        return "NO-GO", code, f"Regression: {' and '.join(lost)}.{_which(lost, arms, found, after)}"
    invalid = [a for a, d in arms.items() if d.decision == "INVALID"]
    if invalid:
        return "INVALID", ExitCode.INVALID, f"Not comparable: {' and '.join(invalid)}."
    left = [a for a, d in arms.items() if d.decision == "INCONCLUSIVE"]
    if left:
        head = f"Not settled whether {' and '.join(left)} keep{'s' if len(left) == 1 else ''} {theta} of the speed."
        return "INCONCLUSIVE", ExitCode.INCONCLUSIVE, head
    return "GO", ExitCode.OK, f"No regression: every arm keeps at least {theta} of its recorded speed."


def _which(lost: list[str], arms: dict[str, Decided], found: dict[str, Between], after: RunAnalysis) -> str:
    """Whether speculation lost or everything did: the baseline is the control."""
    methods = {x.id: x.method for x in after.manifest.arms}
    baselines = [a for a in arms if methods[a] is None]
    speculative = [a for a in lost if methods[a] is not None]
    if not baselines:
        return ""
    if not set(baselines) & set(lost):
        return " The baseline is not slower, so speculation is what lost." if speculative else ""
    value = found[baselines[0]].over_mix.value
    return f" The baseline changed to {ratio_text(value)} itself: the cause is not speculation alone."
