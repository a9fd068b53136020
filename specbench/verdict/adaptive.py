"""Judging an adaptive sweep: the campaign's own decisions on the confirming pairs, in words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from specbench.analysis.compare import rounds_needed
from specbench.config.ladders import rungs
from specbench.verdict.campaign import Campaign, CampaignRule, Seen, State
from specbench.verdict.guards import ALPHA, logs
from specbench.verdict.tail_guards import tail_text
from specbench.verdict.words import interval_text, ratio_text, time_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from specbench.analysis.compare import PairedRatio
    from specbench.analysis.run import RunAnalysis, Stage
    from specbench.runs.records import Manifest
    from specbench.verdict.campaign import Outcome

Speed = tuple[Literal["GO", "NO-GO", "INCONCLUSIVE"], str, bool]
"""Decision, reason, and whether a guardrail decided."""


def campaign_of(manifest: Manifest) -> Campaign:
    """The registered rule of a run."""
    rule = manifest.rule
    return Campaign(
        CampaignRule(
            arms=tuple(a.id for a in manifest.arms if a.method is not None),
            loads=rule.load_order or tuple(x.id for x in manifest.loads),
            traffic=manifest.traffic,
            theta=manifest.min_speedup,
            alpha=(1 - manifest.confidence) / 2,
            looks=rule.looks,
            max_rounds=rule.max_rounds,
            explore_rounds=rule.explore_rounds,
            ladders=rule.ladders,
            use_prior=rule.variance_prior,
            margins=rule.margins,
        )
    )


def seen(run: RunAnalysis, barred: Iterable[str] = (), rounds: Mapping[int, Stage] | None = None) -> Seen:
    """What the campaign may know of a run.

    Args:
        barred: arms that could not get a verdict; they are not picked while another one can be.
        rounds: the rounds to look at with their stage; all that have cells if absent.
    """
    stages = run.stages if rounds is None else rounds

    def of(stage: str, by_round: Mapping[int, float]) -> dict[int, float]:
        return {r: x for r, x in by_round.items() if stages.get(r) == stage}

    explore = {key: of("explore", x) for key, x in run.ratios.items()}
    winner = run.confirmed if "confirm" in stages.values() else None
    return Seen(
        explore_rounds=sum(1 for s in stages.values() if s == "explore"),
        confirm_rounds=sum(1 for s in stages.values() if s == "confirm"),
        explore=explore,
        confirm={key: of("confirm", x) for key, x in run.ratios.items()},
        winner=winner,
        guards={
            (metric, load): of("confirm", t.per_round)
            for (metric, arm, load), t in run.tails.items()
            if arm == winner
        },
        barred=frozenset(barred),
    )


def speed_of_mix(run: RunAnalysis, state: State) -> Speed:
    """The confirmed arm over the traffic mix."""
    assert state.winner is not None
    return _speed(run, run.mix[state.winner], state, state.outcome, None)


def speed_at(run: RunAnalysis, state: State, load: str) -> Speed:
    """The confirmed arm at a load, in the fixed order of loads."""
    assert state.winner is not None
    outcome = state.outcomes[load]
    ratio = run.at[state.winner, load].speedup
    if outcome == "NOT TESTED":
        order = list(state.outcomes)
        before = next(x for x in order if state.outcomes[x] != "GO")
        return (
            "INCONCLUSIVE",
            f"{_text(ratio, run.manifest.confidence)}, not tested: {before} comes before it and is not GO",
            False,
        )
    return _speed(run, ratio, state, outcome, load)


def explored(arm: str, ratio: PairedRatio, winner: str | None) -> str:
    """What to say of an arm that was explored only."""
    rounds = len(ratio.per_round)
    if not rounds:
        return "not measured" + (
            f"; {winner} was picked before it and confirmed on new launches" if winner is not None else ""
        )
    text = f"explored only: {ratio_text(ratio.value)} in {rounds} round{'' if rounds == 1 else 's'}"
    if winner is None:
        return f"{text}; no arm is confirmed yet"
    return f"{text}; {winner} did better there and was confirmed on new launches, so {arm} was not tested"


def registered_text(run: RunAnalysis, state: State) -> str:
    """Which data the verdict rests on."""
    arm, rule = state.winner, run.manifest.rule
    confirm = f"{state.pairs} new pairs of launches (looks at {', '.join(map(str, rule.looks))})"
    if not rule.explore_rounds:
        return f"the verdict rests on {confirm}"
    best = _explored_value(run)
    before = f"; while exploring it showed {ratio_text(best)}" if best is not None else ""
    ladder = next((x for x in rule.ladders if arm in x), None)
    if ladder is not None:
        ks = sorted(ladder[a] for a in rungs(ladder))
        before = f", by the curve through K = {', '.join(map(str, ks))}{before}"
    rounds = sum(1 for s in run.stages.values() if s == "explore")
    return (
        f"{arm} was picked in {rounds} exploring round{'' if rounds == 1 else 's'}, whose "
        f"data do not count, since the best of several looks better than it is (winner's curse){before}; the "
        f"verdict rests on {confirm}"
    )


def _explored_value(run: RunAnalysis) -> float | None:
    campaign, data = campaign_of(run.manifest), seen(run)
    if data.winner is None:
        return None
    values = logs(campaign.mix_ratios(data.explore, data.winner))
    return _geometric(values) if values else None


def _speed(run: RunAnalysis, ratio: PairedRatio, state: State, outcome: Outcome, load: str | None) -> Speed:
    manifest = run.manifest
    text = _text(ratio, manifest.confidence)
    theta = ratio_text(manifest.min_speedup)
    step = state.mix if load is None else state.at[load]
    failed, undecided = _guards(run, state, load)
    if failed:
        return "NO-GO", "; ".join(failed), True
    if outcome == "GO":
        return "GO", f"{text}: faster than the required {theta}, decided after {step.pairs} pairs", False
    if outcome == "NO-GO":
        return "NO-GO", f"{text}: below the required {theta}, decided after {step.pairs} pairs", False
    if step.decision == "above":
        return "INCONCLUSIVE", f"{text}: fast enough, but {'; '.join(undecided)}", False
    if step.interval is None:
        needed = manifest.rule.looks[0]
        return "INCONCLUSIVE", f"{text}: {len(ratio.per_round)} of {needed} pairs for the first look", False
    more = rounds_needed(ratio, manifest.min_speedup, manifest.confidence)
    if not step.spent:
        rest = "the sweep ended before the last look: --resume goes on"
    elif more is None or more > 100:
        rest = "it is too close to call"
    else:
        pace = run.seconds_per_round
        rest = f"about {more} pairs would settle it{time_text(None if pace is None else more * pace)}"
    return "INCONCLUSIVE", f"{text} does not settle {theta} by the last look; {rest}", False


def _guards(run: RunAnalysis, state: State, load: str | None) -> tuple[list[str], list[str]]:
    """Guardrails that failed, and those that could not be settled, in words."""
    failed: list[str] = []
    undecided: list[str] = []
    manifest = run.manifest
    for (metric, at), verdict in state.guards.items():
        counts = manifest.traffic.get(at, 0) > 0 if load is None else at == load
        if not counts or verdict == "pass" or state.winner is None:
            continue
        where = f" at {at}" if load is None else ""
        tail, margin = run.tails[metric, state.winner, at], manifest.rule.margins[metric]
        text = tail_text(tail, margin, verdict, where, ALPHA)
        (failed if verdict == "fail" else undecided).append(text)
    return failed, undecided


def _text(ratio: PairedRatio, confidence: float) -> str:
    interval_ = ratio.interval(confidence)
    return ratio_text(ratio.value) + (f" {interval_text(interval_)}" if interval_ else "")


def _geometric(values: list[float]) -> float:
    return math.exp(math.fsum(values) / len(values))
