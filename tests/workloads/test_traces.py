"""Shipped length summaries, sampling of pairs, and arrival times."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench.config.model import Lengths, OpenLoad, TraceLoad, Workload
from specbench.workloads.arrivals import arrival_times, gamma_times, jitter_s
from specbench.workloads.context import Context
from specbench.workloads.lengths import LengthSource, load_lengths, sample_pairs
from specbench.workloads.requests_file import WorkloadError
from specbench.workloads.source_request import Shape, Source, SourceRequest
from specbench.workloads.traces import UnknownTrace, draw, shipped_trace, trace_names

NEEDED = {"azure-llm-2023-code", "azure-llm-2023-conv", "mooncake-conversation", "ragpulse",
          "burstgpt-chatgpt-conversation", "servegen-deepseek-r1", "weka-coding-agent"}  # fmt: skip


def row(i: int, prompt: int, output: int, **fields: Any) -> SourceRequest:
    return SourceRequest(
        id=f"t{i}", source=Source(file="t.csv", line=i + 1), shape=Shape(prompt_tokens=prompt),
        prompt_tokens=prompt, output_tokens=output, text_source="none", **fields,
    )  # fmt: skip


@pytest.mark.parametrize("name", trace_names())
def test_every_trace_has_its_source_and_its_numbers_come_back(name: str) -> None:
    trace = shipped_trace(name)
    assert trace.source.licence
    assert trace.source.repository.startswith("https://")
    assert trace.source.commit or trace.source.read_via
    assert trace.computed
    rows = draw(name, trace, 3000, "x")
    for got, quantiles in (
        ([r.prompt_tokens or 0 for r in rows], trace.prompt_tokens),
        ([r.output_tokens or 0 for r in rows], trace.output_tokens),
    ):
        assert min(got) >= 1
        assert np.median(got) == pytest.approx(quantiles["p50"], rel=0.1)
        assert np.quantile(got, 0.9) == pytest.approx(quantiles["p90"], rel=0.2)
        if trace.joint is not None:
            assert np.mean(got) == pytest.approx(quantiles["mean"], rel=0.06)
    assert len({r.id for r in rows}) == len(rows)


def test_the_set_is_enough_to_work_without_a_network() -> None:
    assert set(trace_names()) >= NEEDED
    with_arrivals = {name for name in trace_names() if shipped_trace(name).arrivals is not None}
    assert with_arrivals >= {
        "azure-llm-2023-code",
        "azure-llm-2023-conv",
        "mooncake-conversation",
        "ragpulse",
    }
    for name in trace_names():
        assert (shipped_trace(name).joint is None) == name.startswith("burstgpt")


def test_a_joint_table_keeps_how_lengths_depend_on_each_other() -> None:
    def rank_correlation(name: str) -> float:
        rows = draw(name, shipped_trace(name), 2000, "x")
        prompt = np.argsort(np.argsort([r.prompt_tokens or 0 for r in rows]))
        output = np.argsort(np.argsort([r.output_tokens or 0 for r in rows]))
        return float(np.corrcoef(prompt, output)[0, 1])

    assert rank_correlation("ragpulse") == pytest.approx(0.42, abs=0.12)
    assert rank_correlation("azure-llm-2023-code") == pytest.approx(-0.02, abs=0.08)


def test_a_draw_depends_on_its_label_alone() -> None:
    trace = shipped_trace("azure-llm-2023-conv")
    assert draw("a", trace, 50, "x") == draw("a", trace, 50, "x")
    assert draw("a", trace, 50, "x") != draw("a", trace, 50, "y")


def test_unknown_names_are_guessed() -> None:
    with pytest.raises(UnknownTrace, match="did you mean 'ragpulse'"):
        shipped_trace("ragpuls")
    with pytest.raises(
        WorkloadError, match=r"workload\.lengths\.source: no shipped trace is called 'ragpuls'"
    ):
        load_lengths(Lengths(source="ragpuls", text="matched"), Path(), skip=False)
    with pytest.raises(WorkloadError, match=r"for a file write \./trace\.csv"):
        load_lengths(Lengths(source="trace.csv", text="matched"), Path(), skip=False)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 9000), st.integers(1, 900)), min_size=1, max_size=300),
    st.integers(1, 80),
)
def test_a_sample_is_stratified_and_keeps_order(pairs: list[tuple[int, int]], count: int) -> None:
    rows = [row(i, p, o) for i, (p, o) in enumerate(pairs)]
    chosen = sample_pairs(rows, count, "x")
    assert len(chosen) == min(count, len(rows))
    places = [int(r.id[1:]) for r in chosen]
    assert places == sorted(set(places))
    assert sample_pairs(rows, count, "x") == chosen


def test_strata_give_in_proportion() -> None:
    rng = np.random.default_rng(1)
    rows = [
        row(i, int(p), int(o))
        for i, (p, o) in enumerate(zip(rng.lognormal(6, 1, 5000), rng.lognormal(4, 1, 5000), strict=True))
    ]
    chosen = sample_pairs(rows, 250, "x")
    for name in ("prompt_tokens", "output_tokens"):
        edges = np.quantile([getattr(r, name) for r in rows], [0.2, 0.4, 0.6, 0.8])
        shares = Counter(int(np.searchsorted(edges, getattr(r, name), side="right")) for r in chosen)
        assert all(abs(shares[k] - 50) <= 5 for k in range(5)), shares


def test_the_share_that_does_not_fit_is_counted_over_all_draws() -> None:
    lengths = LengthSource("log", "key", [row(i, 100 + 900 * (i < 3), 10) for i in range(10)])
    lengths.pairs(4, Context(500), Workload.model_validate({}), "x")
    assert [x for x in lengths.remarks if x.startswith("lengths: 30% of log do not fit")] == lengths.remarks
    lengths.rows = lengths.rows[3:]  # a second draw, of which all fit: 3 of 17
    lengths.pairs(4, Context(500), Workload.model_validate({}), "y")
    assert [x for x in lengths.remarks if x.startswith("lengths: 18% of log do not fit")] == lengths.remarks


def test_rows_that_cannot_fit_are_left_out_of_the_draw_and_told() -> None:
    lengths = load_lengths(Lengths(source="mooncake-conversation", text="matched"), Path(), skip=False)
    rows = lengths.pairs(60, Context(4096), Workload.model_validate({"max_output_tokens": 100}), "x")
    assert len(rows) == 60
    assert all((r.prompt_tokens or 0) + min(100, r.output_tokens or 0) <= 4096 for r in rows)
    # Once, however often lengths were drawn.
    lengths.pairs(50, Context(4096), Workload.model_validate({"max_output_tokens": 100}), "again")
    assert sum("do not fit the context of 4096 tokens" in remark for remark in lengths.remarks) == 1
    with pytest.raises(
        WorkloadError, match=r"none of weka-coding-agent fits the context of 2048 tokens.*shortest needs"
    ):
        load_lengths(Lengths(source="weka-coding-agent", text="matched"), Path(), skip=False).pairs(
            20, Context(2048), Workload.model_validate({}), "x"
        )


def test_arrivals_of_a_summary_need_an_end_and_a_rate() -> None:
    lengths = load_lengths(Lengths(source="azure-llm-2023-code", text="matched"), Path(), skip=False)
    workload = Workload.model_validate({})
    load = TraceLoad.model_validate({"seconds": 100, "time_scale": 2})
    rows = lengths.replay(load, None, workload, "x")
    assert len(rows) == math.ceil(2.5664 * 100 / 2)
    assert any("gamma gaps of CV 13.15" in remark for remark in lengths.remarks)
    with pytest.raises(WorkloadError, match=r"loads\.trace\.seconds: is needed with azure-llm-2023-code"):
        lengths.replay(TraceLoad.model_validate({}), None, workload, "x")
    agents = load_lengths(Lengths(source="weka-coding-agent", text="matched"), Path(), skip=False)
    with pytest.raises(WorkloadError, match=r"has lengths but no arrival times: use loads\.open"):
        agents.replay(load, None, workload, "x")


@settings(max_examples=40, deadline=None)
@given(st.floats(0.01, 500), st.sampled_from([0.5, 1.0, 3.0, 13.0]), st.integers(1, 400), st.integers(0, 9))
def test_arrival_times_offer_exactly_their_rate(rate: float, cv: float, count: int, seed: int) -> None:
    kind = "poisson" if cv == 1.0 else "gamma"
    times = arrival_times(OpenLoad.model_validate({"rate": rate, "arrivals": kind, "cv": cv}), count, seed)
    assert len(times) == count
    assert times[0] == 0.0
    assert times == sorted(times)
    assert times[-1] == pytest.approx((count - 1) / rate, abs=1e-6)


def test_burstiness_is_what_was_asked_for() -> None:
    def cv(shape: float) -> float:
        gaps = np.diff(gamma_times(1.0, shape, 20_000, "x"))
        return float(gaps.std() / gaps.mean())

    assert cv(1.0) == pytest.approx(1.0, abs=0.04)
    assert cv(1 / 9) == pytest.approx(3.0, abs=0.25)


def test_jitter_is_bounded_and_its_own_for_every_request() -> None:
    moves = {jitter_s(f"r{i}", 1, 3.0) for i in range(100)}
    assert len(moves) == 100
    assert all(0 <= m < 3 for m in moves)
    assert jitter_s("r1", 1, 0.0) == 0.0
