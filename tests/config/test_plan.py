"""The order and the time of a sweep."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench.config.grid import BASELINE, Load
from specbench.config.model import Config
from specbench.config.plan import (
    GIVEN,
    ROUGH,
    expected_tokens_per_s,
    further_round,
    make_plan,
    requests_in_cell,
)


def config(**changes: Any) -> Config:
    return Config.model_validate(
        {
            "name": "demo",
            "target": "org/model",
            "engine": {"kind": "simulated"},
            "arms": [{"method": "ngram", "k": [1, 2, 3]}],
            "loads": {"closed": [1, 8]},
            **changes,
        }
    )


GRIDS = st.builds(
    lambda ks, loads, rounds, seed: config(
        arms=[{"method": "ngram", "k": ks}],
        loads={"closed": loads},
        measure={"rounds": rounds, "order_seed": seed},
    ),
    st.lists(st.integers(1, 50), min_size=1, max_size=6, unique=True),
    st.lists(st.integers(1, 500), min_size=1, max_size=5, unique=True),
    st.integers(1, 9),
    st.integers(0, 2**40),
)


@settings(max_examples=60, deadline=None)
@given(GRIDS)
def test_order(grid: Config) -> None:
    plan = make_plan(grid)
    ids = {arm.id for arm in plan.arms}
    assert BASELINE in ids
    orders = [[launch.arm.id for launch in round_.launches] for round_ in plan.rounds]
    loads = [
        [[cell.load.id for cell in launch.cells] for launch in round_.launches] for round_ in plan.rounds
    ]
    for order in orders:
        assert sorted(order) == sorted(ids)
    for odd, even in zip(orders[::2], orders[1::2], strict=False):
        assert even == odd[::-1]
    for of_round in loads:
        assert all(order == of_round[0] for order in of_round)
        assert sorted(of_round[0]) == sorted(load.id for load in plan.loads)
    for odd_loads, even_loads in zip(loads[::2], loads[1::2], strict=False):
        assert odd_loads[0] == even_loads[0]
    assert [launch.number for launch in plan.launches] == list(range(1, len(plan.launches) + 1))
    assert sum(launch.estimate_s for launch in plan.launches) == pytest.approx(plan.estimate_s)


def test_mean_position_is_equal_over_a_pair_of_rounds() -> None:
    plan = make_plan(config(measure={"rounds": 2}))
    for arm in plan.arms:
        places = [launch.number for launch in plan.launches if launch.arm.id == arm.id]
        assert sum(places) == len(plan.launches) + 1


def test_every_position_is_taken_by_every_arm_somewhere() -> None:
    plan = make_plan(config(measure={"rounds": 100}))
    first = [round_.launches[0].arm.id for round_ in plan.rounds]
    counts = {arm.id: first.count(arm.id) for arm in plan.arms}
    assert min(counts.values()) >= 10, counts


def test_order_does_not_depend_on_how_the_config_is_written() -> None:
    one = make_plan(config(arms=[{"method": "ngram", "k": [1, 2, 3]}], loads={"closed": [1, 8]}))
    other = make_plan(config(arms=[{"method": "ngram", "k": [3, 1, 2]}], loads={"closed": [8, 1]}))
    orders = [
        [(launch.arm.id, [cell.load.id for cell in launch.cells]) for launch in plan.launches]
        for plan in (one, other)
    ]
    assert orders[0] == orders[1]


def test_more_rounds_keep_the_earlier_ones() -> None:
    few, many = (make_plan(config(measure={"rounds": rounds})) for rounds in (3, 7))
    assert few.rounds == many.rounds[:3]


def test_an_arm_that_remembers_gets_a_launch_for_each_cell() -> None:
    both = config(arms=[{"method": "ngram", "k": 2}, {"method": "suffix", "k": 4}], loads={"closed": [1, 8]})
    plan = make_plan(both, learners={"suffix-k4"})
    for round_ in plan.rounds:
        cells: dict[str, list[list[str]]] = {}
        for launch in round_.launches:
            cells.setdefault(launch.arm.id, []).append([cell.load.id for cell in launch.cells])
        order = cells[BASELINE][0]
        assert cells == {BASELINE: [order], "ngram-k2": [order], "suffix-k4": [[load] for load in order]}
    assert [launch.number for launch in plan.launches] == list(range(1, 1 + 4 * len(plan.rounds)))
    assert plan.estimate_s == pytest.approx(sum(launch.estimate_s for launch in plan.launches))
    without = make_plan(both)
    assert plan.estimate_s - without.estimate_s == pytest.approx(
        len(plan.rounds) * plan.launches[0].startup_s
    )
    assert plan.cells_per_launch == without.cells_per_launch
    again = further_round(plan, 1, 1, plan.arms, 0)
    assert sorted(x.arm.id for x in again.launches) == sorted(x.arm.id for x in plan.rounds[0].launches)


def test_seed_changes_the_order() -> None:
    orders = {
        tuple(launch.arm.id for launch in make_plan(config(measure={"order_seed": seed})).launches)
        for seed in range(8)
    }
    assert len(orders) > 4


def test_same_order_in_another_process() -> None:
    code = (
        "import json; from tests.config.test_plan import config; from specbench.config.plan import make_plan;"
        "print(json.dumps([[l.arm.id, [c.load.id for c in l.cells]] for l in make_plan(config()).launches]))"
    )
    here = [[launch.arm.id, [c.load.id for c in launch.cells]] for launch in make_plan(config()).launches]
    out = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "123"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert json.loads(out.stdout) == here


def test_requests_per_cell() -> None:
    workload = config(workload={"requests_per_slot": 8, "min_requests": 20}).workload
    assert [requests_in_cell(workload, Load(f"c{c}", c)) for c in (1, 2, 3, 64)] == [20, 20, 24, 512]


def test_requests_for_a_time() -> None:
    workload = config(workload={"seconds": 10}).workload
    assert requests_in_cell(workload, Load("c8", 8)) == 320
    assert requests_in_cell(workload, Load("c4096", 4096)) == 50_000
    assert requests_in_cell(workload, Load("c65536", 65536)) == 6 * 65536


def test_speed_between_known_points() -> None:
    known = {1: 50.0, 16: 400.0}
    assert expected_tokens_per_s(1, known) == 50
    assert expected_tokens_per_s(16, known) == 400
    # Halfway in log concurrency: the geometric mean.
    assert expected_tokens_per_s(4, known) == pytest.approx((50 * 400) ** 0.5)
    assert expected_tokens_per_s(64, known) == 400
    assert expected_tokens_per_s(2, {8: 80.0}) == 20
    assert expected_tokens_per_s(1, None) == 60


def test_estimate_by_hand() -> None:
    plan = make_plan(
        config(
            arms=[{"method": "ngram", "k": 3}],
            loads={"closed": [4]},
            workload={"requests_per_slot": 10, "max_output_tokens": 200},
            measure={
                "rounds": 2,
                "warmup_per_slot": 1,
                "expect": {"startup": "1m", "tokens_per_s": {4: 100}},
            },
        )
    )
    # 40 requests and 4 warm-ups of 0.75 * 200 tokens at 100 tokens/s.
    assert plan.launches[0].estimate_s == pytest.approx(60 + 44 * 150 / 100)
    assert plan.estimate_s == pytest.approx(4 * 126)
    assert (plan.startup_basis, plan.speed_basis) == (GIVEN, GIVEN)


def test_forced_output_takes_the_whole_cap() -> None:
    measure = {"expect": {"startup": 1, "tokens_per_s": {1: 100}}}
    natural, forced = (
        make_plan(config(measure=measure, workload={"output_mode": mode})).launches[0].estimate_s - 1
        for mode in ("natural", "forced")
    )
    assert natural == pytest.approx(0.75 * forced)


def test_rough_estimate_says_so() -> None:
    plan = make_plan(config())
    assert (plan.startup_basis, plan.speed_basis) == (ROUGH, ROUGH)


@pytest.mark.parametrize(("budget", "rounds"), [(1, 0), (504 / 2 + 1, 1), (504 + 1, 2), (10_000, 3)])
def test_rounds_in_the_budget(budget: float, rounds: int) -> None:
    plan = make_plan(
        config(
            arms=[{"method": "ngram", "k": 3}],
            loads={"closed": [4]},
            workload={"requests_per_slot": 10, "max_output_tokens": 200},
            measure={
                "rounds": 3,
                "warmup_per_slot": 1,
                "time_budget": budget,
                "expect": {"startup": 60, "tokens_per_s": {4: 100}},
            },
        )
    )
    assert plan.rounds_in_budget == rounds


def adaptive(k: int | list[int], **measure: Any) -> Config:
    return config(
        arms=[{"method": "ngram", "k": k}],
        measure={"strategy": "adaptive", "expect": {"startup": 60}, **measure},
    )


def test_an_adaptive_plan_holds_what_is_certain() -> None:
    plan = make_plan(adaptive([2, 4]))
    assert plan.adaptive is not None
    assert (plan.adaptive.explore_rounds, plan.adaptive.least_confirming) == (2, 3)
    assert plan.adaptive.most_confirming == 16  # the last look, and two rounds that may be lost
    assert [len(x.launches) for x in plan.rounds] == [3, 3]
    assert plan.estimate_s == plan.adaptive.most_s > plan.adaptive.least_s


def test_of_many_values_of_k_four_are_explored_once() -> None:
    plan = make_plan(adaptive([1, 2, 3, 4, 5, 6, 7, 8]))
    assert plan.adaptive is not None
    assert plan.adaptive.explore_rounds == 1
    assert [sorted(x.arm.k or 0 for x in r.launches) for r in plan.rounds] == [[0, 1, 3, 6, 8]]


def test_one_arm_needs_no_exploring() -> None:
    plan = make_plan(adaptive(4, looks=[4, 6], max_rounds=7))
    assert plan.adaptive is not None
    assert (plan.adaptive.explore_rounds, plan.adaptive.most_confirming) == (0, 7)
    assert [len(x.launches) for x in plan.rounds] == [2, 2, 2, 2]


def test_further_rounds_go_on_in_the_same_order() -> None:
    one = make_plan(adaptive(4))
    again = further_round(one, 2, 3, one.arms, 1)
    assert again == one.rounds[1]
    more = [further_round(one, n, 2 * n - 1, one.arms, 1) for n in range(1, 41)]
    orders = [[x.arm.id for x in r.launches] for r in more]
    # Every pair of rounds turns around, and the pairs start with either arm.
    assert all(b == a[::-1] for a, b in zip(orders[::2], orders[1::2], strict=True))
    assert len({tuple(x) for x in orders[::2]}) == 2
    assert [x.number for r in more for x in r.launches] == list(range(1, 81))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"measure": {"looks": [3, 3]}}, "must increase"),
        ({"measure": {"looks": [1, 3]}}, "greater than or equal to 2"),
        ({"measure": {"looks": []}}, "at least 1"),
        ({"measure": {"max_rounds": 5}}, "the last look needs 14 rounds"),
        ({"verdict": {"load_order": [8]}}, "must name each of the loads once: c1, c8"),
        ({"verdict": {"load_order": [8, 8]}}, "must name each of the loads once: c1, c8"),
        ({"verdict": {"margins": {"ttft_p95": 0}}}, "greater than 0"),
    ],
)
def test_impossible_rules_are_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        config(**changes)


def test_a_load_order_may_mix_numbers_and_ids() -> None:
    assert config(verdict={"load_order": [8, "c1"]}).verdict.load_order == [8, "c1"]
