"""Acceptance formulas, on counters of a real vLLM launch and by hand."""

from __future__ import annotations

import pytest

from specbench.analysis.acceptance import figures, pool
from specbench.observe.counters import CounterReset, EngineCounters, difference

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
