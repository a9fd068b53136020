from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench.load.dialect import UNKNOWN, BadEvent, Delta, DeltaDecoder
from specbench.load.record import RequestAcceptance


def decode(*payloads: Any) -> list[Delta]:
    decoder = DeltaDecoder()
    return [decoder.decode(json.dumps(p).encode()) for p in payloads]


def text(text: str, total: int | None = None, **choice: Any) -> dict[str, Any]:
    usage = None if total is None else {"completion_tokens": total}
    return {"choices": [{"text": text, **choice}], "usage": usage}


def counts(*payloads: Any) -> list[int]:
    return [delta.tokens for delta in decode(*payloads)]


def test_ids_count_first() -> None:
    deltas = decode(
        text("a", 1, token_ids=[5]), text("bcd", 4, token_ids=[6, 7, 8]), text("", 4, token_ids=[])
    )
    assert [d.tokens for d in deltas] == [1, 3, 0]
    assert [d.token_ids for d in deltas] == [[5], [6, 7, 8], []]


def test_ids_without_usage() -> None:
    assert counts(text("a", token_ids=[5]), text("", token_ids=[6]), text("flush", token_ids=[])) == [1, 1, 0]


def test_cumulative_usage_counts_without_ids() -> None:
    assert counts(text("a", 1), text("bcde", 5), text("", 7), text("flush", 7)) == [1, 4, 2, 0]


def test_first_chunk_with_several_tokens() -> None:
    assert counts(text("abcd", 4), text("e", 5)) == [4, 1]


def test_no_count_is_unknown_and_stays_so() -> None:
    deltas = decode(text("a"), text(""), text("b"), {"choices": [], "usage": {"completion_tokens": 9}})
    assert [d.tokens for d in deltas] == [UNKNOWN, 0, UNKNOWN, 0]
    assert deltas[-1].completion_tokens == 9


def test_usage_on_the_last_chunk_is_no_burst() -> None:
    """30 uncounted chunks and a total of 50 do not make a chunk of 50 tokens."""
    assert counts(*[text("a")] * 30, text("z", 50, finish_reason="stop")) == [UNKNOWN] * 31


def test_usage_on_the_only_chunk_counts() -> None:
    assert counts(text("the whole answer", 50, finish_reason="stop")) == [50]


def test_counting_resumes_after_a_usage() -> None:
    assert counts(text("a", 1), text("b"), text("c", 3), text("d", 5)) == [1, UNKNOWN, UNKNOWN, 2]


def test_usage_that_stays_at_nought_is_no_count() -> None:
    assert counts(text("a", 0), text("b", 0), text("c", 2)) == [UNKNOWN, UNKNOWN, UNKNOWN]


@pytest.mark.parametrize(
    "payload",
    [
        {"choices": [], "usage": {"completion_tokens": 8}},
        {"usage": {"completion_tokens": 8}},
        {"choices": None, "usage": {"completion_tokens": 8}},
    ],
)
def test_usage_alone_is_no_token(payload: dict[str, Any]) -> None:
    (delta,) = decode(payload)
    assert (delta.tokens, delta.completion_tokens) == (0, 8)


@pytest.mark.parametrize(
    "delta",
    [{"role": "assistant", "content": ""}, {"role": "assistant"}, {"content": None}, {}, {"tool_calls": []}],
)
def test_role_and_empty_deltas_are_no_token(delta: dict[str, Any]) -> None:
    assert counts({"choices": [{"delta": delta}]}) == [0]
    assert counts({"choices": [{"delta": delta}], "usage": {"completion_tokens": 0}}) == [0]


@pytest.mark.parametrize(
    "delta",
    [
        {"content": "a"},
        {"reasoning": "hm"},
        {"reasoning_content": "hm", "content": None},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]},
    ],
)
def test_content_reasoning_and_tool_calls_are_tokens(delta: dict[str, Any]) -> None:
    assert counts({"choices": [{"delta": delta}]}) == [UNKNOWN]
    assert counts({"choices": [{"delta": delta}], "usage": {"completion_tokens": 3}}) == [3]


def test_prompt_and_cached_tokens() -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 64}}
    (delta,) = decode({"choices": [{"text": "a"}], "usage": usage, "unknown": {"x": [1]}})
    assert (delta.prompt_tokens, delta.cached_tokens, delta.completion_tokens) == (100, 64, 1)
    assert decode({"usage": {"prompt_tokens_details": None}})[0].cached_tokens is None


@pytest.mark.parametrize(
    "payload",
    [
        {"error": {"message": "EngineDeadError", "code": 500}},
        {"error": "boom", "choices": []},
        {"object": "error", "message": "old form"},
    ],
)
def test_error_objects(payload: dict[str, Any]) -> None:
    assert decode(payload)[0].error


def test_null_error_is_none() -> None:
    assert not decode({"error": None, "choices": [{"text": "a"}]})[0].error


@pytest.mark.parametrize("reason", ["stop", {"type": "stop", "matched": 2}])
def test_finish_reason_forms(reason: Any) -> None:
    assert decode(text("", finish_reason=reason))[0].finish_reason == "stop"


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[1]",
        b'"x"',
        b"nonsense",
        b'{"choices": 3}',
        b'{"choices":[{"token_ids":["a"]}]}',
        b'{"usage":{"completion_tokens":-1}}',
        b'{"usage":{"completion_tokens":99999999999}}',
        b'{"choices":[{"text":"\xff"}]}',
        b'{"error":' + b"[" * 100_000,
    ],
)
def test_malformed_events(data: bytes) -> None:
    with pytest.raises(BadEvent):
        DeltaDecoder().decode(data)


