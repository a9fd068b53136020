"""A request inside the engine, and what a step gives it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from specbench.engines.simulated.lm import Context
from specbench.engines.simulated.sampling import Probabilities
from specbench.engines.simulated.speculation import NgramLookup

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """What a request asks of its tokens. ``logprobs`` is the number of alternatives, null for none."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    ignore_eos: bool = False
    logprobs: int | None = None


@dataclass(slots=True)
class DraftStats:
    """Drafting of one request or of one step; counted before truncation at a stop, as vLLM does."""

    drafts: int = 0
    draft_tokens: int = 0
    accepted: int = 0
    per_step_drafted: list[int] = field(default_factory=list)
    per_step_accepted: list[int] = field(default_factory=list)

    def add(self, drafted: int, accepted: int) -> None:
        """Count a drafted step."""
        self.drafts += 1
        self.draft_tokens += drafted
        self.accepted += accepted
        self.per_step_drafted.append(drafted)
        self.per_step_accepted.append(accepted)


class Sequence:
    """One request inside the engine."""

    __slots__ = (
        "cached_tokens",
        "context",
        "draft_stats",
        "id",
        "lookup",
        "output",
        "params",
        "preemptions",
        "prompt",
        "rng",
        "to_prefill",
    )

    def __init__(self, id: int, prompt: list[int], params: SamplingParams) -> None:  # noqa: A002
        self.id = id
        self.prompt = prompt
        self.params = params
        self.output: list[int] = []
        self.context = Context()
        self.lookup: NgramLookup | None = None
        self.rng = None if params.seed is None else np.random.default_rng(params.seed)
        self.cached_tokens = 0
        self.to_prefill = 0
        self.preemptions = 0
        self.draft_stats = DraftStats()

    def __len__(self) -> int:
        return len(self.prompt) + len(self.output)


@dataclass(slots=True)
class Output:
    """What one step gave one request; ``logprobs`` is [len(tokens), V] when asked for."""

    sequence: Sequence
    tokens: list[int]
    first: bool
    finish_reason: FinishReason | None = None
    logprobs: Probabilities | None = None


@dataclass(slots=True)
class Step:
    """One iteration of the engine. Durations are simulated milliseconds."""

    duration_ms: float
    outputs: list[Output]
    prefill_tokens: int
    cached_tokens: int
    queried_tokens: int
    preemptions: int
    drafting: DraftStats
