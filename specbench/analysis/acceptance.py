"""Acceptance from engine counters, or from the requests' own counts: one meaning for every engine.

Formulas (docs/method.md, "Acceptance"):

- acceptance length = 1 + accepted / drafts, the bonus token included
- acceptance rate = accepted / draft tokens
- position acceptance i = accepted at position i / drafts, unconditional
- coverage = drafts / decode outputs (drafted steps over all steps)
- tokens per step = (generation tokens - first outputs) / decode outputs

Cells are pooled by adding their counters, never by averaging their ratios: a request that accepts little
takes more steps, so the mean of per-request ratios overstates.

An engine whose counters hold no drafts (SGLang) tells them with each request. Then the same formulas are
applied to the sums over the requests that ended in the window, and position acceptance comes from the
histogram of accepted tokens per step: P(i) = sum(histogram[i:]) / sum(histogram). Coverage and tokens per
step need undrafted steps, which no request tells, and stay null.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from specbench.load.record import RequestAcceptance
from specbench.observe.counters import GAUGES, EngineCounters

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from specbench.runs.records import ArmRecord

FROM_COUNTERS: Final = "engine counters over the steady windows"
FROM_REQUESTS: Final = "per-request counts of the requests that ended in the steady windows"
FROM_CHUNKS: Final = "tokens per chunk as the client received them: the server gives no counters"

CHUNKS_BIAS: Final = (
    "chunks that arrive together count as one step, and steps without a draft are in it: no acceptance length"
)
PAST_THE_END: Final = (
    "tokens accepted past a request's end are counted, so length, rate and positions are up to one step's "
    "worth per request too high"
)
NGRAM_BUDGET: Final = (
    "the rate divides by the whole node budget of every step, also where nothing matched, and a tree cannot "
    "accept all its nodes: not comparable with a chain's"
)
ADAPTIVE_RATE: Final = (
    "no rate: the engine counts proposed tokens by the launch-time K, whatever K was in use"
)


@dataclass(frozen=True, slots=True)
class AcceptanceFigures:
    """See the module text; null where the engine does not count it or nothing was drafted.

    ``source`` says what was counted, ``bias`` what is known to be off about it; both null without a number.
    """

    length: float | None
    rate: float | None
    per_position: tuple[float, ...]
    coverage: float | None
    tokens_per_step: float | None
    why_null: str | None = None
    source: str | None = None
    bias: str | None = None


def pool(deltas: Iterable[EngineCounters]) -> EngineCounters:
    """Add the counters of several windows; gauges become their maximum. A null part makes a null sum."""
    parts = list(deltas)
    if not parts:
        return EngineCounters()
    values: dict[str, float | tuple[float, ...] | None] = {}
    for f in fields(EngineCounters):
        own = [getattr(p, f.name) for p in parts]
        if f.name == "accepted_per_position":
            width = max(len(v) for v in own)
            values[f.name] = tuple(sum(v[i] for v in own if i < len(v)) for i in range(width))
        elif any(v is None for v in own):
            values[f.name] = None
        else:
            values[f.name] = max(own) if f.name in GAUGES else sum(own)
    return EngineCounters(**values)  # type: ignore[arg-type]  # one field is a tuple, the others are floats


def figures(delta: EngineCounters) -> AcceptanceFigures:
    """Acceptance of a window, or of several pooled ones."""
    steps = _ratio(_minus(delta.generation_tokens, delta.first_outputs), delta.decode_outputs)
    if delta.drafts is None:
        return AcceptanceFigures(None, None, (), None, steps, "the engine counts no drafts (not speculating)")
    if delta.drafts == 0:
        return AcceptanceFigures(
            None, None, (), 0.0 if delta.decode_outputs else None, steps, "no step had a draft in the window"
        )
    accepted = delta.accepted_tokens
    return AcceptanceFigures(
        length=None if accepted is None else 1 + accepted / delta.drafts,
        rate=_ratio(accepted, delta.draft_tokens),
        per_position=tuple(n / delta.drafts for n in delta.accepted_per_position),
        coverage=_ratio(delta.drafts, delta.decode_outputs),
        tokens_per_step=steps,
        source=FROM_COUNTERS,
        bias=PAST_THE_END,
    )


def pool_requests(parts: Iterable[RequestAcceptance | None]) -> RequestAcceptance | None:
    """Add the counts of several requests; null without any. A null count makes a null sum."""
    known = [p for p in parts if p is not None]
    if not known:
        return None
    draft = [p.draft_tokens for p in known]
    accepted = [p.accepted_tokens for p in known]
    histograms = [p.histogram for p in known]
    width = max(map(len, histograms)) if all(histograms) else 0
    return RequestAcceptance(
        drafted_steps=sum(p.drafted_steps for p in known),
        draft_tokens=sum(n for n in draft if n is not None) if None not in draft else None,
        accepted_tokens=sum(n for n in accepted if n is not None) if None not in accepted else None,
        histogram=tuple(sum(h[i] for h in histograms if i < len(h)) for i in range(width)),
    )


def figures_of_requests(pooled: RequestAcceptance, arm: ArmRecord) -> AcceptanceFigures:
    """Acceptance from the requests' own counts; what is biased depends on the method."""
    if not pooled.drafted_steps:
        return AcceptanceFigures(None, None, (), None, None, "no request had a drafted step")
    steps, histogram = pooled.drafted_steps, pooled.histogram
    accepted = pooled.accepted_tokens
    if accepted is None and histogram:
        accepted = sum(i * n for i, n in enumerate(histogram))
    adaptive = any(
        name.replace("-", "_").removeprefix("speculative_") == "adaptive" and value is True
        for name, value in arm.settings.items()
    )
    bias = [PAST_THE_END]
    if adaptive:
        bias.append(ADAPTIVE_RATE)
    elif is_ngram(arm):
        bias.append(NGRAM_BUDGET)
    # A histogram ends at the most that was ever accepted; the positions after it were accepted never.
    histogram = (*histogram, *(0,) * (_chain_length(arm) + 1 - len(histogram))) if histogram else ()
    seen = sum(histogram)
    return AcceptanceFigures(
        length=None if accepted is None else 1 + accepted / steps,
        rate=None if adaptive else _ratio(accepted, pooled.draft_tokens),
        per_position=tuple(sum(histogram[i:]) / seen for i in range(1, len(histogram))) if seen else (),
        coverage=None,
        tokens_per_step=None,
        source=FROM_REQUESTS,
        bias="; ".join(bias),
    )


