"""What is recorded of one request. All times are seconds on the cell's monotonic clock, zero at its start."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class ErrorClass(StrEnum):
    """Why a request failed."""

    CONNECT = "connect"
    RESET = "connection_reset"
    TIMEOUT = "timeout"
    HTTP_STATUS = "http_status"
    CONTEXT_OVERFLOW = "context_overflow"
    UNSUPPORTED_PARAMETER = "unsupported_parameter"
    RATE_LIMITED = "rate_limited"
    STREAM_ERROR = "error_in_stream"
    TRUNCATED = "truncated_stream"
    BAD_EVENT = "malformed_event"
    NO_TOKENS = "no_tokens"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class RequestAcceptance:
    """Speculation inside one request, by the engine's own count (the token made by the prefill is not in it).

    Attributes:
        drafted_steps: verify steps of this request.
        draft_tokens: draft tokens proposed to them.
        accepted_tokens: draft tokens accepted, bonus tokens excluded.
        histogram: element ``i`` is the number of steps that accepted exactly ``i`` draft tokens.
    """

    drafted_steps: int
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    histogram: tuple[int, ...] = ()


@dataclass(slots=True)
class RequestRecord:
    """One request as the client saw it.

    Attributes:
        index: place in the order of admission, from 0 (warm-up requests are not recorded here).
        intended_s: when it should have been sent; latency counts from here.
        sent_s: when its bytes were handed to the socket.
        end_s: when it finished or failed.
        chunk_s: arrival of each chunk that carried at least one token.
        chunk_tokens: tokens in each of those chunks, by the engine's own count; -1 where it gave none.
        token_ids: generated token ids, when the engine gives them.
        output_tokens: the engine's usage count; null when it gave none.
        finish_reason: ``stop``, ``length``, ...; null means that the request did not finish.
        acceptance: per-request speculation counts, when the engine sends them.
        text: pieces of the visible text, kept only where a later turn needs it; never stored.
    """

    id: str
    index: int
    category: str
    intended_s: float
    sent_s: float | None = None
    end_s: float | None = None
    chunk_s: list[float] = field(default_factory=list)
    chunk_tokens: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    finish_reason: str | None = None
    http_status: int | None = None
    error_class: ErrorClass | None = None
    error: str | None = None
    acceptance: RequestAcceptance | None = None
    text: list[str] | None = None

    @property
    def ok(self) -> bool:
        """Finished with a reason and without an error."""
        return self.error_class is None and self.finish_reason is not None
