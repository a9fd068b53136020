"""The same tokens, counted in several ways: what it means when they differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from specbench.load.dialect import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from specbench.load.record import RequestRecord
    from specbench.observe.counters import EngineCounters

MAX_COUNT_MISMATCH: Final = 0.005
"""Largest relative difference between two counts of generated tokens."""

MAX_MERGED_SHARE: Final = 0.02
"""With more of the engine's outputs than this merged on arrival, chunk gaps are not the engine's steps."""


def usage_disagrees(records: Iterable[RequestRecord]) -> str | None:
    """Tokens by the chunks (ids, or growth of the running usage) against the final usage of a request.

    Requests with a chunk whose share nobody told are left out: there the usage is the only count.
    """
    told = [
        (sum(r.chunk_tokens), r.output_tokens)
        for r in records
        if r.ok and r.output_tokens is not None and UNKNOWN not in r.chunk_tokens
    ]
    chunks, usage = sum(c for c, _ in told), sum(u for _, u in told)
    if not usage or abs(chunks - usage) / usage <= MAX_COUNT_MISMATCH:
        return None
    off = sum(1 for c, u in told if c != u)
    return (
        f"{off} of {len(told)} requests carried another number of tokens in their chunks than their usage "
        f"says ({chunks} and {usage} in all): tokens/s counts the chunks, lengths the usage"
    )


def engine_disagrees(records: Iterable[RequestRecord], counters: EngineCounters | None) -> str | None:
    """The clients' usage against the engine's counter over the whole cell."""
    engine = counters.generation_tokens if counters is not None else None
    if not engine:
        return None
    counted = sum(r.output_tokens or 0 for r in records)
    if abs(counted - engine) / engine <= MAX_COUNT_MISMATCH:
        return None
    return (
        f"token counts disagree: the client saw {counted}, the engine made {engine:.0f}: "
        "another client may be using this server"
    )


def chunks_merged(records: Iterable[RequestRecord], counters: EngineCounters | None) -> str | None:
    """Chunks that arrived against outputs that the engine made, one per request and step."""
    if counters is None or counters.first_outputs is None or not counters.decode_outputs:
        return None
    outputs = counters.first_outputs + counters.decode_outputs
    chunks = sum(len(r.chunk_s) for r in records)
    merged = 1 - chunks / outputs
    if merged <= MAX_MERGED_SHARE:
        return None
    return (
        f"{merged:.0%} of the engine's outputs arrived together with another ({chunks} chunks of "
        f"{outputs:.0f} outputs): chunk gaps are longer than the engine's steps, tokens and TPOT are right"
    )


def scrape_errors(errors: Sequence[str]) -> list[str]:
    """Failed scrapes, each cause once with the moments at which it came."""
    moments: dict[str, list[str]] = {}
    for error in errors:
        at, _, what = error.partition(": ")
        moments.setdefault(what or error, []).append(at)
    return [f"counters: {what} ({', '.join(at)})" for what, at in moments.items()]
