"""The rule: from an analysed run to GO, NO-GO, INCONCLUSIVE or INVALID, with reasons in words.

Per arm and load: GO when the lower bound of the speed-up clears ``min_speedup``, NO-GO when the upper bound
stays below it or a guardrail fails, INCONCLUSIVE otherwise. Picking the best of G arms on the data that
measured them would give false GOs, so the bound for GO is taken at ``1 - (1 - confidence) / G``
(Bonferroni). NO-GO needs no correction: all arms must lose.

An adaptive sweep confirms one arm on data that did not pick it, so that arm alone is tested, by the campaign's
own group-sequential test and without a correction (`verdict.adaptive`). Guardrails are the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from specbench.analysis.compare import rounds_needed
from specbench.verdict.adaptive import (
    Speed,
    campaign_of,
    explored,
    registered_text,
    seen,
    speed_at,
    speed_of_mix,
)
from specbench.verdict.confirmed import confirmed
from specbench.verdict.exit_codes import ExitCode
from specbench.verdict.grade import Grade, grade
from specbench.verdict.open_check import checked
from specbench.verdict.tail_guards import tail_guards, tail_text
from specbench.verdict.unchanged import changed, unshown
from specbench.verdict.words import interval_text, ratio_text, time_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specbench.analysis.compare import PairedRatio
    from specbench.analysis.run import ArmLoad, RunAnalysis
    from specbench.runs.records import LoadRecord, Manifest
    from specbench.verdict.campaign import State
    from specbench.verdict.guards import GuardState
    from specbench.verdict.tail_guards import Guards

Decision = Literal["GO", "NO-GO", "INCONCLUSIVE", "INVALID"]

MAX_KV_USAGE: Final = 0.90
"""A fuller KV memory means that the cell measures memory pressure, not speculation."""


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision with its reasons; ``guardrail`` and ``parity`` tell what said no when it was not speed."""

    decision: Decision
    reasons: tuple[str, ...]
    guardrail: bool = False
    parity: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """What to deploy: an arm, the concurrencies at which it is GO, and the ids of all loads where it is."""

    arm: str
    concurrencies: tuple[int, ...]
    loads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The whole judgement."""

    decision: Decision
    exit_code: ExitCode
    headline: str
    reasons: tuple[str, ...]
    grade: Grade
    grade_reasons: tuple[str, ...]
    arms: dict[str, Decided]
    at: dict[tuple[str, str], Decided]
    choice: Choice | None
    guards: Mapping[tuple[str, str, str], GuardState] = field(default_factory=dict)
    """(metric, arm, load) to the state of a tail latency that has a margin."""


def judge(run: RunAnalysis, *, open_check: bool = True) -> Verdict:
    """Apply the rule.

    Args:
        open_check: whether a GO needs the open-loop check, where the run has one. Without it the choice is the
            arm that the check is made of.
    """
    arms = [a for a in run.manifest.arms if a.method is not None]
    blocked = _blocked(run)
    state = campaign_of(run.manifest).state(seen(run)) if _adaptive(run) else None
    guards = tail_guards(run)
    at: dict[tuple[str, str], Decided] = {}
    for arm in arms:
        for load in run.manifest.loads:
            at[arm.id, load.id] = _at_load(
                run, run.at[arm.id, load.id], blocked.get(arm.id), len(arms), state
            )
    decided = {a.id: _arm(run, a.id, at, blocked.get(a.id), len(arms), state) for a in arms}
    decided = {arm: _if_guarded(run, arm, None, d, guards) for arm, d in decided.items()}
    at = {(arm, load): _if_guarded(run, arm, load, d, guards) for (arm, load), d in at.items()}
    at = {(arm, load): _if_unchanged(run, arm, d) for (arm, load), d in at.items()}
    decided = {arm: _if_unchanged(run, arm, d) for arm, d in decided.items()}
    at = {(arm, load): _if_confirmed(run, d) for (arm, load), d in at.items()}
    decided = {arm: _if_confirmed(run, d) for arm, d in decided.items()}
    if open_check:
        at = {(arm, load): _if_checked(run, arm, d) for (arm, load), d in at.items()}
        decided = {arm: _if_checked(run, arm, d) for arm, d in decided.items()}
    choice = _choice(run, decided, at)
    letter, why = grade(
        run, choice.arm if choice is not None and decided[choice.arm].decision == "GO" else None
    )
    if state is None:
        decision, code, headline, reasons = _overall(run, decided, choice)
    else:
        decision, code, headline, reasons = _overall_adaptive(run, decided, choice, state)
    if state is not None and state.winner is not None:
        guards = {(metric, state.winner, load): x for (metric, load), x in state.guards.items()}
    return Verdict(decision, code, headline, reasons, letter, why, decided, at, choice, guards)


def _if_guarded(run: RunAnalysis, arm: str, load: str | None, speed: Decided, guards: Guards) -> Decided:
    """A tail latency that is clearly worse is NO-GO, and one that may be is no GO; ``load`` null for the mix."""
    if speed.decision == "INVALID":
        return speed
    rule, alpha = run.manifest.rule, (1 - run.manifest.confidence) / 2
    found: dict[str, list[str]] = {"fail": [], "open": []}
    for (metric, own, at), guard in guards.items():
        counts = run.manifest.traffic.get(at, 0) > 0 if load is None else at == load
        if own == arm and counts and guard != "pass":
            where = f" at {at}" if load is None else ""
            text = tail_text(run.tails[metric, arm, at], rule.margins[metric], guard, where, alpha)
            found[guard].append(text)
    if found["fail"]:
        return Decided("NO-GO", (*found["fail"], *speed.reasons), guardrail=True)
    if speed.decision == "GO" and found["open"]:
        return Decided("INCONCLUSIVE", (*speed.reasons, *found["open"]))
    return speed


def _if_unchanged(run: RunAnalysis, arm: str, speed: Decided) -> Decided:
    """Parity comes before speed: another output is NO-GO, and one that was not shown to be the same no GO."""
    if (why := changed(run, arm)) is not None:
        return Decided("NO-GO", (why, *speed.reasons), parity=True)
    if speed.decision == "GO" and (why := unshown(run, arm)) is not None:
        return Decided("INCONCLUSIVE", (*speed.reasons, why))
    return speed


def _if_confirmed(run: RunAnalysis, speed: Decided) -> Decided:
    """K by load is GO only if it does no harm on either side of its switches."""
    outcome = confirmed(run)
    if speed.decision != "GO" or outcome.state == "pass":
        return speed
    if outcome.state == "fail":
        return Decided("NO-GO", (*outcome.reasons, *speed.reasons), guardrail=True)
    return Decided("INCONCLUSIVE", (*speed.reasons, *outcome.reasons))


def _if_checked(run: RunAnalysis, arm: str, speed: Decided) -> Decided:
    """A GO needs the guardrails at open rates too. One arm is checked; what it fails frees no other arm."""
    outcome = checked(run)
    if speed.decision != "GO" or outcome.state in ("pass", "none"):
        return speed
    assert run.open_check is not None
    if run.open_check.arm not in (None, arm):
        why = f"{run.open_check.arm} was checked in an open loop, not this arm"
        return Decided("INCONCLUSIVE", (*speed.reasons, why))
    reasons = tuple(f"open loop: {reason}" for reason in outcome.reasons)
    if outcome.state == "fail":
        return Decided("NO-GO", (*reasons, *speed.reasons), guardrail=True)
    return Decided("INCONCLUSIVE", (*speed.reasons, *reasons))


def _adaptive(run: RunAnalysis) -> bool:
    return run.manifest.rule.strategy == "adaptive"


def barred(run: RunAnalysis) -> dict[str, str]:
    """Arms that could not get a GO, whatever their speed: an adaptive sweep does not pick them."""
    reasons = _blocked(run)
    for (arm, load), x in run.at.items():
        weighted = run.manifest.traffic.get(load, 0) > 0
        if weighted and x.arm.method is not None and (guards := exceeded(run, x)):
            reasons.setdefault(arm, guards[0])
    return reasons


def _blocked(run: RunAnalysis) -> dict[str, str]:
    """Arms that must not be judged, and why."""
    reasons: dict[str, str] = {}
    for d in run.differences:
        if d.kind == "unexplained":
            text = f"{d.setting}: baseline {d.baseline!r}, this arm {d.value!r} ({d.why})"
            for name in [a.id for a in run.manifest.arms if d.arm in (a.id, a.baseline)]:
                reasons.setdefault(name, f"the arms differ in more than speculation: {text}")
    for arm in run.manifest.arms:
        if arm.wrong_output:
            reasons.setdefault(arm.id, f"not judged: its output is known to be wrong: {arm.wrong_output}")
        if arm.same_server:
            reasons[arm.id] = (
                "not judged: it is the baseline's own server, so this is an A/A test: it shows how far equal arms "
                "come apart here, and nothing about speculation"
            )
    found = run.manifest.calibration
    if found is not None and not found.passed:
        for arm in run.manifest.arms:
            reasons[arm.id] = (
                f"not judged: this machine failed its calibration ({found.reason}); run `specbench calibrate` "
                "again when the cause is mended"
            )
    if run.manifest.output_mode == "forced":
        for arm in run.manifest.arms:
            reasons[arm.id] = (
                "not judged: forced output length runs on past the natural end, which is easy to draft"
            )
    filler = sorted({s for s in run.manifest.text_sources if s.startswith("filler")})
    if filler:
        for arm in run.manifest.arms:
            reasons[arm.id] = f"not judged: filler text ({', '.join(filler)})"
    return reasons


def _at_load(run: RunAnalysis, x: ArmLoad, blocked: str | None, arms: int, state: State | None) -> Decided:
    if blocked is not None:
        return Decided("INVALID", (blocked,))
    if state is not None and not x.cells and x.arm.id != state.winner:
        return Decided("INCONCLUSIVE", (explored(x.arm.id, x.speedup, state.winner),))
    if x.speedup.value is None:
        return Decided("INVALID", (x.speedup.why_null or "not measured", *why_invalid(x)))
    guards = exceeded(run, x)
    if guards:
        return Decided("NO-GO", guards, guardrail=True)
    if state is not None:
        if x.arm.id != state.winner:
            return Decided("INCONCLUSIVE", (explored(x.arm.id, x.speedup, state.winner),))
        return _decided(speed_at(run, state, x.load.id))
    return _speed(run, x.speedup, arms, "" if x.load.kind == "closed" else " in mean latency")


def _decided(speed: Speed) -> Decided:
    decision, reason, guardrail = speed
    return Decided(decision, (reason,), guardrail)


def _speed(run: RunAnalysis, ratio: PairedRatio, arms: int, of: str = "") -> Decided:
    threshold, confidence = run.manifest.min_speedup, run.manifest.confidence
    interval = ratio.interval(confidence)
    strict = ratio.interval(1 - (1 - confidence) / arms)
    if interval is None or strict is None:
        return Decided(
            "INCONCLUSIVE", (f"{ratio_text(ratio.value)} from one round: no interval, so no claim",)
        )
    text = f"{ratio_text(ratio.value)} {interval_text(interval)}{of}"
    if strict[0] > threshold:
        return Decided("GO", (f"{text}: faster than the required {ratio_text(threshold)}",))
    if interval[1] < threshold:
        return Decided("NO-GO", (f"{text}: below the required {ratio_text(threshold)}",))
    more = rounds_needed(ratio, threshold, confidence, arms)
    if interval[0] > threshold:
        why = (
            f"{text} clears {ratio_text(threshold)} alone, but {arms} arms were tried: "
            f"the bound corrected for that is {ratio_text(strict[0])}"
        )
    else:
        why = f"{text} does not settle {ratio_text(threshold)}"
    pace = run.seconds_per_round
    time = time_text(None if more is None or pace is None else more * pace)
    ask = (
        f"about {more} rounds in all would{time}"
        if more is not None and more <= 100
        else "it is too close to call"
    )
    return Decided("INCONCLUSIVE", (f"{why}; {ask}",))


def exceeded(run: RunAnalysis, x: ArmLoad) -> tuple[str, ...]:
    """Limits of the config and of KV memory that an arm does not keep at a load, in words."""
    return tuple(exceeded_by_kind(run.manifest, x).values())


def exceeded_by_kind(manifest: Manifest, x: ArmLoad) -> dict[str, str]:
    """What is not kept (``TTFT``, ``TPOT``, ``KV memory``, ``preemptions``), by the limits of a manifest, in words."""
    found = {}
    for name, limit, values in (
        ("TTFT", manifest.ttft_p95_limit_ms, [c.times.ttft_s for c in x.valid if c.times]),
        ("TPOT", manifest.tpot_p95_limit_ms, [c.times.tpot_s for c in x.valid if c.times]),
    ):
        pooled = np.concatenate(values) if values else np.empty(0)
        if limit is not None and len(pooled):
            p95 = float(np.quantile(pooled, 0.95)) * 1000
            if p95 > limit:
                found[name] = f"{name} p95 is {p95:.0f} ms, the limit is {limit:.0f} ms"
    usage = [c.window_counters.kv_usage for c in x.valid if c.window_counters and c.window_counters.kv_usage]
    if usage and max(usage) > MAX_KV_USAGE:
        found["KV memory"] = f"KV memory is {max(usage):.0%} full: this load does not fit beside the draft"
    preempted = sum((c.window_counters.preemptions or 0) for c in x.valid if c.window_counters)
    if preempted:
        found["preemptions"] = f"{preempted:.0f} requests were preempted for lack of KV memory"
    return found


def why_invalid(x: ArmLoad) -> tuple[str, ...]:
    """Why its cells do not count: each kind of reason once, with the rounds that it hit and one example."""
    kinds: dict[str, tuple[str, list[int]]] = {}
    for cell in x.cells:
        failure = cell.record.failure
        for text in [*([failure.summary] if failure is not None else []), *cell.invalid]:
            kinds.setdefault(_kind(text), (text, []))[1].append(cell.record.round)
    return tuple(
        f"round{'' if len(rounds) == 1 else 's'} {', '.join(map(str, rounds))}: {text}"
        for text, rounds in kinds.values()
    )


def _each_kind(reasons: list[str]) -> tuple[str, ...]:
    """The first of each kind: over several loads the same thing is said once."""
    first: dict[str, str] = {}
    for text in reasons:
        rounds, _, rest = text.partition(": ")
        first.setdefault(_kind(rest if rounds.startswith("round") else text), text)
    return tuple(first.values())


def _kind(text: str) -> str:
    """What a reason is about, whatever its numbers."""
    head, colon, _ = text.partition(": ")
    return head if colon else re.sub(r"\d+(?:\.\d+)?", "#", text)


def _arm(
    run: RunAnalysis, arm: str, at: dict[tuple[str, str], Decided], blocked: str | None, arms: int,
    state: State | None,
) -> Decided:  # fmt: skip
    """Over the traffic mix: speed of the mix, and guardrails at every load with a share."""
    if blocked is not None:
        return Decided("INVALID", (blocked,))
    ratio = run.mix[arm]
    ran = any(x.cells for (name, _), x in run.at.items() if name == arm)
    if state is not None and not ran and arm != state.winner:
        return Decided("INCONCLUSIVE", (explored(arm, ratio, state.winner),))
    if ratio.value is None:
        lost = [
            r
            for load in run.manifest.loads
            for r in at[arm, load.id].reasons
            if at[arm, load.id].decision == "INVALID"
        ]
        return Decided("INVALID", (ratio.why_null or "not measured", *_each_kind(lost)))
    guards = [
        f"at {load.id}: {reason}"
        for load in run.manifest.loads
        # A rate or a trace is where limits of latency are checked, whether it has a share or not.
        if (run.manifest.traffic.get(load.id, 0) > 0 or load.kind != "closed") and at[arm, load.id].guardrail
        for reason in at[arm, load.id].reasons
    ]
    if guards:
        return Decided("NO-GO", tuple(guards), guardrail=True)
    if state is not None:
        if arm != state.winner:
            return Decided("INCONCLUSIVE", (explored(arm, ratio, state.winner),))
        return _decided(speed_of_mix(run, state))
    return _speed(run, ratio, arms)


def _overall_adaptive(
    run: RunAnalysis, arms: dict[str, Decided], choice: Choice | None, state: State
) -> tuple[Decision, ExitCode, str, tuple[str, ...]]:
    """The confirmed arm's decision is the run's: the others lost to it while exploring."""
    if state.winner is None:
        judged = any(d.decision != "INVALID" for d in arms.values())
        if not judged:
            return _overall(run, arms, choice)
        head = "Not settled: only exploring rounds were measured, and they do not count for a verdict."
        reasons = tuple(f"{arm}: {'; '.join(d.reasons)}" for arm, d in arms.items())
        return "INCONCLUSIVE", ExitCode.INCONCLUSIVE, head, reasons
    decision, code, headline, reasons = _overall(run, {state.winner: arms[state.winner]}, choice)
    others = (f"{arm}: {'; '.join(d.reasons)}" for arm, d in arms.items() if arm != state.winner)
    return decision, code, headline, (*reasons, registered_text(run, state), *others)


def _overall(
    run: RunAnalysis, arms: dict[str, Decided], choice: Choice | None
) -> tuple[Decision, ExitCode, str, tuple[str, ...]]:
    threshold = ratio_text(run.manifest.min_speedup)
    reasons = [f"{arm}: {'; '.join(d.reasons)}" for arm, d in arms.items()]
    go = [a for a, d in arms.items() if d.decision == "GO"]
    if go:
        best = max(go, key=lambda a: _surest(run, run.mix[a]))
        text = _mix_text(run, best)
        return "GO", ExitCode.OK, f"Deploy {best}: {text} over the traffic mix.", tuple(reasons)
    judged = {a: d for a, d in arms.items() if d.decision != "INVALID"}
    altered = [a for a, d in judged.items() if d.parity]
    if altered and all(d.decision == "NO-GO" for d in judged.values()) and len(judged) == len(arms):
        head = f"Speculation changes the output: {' and '.join(altered)} must not be deployed."
        return "NO-GO", ExitCode.NO_GO_PARITY, head, tuple(reasons)
    if not judged:
        code = ExitCode.ENGINE if _engines_failed(run) else ExitCode.INVALID
        what = "the engine failed" if code is ExitCode.ENGINE else "no measurement is valid"
        head = f"Nothing can be judged: {what}."
        same = [a.id for a in run.manifest.arms if a.same_server and run.mix[a.id].value is not None]
        if same:
            pairs = " and ".join(f"{_mix_text(run, a)} ({a})" for a in same)
            head = f"An A/A test, no verdict: one server against itself came out at {pairs}."
        return "INVALID", code, head, tuple(reasons)
    best = max(judged, key=lambda a: run.mix[a].value or 0)
    some = _some_loads(run, choice)
    if len(judged) == len(arms) and all(d.decision == "NO-GO" for d in judged.values()):
        guard = any(d.guardrail for d in judged.values())
        code = ExitCode.NO_GO_GUARDRAIL if guard else ExitCode.NO_GO_SPEED
        head = (
            f"Speculation does not pay for this traffic: the best arm, {best}, reaches {_mix_text(run, best)}"
        )
        return "NO-GO", code, f"{head}; {threshold} is required.{some}", tuple(reasons)
    head = (
        f"Not settled: the best arm, {best}, reaches {_mix_text(run, best)} against the required {threshold}."
    )
    return "INCONCLUSIVE", ExitCode.INCONCLUSIVE, head + some, tuple(reasons)


def _some_loads(run: RunAnalysis, choice: Choice | None) -> str:
    if choice is None:
        return ""
    loads = {x.id: x for x in run.manifest.loads}
    closed, others = [], []
    for load_id in choice.loads:
        load, speedup = loads[load_id], ratio_text(run.at[choice.arm, load_id].speedup.value)
        if load.kind == "closed":
            closed.append(f"{load.concurrency} ({speedup})")
        else:
            others.append(f"{load.title or load.id} ({speedup})")
    where = [f"concurrency {' and '.join(closed)}"] if closed else []
    return f" {choice.arm} does pay at {' and '.join(where + others)}."


def _mix_text(run: RunAnalysis, arm: str) -> str:
    ratio = run.mix[arm]
    interval = ratio.interval(run.manifest.confidence)
    return ratio_text(ratio.value) + (f" {interval_text(interval)}" if interval else " (one round)")


def _engines_failed(run: RunAnalysis) -> bool:
    ready = {x.arm for x in run.launches if x.status != "failed"}
    return not any(a.id in ready and a.baseline in ready for a in run.manifest.arms if a.method is not None)


def _surest(run: RunAnalysis, ratio: PairedRatio) -> float:
    """What arms that are all GO are ranked by: the lower bound, since the highest of several values is the luckiest."""
    bounds = ratio.interval(run.manifest.confidence)
    return bounds[0] if bounds is not None else ratio.value or 0.0


def _choice(run: RunAnalysis, arms: dict[str, Decided], at: dict[tuple[str, str], Decided]) -> Choice | None:
    """The arm to deploy: of those with a GO over the mix the one whose gain is surest, or else the one that wins most
    surely at the low end of the loads.

    Its concurrencies are those where it is GO by itself; without a GO over the mix only the unbroken range
    from the lowest load counts, since that is what a deployment can switch on.
    """
    # Rates and traces come into it only where no closed load was run.
    closed = [x for x in run.manifest.loads if x.kind == "closed"]
    loads = sorted(closed or run.manifest.loads, key=lambda x: (x.rate_per_s or 0.0, x.concurrency))
    if run.manifest.rule.load_order:
        loads.sort(key=lambda x: run.manifest.rule.load_order.index(x.id))
    candidates: list[tuple[bool, float, str, tuple[LoadRecord, ...]]] = []
    for arm, d in arms.items():
        whole = d.decision == "GO"
        wins = [x for x in loads if at[arm, x.id].decision == "GO"]
        if not whole:
            wins = [x for x, y in zip(loads, wins, strict=False) if x == y]
        if whole or wins:
            value = _surest(run, run.mix[arm] if whole else run.at[arm, loads[0].id].speedup)
            candidates.append((whole, value, arm, tuple(wins or loads)))
    if not candidates:
        return None
    _, _, chosen, used = max(candidates, key=lambda c: c[:3])
    others = [x.id for x in run.manifest.loads if x not in loads and at[chosen, x.id].decision == "GO"]
    return Choice(
        chosen,
        tuple(x.concurrency for x in used if x.kind == "closed"),
        (*(x.id for x in used), *others),
    )
