"""The JSON of vLLM's completions and chat endpoints: requests in, chunks and bodies out."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from specbench.engines.simulated.sampling import Probabilities
from specbench.engines.simulated.sequence import DraftStats, Output, SamplingParams, Sequence
from specbench.engines.simulated.tokenizer import TOKEN_TEXT, VOCABULARY_SIZE, decode, encode, render_chat

if TYPE_CHECKING:
    from specbench.engines.simulated.options import SimOptions

Json = dict[str, Any]


class BadRequest(ValueError):
    """HTTP 400 with this message."""


class StreamOptions(msgspec.Struct, frozen=True):
    """``stream_options`` of a request."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class GenerationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What both endpoints share; unknown keys are ignored, as vLLM does."""

    model: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    n: int | None = 1
    stop: str | list[str] | None = None
    logit_bias: dict[str, float] | None = None
    ignore_eos: bool = False
    stream: bool = False
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None


class CompletionRequest(GenerationRequest, frozen=True, kw_only=True):
    """Body of ``/v1/completions``."""

    prompt: str | list[Any] | None = None
    max_tokens: int | None = 16
    logprobs: int | None = None
    prompt_logprobs: int | None = None


class ChatRequest(GenerationRequest, frozen=True, kw_only=True):
    """Body of ``/v1/chat/completions``."""

    messages: list[Json]
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = False
    top_logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """What requests are checked against."""

    max_model_len: int
    max_logprobs: int
    speculating: bool


def withheld(request: CompletionRequest | ChatRequest, sim: SimOptions) -> CompletionRequest | ChatRequest:
    """The request without what this server leaves out of its answers.

    Raises:
        BadRequest: it asks for what the server refuses.
    """
    changes: Json = {}
    if not sim.token_ids:
        changes["return_token_ids"] = None
        if isinstance(request, CompletionRequest) and not isinstance(request.prompt, str):
            raise BadRequest("prompt: a text is expected")
    if isinstance(request, CompletionRequest) and request.prompt_logprobs is not None:
        if sim.scores == "refused":
            raise BadRequest("prompt_logprobs: unknown parameter")
        if sim.scores == "left_out":
            changes["prompt_logprobs"] = None
    if request.logprobs:
        if sim.logprobs == "refused":
            raise BadRequest("logprobs are not available")
        if sim.logprobs == "left_out":
            changes["logprobs"] = None
    return msgspec.structs.replace(request, **changes)


def prompt_ids(request: CompletionRequest | ChatRequest) -> list[int]:
    """Token ids of the prompt.

    Raises:
        BadRequest: no prompt, several prompts, or ids outside the vocabulary.
    """
    if isinstance(request, ChatRequest):
        if not request.messages:
            raise BadRequest("messages must not be empty")
        try:
            return encode(render_chat(request.messages))
        except ValueError as error:
            raise BadRequest(str(error)) from None
    prompt: Any = request.prompt
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        ids = encode(prompt)
    elif isinstance(prompt, list) and all(type(token) is int for token in prompt):
        ids = prompt
    else:
        raise BadRequest("the simulated engine takes one prompt: a text or a list of token ids")
    if not ids:
        raise BadRequest("The decoder prompt cannot be empty")
    outside = [token for token in ids if not 0 <= token < VOCABULARY_SIZE]
    if outside:
        raise BadRequest(f"Token id {outside[0]} is out of vocabulary")
    return ids


