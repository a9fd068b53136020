"""Acceptance from engine counters: one meaning for every engine.

Formulas (docs/method.md, "Acceptance"):

- acceptance length = 1 + accepted / drafts, the bonus token included
- acceptance rate = accepted / draft tokens
- position acceptance i = accepted at position i / drafts, unconditional
- coverage = drafts / decode outputs (drafted steps over all steps)
- tokens per step = (generation tokens - first outputs) / decode outputs

Cells are pooled by adding their counters, never by averaging their ratios: a request that accepts little
takes more steps, so the mean of per-request ratios overstates.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from specbench.observe.counters import GAUGES, EngineCounters

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class AcceptanceFigures:
    """See the module text; null where the engine does not count it or nothing was drafted."""

    length: float | None
    rate: float | None
    per_position: tuple[float, ...]
    coverage: float | None
    tokens_per_step: float | None
    why_null: str | None = None


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
    )


def _ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None


def _minus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b
