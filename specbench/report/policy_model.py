"""The parts of ``result.json`` about what to deploy at which load, and about the open-loop check."""

from __future__ import annotations

from typing import Literal

import msgspec


class EnableRange(msgspec.Struct, frozen=True, kw_only=True):
    """From the lowest measured concurrency up to which an arm is GO, and the words that deploy it there."""

    arm: str
    engine: str
    """Kind and version."""
    first: int
    last: int
    beyond: int | None
    """Lowest measured concurrency above it; null when it is GO up to the highest one."""
    crossover: float | None = None
    """Concurrency at which it falls to the required speed-up, between those two."""
    crossover_low: float | None = None
    """Lower end of its interval: switching off there never deploys what may not pay."""
    crossover_high: float | None = None
    flags: tuple[str, ...] = ()


class KStep(msgspec.Struct, frozen=True, kw_only=True):
    """From ``first`` to ``last`` running requests, draft ``k`` tokens; the last step goes on above."""

    first: int
    last: int
    k: int


class KSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """K by load of one method and draft.

    ``suggested`` is made of single Ks and was not measured; the other states are those of the run that
    measured it, as an arm of its own.
    """

    arm: str
    method: str
    draft: str | None
    engine: str
    steps: tuple[KStep, ...]
    status: Literal["suggested", "recommended", "rejected", "open"]
    flags: tuple[str, ...] = ()
    """Words to add to the engine's command line; empty where the engine cannot do it."""
    why_no_flags: str | None = None
    reasons: tuple[str, ...] = ()
    confirms: str | None = None
    """Id of the run that suggested it."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What to deploy at which load."""

    enable: tuple[EnableRange, ...] = ()
    schedules: tuple[KSchedule, ...] = ()


class OpenGuard(msgspec.Struct, frozen=True, kw_only=True):
    """One guardrail at one rate; ``state`` is null where it cannot be estimated."""

    metric: str
    state: Literal["pass", "fail", "open"] | None
    text: str
    per_round: tuple[float, ...] = ()
    """Ratios to the baseline's, or to the limit; more is worse."""


class OpenRate(msgspec.Struct, frozen=True, kw_only=True):
    """One rate of the open-loop check."""

    load: str
    share: float
    """Of the baseline's requests/s."""
    rate_per_s: float
    pairs: int
    """Rounds with a valid cell of both arms."""
    guards: tuple[OpenGuard, ...]


class OpenCheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """The guardrails of the recommended arm when requests arrive on their own."""

    state: Literal["pass", "fail", "open", "none"]
    """``none``: no arm was recommended, so that there was nothing to check."""
    arm: str | None = None
    reference: str | None = None
    """Closed load at which the baseline's requests/s were taken."""
    requests_per_s: float | None = None
    rates: tuple[OpenRate, ...] = ()
    reasons: tuple[str, ...] = ()
    ended: str | None = None
    """Why it ended; null while it has not."""