def sampling_params(
    request: CompletionRequest | ChatRequest, prompt_tokens: int, limits: Limits
) -> SamplingParams:
    """Checked sampling parameters.

    Raises:
        BadRequest: a value is out of range, not simulated, or the context would overflow.
    """
    wanted = request.max_tokens
    if isinstance(request, ChatRequest):
        wanted = request.max_completion_tokens or request.max_tokens
    left = limits.max_model_len - prompt_tokens
    if left < 1 or (wanted is not None and wanted > left):
        output = wanted if wanted is not None else 1
        raise BadRequest(
            f"This model's maximum context length is {limits.max_model_len} tokens. However, you requested "
            f"{output} output tokens and your prompt contains at least {prompt_tokens} input tokens, for a "
            f"total of at least {prompt_tokens + output} tokens. Please reduce the length of the input "
            "prompt or the number of requested output tokens."
        )
    temperature = 1.0 if request.temperature is None else request.temperature
    top_p = 1.0 if request.top_p is None else request.top_p
    top_k = request.top_k if request.top_k is not None and request.top_k > 0 else 0
    min_p = request.min_p or 0.0
    if wanted is not None and wanted < 1:
        raise BadRequest(f"max_tokens must be at least 1, got {wanted}.")
    if temperature < 0.0:
        raise BadRequest(f"temperature must be non-negative, got {temperature}.")
    if not 0.0 < top_p <= 1.0:
        raise BadRequest(f"top_p must be in (0, 1], got {top_p}.")
    if not 0.0 <= min_p <= 1.0:
        raise BadRequest(f"min_p must be in [0, 1], got {min_p}.")
    if limits.speculating and (min_p > 0.0 or request.logit_bias):
        raise BadRequest(
            "The min_p and logit_bias sampling parameters are not yet supported with speculative decoding."
        )
    if request.logit_bias or request.stop or (request.n or 1) != 1:
        raise BadRequest("the simulated engine has no logit_bias, no stop strings and only n = 1")
    logprobs = request.logprobs
    if isinstance(request, ChatRequest):
        logprobs = (request.top_logprobs or 0) if request.logprobs else None
    asked = max(logprobs or 0, getattr(request, "prompt_logprobs", None) or 0)
    if asked > limits.max_logprobs:
        raise BadRequest(
            f"Requested sample logprobs of {asked}, which is greater than max allowed: {limits.max_logprobs}"
        )
    return SamplingParams(
        max_tokens=left if wanted is None else wanted,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        seed=request.seed,
        ignore_eos=request.ignore_eos,
        logprobs=None if logprobs is None or logprobs is False else int(logprobs),
    )


def usage(sequence: Sequence, completion_tokens: int, *, details: bool) -> Json:
    """The ``usage`` object."""
    prompt = len(sequence.prompt)
    result: Json = {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion_tokens,
        "completion_tokens": completion_tokens,
    }
    if details:
        result["prompt_tokens_details"] = {"cached_tokens": sequence.cached_tokens}
    return result


def speculative_metrics(stats: DraftStats, k: int, *, detailed: bool) -> Json:
    """``metrics.speculative_decoding`` of one request; steps without a draft are not in it."""
    histogram = [stats.per_step_accepted.count(i) for i in range(k + 1)]
    result: Json = {
        "mean_acceptance_length": 1 + stats.accepted / stats.drafts if stats.drafts else None,
        "draft_acceptance_rate": stats.accepted / stats.draft_tokens if stats.draft_tokens else None,
        "acceptance_histogram": histogram,
        "num_spec_steps": stats.drafts,
        "num_accepted_draft_tokens": stats.accepted,
        "num_draft_tokens": stats.draft_tokens,
        "num_spec_tokens": k,
    }
    if detailed:
        result["per_step_accepted"] = stats.per_step_accepted
        result["per_step_drafted"] = stats.per_step_drafted
    return result


def prompt_logprobs(tokens: list[int], logprobs: Probabilities, k: int) -> list[Json | None]:
    """vLLM's ``prompt_logprobs``: null for the first token, then the token itself and the top ``k``.

    Args:
        tokens: the prompt.
        logprobs: [len(tokens) - 1, V].
        k: alternatives per position.
    """
    result: list[Json | None] = [None]
    for token, row in zip(tokens[1:], logprobs, strict=True):
        result.append(
            {
                str(i): {"logprob": float(row[i]), "rank": rank, "decoded_token": TOKEN_TEXT[i]}
                for i, rank in _ranked(row, token, k).items()
            }
        )
    return result


def _ranked(row: Probabilities, token: int, k: int) -> dict[int, int]:
    """The token and the ``k`` most likely ones with their ranks, the best is 1."""
    order = np.argsort(-row, kind="stable")[:k].tolist()
    ranks = {token: int((row > row[token]).sum()) + 1}
    ranks.update({i: rank for rank, i in enumerate(order, start=1)})
    return ranks


_COMPLETION: Final = "text_completion"
_CHAT_CHUNK: Final = "chat.completion.chunk"
_CHAT: Final = "chat.completion"


