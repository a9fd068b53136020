"""Windows, latency, load bins and delivered rates of open and trace loads."""

from __future__ import annotations

import pytest

from specbench.analysis.open_load import load_bins, open_times, rate_problem
from specbench.analysis.window import NoWindowError, open_window
from specbench.load.record import ErrorClass, RequestRecord


def arrivals(n: int, gap_s: float = 0.1, takes_s: float = 0.35) -> list[RequestRecord]:
    return [
        RequestRecord(
            id=f"r{i}", index=i, category="a", intended_s=i * gap_s, sent_s=i * gap_s + 0.001,
            end_s=i * gap_s + takes_s, chunk_s=[i * gap_s + takes_s], chunk_tokens=[1], output_tokens=1,
            finish_reason="stop",
        )
        for i in range(n)
    ]  # fmt: skip


def test_the_window_is_from_a_tenth_of_the_span_to_the_last_arrival() -> None:
    window = open_window(arrivals(101))
    assert (window.start_s, window.end_s) == pytest.approx((1.0, 10.0))
    assert window.completions == 90


def test_too_few_arrivals_have_no_window() -> None:
    with pytest.raises(NoWindowError, match=r"27 requests are due.*30 are needed: raise workload\.seconds"):
        open_window(arrivals(30))
    with pytest.raises(NoWindowError, match="all at once"):
        open_window(arrivals(50, gap_s=0.0))


def test_latency_counts_from_the_intended_time_of_requests_due_in_the_window() -> None:
    records = arrivals(101)
    records[50].end_s = 5.0 + 90.0  # a stall, ended long after the last arrival: it counts
    records[60].error_class, records[60].finish_reason = ErrorClass.RESET, None
    times = open_times(records, open_window(records))
    assert len(times.latency_s) == 89
    assert times.latency_s[50] == pytest.approx(90.0)
    assert 60 not in times.latency_s
    assert 5 not in times.latency_s
    assert times.mean_latency_s == pytest.approx((88 * 0.35 + 90) / 89)


def test_running_requests_are_those_of_the_moment_of_sending() -> None:
    times = open_times(arrivals(101), open_window(arrivals(101)))
    # 0.35 s per request, one each 0.1 s: three others are running.
    assert set(times.in_flight.values()) == {3}
    assert times.kept_up == pytest.approx(1.0, abs=0.03)


def test_a_queue_that_grows_shows() -> None:
    records = arrivals(101)
    for r in records:
        r.end_s = r.intended_s * 3 + 1
    assert open_times(records, open_window(records)).kept_up < 0.5


def test_bins_are_tertiles_of_the_baseline_and_hold_every_request_once() -> None:
    records = arrivals(200)
    for i, r in enumerate(records):
        r.end_s = r.intended_s + (0.05 if i < 90 else 5.0)  # quiet first, then ever busier
    times = open_times(records, open_window(records))
    bins = load_bins(times)
    assert [b.name for b in bins] == ["low", "mid", "high"]
    assert sum(len(b.indices) for b in bins) == len(times.in_flight)
    assert bins[0].high < bins[-1].low
    assert (bins[0].mean_latency_s(times.latency_s) or 0) < (bins[-1].mean_latency_s(times.latency_s) or 0)


def test_a_steady_load_has_one_bin() -> None:
    times = open_times(arrivals(101), open_window(arrivals(101)))
    assert [(b.name, b.low, b.high) for b in load_bins(times)] == [("low", 3, 3)]


@pytest.mark.parametrize(
    ("offered", "delivered", "problem"),
    [
        (2.0, 1.7, "offered 2/s, delivered 1.7/s"),
        (2.0, 1.91, None),
        (2.0, 2.2, "offered 2/s, delivered 2.2/s"),
        (2.0, None, None),
        (None, None, None),
    ],
)
def test_delivered_against_offered(
    offered: float | None, delivered: float | None, problem: str | None
) -> None:
    assert rate_problem(offered, delivered) == problem
