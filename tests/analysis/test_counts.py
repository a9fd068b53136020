"""Counts of the same tokens that differ, and what is said then."""

from __future__ import annotations

from specbench.analysis.counts import chunks_merged, engine_disagrees, scrape_errors, usage_disagrees
from specbench.load.record import RequestRecord
from specbench.observe.counters import EngineCounters


def record(*chunk_tokens: int, usage: int | None, finish: str | None = "stop") -> RequestRecord:
    return RequestRecord(
        id="r",
        index=0,
        category="c",
        intended_s=0.0,
        chunk_s=[float(i) for i in range(len(chunk_tokens))],
        chunk_tokens=list(chunk_tokens),
        output_tokens=usage,
        finish_reason=finish,
    )


def test_equal_counts_say_nothing() -> None:
    records = [record(1, 3, 2, usage=6)] * 4
    counters = EngineCounters(generation_tokens=24, first_outputs=4, decode_outputs=8)
    assert usage_disagrees(records) is None
    assert engine_disagrees(records, counters) is None
    assert chunks_merged(records, counters) is None


def test_a_chunk_that_lost_a_token() -> None:
    words = usage_disagrees([record(1, 3, 2, usage=6), record(1, 3, 1, usage=6)])
    assert words is not None
    assert "1 of 2 requests" in words
    assert "(11 and 12 in all)" in words


def test_what_nobody_counted_is_not_compared() -> None:
    """A chunk of unknown size, a request without usage, one that failed."""
    assert (
        usage_disagrees([record(-1, usage=6), record(3, usage=None), record(1, usage=9, finish=None)]) is None
    )


def test_another_client_shows_in_the_engines_counter() -> None:
    records = [record(1, 1, usage=2)] * 100
    assert engine_disagrees(records, EngineCounters(generation_tokens=200.9)) is None
    words = engine_disagrees(records, EngineCounters(generation_tokens=260))
    assert words is not None
    assert "the client saw 200, the engine made 260" in words


def test_no_counter_is_no_disagreement() -> None:
    records = [record(1, 1, usage=2)]
    for counters in (None, EngineCounters(), EngineCounters(generation_tokens=0)):
        assert engine_disagrees(records, counters) is None
        assert chunks_merged(records, counters) is None


def test_merged_chunks_are_told_beyond_two_percent() -> None:
    """100 outputs: 1 first and 99 later ones."""
    counters = EngineCounters(first_outputs=1, decode_outputs=99)
    assert chunks_merged([record(*[1] * 99, usage=100)], counters) is None
    words = chunks_merged([record(*[1] * 90, 5, 5, usage=100)], counters)
    assert words is not None
    assert words.startswith("8% of the engine's outputs")
    assert "92 chunks of 100" in words


def test_a_scrape_that_fails_four_times_is_told_once() -> None:
    errors = ["start: HTTP 404 from /metrics", "window_open: timeout: 30 s", "end: HTTP 404 from /metrics"]
    assert scrape_errors(errors) == [
        "counters: HTTP 404 from /metrics (start, end)",
        "counters: timeout: 30 s (window_open)",
    ]
