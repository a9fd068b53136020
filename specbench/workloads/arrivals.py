"""Arrival times of open and trace loads, fixed before anything starts, the same in every process."""

from __future__ import annotations

import hashlib
import itertools
import random

from specbench.config.model import OpenLoad


def arrival_times(load: OpenLoad, count: int, seed: int) -> list[float]:
    """``count`` times in seconds, the first 0, with a mean rate of exactly ``load.rate``.

    Gaps are exponential (Poisson process) or gamma with coefficient of variation ``cv``: shape 1/cv², as the
    burstiness of vLLM's and SGLang's benchmarks. They are stretched to the mean asked for, so that a short
    cell offers what its name says and not what the draw gave.
    """
    shape = 1.0 if load.arrivals == "poisson" else 1.0 / load.cv**2
    return gamma_times(load.rate, shape, count, f"{load.id}/{seed}")


def gamma_times(rate_per_s: float, shape: float, count: int, label: str) -> list[float]:
    """A renewal process of gamma gaps, stretched to its rate; ``label`` alone decides the draw."""
    rng = random.Random(seed_of("arrivals", label))  # noqa: S311 - a schedule, not a secret
    gaps = [rng.gammavariate(shape, 1.0) for _ in range(count - 1)]
    total = sum(gaps)
    if total <= 0.0:
        gaps, total = [1.0] * (count - 1), float(count - 1)
    scale = (count - 1) / rate_per_s / total if count > 1 else 0.0
    return [0.0, *itertools.accumulate(gap * scale for gap in gaps)]


def jitter_s(identity: str, seed: int, below_s: float) -> float:
    """A uniform draw from [0, below_s) that depends on the request and the seed alone."""
    return below_s * random.Random(seed_of("jitter", f"{seed}/{identity}")).random()  # noqa: S311


def seed_of(*parts: object) -> int:
    """A seed from SHA-256: never from ``hash()``, which differs between processes."""
    text = "\x00".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8])
