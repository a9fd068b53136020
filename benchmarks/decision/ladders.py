"""How far below the best K do the ways to search it end, and after how many launches?

    python benchmarks/decision/ladders.py

Machines are invented: a roofline step time (weights read once, a compute knee between 90 and 400 tokens), overheads,
a draft that costs 3 to 15 % of the target per token or next to nothing, batches padded to the sizes of graphs, and
per-request acceptance from a beta law, times a coverage for lookup methods. The objective is the mean log speed-up
over concurrency 1, 8, 32 and 128, or over one of them. Launches differ by 2 and 3 % and measurements by 1 and 2 %.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from specbench.config.ladders import rungs
from specbench.verdict.k_curve import curve

KS = tuple(range(1, 9))
LOADS = np.array([1, 8, 32, 128])
GRAPHS = np.array([1, 2, 4, *range(8, 513, 8)])
LADDER = {f"k{k}": k for k in KS}

Floats = NDArray[np.float64]


def machine(rng: np.random.Generator) -> Floats:
    """Mean log speed-up of every K on a random machine."""
    weights_ms = rng.uniform(5, 25)
    token_ms = weights_ms / np.exp(rng.uniform(np.log(90), np.log(400)))
    sharpness, overhead_ms, request_ms = rng.uniform(2.5, 8), rng.uniform(0.8, 4), rng.uniform(0.01, 0.1)
    draft_ms = weights_ms * rng.uniform(0.03, 0.15) * rng.choice([1, 1, 0.02])
    draft_token_ms = token_ms * rng.uniform(0.03, 0.15)
    mean, spread = rng.uniform(0.4, 0.9), rng.uniform(4, 15)
    accept = rng.beta(mean * spread, (1 - mean) * spread, 2000)[:, None]
    survival = np.cumprod(accept * rng.uniform(0.93, 1) ** np.arange(len(KS)), axis=1).mean(axis=0)
    coverage = rng.choice([1.0, 1.0, 0.25])
    loads = LOADS if rng.random() < 0.5 else rng.choice(LOADS, 1)

    def step_ms(batch: Floats, k: int) -> Floats:
        tokens = batch * (k + 1)
        padded = np.where(
            tokens <= 512, GRAPHS[np.minimum(np.searchsorted(GRAPHS, tokens), len(GRAPHS) - 1)], tokens
        )
        verify = (weights_ms**sharpness + (token_ms * padded) ** sharpness) ** (1 / sharpness)
        drafting = 0.5 + k * (draft_ms + draft_token_ms * batch) if k else 0.0
        return np.asarray(verify + overhead_ms + request_ms * batch + drafting)

    gains = [1 + coverage * survival[:k].sum() for k in KS]
    return np.array(
        [np.mean(np.log(g * step_ms(loads, 0) / step_ms(loads, k))) for k, g in zip(KS, gains, strict=True)]
    )


def round_of(gain: Floats, ks: list[int], sd: float, rng: np.random.Generator) -> dict[int, float]:
    """Log ratios of some values of K in one round, whose baseline they share."""
    base = rng.normal(0, sd)
    return {k: float(gain[k - 1] + rng.normal(0, sd) - base) for k in ks}


def grid(rounds: int) -> Callable[[Floats, float, np.random.Generator], tuple[int, int]]:
    """Every K in every round, the highest mean wins."""

    def search(gain: Floats, sd: float, rng: np.random.Generator) -> tuple[int, int]:
        seen = [round_of(gain, list(KS), sd, rng) for _ in range(rounds)]
        return max(KS, key=lambda k: sum(s[k] for s in seen)), rounds * len(KS)

    return search


def climb(gain: Floats, sd: float, rng: np.random.Generator) -> tuple[int, int]:
    """From K = 3 to the better neighbour, until neither is better."""
    seen = round_of(gain, [3], sd, rng)
    at = 3
    while True:
        near = [k for k in (at - 1, at + 1) if k in KS and k not in seen]
        seen |= round_of(gain, near, sd, rng)
        best = max(seen, key=lambda k: seen[k])
        if best == at:
            return at, len(seen)
        at = best


def by_curve(gain: Floats, sd: float, rng: np.random.Generator) -> tuple[int, int]:
    """What an adaptive sweep does."""
    chosen = rungs(LADDER)
    seen = round_of(gain, [LADDER[a] for a in chosen], sd, rng)
    fitted = curve(LADDER, {a: seen[LADDER[a]] for a in chosen})
    return LADDER[max(fitted, key=lambda a: fitted[a])], len(chosen)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--machines", type=int, default=2000)
    args = parser.parse_args()
    began = time.perf_counter()
    rng = np.random.default_rng(1)
    gains = [machine(rng) for _ in range(args.machines)]
    ways = {
        "all eight, one round": grid(1),
        "all eight, two rounds": grid(2),
        "hill climbing from K = 3": climb,
        "four and a curve": by_curve,
        "K = 3 without looking": lambda *_: (3, 0),
    }
    for launch, run in ((0.02, 0.01), (0.03, 0.02)):
        sd = float(np.hypot(launch, run))
        print(f"launches differ by {launch:.0%}, measurements by {run:.0%}")
        for name, search in ways.items():
            found = [search(g, sd, rng) for g in gains]
            regret = np.array([g.max() - g[k - 1] for g, (k, _) in zip(gains, found, strict=True)])
            launches = np.mean([n for _, n in found])
            print(
                f"  {name:26} {launches:5.2f} speculative launches; below the best K by {regret.mean():.2%} on "
                f"average, {np.quantile(regret, 0.9):.2%} in a tenth of the cases",
                flush=True,
            )
    print(f"{args.machines} machines, {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
