"""How often would an adaptive sweep decide wrongly, and after how many launches? In virtual time, with the real rule.

    python benchmarks/decision/campaigns.py --campaigns 2000

Machines are invented: the log throughput of launch k is

    log S of its arm + launch effect + measurement noise + drift + (bad launch)

with normal launch effects (sd 1, 2 or 3 %), measurement noise of 1 %, a linear drift of up to 3 % over 16 launches,
an AR(1) disturbance of 1 % (0.7 from one launch to the next), and a share of bad launches that are 10 % slow.
The sweep's own `Campaign` decides what to launch and when to stop; orders come from the sweep's own plan.
Beside it stand the usual ways to compare, on the same kind of machine.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from specbench.config.grid import Arm
from specbench.config.plan import EXPLORE_ROUNDS, arm_order
from specbench.verdict.campaign import Campaign, CampaignRule, Confirm, Explore, Seen, Stop

THETA = 1.05
ALPHA = 0.05
LOOKS = (3, 4, 5, 6, 8, 10, 12, 14)
"""The default of ``measure.looks``."""
SHORTER = (3, 4, 5, 6, 8)
LOAD = "c8"
ORDERS = 64
"""Different seeds of the launch order that the campaigns take in turn."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class World:
    """How launches differ on a machine; log units."""

    launch_sd: float = 0.02
    run_sd: float = 0.01
    drift: float = 0.03
    wander_sd: float = 0.01
    bad_share: float = 0.0
    bad_loss: float = 0.105

    def launches(self, rng: np.random.Generator, campaigns: int, count: int) -> Floats:
        """(campaigns, count): what each launch adds to its arm's log throughput, noise left out."""
        steps = rng.standard_normal((campaigns, count)) * self.wander_sd
        wander = np.empty_like(steps)
        wander[:, 0] = steps[:, 0]
        for k in range(1, count):
            wander[:, k] = 0.7 * wander[:, k - 1] + math.sqrt(1 - 0.49) * steps[:, k]
        slope = rng.uniform(-1, 1, (campaigns, 1)) * self.drift / 16
        bad = (rng.random((campaigns, count)) < self.bad_share) * -self.bad_loss
        own = rng.standard_normal((campaigns, count)) * self.launch_sd
        return wander + slope * np.arange(count) + bad + own


@dataclass
class Tally:
    """Results of many campaigns."""

    go: int = 0
    no_go: int = 0
    campaigns: int = 0
    launches: list[int] = field(default_factory=list)
    explored: list[int] = field(default_factory=list)
    winners: Counter[str] = field(default_factory=Counter)

    @property
    def go_share(self) -> float:
        """P(GO)."""
        return self.go / self.campaigns

    @property
    def no_go_share(self) -> float:
        """P(NO-GO)."""
        return self.no_go / self.campaigns

    @property
    def median_launches(self) -> float:
        """Launches until the sweep stopped."""
        return float(np.median(self.launches))


def rule_for(
    arms: tuple[str, ...], looks: tuple[int, ...] = LOOKS, *, use_prior: bool = False
) -> CampaignRule:
    """What `specbench sweep` registers for one load, without guardrails."""
    return CampaignRule(
        arms=arms,
        loads=(LOAD,),
        traffic={LOAD: 1.0},
        theta=THETA,
        alpha=ALPHA,
        looks=looks,
        max_rounds=looks[-1] + 2,
        explore_rounds=EXPLORE_ROUNDS if len(arms) > 1 else 0,
        use_prior=use_prior,
    )


class Orders:
    """Launch orders of the sweep's plan, remembered."""

    def __init__(self, arms: tuple[str, ...]) -> None:
        self.arms = {a: Arm(a, method="m") for a in arms}
        self.known: dict[tuple[int, int, tuple[str, ...]], tuple[str, ...]] = {}

    def of(self, seed: int, round_: int, arms: tuple[str, ...]) -> tuple[str, ...]:
        """Arms of a round with the baseline, in order."""
        key = (seed, round_, arms)
        if key not in self.known:
            used = [Arm("baseline"), *(self.arms[a] for a in arms)]
            self.known[key] = tuple(a.id for a in arm_order(used, round_, seed))
        return self.known[key]


