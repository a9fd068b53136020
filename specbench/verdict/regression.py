"""Did a new run lose something that a recorded one had? The rule of the verdict, as non-inferiority.

Speeds of two runs differ by what the machine was like at either time, and no spread of launches inside a run
shows that: two runs of one build came out 6 % apart because other work ran beside one of them. Speed-ups do not
have it, since each is taken against the baseline of its own run. So what speculation gains is judged sharply, by the
ratio of speed-ups (0.97 unless told otherwise), and speeds themselves coarsely (0.90).

Per arm over the traffic, and per load: GO when the lower bound clears the required ratio, NO-GO when the upper
bound is below it, INCONCLUSIVE otherwise. Tail latencies over the baseline's that have a margin, limits, KV memory
and parity guard it as they guard a GO. Every arm must pass: an intersection of tests needs no correction. That any
of G arms lost would be found G times as often by chance: the bound for NO-GO is taken at the error / G.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from specbench.analysis.between import Between, UnpairedRatio, between
from specbench.analysis.comparable import incomparable, shared_loads
from specbench.analysis.tails import METRICS
from specbench.verdict.exit_codes import ExitCode
from specbench.verdict.rule import Decided, Decision, exceeded_by_kind, why_invalid
from specbench.verdict.unchanged import changed
from specbench.verdict.words import interval_text, ratio_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specbench.analysis.run import RunAnalysis

NO_WORSE: Final = 0.97
"""New over recorded speed-up that counts as no regression."""

NO_SLOWER: Final = 0.90
"""New over recorded speed that is not explained by what a machine is like at different times."""


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
    before: RunAnalysis,
    after: RunAnalysis,
    *,
    required: float = NO_WORSE,
    slowest: float = NO_SLOWER,
    only: Sequence[str] = (),
) -> Regression:
    """Apply the rule.

    Args:
        required: ratio of speed-ups, new over recorded, that must be kept.
        slowest: ratio of speeds that must be kept.
        only: ids of the arms that are judged; all that both runs have if empty.
    """
    why = incomparable(before.manifest, after.manifest)
    head = "The runs cannot be compared."
    if why:
        return Regression("INVALID", ExitCode.INVALID, head, why, {}, {}, {}, ())
    loads = shared_loads(before.manifest, after.manifest)
    known = {x.id for x in before.manifest.arms}
    arms = [x.id for x in after.manifest.arms if x.id in known and (not only or x.id in only)]
    speculative = {x.id for x in after.manifest.arms if x.method is not None}
    if not only and not speculative.intersection(arms):
        why = (
            "no speculative arm is in both runs, so nothing says whether speculation lost",
            *_arms_of(before, after),
        )
        return Regression("INVALID", ExitCode.INVALID, head, why, {}, {}, {}, ())
    rule = _Rule(before, after, required, slowest, len(arms))
    found = {arm: between(before, after, arm, loads) for arm in arms}
    at = {(arm, load): rule.at(x, load) for arm, x in found.items() for load in loads}
    decided = {arm: rule.arm(x, loads) for arm, x in found.items()}
    decision, code, headline = _overall(decided, found, after, required, slowest)
    headline += _unfinished(before, after) + _elsewhere(at, decided)
    reasons = tuple(f"{arm}: {'; '.join(d.reasons)}" for arm, d in decided.items())
    return Regression(decision, code, headline, reasons, decided, at, found, loads)


@dataclass(frozen=True, slots=True)
class _Rule:
    before: RunAnalysis
    after: RunAnalysis
    required: float
    slowest: float
    arms: int

    def arm(self, x: Between, loads: Sequence[str]) -> Decided:
        """Over the traffic."""
        weighted = [load for load, share in self.after.manifest.traffic.items() if share > 0]
        unknown = [load for load in weighted if load not in loads]
        if unknown:
            why = (
                f"{', '.join(unknown)} is part of the traffic (verdict.traffic) and not in both runs with the same "
                "requests: repeat the recorded run with this config"
            )
            return Decided("INVALID", (why,))
        if not weighted:
            return Decided("INVALID", ("no load has a share of the traffic: set verdict.traffic",))
        # A rate or a trace is where limits of latency are checked, whether it has a share or not.
        kinds = {y.id: y.kind for y in self.after.manifest.loads}
        guarded = [load for load in loads if load in weighted or kinds[load] != "closed"]
        return self._judged(x, x.over_mix, x.speedup_over_mix, guarded, " over the traffic")

    def at(self, x: Between, load: str) -> Decided:
        """At one load."""
        return self._judged(x, x.speed[load], x.speedup.get(load), (load,), "")

    def _judged(
        self,
        x: Between,
        speed: UnpairedRatio,
        speedup: UnpairedRatio | None,
        loads: Sequence[str],
        where: str,
    ) -> Decided:
        for ratio in (speed, speedup):
            if ratio is not None and ratio.value is None:
                why = ratio.why_null or "not measured"
                return Decided("INVALID", (why, *self._why_invalid(x.arm, loads)))
        if (changes := changed(self.after, x.arm)) is not None:
            return Decided("NO-GO", (changes,), parity=True)
        parts = [self._ratio(speed, self.slowest, f"of the recorded speed{where}")]
        if speedup is not None:
            parts.insert(0, self._ratio(speedup, self.required, f"of the recorded speed-up{where}"))
        reasons = tuple(reason for part in parts for reason in part.reasons)
        failed, left = self._guards(x, loads)
        if failed:
            return Decided("NO-GO", (*failed, *reasons), guardrail=True)
        if any(part.decision == "NO-GO" for part in parts):
            return Decided("NO-GO", reasons)
        if left or any(part.decision == "INCONCLUSIVE" for part in parts):
            return Decided("INCONCLUSIVE", (*reasons, *left))
        return Decided("GO", reasons)

    def _ratio(self, ratio: UnpairedRatio, required: float, of: str) -> Decided:
        confidence, theta = self.after.manifest.confidence, ratio_text(required)
        bounds = ratio.interval(confidence)
        strict = ratio.interval(1 - (1 - confidence) / self.arms)
        if bounds is None or strict is None:
            text = f"{ratio_text(ratio.value)} {of}, from {_rounds(ratio)}"
            return Decided(
                "INCONCLUSIVE", (f"{text}: without two of each there is no interval, so no claim",)
            )
        text = f"{ratio_text(ratio.value)} {interval_text(bounds)} {of} ({_rounds(ratio)})"
        if bounds[0] > required:
            return Decided("GO", (f"{text}: at least {theta}",))
        if strict[1] < required:
            return Decided("NO-GO", (f"{text}: below the required {theta}",))
        needed = ratio.launches_needed(required, confidence)
        ask = (
            f"about {needed} rounds in each run would"
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
            # Both by the limits of the new run: a limit that is new is no loss.
            was = exceeded_by_kind(self.after.manifest, self.before.at[x.arm, load])
            now = exceeded_by_kind(self.after.manifest, self.after.at[x.arm, load])
            failed += [
                f"at {load}: {text}; not in the recorded run" for kind, text in now.items() if kind not in was
            ]
            for metric in METRICS:
                margin = self.after.manifest.rule.margins.get(metric.id)
                ratio = x.tail_ratios.get((metric.id, load))
                if margin is None or ratio is None or ratio.value is None:
                    continue
                bounds = ratio.interval(confidence)
                limit = ratio_text(1 + margin)
                text = f"{metric.title} at {load}, over the baseline's, is {ratio_text(ratio.value)} the recorded one"
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
    arms: dict[str, Decided], found: dict[str, Between], after: RunAnalysis, required: float, slowest: float
) -> tuple[Decision, ExitCode, str]:
    lost = [a for a, d in arms.items() if d.decision == "NO-GO"]
    if lost:
        if any(arms[a].parity for a in lost):
            return "NO-GO", ExitCode.NO_GO_PARITY, f"The new run changes the output: {' and '.join(lost)}."
        guard = all(arms[a].guardrail for a in lost)
        code = ExitCode.NO_GO_GUARDRAIL if guard else ExitCode.NO_GO_SPEED
        return "NO-GO", code, f"Regression: {' and '.join(lost)}.{_control(found, after)}"
    invalid = [a for a, d in arms.items() if d.decision == "INVALID"]
    if invalid:
        return "INVALID", ExitCode.INVALID, f"Not comparable: {' and '.join(invalid)}."
    left = [a for a, d in arms.items() if d.decision == "INCONCLUSIVE"]
    if left:
        head = f"Not settled for {' and '.join(left)}.{_control(found, after)}"
        return "INCONCLUSIVE", ExitCode.INCONCLUSIVE, head
    kept = (
        f"at least {ratio_text(required)} of the recorded speed-ups and {ratio_text(slowest)} of the speeds"
    )
    head = f"No regression over the traffic: {kept}.{_control(found, after)}"
    return "GO", ExitCode.OK, head


def _rounds(ratio: UnpairedRatio) -> str:
    return f"{len(ratio.before)} recorded and {len(ratio.after)} new rounds"


def _arms_of(before: RunAnalysis, after: RunAnalysis) -> tuple[str, ...]:
    return tuple(
        f"the {name} run has {', '.join(x.id for x in run.manifest.arms)}"
        for name, run in (("recorded", before), ("new", after))
    )


def _unfinished(before: RunAnalysis, after: RunAnalysis) -> str:
    names = [name for name, run in (("recorded", before), ("new", after)) if not run.complete]
    if not names:
        return ""
    return f" Not complete: the {' and the '.join(names)} run; `specbench sweep CONFIG --resume` finishes it."


def _elsewhere(at: dict[tuple[str, str], Decided], arms: dict[str, Decided]) -> str:
    """Losses at single loads of arms that did not lose over the traffic."""
    lost = [
        f"{arm} at {load}"
        for (arm, load), d in at.items()
        if d.decision == "NO-GO" and arms[arm].decision != "NO-GO"
    ]
    return f" By load alone {', '.join(lost)} did lose." if lost else ""


def _control(found: dict[str, Between], after: RunAnalysis) -> str:
    """How the baseline itself moved, when it clearly did: machine or engine, not speculation."""
    baseline = next((x for x in after.manifest.arms if x.method is None and x.id in found), None)
    if baseline is None:
        return ""
    ratio = found[baseline.id].over_mix
    bounds = ratio.interval(after.manifest.confidence)
    if bounds is None or bounds[0] <= 1 <= bounds[1]:
        return ""
    return (
        f" The baseline itself ran at {ratio_text(ratio.value)} {interval_text(bounds)} of its recorded speed: the "
        "machine or the engine, not speculation."
    )