VLLM = {
    "choices": [],
    "metrics": {
        "speculative_decoding": {
            "mean_acceptance_length": 1.5,
            "num_spec_steps": 4,
            "num_draft_tokens": 12,
            "num_accepted_draft_tokens": 2,
            "acceptance_histogram": [3, 0, 1, 0],
        }
    },
}
SGLANG = {
    "spec_verify_ct": 4,
    "spec_num_proposed_drafts": 12,
    "spec_num_correct_drafts": 2,
    "spec_correct_drafts_histogram": [3, 0, 1],
    "spec_accept_rate": 0.17,
}


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (VLLM, RequestAcceptance(4, 12, 2, (3, 0, 1, 0))),
        ({"choices": [], "sglext": {"spec_tokens_details": SGLANG}}, RequestAcceptance(4, 12, 2, (3, 0, 1))),
        ({"choices": [{"text": "", "meta_info": SGLANG}]}, RequestAcceptance(4, 12, 2, (3, 0, 1))),
        ({"meta_info": SGLANG}, RequestAcceptance(4, 12, 2, (3, 0, 1))),
        (
            {"meta_info": {"spec_verify_ct": 4, "spec_proposed_drafts": 12, "spec_accepted_drafts": 0}},
            RequestAcceptance(4, 12, 0),
        ),
        (
            {
                "meta_info": {
                    "spec_verify_ct": 4,
                    "spec_draft_token_num": 12,
                    "spec_accept_token_num": 2,
                    "spec_accept_histogram": [3, 0, 1],
                }
            },
            RequestAcceptance(4, 12, 2, (3, 0, 1)),
        ),
        ({"metrics": {"speculative_decoding": None}}, None),
        ({"metrics": {"speculative_decoding": {"num_spec_steps": "odd"}}}, None),
        ({"metrics": None, "sglext": None, "meta_info": None}, None),
        ({"meta_info": {"completion_tokens": 3}}, None),
        ({"sglext": {"spec_tokens_details": [1]}}, None),
    ],
)
def test_per_request_acceptance(payload: dict[str, Any], expected: RequestAcceptance | None) -> None:
    assert decode(payload)[0].acceptance == expected


def usage(total: int) -> dict[str, Any]:
    return {"choices": [], "usage": {"completion_tokens": total}}


def stop(**chunk: Any) -> dict[str, Any]:
    return {"choices": [{"delta": {"content": None}, "finish_reason": "stop"}], **chunk}


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        # SGLang's chat: the end of text is in the last usage alone, and came with the stop.
        ([text("a", 1), stop(), usage(2)], [1, 0, 1]),
        ([text("a", 1), stop(), {"choices": [], "sglext": {}}, usage(2)], [1, 0, 0, 1]),
        ([stop(), usage(1)], [0, 1]),
        # A verify step that ended with it has counted it.
        ([text("a", 1), text("bc", 4), stop(), usage(4)], [1, 3, 0, 0]),
        # vLLM: its id is in the last chunk.
        (
            [text("a", 1, token_ids=[5]), text("", 2, token_ids=[2], finish_reason="stop"), usage(2)],
            [1, 1, 0],
        ),
        # A stop with a count of its own hides nothing.
        ([text("a", 1), stop(usage={"completion_tokens": 1}), usage(2)], [1, 0, 0]),
        # More than one token, or an end by length: not the end of text, and nobody's.
        ([text("a", 1), stop(), usage(9)], [1, 0, 0]),
        ([text("a", 1), text("", finish_reason="length"), usage(2)], [1, 0, 0]),
        # Chunks that nobody counted: the last usage is of them all.
        ([text("a"), text("b"), stop(), usage(1)], [UNKNOWN, UNKNOWN, 0, 0]),
        # Counted once, however often the usage is repeated.
        ([text("a", 1), stop(), usage(2), usage(2), usage(3)], [1, 0, 1, 0, 0]),
    ],
)
def test_an_end_of_text_counts_once_in_every_dialect(
    events: list[dict[str, Any]], expected: list[int]
) -> None:
    assert counts(*events) == expected


@given(steps=st.lists(st.integers(1, 6), min_size=1, max_size=30), alone=st.booleans())
def test_both_engines_streams_of_the_same_steps_count_the_same(steps: list[int], alone: bool) -> None:
    """The last step ends the text; ``alone`` when it gives nothing but the end of text."""
    if alone:
        steps = [*steps[:-1], 1]
    totals = list(itertools.accumulate(steps))
    with_ids = [text("x", total, token_ids=[7] * n) for n, total in zip(steps, totals, strict=True)]
    with_ids[-1]["choices"][0] |= {"text": "" if alone else "x", "finish_reason": "stop"}
    shown = [text("x", total) for total in totals]
    if alone:
        shown.pop()
    ids = [n for n in counts(*with_ids, usage(totals[-1])) if n]
    by_usage = [n for n in counts(*shown, stop(), usage(totals[-1])) if n]
    assert ids == by_usage == steps
