from __future__ import annotations

import pytest

from specbench.load.body import encode, path
from specbench.workloads.request import Request


def test_completions_body() -> None:
    request = Request(id="a", category="c", prompt='say "é"', max_tokens=64)
    assert path(request) == "/v1/completions"
    assert (
        encode(request, "target")
        == (
            '{"model":"target","prompt":"say \\"é\\"","max_tokens":64,"temperature":0.0,'
            '"top_p":1.0,"top_k":-1,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true},'
            '"return_token_ids":true}'
        ).encode()
    )


def test_chat_body_with_everything() -> None:
    request = Request(
        id="a",
        category="c",
        messages=({"role": "user", "content": "hi"},),
        max_tokens=8,
        output_mode="forced",
        temperature=0.7,
        top_p=0.9,
        top_k=20,
        seed=3,
    )
    assert path(request) == "/v1/chat/completions"
    assert encode(request, "m", extra={"return_spec_tokens_details": True, "top_k": 5}) == (
        b'{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":8,"temperature":0.7,'
        b'"top_p":0.9,"top_k":5,"seed":3,"ignore_eos":true,"stream":true,'
        b'"stream_options":{"include_usage":true,"continuous_usage_stats":true},"return_token_ids":true,'
        b'"return_spec_tokens_details":true}'
    )


@pytest.mark.parametrize("both", [True, False])
def test_one_kind_of_input_only(both: bool) -> None:
    request = Request(
        id="odd",
        category="c",
        max_tokens=1,
        prompt="x" if both else None,
        messages=({"role": "user", "content": "x"},) if both else None,
    )
    with pytest.raises(ValueError, match="'odd' needs exactly one"):
        encode(request, "m")
