"""Records of the manifest that came with checks of their own: production traffic, and the open-loop check."""

from __future__ import annotations

import msgspec


class ProductionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Where the traffic weights come from when they were read from production.

    ``share`` is by load id, over the time in which something ran; ``below`` and ``above`` are the parts of it
    outside of the measured concurrencies, which count at the ends. ``idle`` is of all time.
    """

    file: str
    sha256: str
    metrics: tuple[str, ...]
    servers: int
    samples: int
    seconds: float | None
    share: dict[str, float]
    idle: float
    below: float
    above: float


class ConfirmsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The suggestion that a run confirms: an arm with K by load, from the run that suggested it.

    ``ranges`` are (first, last, K) of running requests; ``edges`` the loads on both sides of every switch.
    """

    run_id: str
    arm: str
    ranges: tuple[tuple[int, int, int], ...]
    edges: tuple[int, ...]


class OpenCheckLoad(msgspec.Struct, frozen=True, kw_only=True):
    """A rate of the open-loop check: a share of what the baseline turns out to do.

    ``workload_digest`` is that of the requests with their arrivals at 1 per second; the rate only stretches them.
    """

    id: str
    share: float
    requests: int
    workload_digest: str
    repeats: bool = False


class OpenCheckRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The open-loop check as registered before the first launch.

    It is looked at after ``first_look`` pairs of launches and, if something is open, after ``rounds``.
    """

    loads: tuple[OpenCheckLoad, ...]
    rounds: int
    first_look: int
    margins: dict[str, float]
