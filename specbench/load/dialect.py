"""From one event of an OpenAI-style stream to a typed delta.

Tokens are counted by the engine: by the ids of a chunk, else by the growth of its cumulative usage. A chunk
that shows text and carries neither has an unknown count (-1); nothing is ever put in its place.

An end-of-text token counts, as it does in every engine's usage. vLLM sends its id in a chunk of its own.
SGLang's chat streams end with a chunk that says ``stop`` and no count, and then the usage: when that is
greater by exactly one, the token came with that ``stop``.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from specbench.load.record import RequestAcceptance

UNKNOWN: Final = -1
"""Count of a chunk that carried tokens, nobody said how many."""

Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class BadEvent(ValueError):
    """An event is not a JSON object of the expected shape."""


class Delta(msgspec.Struct, gc=False):
    """What one event adds to a request.

    Attributes:
        tokens: new tokens; 0 for none (role, usage, keep-alive), `UNKNOWN` for some.
        token_ids: their ids, when the engine gives them.
        text: visible text, reasoning text included.
        completion_tokens: cumulative count of the usage object in this event.
        error: whether the event is an error object.
    """

    tokens: int = 0
    token_ids: list[int] = []
    text: str = ""
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    acceptance: RequestAcceptance | None = None
    error: bool = False


class _PromptDetails(msgspec.Struct, gc=False):
    cached_tokens: Count | None = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: _PromptDetails | None = None


class _Message(msgspec.Struct):
    content: Any = None
    reasoning: Any = None
    reasoning_content: Any = None
    tool_calls: Any = None


class _Choice(msgspec.Struct):
    text: Any = None
    delta: _Message | None = None
    token_ids: list[Count] | None = None
    finish_reason: Any = None
    meta_info: msgspec.Raw = msgspec.Raw()


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None
    object: Any = None
    metrics: msgspec.Raw = msgspec.Raw()
    sglext: msgspec.Raw = msgspec.Raw()
    meta_info: msgspec.Raw = msgspec.Raw()


_CHUNKS: Final = msgspec.json.Decoder(_Chunk)


class DeltaDecoder:
    """Reads the events of one request in their order; it remembers how many tokens were counted so far."""

    __slots__ = ("_blind", "_counted", "_stopped")

    def __init__(self) -> None:
        self._counted = 0
        self._blind = False
        """Some tokens since the last usage were seen but not counted."""
        self._stopped = False
        """The model has stopped by itself, in an event that counted nothing."""

    def decode(self, data: bytes) -> Delta:
        """One event's data, ``[DONE]`` excluded.

        Raises:
            BadEvent: it is not JSON, or not of this dialect's types.
        """
        try:
            chunk = _CHUNKS.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
            raise BadEvent(f"{e}: {data[:200].decode('utf-8', 'replace')}") from None
        if chunk.error or chunk.object == "error":
            return Delta(error=True)
        delta = Delta()
        usage = chunk.usage
        if usage is not None:
            delta.prompt_tokens = usage.prompt_tokens
            delta.completion_tokens = usage.completion_tokens
            if usage.prompt_tokens_details is not None:
                delta.cached_tokens = usage.prompt_tokens_details.cached_tokens
        if chunk.choices:
            shown = False
            for choice in chunk.choices:
                shown = self._read(choice, delta) or shown
            delta.tokens = self._count(delta, shown)
            if delta.finish_reason is not None:
                counted = delta.completion_tokens is not None or delta.token_ids
                self._stopped = delta.finish_reason == "stop" and not counted
        elif self._stopped and not self._blind and delta.completion_tokens == self._counted + 1:
            delta.tokens = 1
            self._stopped = False
        if delta.completion_tokens is not None and delta.completion_tokens > self._counted:
            self._counted = delta.completion_tokens
            self._blind = False
        if chunk.metrics or chunk.sglext or chunk.meta_info:
            delta.acceptance = _acceptance(chunk) or delta.acceptance
        return delta

    @staticmethod
    def _read(choice: _Choice, delta: Delta) -> bool:
        """Add a choice to a delta; whether it shows anything that a model wrote and nobody counted yet."""
        shown: Any = choice.text
        calls: Any = None
        if choice.delta is not None:
            message = choice.delta
            shown = shown or message.content or message.reasoning or message.reasoning_content
            calls = message.tool_calls
        if isinstance(shown, str):
            delta.text += shown
        if choice.token_ids:
            delta.token_ids = delta.token_ids + choice.token_ids
        reason = choice.finish_reason
        if reason is not None:
            # SGLang's native form is an object with a type.
            delta.finish_reason = str(reason.get("type")) if isinstance(reason, dict) else str(reason)
        if choice.meta_info:
            delta.acceptance = _sglang_acceptance(choice.meta_info) or delta.acceptance
        return choice.token_ids is None and bool(shown or calls)

    def _count(self, delta: Delta, shown: bool) -> int:
        if delta.token_ids:
            self._counted += len(delta.token_ids)
            return len(delta.token_ids)
        total = delta.completion_tokens
        if total is None or (total == 0 and shown):
            # A usage that stays at nought while text flows is a placeholder, not a count.
            self._blind = self._blind or shown
            return UNKNOWN if shown else 0
        if self._blind:
            # The growth covers chunks whose share nobody knows: a final usage on the last chunk, say.
            return UNKNOWN if shown else 0
        return max(0, total - self._counted)


class _SpecStats(msgspec.Struct):
    """vLLM's ``metrics.speculative_decoding``."""

    num_spec_steps: Count
    num_draft_tokens: Count | None = None
    num_accepted_draft_tokens: Count | None = None
    acceptance_histogram: list[Count] = []


