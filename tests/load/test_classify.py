from __future__ import annotations

import pytest

from specbench.load.classify import ERROR_BODY_BYTES, http_fault, unstreamed_fault
from specbench.load.record import ErrorClass

VLLM_OVERFLOW = (
    "This model's maximum context length is 2048 tokens. However, you requested 3000 tokens in the messages."
)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, VLLM_OVERFLOW, ErrorClass.CONTEXT_OVERFLOW),
        (
            400,
            "The decoder prompt (length 9) is longer than the maximum model length",
            ErrorClass.CONTEXT_OVERFLOW,
        ),
        (400, '{"error":{"code":"context_length_exceeded"}}', ErrorClass.CONTEXT_OVERFLOW),
        (
            400,
            "The input (9 tokens) is longer than the model's context length (8)",
            ErrorClass.CONTEXT_OVERFLOW,
        ),
        (400, "the request exceeds the available context size", ErrorClass.CONTEXT_OVERFLOW),
        (422, '{"detail":[{"type":"extra_forbidden"}]}', ErrorClass.UNSUPPORTED_PARAMETER),
        (400, "Unsupported parameter: 'top_k'", ErrorClass.UNSUPPORTED_PARAMETER),
        (400, "min_p is not supported with speculative decoding", ErrorClass.UNSUPPORTED_PARAMETER),
        (400, "something else", ErrorClass.HTTP_STATUS),
        (404, "The model `x` does not exist", ErrorClass.HTTP_STATUS),
        (429, "slow down", ErrorClass.RATE_LIMITED),
        (503, "The request queue is full.", ErrorClass.RATE_LIMITED),
        (500, VLLM_OVERFLOW, ErrorClass.HTTP_STATUS),
        (301, "", ErrorClass.HTTP_STATUS),
    ],
)
def test_http_faults(status: int, body: str, kind: ErrorClass) -> None:
    fault = http_fault(status, body.encode())
    assert fault.kind == kind
    assert fault.message.startswith(f"HTTP {status}")
    assert body in fault.message


def test_long_bodies_are_cut() -> None:
    message = http_fault(500, b"x" * 10_000).message
    assert message.count("x") == ERROR_BODY_BYTES


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ('{"object": "error", "message": "no"}', ErrorClass.STREAM_ERROR),
        ('{"error": {"message": "maximum context length"}}', ErrorClass.CONTEXT_OVERFLOW),
        ('{"choices": [{"text": "a"}], "error": null}', ErrorClass.BAD_EVENT),
    ],
)
def test_json_instead_of_a_stream(body: str, kind: ErrorClass) -> None:
    assert unstreamed_fault(body.encode()).kind == kind
