"""An adaptive sweep's decisions, pure: from the pairs so far to what to launch next, or to the end.

Explore: every speculative arm runs in up to two rounds; one that is far behind after a round is not run again.
Of arms that differ in K alone four run, and a curve through them picks among all (`config.ladders`).
Confirm: the arm that did best is measured against the baseline in new pairs of launches, and the
group-sequential test of `analysis.sequential` says when there are enough. Only these pairs enter the verdict:
the best of several arms looks better than it is on the data that picked it (the winner's curse), and needs no
correction on data that did not.

Loads are tested in a fixed order, set beforehand, up to the first that is not GO: a load is claimed only when
all before it are, so that the chance of any false claim stays that of one test. The traffic mix is the one
question that the exit code answers and is tested by itself.

The sweep asks `Campaign.next` before every round; the verdict asks `Campaign.state` afterwards; the simulator
of campaigns asks both. There is no other copy of the rule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from specbench.analysis.compare import mix_rounds
from specbench.analysis.sequential import Step, VariancePrior, step
from specbench.config.ladders import Ladder, explored
from specbench.verdict.guards import GuardState, guard_state, logs
from specbench.verdict.k_curve import curve

FAR_BEHIND: Final = 0.20
"""Log units behind the best arm at which an arm is out after one round: more than four times the spread of the
difference of two arms whose launches differ by 3 %."""

LOST_IN_A_ROW: Final = 2
"""Confirming rounds without a valid pair after which more of them would be lost too."""

Ratios = Mapping[tuple[str, str], Mapping[int, float]]
"""(arm, load) to round to ratio; rounds without a valid pair are absent."""

GuardRatios = Mapping[tuple[str, str], Mapping[int, float]]
"""(metric, load) to round to ratio of the confirmed arm, greater is worse."""

Outcome = Literal["GO", "NO-GO", "OPEN", "NOT TESTED"]


@dataclass(frozen=True, slots=True)
class CampaignRule:
    """What is fixed before the first launch.

    Attributes:
        arms: the speculative ones.
        loads: in the order in which they are tested.
        traffic: share of each load.
        theta: required ratio.
        alpha: error allowed on each side.
        looks: numbers of confirming pairs at which the data are looked at.
        max_rounds: confirming rounds at most, lost ones included.
        explore_rounds: 0 when there is one speculative arm.
        ladders: arms that differ in K alone, with their K.
        use_prior: whether the spread seen while exploring counts as a prior of the variance.
        margins: guardrail metric to the relative worsening that is allowed.
    """

    arms: tuple[str, ...]
    loads: tuple[str, ...]
    traffic: Mapping[str, float]
    theta: float
    alpha: float
    looks: tuple[int, ...]
    max_rounds: int
    explore_rounds: int
    ladders: tuple[Ladder, ...] = ()
    use_prior: bool = False
    margins: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Explore:
    """Run a round with the baseline and these arms."""

    round: int
    arms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Confirm:
    """Run a round with the baseline and this arm."""

    round: int
    arm: str


@dataclass(frozen=True, slots=True)
class Stop:
    """No more launches."""

    reason: str


@dataclass(frozen=True, slots=True)
class Seen:
    """The data so far.

    Attributes:
        explore_rounds, confirm_rounds: rounds run of each kind, lost ones included.
        explore: ratios of the exploring rounds.
        confirm: ratios of the confirming rounds.
        winner: the arm that the confirming rounds ran; null before the first.
        guards: of the confirming rounds.
        barred: arms that could not get a GO whatever their speed: not picked while another one can be.
    """

    explore_rounds: int = 0
    confirm_rounds: int = 0
    explore: Ratios = field(default_factory=dict)
    confirm: Ratios = field(default_factory=dict)
    winner: str | None = None
    guards: GuardRatios = field(default_factory=dict)
    barred: frozenset[str] = frozenset()

    @property
    def rounds(self) -> int:
        """Rounds run."""
        return self.explore_rounds + self.confirm_rounds


@dataclass(frozen=True, slots=True)
class State:
    """What the confirming pairs say.

    Attributes:
        winner: the arm that is confirmed; null before exploration is over, or when no arm could be measured.
        pairs: valid confirming pairs over the traffic mix.
        mix: the test of the traffic mix.
        at: the test of each load.
        outcome: of the traffic mix, guardrails included.
        outcomes: of each load, in the fixed order.
        guards: (metric, load) to its state; metrics without an estimate are absent.
        settled: whether nothing is left to learn from more pairs.
    """

    winner: str | None
    pairs: int
    mix: Step
    at: Mapping[str, Step]
    outcome: Outcome
    outcomes: Mapping[str, Outcome]
    guards: Mapping[tuple[str, str], GuardState]
    settled: bool


@dataclass(frozen=True, slots=True)
class Campaign:
    """The decisions of one adaptive sweep."""

    rule: CampaignRule

    def next(self, seen: Seen) -> Explore | Confirm | Stop:
        """What to do after the rounds seen."""
        if seen.confirm_rounds == 0 and seen.explore_rounds < self.rule.explore_rounds:
            left = self.still_in(seen)
            if len(left) > 1:
                return Explore(seen.rounds + 1, left)
        winner = self.winner(seen)
        if winner is None:
            return Stop("no arm could be measured against the baseline")
        state = self.state(seen)
        if state.settled:
            return Stop(f"{winner}: {state.outcome} after {state.pairs} confirming pairs")
        if seen.confirm_rounds >= self.rule.max_rounds:
            return Stop(f"{winner}: open after {seen.confirm_rounds} confirming rounds, the most allowed")
        valid = self.mix_ratios(seen.confirm, winner)
        recent = range(seen.rounds - LOST_IN_A_ROW + 1, seen.rounds + 1)
        if seen.confirm_rounds >= LOST_IN_A_ROW and not any(r in valid for r in recent):
            return Stop(f"{winner}: the last {LOST_IN_A_ROW} confirming rounds gave no valid pair")
        return Confirm(seen.rounds + 1, winner)

    def still_in(self, seen: Seen) -> tuple[str, ...]:
        """Arms that a further exploring round would run: those not far behind the best.

        An arm without a valid pair so far is tried again: a lost cell says nothing about it.
        """
        scores = self._scores(seen)
        best = max(scores.values(), default=-math.inf)
        free = explored(self.rule.arms, self.rule.ladders, seen.barred) or self.rule.arms
        return tuple(a for a in free if scores.get(a, best) >= best - FAR_BEHIND)

    def winner(self, seen: Seen) -> str | None:
        """The arm to confirm; null when none could be measured."""
        if seen.winner is not None:
            return seen.winner
        if self.rule.explore_rounds == 0:
            return self.rule.arms[0] if self.rule.arms else None
        scores = self._scores(seen)
        # An arm that ran and gave no ratio could not be measured: a curve does not make it better.
        ran = explored(self.rule.arms, self.rule.ladders, seen.barred)
        out = seen.barred.union(a for a in ran if a not in scores)
        for ladder in self.rule.ladders:
            by_curve = curve(ladder, scores)
            scores.update((a, x) for a, x in by_curve.items() if a not in out)
        return max(scores, key=lambda a: scores[a]) if scores else None

    def state(self, seen: Seen) -> State:
        """Test the confirming pairs."""
        rule, winner = self.rule, seen.winner
        if winner is None:
            nothing = step([], rule.theta, rule.looks, rule.alpha)
            return State(None, 0, nothing, {}, "OPEN", dict.fromkeys(rule.loads, "NOT TESTED"), {}, False)
        pairs = logs(self.mix_ratios(seen.confirm, winner))
        mix = step(pairs, rule.theta, rule.looks, rule.alpha, self._prior(seen, None))
        at = {
            load: step(
                logs(seen.confirm.get((winner, load), {})),
                rule.theta,
                rule.looks,
                rule.alpha,
                self._prior(seen, load),
            )
            for load in rule.loads
        }
        guards = self._guards(seen, mix, at)
        outcomes = self._sequence(at, guards)
        weighted = [s for (_, load), s in guards.items() if rule.traffic.get(load, 0) > 0]
        outcome = _outcome(mix, weighted)
        open_loads = any(o == "OPEN" and not at[x].spent for x, o in outcomes.items())
        settled = bool(pairs) and not (outcome == "OPEN" and not mix.spent) and not open_loads
        return State(winner, len(pairs), mix, at, outcome, outcomes, guards, settled)

    def mix_ratios(self, ratios: Ratios, arm: str) -> dict[int, float]:
        """Round to ratio over the traffic, of rounds that have every load with a share."""
        return mix_rounds([(w, ratios.get((arm, load), {})) for load, w in self.rule.traffic.items()])

    def _sequence(
        self, at: Mapping[str, Step], guards: Mapping[tuple[str, str], GuardState]
    ) -> dict[str, Outcome]:
        """Loads in their fixed order; after the first that is not GO nothing is tested."""
        found: dict[str, Outcome] = {}
        stopped = False
        for load in self.rule.loads:
            own = _outcome(at[load], [s for (_, x), s in guards.items() if x == load])
            found[load] = "NOT TESTED" if stopped else own
            stopped = stopped or own != "GO"
        return found

    def _guards(self, seen: Seen, mix: Step, at: Mapping[str, Step]) -> dict[tuple[str, str], GuardState]:
        """Every guardrail is looked at twice at most: when speed is decided, and at the last look."""
        found: dict[tuple[str, str], GuardState] = {}
        for (metric, load), by_round in seen.guards.items():
            margin, values = self.rule.margins.get(metric), logs(by_round)
            if margin is None or load not in at or not values:
                continue
            decided = at[load] if at[load].decision != "open" else mix
            first = decided.pairs if decided.decision != "open" else 0
            found[metric, load] = guard_state(values, margin, (first, self.rule.looks[-1]))
        return found

    def _scores(self, seen: Seen) -> dict[str, float]:
        """Mean log ratio over the traffic in the exploring rounds; arms without one are absent."""
        found = {}
        for arm in self.rule.arms:
            values = logs(self.mix_ratios(seen.explore, arm))
            if values:
                found[arm] = math.fsum(values) / len(values)
        free = {arm: score for arm, score in found.items() if arm not in seen.barred}
        return free or found

    def _prior(self, seen: Seen, load: str | None) -> VariancePrior | None:
        """Spread of a pair while exploring, of the mix or at a load; null unless the rule asks for it."""
        if not self.rule.use_prior:
            return None
        by_arm = (
            self.mix_ratios(seen.explore, a) if load is None else seen.explore.get((a, load), {})
            for a in self.rule.arms
        )
        return VariancePrior.pooled([logs(x) for x in by_arm])


def _outcome(speed: Step, guards: list[GuardState]) -> Outcome:
    if speed.decision == "below" or "fail" in guards:
        return "NO-GO"
    return "GO" if speed.decision == "above" and all(g == "pass" for g in guards) else "OPEN"
