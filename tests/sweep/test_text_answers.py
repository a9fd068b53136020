"""Texts and their logprobs from a running server, and whether it tells more than that."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import pytest
from aiohttp import web

from specbench.engines.simulated.tokenizer import EOS, TOKEN_TEXT
from specbench.engines.vllm_scoring import VllmScoring
from specbench.sweep.scoring import ParityError, Target, Withheld
from specbench.sweep.text_answers import answer, tells_logprobs, why_texts
from specbench.workloads.request import Request
from tests.engines.simulated.servers import launched

T = TypeVar("T")

CHAT = Request(
    id="c", category="chat", max_tokens=12, messages=({"role": "user", "content": "tell me about numbers"},)
)
TEXT = Request(id="t", category="chat", max_tokens=12, prompt="tell me about numbers")
LONG = Request(id="l", category="chat", max_tokens=12, prompt="number " * 2100)


def ask(url: str, work: Callable[[Target], Awaitable[T]]) -> T:
    async def main() -> T:
        async with aiohttp.ClientSession() as session:
            return await work(Target(session, url, "target", VllmScoring()))

    return asyncio.run(main())


def test_a_server_that_tells_everything_needs_no_texts(tmp_path: Path) -> None:
    with launched(tmp_path) as server:
        assert ask(server.url, lambda t: why_texts(t, [LONG, CHAT], 16)) is None
        assert ask(server.url, lambda t: tells_logprobs(t, [LONG, CHAT]))
        # No prompt that it takes: that is no word on what it tells.
        with pytest.raises(Withheld, match="maximum context length"):
            ask(server.url, lambda t: why_texts(t, [LONG], 16))
        chat = ask(server.url, lambda t: answer(t, CHAT, logprobs=True))
        text = ask(server.url, lambda t: answer(t, TEXT, logprobs=True))
        bare = ask(server.url, lambda t: answer(t, TEXT, logprobs=False))
    for found in (chat, text):
        assert found.tokens is not None
        assert found.top is not None
        assert "".join(t for t in found.tokens if t != TOKEN_TEXT[EOS]) == found.text
        # Greedy at no noise: each token is its server's first alternative of five.
        assert [at[0][0] for at in found.top] == list(found.tokens)
        assert all(len(at) == 5 and at[0][1] >= at[4][1] for at in found.top)
    assert (bare.text, bare.tokens, bare.top) == (text.text, None, None)


@pytest.mark.parametrize(
    ("sim", "why", "logprobs"),
    [
        ({"token_ids": False}, "does not return the prompt's token ids", True),
        (
            {"scores": "refused", "logprobs": "refused"},
            "HTTP 400 from /v1/completions: .*prompt_logprobs: unknown parameter",
            False,
        ),
        ({"scores": "left_out", "logprobs": "left_out"}, "the answer has None", False),
    ],
)
def test_a_server_that_withholds_is_told_from_its_answer(
    tmp_path: Path, sim: dict[str, Any], why: str, logprobs: bool
) -> None:
    with launched(tmp_path, sim=sim) as server:
        found = ask(server.url, lambda t: why_texts(t, [LONG, TEXT], 16))
        told = ask(server.url, lambda t: tells_logprobs(t, [LONG, TEXT]))
        out = ask(server.url, lambda t: answer(t, TEXT, logprobs=told))
    assert found is not None
    assert re.search(why, found)
    assert told is logprobs
    assert (out.tokens is not None) is logprobs


def test_a_dying_or_failing_server_withholds_nothing(tmp_path: Path) -> None:
    with launched(tmp_path, sim={"token_ids": False, "faults": {"die_after_requests": 1}}) as server:
        # The first request is answered without ids, the plain one is not answered any more.
        with pytest.raises((ParityError, aiohttp.ClientError)) as caught:
            ask(server.url, lambda t: why_texts(t, [TEXT], 16))
        assert not isinstance(caught.value, Withheld)
        server.wait_for_exit()
        with pytest.raises(aiohttp.ClientError):
            ask(server.url, lambda t: why_texts(t, [TEXT], 16))
    with launched(tmp_path, sim={"faults": {"http_500_every": 1}}) as server:
        with pytest.raises(ParityError, match="HTTP 500") as refused:
            ask(server.url, lambda t: why_texts(t, [TEXT], 16))
        assert not isinstance(refused.value, Withheld)


def events(*logprobs: Any) -> bytes:
    """A stream of one word per event."""
    rows = [
        {"choices": [{"text": f" w{i}", "logprobs": x, "finish_reason": None}]}
        for i, x in enumerate(logprobs)
    ]
    rows.append({"choices": [{"text": "", "finish_reason": "stop"}]})
    return b"".join(b"data: " + json.dumps(r).encode() + b"\n\n" for r in rows) + b"data: [DONE]\n\n"


def from_double(body: bytes, status: int = 200) -> Any:
    """What `answer` makes of a stream."""

    async def handle(_: web.Request) -> web.Response:
        return web.Response(body=body, status=status, content_type="text/event-stream")

    async def main() -> Any:
        app = web.Application()
        app.router.add_post("/v1/completions", handle)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        try:
            async with aiohttp.ClientSession() as session:
                target = Target(session, f"http://127.0.0.1:{port}", "m", VllmScoring())
                return await answer(target, TEXT, logprobs=True)
        finally:
            await runner.cleanup()

    return asyncio.run(main())


def test_odd_shapes_of_logprobs_are_as_good_as_none() -> None:
    legacy = {"tokens": [" w0"], "top_logprobs": [None]}
    found = from_double(events(legacy, {"tokens": [" w1"], "top_logprobs": [{"b": -2.0, "a": -1.0}]}))
    assert found.tokens == (" w0", " w1")
    assert from_double(events(legacy, legacy, {"content": None})).tokens is None  # a gap
    assert from_double(events({"content": None})).tokens is None
    assert found.top == ((), (("a", -1.0), ("b", -2.0)))
    assert from_double(events({"content": [{"text": "w"}]})).tokens is None
    assert from_double(events([-1.0], "none")).tokens is None
    assert from_double(events({"text_offset": []})).tokens is None
    # A gap leaves no place of any token known.
    assert from_double(events(legacy, None, legacy)).tokens is None


@pytest.mark.parametrize(
    ("status", "withheld"), [(400, True), (422, True), (401, False), (429, False), (503, False)]
)
def test_only_what_speaks_of_the_request_is_a_refusal(status: int, withheld: bool) -> None:
    with pytest.raises(ParityError, match=f"HTTP {status}") as caught:
        from_double(b"no", status)
    assert isinstance(caught.value, Withheld) is withheld


def test_a_stream_cut_short_is_an_error() -> None:
    with pytest.raises(ParityError, match="without a finish reason"):
        from_double(events(None).split(b"data: ")[1].join([b"data: ", b""]))