def acceptance(
    windows: Sequence[EngineCounters],
    requests: Iterable[RequestAcceptance | None],
    arm: ArmRecord,
    tokens_per_chunk: float | None = None,
) -> AcceptanceFigures:
    """Acceptance of an arm at a load: from the counters when they hold drafts, else from the requests.

    Args:
        tokens_per_chunk: the client's count, which stands in for tokens per step where nothing else is known.
    """
    pooled = pool(windows)
    if pooled.drafts is None:
        own = pool_requests(requests)
        if own is not None:
            return figures_of_requests(own, arm)
        if pooled.generation_tokens is None and tokens_per_chunk is not None:
            why = "the server gives no counters and no counts per request"
            return AcceptanceFigures(None, None, (), None, tokens_per_chunk, why, FROM_CHUNKS, CHUNKS_BIAS)
        if not windows:
            return AcceptanceFigures(None, None, (), None, None, "no engine counters in a valid window")
    return figures(pooled)


def _chain_length(arm: ArmRecord) -> int:
    """Positions that an arm drafts in every step; 0 where that is not known."""
    if is_ngram(arm):
        return 0
    for name, value in arm.settings.items():
        if name.replace("-", "_").removeprefix("speculative_") == "num_steps" and isinstance(value, int):
            return value
    return arm.k or 0


def is_ngram(arm: ArmRecord) -> bool:
    """Whether an arm drafts from an n-gram index."""
    return (arm.method or "").lower().startswith("ngram")


def _ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None


def _minus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b
