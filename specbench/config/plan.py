"""What a sweep will do, in which order and for about how long. Nothing here starts or reads anything.

Order: each round is one pass over all arms, baseline included. An odd round takes a random order and the
even round after it the same order reversed, so that over the pair every arm has the same mean position in
time and a linear drift of the machine (heat, neighbours) cancels in the ratios: the ABBA design.
Loads take one random order per pair of rounds, the same for all arms, so that arms are compared at the
same age of their engines.

An adaptive sweep plans what is certain: the rounds that explore, or with a single arm those before the first
look. The rest is planned round by round as the data ask for it, by the same rules of order.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from specbench.config.grid import Arm, Load, expand_arms, expand_loads
from specbench.config.ladders import explored, ladders
from specbench.config.model import Config, Workload

ROUGH_STARTUP_S: Final = 120.0
ROUGH_TOKENS_PER_S: Final = 60.0
ROUGH_SCALING: Final = 0.8
"""Without knowledge: 60 tokens/s for one request, growing as concurrency**0.8."""

NATURAL_LENGTH: Final = 0.75
"""Assumed mean output length over its cap when the model ends by itself."""

SECONDS_RATE: Final = 4.0
"""With ``workload.seconds``: requests per second and slot that the request list is made long enough for."""

MAX_TIMED_REQUESTS: Final = 50_000

OPEN_REQUESTS: Final = 120
"""Requests of an open-loop cell without ``workload.seconds``: a tenth is ramp, the rest gives the mean."""

GIVEN: Final = "from measure.expect"
ROUGH: Final = "rough default"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class CellPlan:
    """One cell to come: how much it sends and about how long it takes."""

    load: Load
    requests: int
    warmup_requests: int
    estimate_s: float


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """One engine start with its cells in order; ``number`` and ``round`` count from 1."""

    number: int
    round: int
    arm: Arm
    cells: tuple[CellPlan, ...]
    startup_s: float
    estimate_s: float


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """One pass over all arms."""

    number: int
    launches: tuple[LaunchPlan, ...]
    estimate_s: float


EXPLORE_ROUNDS: Final = 2
"""Rounds that pick the arm to confirm, when there are several; one where a single curve over K picks it."""


@dataclass(frozen=True, slots=True)
class AdaptivePlan:
    """How long a sweep with ``measure.strategy: adaptive`` may become: its confirming rounds, of two launches.

    ``explored`` are the speculative arms that the exploring rounds run; see `ladders`.
    """

    explore_rounds: int
    explored: tuple[str, ...]
    least_confirming: int
    most_confirming: int
    least_s: float
    most_s: float


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole sweep; of an adaptive one, the rounds that are certain.

    Attributes:
        arms: baseline first, then in the order of the config.
        startup_basis, speed_basis: where the estimate comes from.
        estimate_s: of all rounds, whatever the time budget; of an adaptive sweep, of the most there may be.
        rounds_in_budget: rounds that fit ``measure.time_budget`` by this estimate; null without one.
        learners: ids of arms that draft from what they served before: each of their cells gets a launch of
            its own, so that no cell is measured on what an earlier one taught.
    """

    arms: tuple[Arm, ...]
    loads: tuple[Load, ...]
    rounds: tuple[RoundPlan, ...]
    startup_basis: str
    speed_basis: str
    estimate_s: float
    rounds_in_budget: int | None
    adaptive: AdaptivePlan | None = None
    learners: frozenset[str] = frozenset()

    @property
    def launches(self) -> tuple[LaunchPlan, ...]:
        """Every launch, in order."""
        return tuple(launch for round_ in self.rounds for launch in round_.launches)

    @property
    def cells_per_launch(self) -> tuple[CellPlan, ...]:
        """The cells of any launch, in the order of the config's loads."""
        order = {load.id: i for i, load in enumerate(self.loads)}
        cells = {c.load.id: c for launch in self.rounds[0].launches for c in launch.cells}
        return tuple(sorted(cells.values(), key=lambda cell: order[cell.load.id]))


@dataclass(frozen=True, slots=True)
class TraceExtent:
    """How much a trace replays: known once its file is read."""

    requests: int
    seconds: float