class _Metrics(msgspec.Struct):
    speculative_decoding: _SpecStats | None = None


class _SpecDetails(msgspec.Struct):
    """SGLang's per-request fields under the names of 0.5.12 and later, of 0.5.11, and of before."""

    spec_verify_ct: Count | None = None
    spec_num_proposed_drafts: Count | None = None
    spec_proposed_drafts: Count | None = None
    spec_draft_token_num: Count | None = None
    spec_num_correct_drafts: Count | None = None
    spec_accepted_drafts: Count | None = None
    spec_accept_token_num: Count | None = None
    spec_correct_drafts_histogram: list[Count] | None = None
    spec_accept_histogram: list[Count] | None = None


class _SglExt(msgspec.Struct):
    spec_tokens_details: msgspec.Raw = msgspec.Raw()


def _acceptance(chunk: _Chunk) -> RequestAcceptance | None:
    """Per-request speculation counts; experimental in both engines, so an odd shape is no failure."""
    try:
        if chunk.metrics:
            metrics = msgspec.json.decode(chunk.metrics, type=_Metrics | None)
            stats = metrics.speculative_decoding if metrics is not None else None
            if stats is not None:
                return RequestAcceptance(
                    drafted_steps=stats.num_spec_steps,
                    draft_tokens=stats.num_draft_tokens,
                    accepted_tokens=stats.num_accepted_draft_tokens,
                    histogram=tuple(stats.acceptance_histogram),
                )
        if chunk.sglext:
            ext = msgspec.json.decode(chunk.sglext, type=_SglExt | None)
            if ext is not None and ext.spec_tokens_details:
                return _sglang_acceptance(ext.spec_tokens_details)
    except msgspec.DecodeError:
        return None
    return _sglang_acceptance(chunk.meta_info) if chunk.meta_info else None


def _sglang_acceptance(raw: msgspec.Raw) -> RequestAcceptance | None:
    try:
        details = msgspec.json.decode(raw, type=_SpecDetails | None)
    except msgspec.DecodeError:
        return None
    if details is None or not details.spec_verify_ct:
        return None
    return RequestAcceptance(
        drafted_steps=details.spec_verify_ct,
        draft_tokens=_first(
            details.spec_num_proposed_drafts, details.spec_proposed_drafts, details.spec_draft_token_num
        ),
        accepted_tokens=_first(
            details.spec_num_correct_drafts, details.spec_accepted_drafts, details.spec_accept_token_num
        ),
        histogram=tuple(details.spec_correct_drafts_histogram or details.spec_accept_histogram or ()),
    )


def _first(*counts: int | None) -> int | None:
    return next((count for count in counts if count is not None), None)
