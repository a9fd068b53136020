"""Outputs of a server as texts, with logprobs where it gives them; and whether it gives more than that."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from specbench.load.body import encode, path
from specbench.sweep.scoring import ParityError, Withheld, events_of, generate, prompt_token_ids, score

if TYPE_CHECKING:
    from specbench.parity.text_data import Alternatives
    from specbench.sweep.scoring import Target
    from specbench.workloads.request import Request

TOP_LOGPROBS: Final = 5
"""Alternatives per token: what hosted servers give at most."""

COVERED: Final = 0.9
"""Share of a text's length that its tokens must have; tokens of broken characters may be spelt shorter."""

PROBES: Final = 3
"""Prompts that are tried before a server is taken at its word: the first may be too long for it."""
PROBE_TOKENS: Final = 4
PROBE_TIMEOUT_S: Final = 600.0


class _OddShape(ValueError):
    """Logprobs that cannot be read; as good as none."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One output; tokens and their alternatives are null where the server told none."""

    text: str
    finish_reason: str
    tokens: tuple[str, ...] | None
    top: tuple[Alternatives, ...] | None


async def answer(server: Target, request: Request, *, logprobs: bool) -> Answer:
    """Let the server answer a request, sent as in a cell.

    Raises:
        Withheld: it refuses the request.
        ParityError: it answers with an error, or not to the end.
    """
    chat = request.messages is not None
    extra: dict[str, Any] = {**server.extra_body, **(server.extra_chat if chat else {})}
    if logprobs:
        extra |= {"logprobs": True, "top_logprobs": TOP_LOGPROBS} if chat else {"logprobs": TOP_LOGPROBS}
    words: list[str] = []
    tokens: list[str] = []
    top: list[Alternatives] = []
    told, odd, finish = False, False, None
    async for delta, data in events_of(server, path(request), encode(request, server.model, extra=extra)):
        words.append(delta.text)
        finish = delta.finish_reason or finish
        try:
            found = _logprobs(data) if logprobs else None
        except _OddShape:
            odd = True
            continue
        if found is not None:
            told = True
            tokens += found[0]
            top += found[1]
    if finish is None:
        raise ParityError("an output ended without a finish reason")
    text = "".join(words)
    # Of an output with gaps nobody knows where its tokens stand.
    if not told or odd or len("".join(tokens)) < COVERED * len(text):
        return Answer(text, finish, None, None)
    return Answer(text, finish, tuple(tokens), tuple(top))


def _logprobs(data: bytes) -> tuple[list[str], list[Alternatives]] | None:
    """Tokens of one event with their alternatives, of either endpoint; null when it has none.

    Raises:
        _OddShape: they are not told as OpenAI's are.
    """
    choices = msgspec.json.decode(data).get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    found = choice.get("logprobs") if isinstance(choice, dict) else None
    if found is None or found in ({"content": None}, {"content": None, "refusal": None}):
        return None
    try:
        if isinstance(found.get("content"), list):
            rows = found["content"]
            return [str(x["token"]) for x in rows], [_listed(x.get("top_logprobs")) for x in rows]
        if isinstance(found.get("tokens"), list):
            tokens = [str(x) for x in found["tokens"]]
            top = found.get("top_logprobs") or [None] * len(tokens)
            return tokens, [_listed(at) for _, at in zip(tokens, top, strict=True)]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _OddShape from error
    raise _OddShape


def _listed(alternatives: Any) -> Alternatives:
    if isinstance(alternatives, Mapping):
        pairs = [(str(token), value) for token, value in alternatives.items()]
    else:
        pairs = [(str(x["token"]), x["logprob"]) for x in alternatives or ()]
    known = [(token, float(value)) for token, value in pairs if value is not None]
    return tuple(sorted(known, key=lambda pair: -pair[1]))


async def why_texts(server: Target, requests: Sequence[Request], tokens: int) -> str | None:
    """What a server answered that tells no token ids or no scores, though it answers the same request as a
    text; null when it tells both.

    Args:
        requests: of the workload; a few are enough.
        tokens: that outputs will have; the text must fit where ids and scores did not.

    Raises:
        ParityError, aiohttp.ClientError, TimeoutError: it answers neither; that says nothing of what it tells.
    """
    last: Exception | None = None
    for request in requests[:PROBES]:
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                ids = await prompt_token_ids(server, request)
                out = await generate(server, ids, max_tokens=PROBE_TOKENS, temperature=0.0)
                await score(server, ids, out.token_ids)
            return None
        except Withheld as error:
            why = str(error)
        plain = msgspec.structs.replace(
            request, max_tokens=max(tokens, 2 * PROBE_TOKENS), temperature=0.0, seed=None
        )
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                await answer(server, plain, logprobs=False)
            return why
        except Withheld as error:
            last = error
    if last is None:
        raise ParityError("the workload has no prompt")
    raise last


async def tells_logprobs(server: Target, requests: Sequence[Request]) -> bool:
    """Whether outputs come with logprobs when these are asked for; neither a refusal nor silence is an error."""
    for request in requests[:PROBES]:
        short = msgspec.structs.replace(request, max_tokens=PROBE_TOKENS, temperature=0.0, seed=None)
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                found = await answer(server, short, logprobs=True)
        except Withheld:
            continue
        return found.tokens is not None
    return False
