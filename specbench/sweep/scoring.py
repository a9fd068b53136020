"""What the parity check asks of a running engine: token ids of a prompt, an output, and its scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import msgspec
import numpy as np

from specbench.load.body import CHAT_PATH, COMPLETIONS_PATH, NO_TOP_K
from specbench.load.dialect import BadEvent, DeltaDecoder
from specbench.load.sse import EventStream, EventTooLarge
from specbench.parity.data import UNKNOWN, Ids, Logprobs

if TYPE_CHECKING:
    from specbench.workloads.request import Request

TOP_LOGPROBS: Final = 20
"""Alternatives per token: vLLM's ``max_logprobs`` unless it is raised; they hold 96% of the information."""

ERROR_CHARACTERS: Final = 300


class ParityError(RuntimeError):
    """The engine cannot serve the parity check; the message says what it answered and the mend."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go: a session, the server's base URL, and the name under which it serves the model."""

    session: aiohttp.ClientSession
    base_url: str
    model: str
    extra_body: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Generated:
    """One output: its token ids, tokens per chunk (an engine step each, unless merged), and how it ended."""

    token_ids: tuple[int, ...]
    chunk_tokens: tuple[int, ...]
    finish_reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """Scores of an output of n tokens: logprobs [n], ranks [n] from 1, and the top k tokens [n, k]."""

    logprobs: Logprobs
    ranks: Ids
    top_ids: Ids
    top_logprobs: Logprobs


async def prompt_token_ids(server: Target, request: Request) -> tuple[int, ...]:
    """Token ids of a request's prompt, chat template included, as the server makes them.

    Raises:
        ParityError: it does not tell.
    """
    body: dict[str, Any] = {"max_tokens": 1, "temperature": 0.0, "return_token_ids": True}
    if request.messages is not None:
        body["messages"] = request.messages
        if isinstance(request.tools, tuple):
            body |= {"tools": request.tools, "tool_choice": "none"}
    else:
        body["prompt"] = request.prompt
    answer = await _post(server, CHAT_PATH if request.messages is not None else COMPLETIONS_PATH, body)
    choices = answer.get("choices") or [{}]
    ids = answer.get("prompt_token_ids") or choices[0].get("prompt_token_ids")
    if not ids:
        raise ParityError(
            "the server does not return the prompt's token ids (return_token_ids), which parity needs: "
            "use vLLM 0.11 or later, or leave parity out"
        )
    return tuple(int(i) for i in ids)


async def generate(
    server: Target, prompt_ids: Sequence[int], *, max_tokens: int, temperature: float, top_p: float = 1.0
) -> Generated:
    """Let the server continue a prompt given as ids.

    Raises:
        ParityError: it answers with an error, or without token ids.
    """
    body = {
        "model": server.model,
        "prompt": list(prompt_ids),
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": NO_TOP_K,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "return_token_ids": True,
        **server.extra_body,
    }
    events, decoder = EventStream(), DeltaDecoder()
    ids: list[int] = []
    chunks: list[int] = []
    finish: str | None = None
    try:
        async with server.session.post(
            server.base_url + COMPLETIONS_PATH, data=msgspec.json.encode(body), headers=_JSON
        ) as response:
            if response.status != 200:
                raise ParityError(await _refusal(response))
            async for packet in response.content.iter_any():
                for event in events.feed(packet):
                    if not event.data or event.data.startswith(b"[DONE]"):
                        continue
                    delta = decoder.decode(event.data)
                    if delta.error:
                        raise ParityError(f"error in the stream: {_cut(event.data.decode(errors='replace'))}")
                    if delta.token_ids:
                        ids += delta.token_ids
                        chunks.append(len(delta.token_ids))
                    finish = delta.finish_reason or finish
    except (BadEvent, EventTooLarge) as error:
        raise ParityError(f"the stream cannot be read: {error}") from error
    if finish is None or not ids:
        raise ParityError("an output ended without a finish reason or without token ids")
    return Generated(tuple(ids), tuple(chunks), finish)


