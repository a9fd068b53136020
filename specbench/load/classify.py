"""Why a request failed, from what the server said."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from specbench.load.record import ErrorClass

ERROR_BODY_BYTES: Final = 2048
"""How much of an error body is kept."""

_CONTEXT_OVERFLOW: Final = re.compile(
    r"maximum context length|context[ _-]length|context_length_exceeded|context window|context size"
    r"|maximum model length|max_model_len|prompt is too long|longer than the model",
    re.IGNORECASE,
)
_UNSUPPORTED: Final = re.compile(
    r"extra_forbidden|extra inputs are not permitted|unsupported[ _]param"
    r"|unknown (?:parameter|field|argument)"
    r"|unrecognized (?:request )?(?:argument|parameter|field)|unexpected keyword|not (?:yet )?supported"
    r"|does not support|is not allowed",
    re.IGNORECASE,
)


class Fault(NamedTuple):
    """A failure and its words."""

    kind: ErrorClass
    message: str


def http_fault(status: int, body: bytes) -> Fault:
    """The failure behind an HTTP status other than 200, with the start of the body."""
    text = _text(body)
    message = f"HTTP {status}: {text}" if text else f"HTTP {status} with an empty body"
    if status in (429, 503):
        return Fault(ErrorClass.RATE_LIMITED, message)
    if status in (400, 413, 422):
        return Fault(refusal_kind(text) or ErrorClass.HTTP_STATUS, message)
    return Fault(ErrorClass.HTTP_STATUS, message)


def stream_fault(event: bytes, *, begun: bool) -> Fault:
    """The failure behind an error object inside a stream; only before the first token is it a refusal."""
    text = _text(event)
    kind = None if begun else refusal_kind(text)
    return Fault(kind or ErrorClass.STREAM_ERROR, text or "an error event without words")


def unstreamed_fault(body: bytes) -> Fault:
    """The failure behind a 200 that is one JSON document: an error, or a server that does not stream."""
    text = _text(body)
    if re.search(r'"error"\s*:\s*[^n\s]|"object"\s*:\s*"error"', text):
        return stream_fault(body, begun=False)
    return Fault(ErrorClass.BAD_EVENT, f"the server answered without a stream: {text}")


def refusal_kind(text: str) -> ErrorClass | None:
    """What a refusal is about, when its words say so."""
    if _CONTEXT_OVERFLOW.search(text):
        return ErrorClass.CONTEXT_OVERFLOW
    if _UNSUPPORTED.search(text):
        return ErrorClass.UNSUPPORTED_PARAMETER
    return None


def _text(body: bytes) -> str:
    return body[:ERROR_BODY_BYTES].decode("utf-8", "replace").strip()
