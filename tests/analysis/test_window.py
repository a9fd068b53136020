"""The steady window and what is counted inside it."""

from __future__ import annotations

import pytest

from specbench.analysis.latency import measure, tokens_inside, tpot_s, ttft_s
from specbench.analysis.window import NoWindowError, Window, steady_window
from specbench.load.record import ErrorClass, RequestRecord
from tests.synthetic import Pace, closed_loop


def request(chunks: list[tuple[float, int]], *, intended: float = 0.0, ok: bool = True) -> RequestRecord:
    return RequestRecord(
        id="x",
        index=0,
        category="a",
        intended_s=intended,
        sent_s=intended,
        end_s=chunks[-1][0] if chunks else None,
        chunk_s=[t for t, _ in chunks],
        chunk_tokens=[n for _, n in chunks],
        output_tokens=sum(n for _, n in chunks),
        finish_reason="stop" if ok else None,
        error_class=None if ok else ErrorClass.TRUNCATED,
    )


def test_window_is_from_the_cth_completion_to_the_last_admission() -> None:
    records = closed_loop(4, 40, Pace(0.01))
    window = steady_window(records, 4)
    ends = sorted(r.end_s for r in records if r.end_s is not None)
    assert window.start_s == ends[3]
    assert window.end_s == max(r.sent_s for r in records if r.sent_s is not None)
    assert window.completions == sum(1 for t in ends if window.holds(t))


def test_six_requests_per_slot_are_exactly_enough() -> None:
    for concurrency in (1, 2, 5, 8):
        assert (
            steady_window(closed_loop(concurrency, 6 * concurrency, Pace(0.01)), concurrency).completions >= 4
        )
        with pytest.raises(NoWindowError, match="requests_per_slot"):
            steady_window(closed_loop(concurrency, 5 * concurrency, Pace(0.01)), concurrency)


def test_no_window_without_completions() -> None:
    records = closed_loop(4, 4, Pace(0.01))
    with pytest.raises(NoWindowError, match="only 4 of 4"):
        steady_window(records, 4)


def test_throughput_in_the_window_is_the_pace_and_ignores_the_drain() -> None:
    # 8 slots, one token per 10 ms each, less two steps of waiting per request: just under 800 tokens/s.
    records = closed_loop(8, 80, Pace(0.01))
    times = measure(records, steady_window(records, 8))
    whole = sum(r.output_tokens or 0 for r in records) / max(r.end_s or 0 for r in records)
    assert times.output_tokens_per_s == pytest.approx(800 * 45 / 47, rel=0.03)
    assert times.output_tokens_per_s is not None
    assert whole < times.output_tokens_per_s  # the drain at low batch drags the whole run down


def test_several_tokens_in_a_chunk_count_as_tokens() -> None:
    one = closed_loop(2, 20, Pace(0.01))
    three = closed_loop(2, 20, Pace(0.03, tokens_per_step=3))
    a, b = (measure(r, steady_window(r, 2)) for r in (one, three))
    assert a.tpot_s.mean() == pytest.approx(0.01, rel=0.01)
    assert b.tpot_s.mean() == pytest.approx(0.01, rel=0.05)
    assert b.chunk_gap_s.mean() == pytest.approx(0.03, rel=0.01)


def test_tpot_leaves_out_all_tokens_of_the_first_chunk() -> None:
    assert tpot_s(request([(1.0, 4), (1.5, 2), (2.0, 3)])) == pytest.approx(1.0 / 5)


@pytest.mark.parametrize("chunks", [[(1.0, 1)], [(1.0, 5)], [(1.0, 1), (2.0, -1)], []])
def test_tpot_is_null_when_it_was_not_measured(chunks: list[tuple[float, int]]) -> None:
    assert tpot_s(request(chunks)) is None


def test_ttft_counts_from_the_intended_time_and_a_failed_request_has_none() -> None:
    assert ttft_s(request([(1.0, 1), (2.0, 1)], intended=0.25)) == 0.75
    assert ttft_s(request([(1.0, 1), (2.0, 1)], ok=False)) is None


def test_an_unknown_chunk_count_makes_the_throughput_null() -> None:
    assert tokens_inside([request([(1.0, 1), (2.0, -1)])], Window(0.0, 3.0, 1)) is None
    assert tokens_inside([request([(1.0, 1), (4.0, -1)])], Window(0.0, 3.0, 1)) == 1


def test_category_cut_is_token_weighted() -> None:
    records = closed_loop(1, 12, Pace(0.01))
    cuts = measure(records, steady_window(records, 1)).by_category
    assert set(cuts) == {"a", "b"}
    assert cuts["a"].tpot_s == pytest.approx(0.01)
    assert cuts["a"].tokens_per_chunk == 1.0