async def score(
    session: aiohttp.ClientSession,
    base_url: str,
    model: str,
    prompt_ids: Sequence[int],
    output_ids: Sequence[int],
    *,
    top: int = TOP_LOGPROBS,
) -> Scored:
    """Ask a server how likely it finds each token of an output, given all before it.

    One request, ``prompt_logprobs`` of prompt and output together; vLLM leaves its prefix cache out of it.

    Raises:
        ParityError: it answers with an error, or not with logprobs of every token.
    """
    body = {
        "prompt": [*prompt_ids, *output_ids],
        "max_tokens": 1,
        "temperature": 0.0,
        "prompt_logprobs": top,
    }
    answer = await _post(Target(session, base_url, model), COMPLETIONS_PATH, body)
    choices = answer.get("choices") or [{}]
    rows = choices[0].get("prompt_logprobs") or answer.get("prompt_logprobs")
    return read_scores(rows, prompt_tokens=len(prompt_ids), output_ids=output_ids, top=top)


def read_scores(rows: Any, *, prompt_tokens: int, output_ids: Sequence[int], top: int) -> Scored:
    """vLLM's ``prompt_logprobs``: per token an object of id to ``{"logprob", "rank"}``; the first is null.

    Each holds the ``top`` likeliest tokens and the actual one besides when it is none of them.

    Raises:
        ParityError: another shape, or a token is missing.
    """
    n = len(output_ids)
    if not isinstance(rows, list) or len(rows) != prompt_tokens + n:
        got = len(rows) if isinstance(rows, list) else rows
        raise ParityError(
            f"prompt_logprobs of {prompt_tokens + n} tokens were asked for, the answer has {got}"
        )
    logprobs, ranks = np.empty(n, dtype=np.float32), np.empty(n, dtype=np.int32)
    top_ids = np.empty((n, top), dtype=np.int32)
    top_logprobs = np.empty((n, top), dtype=np.float32)
    for i, (token, row) in enumerate(zip(output_ids, rows[prompt_tokens:], strict=True)):
        own = row.get(str(token)) if isinstance(row, dict) else None
        if own is None or len(row) < top:
            raise ParityError(
                f"prompt_logprobs: position {prompt_tokens + i} has no score for token {token}, or fewer "
                f"than {top} alternatives: raise the engine's max-logprobs to {top}"
            )
        logprobs[i], ranks[i] = _number(own), own.get("rank") or UNKNOWN
        best = sorted(((_number(v), int(key)) for key, v in row.items()), key=lambda x: (-x[0], x[1]))[:top]
        top_logprobs[i] = [x[0] for x in best]
        top_ids[i] = [x[1] for x in best]
    return Scored(logprobs, ranks, top_ids, top_logprobs)


_JSON: Final = {"Content-Type": "application/json"}


def _number(entry: Any) -> float:
    """A logprob; JSON has no minus infinity, so engines write null or a very small number."""
    value = entry.get("logprob")
    return -np.inf if value is None else float(value)


async def _post(server: Target, path: str, body: dict[str, Any]) -> dict[str, Any]:
    payload = msgspec.json.encode({"model": server.model, **body, **server.extra_body})
    async with server.session.post(server.base_url + path, data=payload, headers=_JSON) as response:
        if response.status != 200:
            raise ParityError(await _refusal(response))
        try:
            return msgspec.json.decode(await response.read(), type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise ParityError(f"{path}: the answer is not JSON: {error}") from error


async def _refusal(response: aiohttp.ClientResponse) -> str:
    return f"HTTP {response.status} from {response.url.path}: {_cut(await response.text(errors='replace'))}"


def _cut(text: str) -> str:
    return text if len(text) <= ERROR_CHARACTERS else text[:ERROR_CHARACTERS] + "..."
