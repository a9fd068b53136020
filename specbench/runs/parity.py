"""The outcome of parity tests, as stored in ``parity/result.json``."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

RESULT_SCHEMA: Final = "specbench.parity-result/1"

Decision = Literal["PASS", "FAIL", "INCONCLUSIVE"]


class TestResult(msgspec.Struct, frozen=True, kw_only=True):
    """One test: its p-value, the same after Holm's correction over the arm's tests, and what it saw."""

    __test__ = False  # not a test case, whatever pytest makes of the name

    load: str
    name: str
    p: float
    p_holm: float
    words: str


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """An effect with its 90% interval."""

    value: float
    low: float
    high: float


class LoadParity(msgspec.Struct, frozen=True, kw_only=True):
    """One arm at one load.

    Attributes:
        beta: effective inverse temperature, relative to the scorer's; null without sampled outputs.
        d_beta, d_top1: arm less baseline: inverse temperature, share of likeliest tokens.
        has_draft_direction: whether leakage along the draft can be seen.
        divergences: greedy outputs that differ from the baseline's somewhere; of these ``tied`` at equal
            logits, and ``unexplained`` at a margin that rounding does not bridge.
        open_questions: what keeps this load from a PASS though no test failed.
    """

    load: str
    tokens: int
    greedy_tokens: int
    sampled_tokens: int
    has_draft_direction: bool
    tests: tuple[TestResult, ...]
    beta: Interval | None
    d_beta: Interval | None
    d_top1: Interval | None
    bug_rate_upper95: float | None
    divergences: int
    divergences_unexplained: int
    divergences_tied: int
    open_questions: tuple[str, ...]


class ArmParity(msgspec.Struct, frozen=True, kw_only=True):
    """One speculative arm over its loads."""

    arm: str
    tier: str
    decision: Decision
    headline: str
    reasons: tuple[str, ...]
    lossy: tuple[str, ...]
    escalate: bool
    tokens: int
    bug_rate_upper95: float | None
    loads: tuple[LoadParity, ...]


class ParityResult(msgspec.Struct, frozen=True, kw_only=True):
    """All arms of a run."""

    schema: str = RESULT_SCHEMA
    tier: str
    arms: tuple[ArmParity, ...]