def make_plan(config: Config, trace: TraceExtent | None = None, learners: Collection[str] = ()) -> Plan:
    """Plan every round of a sweep.

    Args:
        trace: size of the replay, when ``loads.trace`` is set; zero requests are planned without it.
        learners: ids of the arms that draft from what they served before.

    Raises:
        GridError: two arms cannot be told apart.
    """
    arms, loads = expand_arms(config), expand_loads(config)
    expect, measure = config.measure.expect, config.measure
    startup_s = expect.startup or ROUGH_STARTUP_S
    cells = {load.id: _cell(config, load, trace) for load in loads}
    cells_s = sum(cell.estimate_s for cell in cells.values())
    arm_s = {a.id: cells_s + startup_s * (len(loads) if a.id in learners else 1) for a in arms}
    adaptive = None
    exploring = list(arms)
    count = measure.rounds
    if measure.strategy == "adaptive":
        speculative = [a.id for a in arms if a.speculates]
        explore = explore_rounds(arms)
        first = explored(speculative, ladders(arms)) if explore else speculative
        exploring = [a for a in arms if not a.speculates or a.id in first]
        count = explore or measure.looks[0]
        explore_s = sum(arm_s[a.id] for a in exploring) * explore
        # The baseline and the arm that will be confirmed: which one is not known yet.
        costs = [arm_s[a] for a in speculative] or [0.0]
        base_s = sum(arm_s[a.id] for a in arms if not a.speculates)
        adaptive = AdaptivePlan(
            explore_rounds=explore,
            explored=tuple(first),
            least_confirming=measure.looks[0],
            most_confirming=measure.most_confirming,
            least_s=explore_s + (base_s + min(costs)) * measure.looks[0],
            most_s=explore_s + (base_s + max(costs)) * measure.most_confirming,
        )
    rounds: list[RoundPlan] = []
    number = 0
    for n in range(1, count + 1):
        rounds.append(_round(n, number, exploring, loads, cells, startup_s, learners, measure.order_seed))
        number += len(rounds[-1].launches)
    budget = config.measure.time_budget
    return Plan(
        arms=arms,
        loads=loads,
        rounds=tuple(rounds),
        startup_basis=GIVEN if expect.startup else ROUGH,
        speed_basis=GIVEN if expect.tokens_per_s else ROUGH,
        estimate_s=sum(r.estimate_s for r in rounds) if adaptive is None else adaptive.most_s,
        adaptive=adaptive,
        rounds_in_budget=None
        if budget is None or adaptive is not None
        else min(config.measure.rounds, int(budget // sum(arm_s.values()))),
        learners=frozenset(learners),
    )


def explore_rounds(arms: Sequence[Arm]) -> int:
    """Exploring rounds of an adaptive sweep: none for one speculative arm, one for one ladder, else two."""
    speculative = sum(a.speculates for a in arms)
    if speculative < 2:
        return 0
    return 1 if any(len(ladder) == speculative for ladder in ladders(arms)) else EXPLORE_ROUNDS


def further_round(
    plan: Plan, number: int, first_launch: int, arms: Sequence[Arm], seed: int,
    cells: Sequence[CellPlan] | None = None,
) -> RoundPlan:  # fmt: skip
    """A round that is planned when it is its turn.

    Args:
        first_launch: the number of its first launch in the sweep.
        arms: the baseline and the arms that run in it.
        cells: of each launch; those of the plan if absent.
    """
    by_load = {cell.load.id: cell for cell in cells or plan.cells_per_launch}
    loads = plan.loads if cells is None else [cell.load for cell in cells]
    startup_s = plan.rounds[0].launches[0].startup_s
    return _round(number, first_launch - 1, arms, loads, by_load, startup_s, plan.learners, seed)


def _round(
    number: int, launches_before: int, arms: Sequence[Arm], loads: Sequence[Load],
    cells: Mapping[str, CellPlan], startup_s: float, learners: Collection[str], seed: int,
) -> RoundPlan:  # fmt: skip
    ordered = tuple(cells[load.id] for load in load_order(loads, number, seed))
    lives = [
        (arm, part)
        for arm in arm_order(arms, number, seed)
        for part in ([(cell,) for cell in ordered] if arm.id in learners else [ordered])
    ]
    launches = tuple(
        LaunchPlan(
            number=launches_before + i,
            round=number,
            arm=arm,
            cells=part,
            startup_s=startup_s,
            estimate_s=startup_s + sum(cell.estimate_s for cell in part),
        )
        for i, (arm, part) in enumerate(lives, start=1)
    )
    return RoundPlan(number, launches, sum(launch.estimate_s for launch in launches))


def arm_order(arms: Sequence[Arm], round_number: int, seed: int) -> tuple[Arm, ...]:
    """Arms of a round (from 1): random in odd rounds, the reverse of the round before in even ones."""
    pair = (round_number + 1) // 2
    order = _shuffled(sorted(arms, key=lambda arm: arm.id), f"arms/{seed}/{pair}")
    return tuple(order if round_number % 2 else reversed(order))


def load_order(loads: Sequence[Load], round_number: int, seed: int) -> tuple[Load, ...]:
    """Loads of every launch of a round: random, the same for both rounds of a pair and for all arms."""
    pair = (round_number + 1) // 2
    return tuple(_shuffled(sorted(loads, key=lambda load: load.order), f"loads/{seed}/{pair}"))


def requests_in_cell(workload: Workload, load: Load) -> int:
    """Measured requests of a cell.

    With ``workload.seconds`` this is the most that are held ready: enough for 4 requests per second and
    slot, at most 50,000, but never fewer than 6 per slot. An open loop sends what arrives in that time,
    or 120 without it; how much a trace sends is in its file.
    """
    if load.open is not None:
        if workload.seconds is None:
            return max(workload.min_requests, OPEN_REQUESTS)
        return max(2, min(MAX_TIMED_REQUESTS, math.ceil(load.open.rate * workload.seconds)))
    count = max(workload.min_requests, workload.requests_per_slot * load.concurrency)
    if workload.seconds is None:
        return count
    ready = math.ceil(SECONDS_RATE * workload.seconds * load.concurrency)
    return max(6 * load.concurrency, min(MAX_TIMED_REQUESTS, ready))


def expected_tokens_per_s(concurrency: int, known: Mapping[int, float] | None) -> float:
    """Output tokens/s at a concurrency, from known points.

    Between two points on a straight line of log speed over log concurrency; above the highest point its
    speed stays; below the lowest it falls in proportion. Without points, the rough default.
    """
    if not known:
        return float(ROUGH_TOKENS_PER_S * concurrency**ROUGH_SCALING)
    points = sorted(known.items())
    if concurrency >= points[-1][0]:
        return points[-1][1]
    if concurrency <= points[0][0]:
        return points[0][1] * concurrency / points[0][0]
    (c0, s0), (c1, s1) = next(
        pair for pair in itertools.pairwise(points) if pair[0][0] <= concurrency <= pair[1][0]
    )
    share = math.log(concurrency / c0) / math.log(c1 / c0)
    return float(s0 * (s1 / s0) ** share)


def _cell(config: Config, load: Load, trace: TraceExtent | None) -> CellPlan:
    workload = config.workload
    if load.trace is not None:
        requests = trace.requests if trace is not None else 0
    else:
        requests = requests_in_cell(workload, load)
    warmup = config.measure.warmup_per_slot * load.concurrency
    tokens = workload.max_output_tokens * (1.0 if workload.output_mode == "forced" else NATURAL_LENGTH)
    request_s = tokens / expected_tokens_per_s(load.concurrency, config.measure.expect.tokens_per_s)
    if load.open is not None:
        # The last arrival's own life follows the arrivals.
        measured_s = requests / load.open.rate + load.concurrency * request_s
    elif load.trace is not None:
        measured_s = (trace.seconds if trace is not None else load.trace.seconds or 0.0) + request_s
    elif workload.seconds is None:
        measured_s = requests * request_s
    else:
        # Admission for the given time or six requests per slot, then the last ones finish.
        measured_s = max(workload.seconds, 6 * load.concurrency * request_s) + load.concurrency * request_s
    return CellPlan(load, requests, warmup, warmup * request_s + measured_s)


def _shuffled(items: Sequence[_T], label: str) -> list[_T]:
    """A permutation that depends on the label alone: the same in every process and on every machine."""
    seed = int.from_bytes(hashlib.sha256(label.encode()).digest()[:8])
    order = list(items)
    random.Random(seed).shuffle(order)  # noqa: S311 - an order of measurement, not a secret
    return order
