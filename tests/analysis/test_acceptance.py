"""Acceptance formulas, on counters of a real vLLM launch and by hand."""

from __future__ import annotations

import pytest

from specbench.analysis.acceptance import (
    FROM_COUNTERS,
    FROM_REQUESTS,
    acceptance,
    figures,
    pool,
    pool_requests,
)
from specbench.load.record import RequestAcceptance
from specbench.observe.counters import CounterReset, EngineCounters, difference
from specbench.runs.records import ArmRecord

# One request of 60 tokens, ngram K=4 on vLLM 0.32: 5 drafts, 7 accepted, 52 decode outputs.
NGRAM = EngineCounters(
    generation_tokens=60,
    first_outputs=1,
    decode_outputs=52,
    drafts=5,
    draft_tokens=20,
    accepted_tokens=7,
    accepted_per_position=(3.0, 2.0, 1.0, 1.0),
)


def test_undrafted_steps_are_in_tokens_per_step_and_not_in_acceptance_length() -> None:
    f = figures(NGRAM)
    assert f.length == pytest.approx(2.4)
    assert f.tokens_per_step == pytest.approx(59 / 52)
    assert f.coverage == pytest.approx(5 / 52)
    assert f.rate == pytest.approx(7 / 20)
    assert f.per_position == (0.6, 0.4, 0.2, 0.2)
    # tokens per step = 1 + coverage * (acceptance length - 1)
    assert f.coverage is not None
    assert f.length is not None
    assert f.tokens_per_step == pytest.approx(1 + f.coverage * (f.length - 1))


def test_a_baseline_has_no_acceptance_and_says_so() -> None:
    f = figures(EngineCounters(generation_tokens=10, first_outputs=1, decode_outputs=9))
    assert (f.length, f.rate, f.per_position) == (None, None, ())
    assert f.tokens_per_step == 1.0
    assert f.why_null is not None


def test_no_draft_in_the_window_is_not_zero_acceptance() -> None:
    f = figures(
        EngineCounters(generation_tokens=10, first_outputs=1, decode_outputs=9, drafts=0, draft_tokens=0)
    )
    assert f.length is None
    assert f.coverage == 0.0


def test_pooling_adds_counters_and_never_averages_ratios() -> None:
    small = EngineCounters(drafts=1, draft_tokens=4, accepted_tokens=4, accepted_per_position=(1, 1, 1, 1))
    large = EngineCounters(drafts=9, draft_tokens=36, accepted_tokens=0, accepted_per_position=(0, 0, 0, 0))
    assert figures(pool([small, large])).length == pytest.approx(1.4)  # the mean of 5.0 and 1.0 would be 3.0


def test_pool_of_a_null_is_null() -> None:
    assert pool([NGRAM, EngineCounters()]).drafts is None
    assert pool([]).drafts is None


def test_difference_refuses_a_reset_and_pads_new_positions() -> None:
    later = EngineCounters(generation_tokens=5)
    with pytest.raises(CounterReset, match="generation_tokens"):
        difference(NGRAM, later)
    grown = difference(
        EngineCounters(accepted_per_position=(1.0,)), EngineCounters(accepted_per_position=(3.0, 2.0))
    )
    assert grown.accepted_per_position == (2.0, 2.0)
    assert difference(EngineCounters(), EngineCounters(drafts=3)).drafts == 3


# Two requests of 24 tokens, NGRAM with 4 nodes on SGLang 0.5.23: what its streams told.
SGLANG = [RequestAcceptance(19, 57, 4, (15, 4)), RequestAcceptance(19, 57, 5, (15, 3, 1))]


def arm(method: str, k: int | None = None, **settings: object) -> ArmRecord:
    return ArmRecord(id="arm", method=method, draft=None, k=k, settings=settings, args={})


def test_requests_tell_what_the_counters_do_not() -> None:
    f = acceptance([EngineCounters(generation_tokens=48, first_outputs=2)], SGLANG, arm("draft_model", 3))
    assert f.length == pytest.approx(1 + 9 / 38)
    assert f.rate == pytest.approx(9 / 114)
    assert f.per_position == pytest.approx((8 / 38, 1 / 38, 0.0))
    assert (f.coverage, f.tokens_per_step) == (None, None)
    # The positions add up to the accepted tokens per step.
    assert f.length == pytest.approx(1 + sum(f.per_position))
    assert f.source == FROM_REQUESTS
    assert "past a request's end" in (f.bias or "")


def test_counters_with_drafts_win_over_requests() -> None:
    f = acceptance([NGRAM], SGLANG, arm("ngram", 4))
    assert f.length == pytest.approx(2.4)
    assert f.source == FROM_COUNTERS


def test_a_tree_of_ngrams_names_what_its_rate_is_worth() -> None:
    f = acceptance([], SGLANG, arm("NGRAM", 4))
    assert f.per_position == pytest.approx((8 / 38, 1 / 38))  # its depth is not K
    assert "whole node budget" in (f.bias or "")


def test_adaptive_speculation_has_no_rate() -> None:
    f = acceptance([], SGLANG, arm("eagle3", 3, speculative_adaptive=True))
    assert f.rate is None
    assert f.length is not None
    assert "launch-time K" in (f.bias or "")


def test_the_longest_tree_setting_gives_the_positions() -> None:
    assert len(acceptance([], SGLANG, arm("eagle", num_steps=5)).per_position) == 5


def test_no_counts_at_all_say_so() -> None:
    assert acceptance([], [None], arm("eagle", 3)).why_null == "no engine counters in a valid window"
    f = acceptance([EngineCounters(generation_tokens=1)], [None], arm("eagle", 3))
    assert (f.source, f.bias) == (None, None)
    assert f.why_null is not None
    assert acceptance([], [RequestAcceptance(0)], arm("eagle", 3)).length is None


def test_pooling_requests_keeps_null_null() -> None:
    pooled = pool_requests([*SGLANG, None])
    assert pooled == RequestAcceptance(38, 114, 9, (30, 7, 1))
    unknown = pool_requests([SGLANG[0], RequestAcceptance(2, None, None, ())])
    assert unknown == RequestAcceptance(21, None, None, ())
    assert pool_requests([None]) is None


def test_accepted_tokens_follow_from_a_histogram() -> None:
    f = acceptance([], [RequestAcceptance(10, None, None, (6, 3, 1))], arm("eagle", 2))
    assert f.length == pytest.approx(1.5)
    assert f.rate is None
