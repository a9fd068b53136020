"""What the parity check asks of a running engine: token ids of a prompt, an output, and its scores."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import msgspec
import numpy as np

from specbench.engines.scoring import NotTold, Question, Scoring
from specbench.load.body import COMPLETIONS_PATH, NO_TOP_K
from specbench.load.dialect import BadEvent, Delta, DeltaDecoder
from specbench.load.sse import EventStream, EventTooLarge
from specbench.parity.data import UNKNOWN, Ids, Logprobs

if TYPE_CHECKING:
    from specbench.workloads.request import Request

TOP_LOGPROBS: Final = 20
"""Alternatives per token: vLLM's ``max_logprobs`` unless it is raised; they hold 96% of the information."""

ERROR_CHARACTERS: Final = 300


class ParityError(RuntimeError):
    """The engine cannot serve the parity check; the message says what it answered and the mend."""


class Withheld(ParityError):
    """The engine is well and does not give what it was asked for: it refuses, or answers without it."""


REFUSALS: Final = frozenset({400, 404, 405, 413, 415, 422, 501})
"""Statuses that speak of the request; others speak of a key, of a rate, or of a server in trouble."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go: a session, the server's base URL, the name under which it serves the model, and how
    its engine is asked. ``extra_body`` is added to completions, as everywhere else, and ``extra_chat`` besides
    to chats that are sent as in a cell.
    """

    session: aiohttp.ClientSession
    base_url: str
    model: str
    scoring: Scoring
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    extra_chat: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Generated:
    """One output: its token ids, tokens per chunk (an engine step each, unless merged), how it ended, its text."""

    token_ids: tuple[int, ...]
    chunk_tokens: tuple[int, ...]
    finish_reason: str
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """Scores of an output of n tokens: logprobs [n], ranks [n] from 1 or unknown, top k tokens [n, k]."""

    logprobs: Logprobs
    ranks: Ids
    top_ids: Ids
    top_logprobs: Logprobs


async def prompt_token_ids(server: Target, request: Request) -> tuple[int, ...]:
    """Token ids of a request's prompt, chat template included, as the server makes them.

    Raises:
        Withheld: it does not tell.
        ParityError: it answers with an error.
    """
    answer = await _post(server, server.scoring.ask_prompt_ids(server.model, request))
    try:
        return server.scoring.read_prompt_ids(answer)
    except NotTold as error:
        raise Withheld(str(error)) from None


async def generate(
    server: Target, prompt_ids: Sequence[int], *, max_tokens: int, temperature: float, top_p: float = 1.0,
    top_k: int | None = None,
) -> Generated:  # fmt: skip
    """Let the server continue a prompt given as ids.

    Raises:
        Withheld: it refuses, or answers without token ids.
        ParityError: it answers with an error, or not to the end.
    """
    body = {
        "model": server.model,
        "prompt": list(prompt_ids),
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": NO_TOP_K if top_k is None else top_k,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "return_token_ids": True,
        **server.extra_body,
    }
    ids: list[int] = []
    chunks: list[int] = []
    words: list[str] = []
    finish: str | None = None
    async for delta, _ in events_of(server, COMPLETIONS_PATH, msgspec.json.encode(body)):
        if delta.text:
            words.append(delta.text)
        if delta.token_ids:
            ids += delta.token_ids
            chunks.append(len(delta.token_ids))
        finish = delta.finish_reason or finish
    if finish is None:
        raise ParityError("an output ended without a finish reason")
    if not ids:
        raise Withheld("an output came without token ids (return_token_ids)")
    return Generated(tuple(ids), tuple(chunks), finish, "".join(words))


async def events_of(server: Target, path: str, payload: bytes) -> AsyncIterator[tuple[Delta, bytes]]:
    """The events of a streamed answer, each with its data.

    Raises:
        Withheld: the server refuses the request.
        ParityError: it answers with an error.
    """
    events, decoder = EventStream(), DeltaDecoder()
    try:
        async with server.session.post(server.base_url + path, data=payload, headers=_JSON) as response:
            if response.status != 200:
                raise await _refusal(response)
            async for packet in response.content.iter_any():
                for event in events.feed(packet):
                    if not event.data or event.data.startswith(b"[DONE]"):
                        continue
                    delta = decoder.decode(event.data)
                    if delta.error:
                        raise ParityError(f"error in the stream: {_cut(event.data.decode(errors='replace'))}")
                    yield delta, event.data
    except (BadEvent, EventTooLarge) as error:
        raise ParityError(f"the stream cannot be read: {error}") from error


async def score(
    server: Target, prompt_ids: Sequence[int], output_ids: Sequence[int], *, top: int = TOP_LOGPROBS
) -> Scored:
    """Ask a server how likely it finds each token of an output, given all before it.

    Raises:
        Withheld: it refuses, or answers without logprobs of every token.
        ParityError: it answers with an error.
    """
    answer = await _post(server, server.scoring.ask_scores(server.model, prompt_ids, output_ids, top))
    try:
        scores = server.scoring.read_scores(answer, prompt_ids, output_ids, top)
    except NotTold as error:
        raise Withheld(str(error)) from None
    return Scored(
        logprobs=np.array([s.logprob for s in scores], dtype=np.float32),
        ranks=np.array([UNKNOWN if s.rank is None else s.rank for s in scores], dtype=np.int32),
        top_ids=np.array([[i for i, _ in s.top] for s in scores], dtype=np.int32).reshape(-1, top),
        top_logprobs=np.array([[x for _, x in s.top] for s in scores], dtype=np.float32).reshape(-1, top),
    )


_JSON: Final = {"Content-Type": "application/json"}


async def _post(server: Target, question: Question) -> dict[str, Any]:
    payload = msgspec.json.encode(question.body)
    async with server.session.post(server.base_url + question.path, data=payload, headers=_JSON) as response:
        if response.status != 200:
            raise await _refusal(response)
        try:
            return msgspec.json.decode(await response.read(), type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise ParityError(f"{question.path}: the answer is not JSON: {error}") from error


async def _refusal(response: aiohttp.ClientResponse) -> ParityError:
    words = f"HTTP {response.status} from {response.url.path}: {_cut(await response.text(errors='replace'))}"
    return Withheld(words) if response.status in REFUSALS else ParityError(words)


def _cut(text: str) -> str:
    return text if len(text) <= ERROR_CHARACTERS else text[:ERROR_CHARACTERS] + "..."