@dataclass(slots=True)
class Reply:
    """One answer under way: turns engine outputs into chunks, or into one body at the end."""

    id: str
    model: str
    chat: bool
    with_ids: bool
    logprobs: int | None
    sequence: Sequence
    created: int = field(default_factory=lambda: int(time.time()))
    emitted: int = 0
    finish_reason: str | None = None
    _text_length: int = 0
    _logprob_parts: list[Json] = field(default_factory=list)

    def head(self, kind: str) -> Json:
        """The keys that every object of the answer starts with."""
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def role_chunk(self) -> Json:
        """The chat chunk that only names the role; it carries no token."""
        chunk = self.head(_CHAT_CHUNK)
        chunk["choices"] = [
            {
                "index": 0,
                "delta": {"role": "assistant", "content": ""},
                "logprobs": None,
                "finish_reason": None,
            }
        ]
        if self.with_ids:
            chunk["prompt_token_ids"] = self.sequence.prompt
        return chunk

    def chunk(self, output: Output) -> Json:
        """The chunk of one engine output, 1 to K+1 tokens."""
        text = decode(output.tokens)
        first = not self.emitted
        logprobs = self._logprobs(output)
        self.emitted += len(output.tokens)
        self._text_length += len(text)
        self.finish_reason = output.finish_reason
        if self.chat:
            choice: Json = {"index": 0, "delta": {"content": text}, "logprobs": logprobs}
            choice["finish_reason"] = output.finish_reason
            if output.finish_reason:
                choice["stop_reason"] = None
            if self.with_ids:
                choice["token_ids"] = output.tokens
            return {**self.head(_CHAT_CHUNK), "choices": [choice]}
        choice = {
            "index": 0,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": output.finish_reason,
            "stop_reason": None,
            "prompt_token_ids": self.sequence.prompt if self.with_ids and first else None,
            "token_ids": output.tokens if self.with_ids else None,
        }
        return {**self.head(_COMPLETION), "choices": [choice], "usage": None}

    def usage_chunk(self, usage: Json, metrics: Json | None) -> Json:
        """The last chunk: no choices, the usage and per-request metrics if they are on."""
        chunk = {**self.head(_CHAT_CHUNK if self.chat else _COMPLETION), "choices": [], "usage": usage}
        if metrics:
            chunk["metrics"] = metrics
        return chunk

    def collect(self, output: Output) -> None:
        """Keep an output for `body`."""
        part = self._logprobs(output)
        if part is not None:
            self._logprob_parts.append(part)
        self.emitted += len(output.tokens)
        self._text_length += len(decode(output.tokens))
        self.finish_reason = output.finish_reason

    def body(self, usage: Json, metrics: Json | None, prompt_scores: list[Json | None] | None) -> Json:
        """The whole answer of a request that does not stream."""
        tokens = self.sequence.output
        logprobs = _join(self._logprob_parts)
        choice: Json = {"index": 0, "finish_reason": self.finish_reason, "stop_reason": None}
        result = self.head(_CHAT if self.chat else _COMPLETION)
        if self.chat:
            choice["message"] = {"role": "assistant", "content": decode(tokens)}
            choice["logprobs"] = logprobs
            choice["token_ids"] = tokens if self.with_ids else None
            result["prompt_token_ids"] = self.sequence.prompt if self.with_ids else None
        else:
            choice["text"] = decode(tokens)
            choice["logprobs"] = logprobs
            choice["token_ids"] = tokens if self.with_ids else None
            choice["prompt_logprobs"] = prompt_scores
            choice["prompt_token_ids"] = self.sequence.prompt if self.with_ids else None
        result["choices"] = [choice]
        result["usage"] = usage
        if metrics:
            result["metrics"] = metrics
        return result

    def _logprobs(self, output: Output) -> Json | None:
        if self.logprobs is None or output.logprobs is None:
            return None
        if self.chat:
            return {"content": [self._chat_logprob(t, r) for t, r in _rows(output)]}
        offsets, offset = [], self._text_length
        for token in output.tokens:
            offsets.append(offset)
            offset += len(decode([token]))
        return {
            "text_offset": offsets,
            "token_logprobs": [float(row[token]) for token, row in _rows(output)],
            "tokens": [TOKEN_TEXT[token] for token in output.tokens],
            "top_logprobs": [
                {TOKEN_TEXT[i]: float(row[i]) for i in _ranked(row, token, self.logprobs)}
                for token, row in _rows(output)
            ],
        }

    def _chat_logprob(self, token: int, row: Probabilities) -> Json:
        def entry(i: int) -> Json:
            text = TOKEN_TEXT[i]
            return {"token": text, "logprob": float(row[i]), "bytes": list(text.encode())}

        order = np.argsort(-row, kind="stable")[: self.logprobs].tolist()
        return {**entry(token), "top_logprobs": [entry(i) for i in order]}


def _rows(output: Output) -> list[tuple[int, Probabilities]]:
    assert output.logprobs is not None
    return list(zip(output.tokens, output.logprobs, strict=True))


def _join(parts: list[Json]) -> Json | None:
    if not parts:
        return None
    return {key: [item for part in parts for item in part[key]] for key in parts[0]}
