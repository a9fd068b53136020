"""Engine counters with one meaning for every engine.

An engine's ``/metrics`` page is kept raw; each engine translates it into `EngineCounters`.
All fields are process-lifetime totals (subtract two snapshots); null means the engine does not say.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields


@dataclass(frozen=True, slots=True)
class EngineCounters:
    """Totals since the engine started, unless said otherwise.

    Attributes:
        generation_tokens: tokens given to clients.
        prompt_tokens: prompt tokens received.
        cached_prompt_tokens: prompt tokens served from the prefix cache.
        first_outputs: request outputs that carried a first token (one per prefill).
        decode_outputs: request outputs after the first, one per request and step.
        engine_steps: iterations of the engine loop.
        drafts: request-steps that had a draft.
        draft_tokens: proposed draft tokens.
        accepted_tokens: accepted draft tokens, before truncation at a stop.
        accepted_per_position: accepted drafts at positions 1..K.
        preemptions: requests thrown out of the batch for lack of KV memory.
        finished: requests finished normally (stop or length).
        running: gauge, requests in the batch now.
        waiting: gauge, requests queued now.
        kv_usage: gauge, share of KV memory in use, 0 to 1.
    """

    generation_tokens: float | None = None
    prompt_tokens: float | None = None
    cached_prompt_tokens: float | None = None
    first_outputs: float | None = None
    decode_outputs: float | None = None
    engine_steps: float | None = None
    drafts: float | None = None
    draft_tokens: float | None = None
    accepted_tokens: float | None = None
    accepted_per_position: tuple[float, ...] = field(default=())
    preemptions: float | None = None
    finished: float | None = None
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None


GAUGES = frozenset({"running", "waiting", "kv_usage"})


class CounterReset(ValueError):
    """A counter went backwards: the engine restarted, or the page came from another process."""


def difference(before: EngineCounters, after: EngineCounters) -> EngineCounters:
    """What happened between two snapshots; gauges are taken from ``after``.

    Raises:
        CounterReset: a total is smaller in ``after``.
    """
    values: dict[str, float | tuple[float, ...] | None] = {}
    for f in fields(EngineCounters):
        a, b = getattr(before, f.name), getattr(after, f.name)
        if f.name in GAUGES:
            values[f.name] = b
        elif f.name == "accepted_per_position":
            padded = a + (0.0,) * (len(b) - len(a))
            values[f.name] = tuple(y - x for x, y in zip(padded, b, strict=True)) if len(b) >= len(a) else ()
        elif b is None:
            values[f.name] = None
        else:
            values[f.name] = b - (a or 0.0)
    for name, value in values.items():
        if name in GAUGES or value is None:
            continue
        if any(v < 0 for v in (value if isinstance(value, tuple) else (value,))):
            raise CounterReset(f"engine counter {name} went backwards")
    return EngineCounters(**values)  # type: ignore[arg-type]