def simulate(
    truths: dict[str, float], world: World, campaigns: int, seed: int,
    looks: tuple[int, ...] = LOOKS, *, use_prior: bool = False,
) -> Tally:  # fmt: skip
    """Run campaigns to their end; ``truths`` maps each speculative arm to its true ratio."""
    rng = np.random.default_rng(seed)
    arms = tuple(truths)
    campaign = Campaign(rule_for(arms, looks, use_prior=use_prior))
    most = 2 * campaign.rule.max_rounds + campaign.rule.explore_rounds * (len(arms) + 1)
    noise = world.launches(rng, campaigns, most) + rng.standard_normal((campaigns, most)) * world.run_sd
    logs = {"baseline": 0.0, **{a: math.log(s) for a, s in truths.items()}}
    orders, tally = Orders(arms), Tally(campaigns=campaigns)
    for i in range(campaigns):
        _one(campaign, logs, noise[i], orders, i % ORDERS, tally)
    return tally


def _one(
    campaign: Campaign, logs: dict[str, float], noise: Floats, orders: Orders, seed: int, tally: Tally
) -> None:
    explore: dict[tuple[str, str], dict[int, float]] = {(a, LOAD): {} for a in campaign.rule.arms}
    confirm: dict[tuple[str, str], dict[int, float]] = {(a, LOAD): {} for a in campaign.rule.arms}
    done = {"explore": 0, "confirm": 0}
    winner: str | None = None
    launches = 0
    while True:
        seen = Seen(done["explore"], done["confirm"], explore, confirm, winner)
        step = campaign.next(seen)
        if isinstance(step, Stop):
            break
        arms = step.arms if isinstance(step, Explore) else (step.arm,)
        values = {}
        for arm in orders.of(seed, step.round, arms):
            values[arm] = logs[arm] + float(noise[launches])
            launches += 1
        into, kind = (explore, "explore") if isinstance(step, Explore) else (confirm, "confirm")
        if isinstance(step, Confirm):
            if winner is None:
                tally.explored.append(launches - 2)
            winner = step.arm
        for arm in arms:
            into[arm, LOAD][step.round] = math.exp(values[arm] - values["baseline"])
        done[kind] += 1
    state = campaign.state(seen)
    tally.go += state.outcome == "GO"
    tally.no_go += state.outcome == "NO-GO"
    tally.launches.append(launches)
    if winner is not None:
        tally.winners[winner] += 1


WHOLE_RUN_BIAS = 0.072
"""Log units by which throughput over a whole cell favours speculation at 128 in flight, 8 requests per slot
(docs/method.md, "The steady window")."""


def usual_ways(truth: float, world: World, campaigns: int, seed: int) -> dict[str, tuple[float, float, int]]:
    """Name to (P(GO), P(NO-GO), launches) of ways in common use; those without a test always say one of them."""
    rng = np.random.default_rng(seed)
    gain, need = math.log(truth), math.log(THETA)
    launch = world.launches(rng, campaigns, 2)
    runs = launch[:, :, None] + rng.standard_normal((campaigns, 2, 5)) * world.run_sd
    base, spec = runs[:, 0], runs[:, 1] + gain
    one = spec[:, 0] - base[:, 0] >= need
    three = spec[:, :3].mean(axis=1) - base[:, :3].mean(axis=1) >= need
    whole = spec[:, 0] - base[:, 0] + WHOLE_RUN_BIAS >= need
    welch = stats.ttest_ind(spec - need, base, axis=1, equal_var=False)
    bound = stats.t.ppf(1 - ALPHA, welch.df)
    return {
        "one run each": (float(one.mean()), float((~one).mean()), 2),
        "three back-to-back runs, means": (float(three.mean()), float((~three).mean()), 2),
        "one run each, whole-run tokens/s": (float(whole.mean()), float((~whole).mean()), 2),
        "Welch's t on five runs each": (
            float((welch.statistic > bound).mean()),
            float((welch.statistic < -bound).mean()),
            2,
        ),
    }


TRUTHS = (0.90, 1.00, 1.05, 1.10, 1.15, 1.30)


