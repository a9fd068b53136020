"""The decisions of an adaptive sweep, without a sweep."""

from __future__ import annotations

import math

import numpy as np
import pytest

from specbench.verdict.campaign import Campaign, CampaignRule, Confirm, Explore, Seen, Stop
from specbench.verdict.guards import guard_state, non_inferior

LOOKS = (3, 4, 5, 6, 8)


def campaign(*arms: str, loads: tuple[str, ...] = ("c1",), **changes: object) -> Campaign:
    values: dict[str, object] = {
        "arms": arms,
        "loads": loads,
        "traffic": {x: 1 / len(loads) for x in loads},
        "theta": 1.05,
        "alpha": 0.05,
        "looks": LOOKS,
        "max_rounds": 10,
        "explore_rounds": 2 if len(arms) > 1 else 0,
        **changes,
    }
    return Campaign(CampaignRule(**values))  # type: ignore[arg-type]  # the values are those of the fields


def explored(*rounds: dict[str, float]) -> Seen:
    """Exploring rounds at one load: arm to ratio."""
    arms = {a for x in rounds for a in x}
    by_arm = {(a, "c1"): {i: x[a] for i, x in enumerate(rounds, 1) if a in x} for a in arms}
    return Seen(explore_rounds=len(rounds), explore=by_arm)


def confirmed(ratios: dict[str, list[float | None]], arm: str = "a", **changes: object) -> Seen:
    """Confirming rounds of a campaign with one arm: load to a ratio per round, none where it was lost."""
    by_load = {
        (arm, load): {i: x for i, x in enumerate(values, 1) if x is not None}
        for load, values in ratios.items()
    }
    rounds = max(len(x) for x in ratios.values())
    return Seen(confirm_rounds=rounds, confirm=by_load, winner=arm, **changes)  # type: ignore[arg-type]


def test_one_arm_is_confirmed_at_once() -> None:
    assert campaign("a").next(Seen()) == Confirm(1, "a")


def test_all_arms_explore_then_the_best_is_confirmed() -> None:
    c = campaign("a", "b", "c")
    assert c.next(Seen()) == Explore(1, ("a", "b", "c"))
    first = {"a": 1.0, "b": 1.1, "c": 0.7}
    assert c.next(explored(first)) == Explore(2, ("a", "b"))  # c is far behind
    assert c.next(explored(first, {"a": 1.2, "b": 1.15})) == Confirm(3, "b")


def test_an_arm_alone_in_front_is_confirmed_after_one_round() -> None:
    c = campaign("a", "b")
    assert c.next(explored({"a": 1.4, "b": 0.9})) == Confirm(2, "a")


def test_a_lost_cell_does_not_put_an_arm_out() -> None:
    c = campaign("a", "b")
    assert c.next(explored({"a": 1.1})) == Explore(2, ("a", "b"))
    assert c.next(explored({"a": 1.1}, {"a": 1.1, "b": 1.2})) == Confirm(3, "b")


def test_arms_that_cannot_be_recommended_are_not_picked_while_others_can() -> None:
    c = campaign("a", "b")
    seen = explored({"a": 1.3, "b": 1.2}, {"a": 1.3, "b": 1.2})
    assert c.next(Seen(2, 0, seen.explore, barred=frozenset({"a"}))) == Confirm(3, "b")
    assert c.next(Seen(2, 0, seen.explore, barred=frozenset({"a", "b"}))) == Confirm(3, "a")


def test_a_curve_over_k_picks_among_arms_that_did_not_run() -> None:
    ks = {f"k{k}": k for k in range(1, 9)}
    c = campaign(*ks, explore_rounds=1, ladders=(ks,))
    assert c.next(Seen()) == Explore(1, ("k1", "k3", "k6", "k8"))
    top = {a: math.exp(0.3 - (math.log1p(k) - math.log(5.2)) ** 2) for a, k in ks.items()}
    ran = {a: top[a] for a in ("k1", "k3", "k6", "k8")}
    assert c.next(explored(ran)) == Confirm(2, "k4")
    # Without enough points the best that was measured; K = 8 failed, so no curve reaches it.
    assert c.next(explored({a: top[a] for a in ("k1", "k3")})) == Confirm(2, "k3")
    rising = {"k1": 1.1, "k3": 1.3, "k6": 1.6}
    assert c.next(explored(rising)) == Confirm(2, "k6")
    assert c.next(Seen(1, 0, explored(ran).explore, barred=frozenset({"k4"}))) == Confirm(2, "k5")


def test_ladders_and_other_arms_explore_together() -> None:
    ks = {f"k{k}": k for k in range(1, 7)}
    c = campaign(*ks, "ngram", ladders=(ks,))
    assert c.next(Seen()) == Explore(1, ("k1", "k3", "k4", "k6", "ngram"))
    first = {"k1": 1.2, "k3": 1.3, "k4": 1.3, "k6": 0.9, "ngram": 1.2}
    assert c.next(explored(first)) == Explore(2, ("k1", "k3", "k4", "ngram"))


def test_nothing_measured_ends_it() -> None:
    assert campaign("a", "b").next(Seen(explore_rounds=2)) == Stop(
        "no arm could be measured against the baseline"
    )


