"""Too few arrivals for a steady window are refused before anything is measured."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specbench.analysis.window import MIN_ARRIVALS, RAMP
from specbench.sweep.arrivals import most_inside
from specbench.workloads.request import Arrival
from tests.sweep.conftest import Bench, measure


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=80))
def test_the_count_is_that_of_the_steady_window(times: list[float]) -> None:
    start = min(times) + RAMP * (max(times) - min(times))
    assert most_inside([Arrival(at_s=t) for t in times]) == sum(1 for t in times if t > start)
    turns = [Arrival(at_s=t) for t in times[:1]] + [Arrival(at_s=t, after=0) for t in times[1:]]
    if len(times) > 1:
        assert most_inside(turns) == len(times)


def test_a_rate_that_gives_too_few_requests_is_refused(bench: Bench) -> None:
    workload = {"source": "chat", "seconds": "20s", "max_output_tokens": 24}
    bench.write(loads={"open": [{"rate": 1.0}]}, workload=workload, measure=measure(rounds=1))
    shown = bench.run("plan", str(bench.config))
    assert shown.returncode == 2
    done = bench.sweep()
    assert done.returncode == 2
    assert f"which needs {MIN_ARRIVALS}: no cell would count: raise workload.seconds" in done.stderr
    assert "sweep.yaml:" in done.stderr