def table(campaigns: int) -> None:
    """Print P(GO) / P(NO-GO) / median launches over truths and machines."""
    print(f"P(GO) / P(NO-GO) / median launches; required {THETA}; {campaigns} campaigns per figure")
    header = "".join(f"{f'S={s:.2f}':>18}" for s in TRUTHS)
    ways = [
        ("adaptive", LOOKS, False, 0.0),
        ("adaptive, 5 % bad", LOOKS, False, 0.05),
        ("adaptive, 5 % bad, looks 3..8", SHORTER, False, 0.05),
    ]
    for sd in (0.01, 0.02, 0.03):
        print(f"\nlaunch sd {sd:.0%}\n{'':34}{header}")
        for name, looks, prior, bad in ways:
            row = ""
            for k, truth in enumerate(TRUTHS):
                t = simulate(
                    {"arm": truth}, World(sd, bad_share=bad), campaigns, 100 + k, looks, use_prior=prior
                )
                row += f"{f'{t.go_share:.3f}/{t.no_go_share:.3f}/{t.median_launches:.0f}':>18}"
            print(f"{name:34}{row}", flush=True)
        rows: dict[str, str] = {}
        for k, truth in enumerate(TRUTHS):
            for name, (go, no, n) in usual_ways(truth, World(sd, bad_share=0.05), 20_000, 200 + k).items():
                rows[name] = rows.get(name, "") + f"{f'{go:.3f}/{no:.3f}/{n}':>18}"
        for name, row in rows.items():
            print(f"{name:34}{row}")


def winner_table(campaigns: int) -> None:
    """Print what happens when five arms are tried."""
    print("\nfive arms, launch sd 2 %")
    equal = {f"a{i}": THETA for i in range(5)}
    mixed = {"a0": 1.00, "a1": 1.05, "a2": 1.09, "a3": 1.12, "a4": 1.08}
    for bad in (0.0, 0.05):
        for prior in (False, True):
            world = World(0.02, bad_share=bad)
            null = simulate(equal, world, campaigns, 300, use_prior=prior)
            real = simulate(mixed, world, campaigns, 301, use_prior=prior)
            regret = sum(n * (1.12 - mixed[a]) for a, n in real.winners.items()) / real.campaigns
            print(
                f"bad launches {bad:.0%}, variance prior {'on' if prior else 'off'}: "
                f"all at {THETA}: GO {null.go_share:.3f}, NO-GO {null.no_go_share:.3f}; "
                f"1.00 to 1.12: GO {real.go_share:.3f}, mean launches {np.mean(real.launches):.1f} "
                f"({np.mean(real.explored):.1f} of them exploring), picked below the best by {regret:.2%}",
                flush=True,
            )


def bars(campaigns: int) -> bool:
    """Print whether the promises of docs/method.md hold, on other draws than those of the table.

    Errors at the threshold are counted on four times as many campaigns: 6 % is then clear of 5 %.
    """
    bad = World(0.02, bad_share=0.05)
    checks: list[tuple[str, float, float]] = []  # what, measured, least
    for k, (sd, share) in enumerate(itertools.product((0.01, 0.02, 0.03), (0.0, 0.05))):
        t = simulate({"arm": THETA}, World(sd, bad_share=share), 4 * campaigns, 500 + k)
        what = f"at {THETA}, launch sd {sd:.0%}, {share:.0%} bad: no false"
        checks += [(f"{what} GO", 1 - t.go_share, 0.94), (f"{what} NO-GO", 1 - t.no_go_share, 0.94)]
    for k, share in enumerate((0.0, 0.05)):
        world, told = World(0.02, bad_share=share), f"launch sd 2%, {share:.0%} bad"
        sure = simulate({"arm": 1.15}, world, campaigns, 401 + 10 * k)
        checks += [
            (f"GO at 1.15, {told}", sure.go_share, 0.99),
            (f"GO at 1.10, {told}", simulate({"arm": 1.10}, world, campaigns, 402 + 10 * k).go_share, 0.90),
            (f"8 launches or fewer at 1.15, {told} (1: yes)", sure.median_launches <= 8, 1),
        ]
    checks.append(
        (
            "best of five equal arms: no false GO",
            1 - simulate({f"a{i}": THETA for i in range(5)}, bad, campaigns, 406).go_share,
            0.94,
        )
    )
    print()
    for what, measured, least in checks:
        print(f"{'kept ' if measured >= least else 'BROKEN'} {measured:.3f} (at least {least:.2f})  {what}")
    return all(measured >= least for _, measured, least in checks)


def main(argv: list[str]) -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--campaigns", type=int, default=2000, help="per figure")
    parser.add_argument("--bars", action="store_true", help="only check the promises")
    args = parser.parse_args(argv)
    start = time.monotonic()
    if not args.bars:
        table(args.campaigns)
        winner_table(args.campaigns)
    kept = bars(args.campaigns)
    print(f"\n{time.monotonic() - start:.0f} s")
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main(sys.argv[1:])
