"""``specbench compare`` as data: what its terminal, Markdown, JUnit and JSON outputs print."""

from __future__ import annotations

from typing import Final

import msgspec

from specbench.report.model import Decision

SCHEMA: Final = "specbench.comparison/1"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of the recorded run, of the new one, and new over recorded with its interval.

    ``before`` and ``after`` are geometric means over launches; ``launches`` counts those of each.
    """

    before: float | None
    after: float | None
    ratio: float | None
    low: float | None
    high: float | None
    launches: tuple[int, int]
    why_null: str | None = None


class ArmChange(msgspec.Struct, frozen=True, kw_only=True):
    """An arm at a load, or over the traffic (``load`` null).

    Attributes:
        speed: output tokens/s; at an open load or a trace 1 / mean latency in seconds; over the traffic relative
            to the recorded run.
        speedup: over the baseline of its own run; null for the baseline.
        tokens_per_step: of a request; null over the traffic.
        tails: percentile's name to milliseconds; null over the traffic.
    """

    arm: str
    load: str | None
    decision: Decision
    reasons: tuple[str, ...]
    speed: Change
    speedup: Change | None = None
    tokens_per_step: Change | None = None
    tails: dict[str, Change] | None = None


class RunName(msgspec.Struct, frozen=True, kw_only=True):
    """Which run, of what."""

    run_id: str
    created_utc: str
    target: str
    engine: str
    specbench: str


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A new run against a recorded one.

    Attributes:
        required: ratio of speed-ups that must be kept.
        slowest: ratio of speeds that must be kept.
        arms: over the traffic first, then by load.
        changes: what was not the same in the two runs, a line each.
        left_out: arms and loads that could not be compared.
    """

    schema: str = SCHEMA
    name: str
    verdict: Decision
    exit_code: int
    headline: str
    reasons: tuple[str, ...]
    required: float
    slowest: float
    confidence: float
    before: RunName
    after: RunName
    arms: tuple[ArmChange, ...]
    changes: tuple[str, ...]
    left_out: tuple[str, ...]
