"""The table of definitions in docs/method.md ("What is counted and timed"), held for any stream of chunks."""

from __future__ import annotations

import itertools
import json

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench.analysis.latency import MIN_TPOT_TOKENS, measure, tpot_s, ttft_s
from specbench.analysis.window import Window
from specbench.load.record import RequestRecord
from specbench.observe.client import judge

ALL = Window(-1.0, 1e6, 0)
CHUNKS = st.lists(st.tuples(st.floats(0.001, 2.0), st.integers(1, 8)), min_size=1, max_size=40)


def record(chunks: list[tuple[float, int]], intended_s: float = 0.0, late_s: float = 0.0) -> RequestRecord:
    """A finished request from the gaps before its chunks and their tokens."""
    times = [float(t) for t in np.cumsum([gap for gap, _ in chunks]) + intended_s + late_s]
    return RequestRecord(
        id="r",
        index=0,
        category="c",
        intended_s=intended_s,
        sent_s=intended_s + late_s,
        end_s=times[-1],
        chunk_s=times,
        chunk_tokens=[n for _, n in chunks],
        output_tokens=sum(n for _, n in chunks),
        finish_reason="stop",
    )


@given(CHUNKS, st.floats(0, 5))
def test_ttft_holds_the_lateness_of_the_client(chunks: list[tuple[float, int]], late_s: float) -> None:
    assert ttft_s(record(chunks, 1.0, late_s)) == pytest.approx(chunks[0][0] + late_s)


@given(CHUNKS)
def test_tpot_times_tokens_is_the_time_after_the_first_chunk(chunks: list[tuple[float, int]]) -> None:
    found = tpot_s(record(chunks))
    later = sum(n for _, n in chunks[1:])
    if len(chunks) == 1:
        assert found is None
    else:
        assert found is not None
        assert found * later == pytest.approx(sum(gap for gap, _ in chunks[1:]))


@pytest.mark.parametrize("tokens", [1, 5])
def test_an_output_of_one_chunk_has_no_tpot_and_no_gap(tokens: int) -> None:
    """Neither zero nor a division by zero: null, and left out of the pool."""
    times = measure([record([(0.5, tokens)])], ALL)
    assert tpot_s(record([(0.5, tokens)])) is None
    assert times.tpot_s.size == 0
    assert times.chunk_gap_s.size == 0
    assert times.by_category["c"].tpot_s is None
    assert times.by_category["c"].tokens_per_chunk is None


@given(CHUNKS)
def test_chunk_gaps_of_a_request_add_up_to_its_decode_time(chunks: list[tuple[float, int]]) -> None:
    times = measure([record(chunks)], ALL)
    assert times.chunk_gap_s.size == len(chunks) - 1
    assert times.chunk_gap_s.sum() == pytest.approx(sum(gap for gap, _ in chunks[1:]))


def test_gaps_stay_inside_a_request() -> None:
    """Two requests side by side: the time between a chunk of one and a chunk of the other is no gap."""
    times = measure([record([(1.0, 1), (1.0, 1)]), record([(1.5, 1), (1.0, 1)])], ALL)
    assert times.chunk_gap_s.tolist() == [1.0, 1.0]


def test_chunk_gap_and_tpot_are_two_measures() -> None:
    """Four tokens in each chunk: the gap is four times the time per token."""
    times = measure([record([(0.1, 4)] * 10)], ALL)
    assert times.chunk_gap_s.mean() == pytest.approx(0.1)
    assert times.tpot_s.mean() == pytest.approx(0.025)


def test_tpot_percentiles_need_sixteen_tokens() -> None:
    for tokens, kept in ((MIN_TPOT_TOKENS - 1, 0), (MIN_TPOT_TOKENS, 1)):
        assert measure([record([(0.1, 1)] * tokens)], ALL).tpot_s.size == kept


@given(st.lists(CHUNKS, min_size=1, max_size=8), st.integers(1, 12))
def test_the_peak_of_the_parts_is_at_least_the_mean(
    streams: list[list[tuple[float, int]]], parts: int
) -> None:
    """Parts of a window share no token and lose none, so that no mean is above the best part."""
    records = [record(chunks) for chunks in streams]
    edges = np.linspace(0.0, max(r.chunk_s[-1] for r in records), parts + 1)
    whole = measure(records, Window(edges[0], edges[-1], 0))
    each = [measure(records, Window(a, b, 0)) for a, b in itertools.pairwise(edges)]
    assert whole.tokens == sum(part.tokens or 0 for part in each)
    assert whole.chunks == sum(part.chunks for part in each)
    assert whole.output_tokens_per_s is not None
    peak = max(part.output_tokens_per_s or 0.0 for part in each)
    assert peak >= whole.output_tokens_per_s * (1 - 1e-9)


@given(st.lists(CHUNKS, min_size=1, max_size=5))
def test_every_number_is_finite_or_null(streams: list[list[tuple[float, int]]]) -> None:
    times = measure([record(chunks) for chunks in streams], ALL)
    assert all(np.isfinite(a).all() for a in (times.ttft_s, times.tpot_s, times.chunk_gap_s))


def test_a_client_that_measured_nothing_is_written_without_nan() -> None:
    report = judge(duration_s=0.0, lags_s=[], cpu_share=None, send_lateness_s=[], open_file_limit=None)
    text = msgspec.json.encode(report).decode()
    assert "NaN" not in text
    assert json.loads(text)["loop_lag_p99_s"] is None
