"""The outcome of parity tests, as stored in ``parity/result.json``."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

RESULT_SCHEMA: Final = "specbench.parity-result/1"

Decision = Literal["PASS", "FAIL", "INCONCLUSIVE"]
TaskDecision = Literal["EQUIVALENT", "FAIL", "NOT SHOWN"]


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


class TaskParity(msgspec.Struct, frozen=True, kw_only=True):
    """Mean task scores of an arm and of the baseline, paired by prompt over all loads and temperatures.

    Attributes:
        prompts: that both have scores of; the unit of every test. 0 and nulls where nothing could be compared.
        difference: arm less baseline, with its 90% interval.
        p: two-sided, that there is no difference.
        margin: largest difference that counts as equal.
        prompts_needed: that would show equality if there is no difference; null where it is decided.
        decision: EQUIVALENT alone makes no PASS.
    """

    prompts: int = 0
    mean_arm: float | None = None
    mean_baseline: float | None = None
    difference: Interval | None = None
    p: float | None = None
    margin: float
    prompts_needed: int | None = None
    decision: TaskDecision
    words: str


class ArmParity(msgspec.Struct, frozen=True, kw_only=True):
    """One speculative arm over its loads; ``task`` is null without a scorer."""

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
    task: TaskParity | None = None


class ParityResult(msgspec.Struct, frozen=True, kw_only=True):
    """All arms of a run."""

    schema: str = RESULT_SCHEMA
    tier: str
    arms: tuple[ArmParity, ...]