@pytest.mark.parametrize(("gain", "outcome"), [(1.2, "GO"), (0.9, "NO-GO")])
def test_a_clear_case_stops_at_the_first_look(gain: float, outcome: str) -> None:
    c = campaign("a")
    ratios: list[float | None] = [gain, gain * 1.01, gain * 0.99]
    assert c.next(confirmed({"c1": ratios[:2]})) == Confirm(3, "a")
    stop = c.next(confirmed({"c1": ratios}))
    assert stop == Stop(f"a: {outcome} after 3 confirming pairs")
    assert c.state(confirmed({"c1": ratios})).outcomes == {"c1": outcome}


def test_explored_pairs_never_count() -> None:
    c = campaign("a", "b")
    great = {1: 1.5, 2: 1.5}
    seen = Seen(2, 2, {("a", "c1"): great}, {("a", "c1"): {3: 1.0, 4: 1.02}}, "a")
    state = c.state(seen)
    assert (state.pairs, state.outcome) == (2, "OPEN")
    assert c.next(seen) == Confirm(5, "a")


def test_the_last_look_ends_it() -> None:
    c = campaign("a")
    wavering: list[float | None] = [1.0, 1.1, 1.0, 1.1, 1.0, 1.1, 1.0, 1.1]
    assert c.next(confirmed({"c1": wavering[:7]})) == Confirm(8, "a")
    assert c.next(confirmed({"c1": wavering})) == Stop("a: OPEN after 8 confirming pairs")


def test_lost_rounds_do_not_count_as_pairs_and_end_it_when_they_repeat() -> None:
    c = campaign("a")
    assert c.next(confirmed({"c1": [1.2, None]})) == Confirm(3, "a")
    assert isinstance(c.next(confirmed({"c1": [1.2, None, None]})), Stop)
    lost: list[float | None] = [1.0, None, 1.1, None, 1.0, None, 1.1, None, 1.0, 1.1]
    stop = c.next(confirmed({"c1": lost}))
    assert stop == Stop("a: open after 10 confirming rounds, the most allowed")


def test_loads_are_tested_in_order_up_to_the_first_that_is_not_go() -> None:
    good, bad = [1.2, 1.21, 1.19], [0.8, 0.81, 0.79]
    c = campaign("a", loads=("c1", "c4", "c16"))
    state = c.state(confirmed({"c1": [*good], "c4": [*bad], "c16": [*good]}))
    assert state.outcomes == {"c1": "GO", "c4": "NO-GO", "c16": "NOT TESTED"}
    turned = campaign("a", loads=("c16", "c1", "c4"))
    state = turned.state(confirmed({"c1": [*good], "c4": [*bad], "c16": [*good]}))
    assert state.outcomes == {"c16": "GO", "c1": "GO", "c4": "NO-GO"}


def test_an_open_load_asks_for_more_pairs_though_the_mix_is_clear() -> None:
    c = campaign("a", loads=("c1", "c4"), traffic={"c1": 1.0, "c4": 0.0})
    seen = confirmed({"c1": [1.3, 1.31, 1.29], "c4": [1.0, 1.1, 1.05]})
    assert c.state(seen).outcome == "GO"
    assert c.next(seen) == Confirm(4, "a")


def test_guardrails_fail_pass_or_ask_for_more() -> None:
    speed: dict[str, list[float | None]] = {"c1": [1.3, 1.31, 1.29]}
    c = campaign("a", margins={"ttft_p95": 0.15})

    def after(values: list[float]) -> tuple[str, object]:
        guards = {("ttft_p95", "c1"): dict(enumerate(values, 1))}
        seen = confirmed(speed, guards=guards)
        return c.state(seen).outcome, c.next(seen)

    assert after([1.0, 1.01, 0.99])[0] == "GO"
    assert after([1.5, 1.51, 1.52])[0] == "NO-GO"
    assert after([0.9, 1.4, 1.0]) == ("OPEN", Confirm(4, "a"))
    free = campaign("a")  # no margin was registered
    assert free.state(confirmed(speed, guards={("ttft_p95", "c1"): {1: 2.0, 2: 2.0, 3: 2.1}})).outcome == "GO"


def test_a_guardrail_is_looked_at_twice_only() -> None:
    # Passes at pair 4 and fails nowhere, but 4 is no look of a guardrail: speed was decided at 3.
    values = [math.log(x) for x in (0.7, 1.3, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)]
    assert guard_state(values[:3], 0.15, (3, 8)) == "open"
    assert guard_state(values[:7], 0.15, (3, 8)) == "open"
    assert guard_state([0.0, 0.001, 0.002, *values[3:]], 0.15, (3, 8)) == "pass"
    assert guard_state(values, 0.15, (0, 8)) == non_inferior(values, 0.15)
    assert non_inferior([0.0], 0.15) == "open"


def test_error_rates_of_whole_campaigns() -> None:
    """The launches of the pairs differ by 3 %; 400 campaigns at the threshold, 200 well above it."""
    c = campaign("a")
    rng = np.random.default_rng(3)

    def run(truth: float) -> tuple[str, int]:
        ratios: list[float | None] = []
        while isinstance(step := c.next(confirmed({"c1": ratios}) if ratios else Seen()), Confirm):
            assert step.round == len(ratios) + 1
            ratios.append(truth * math.exp(rng.normal(0, 0.03)))
        return c.state(confirmed({"c1": ratios})).outcome, len(ratios)

    at_threshold = [run(1.05)[0] for _ in range(400)]
    assert at_threshold.count("GO") / 400 <= 0.09
    assert at_threshold.count("NO-GO") / 400 <= 0.09
    above = [run(1.15) for _ in range(200)]
    assert [o for o, _ in above].count("GO") >= 196
    assert np.median([n for _, n in above]) <= 4
