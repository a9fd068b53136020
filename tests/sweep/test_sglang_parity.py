"""What the parity check asks of SGLang, against a double that answers with pages recorded from 0.5.23."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import numpy as np
import pytest
from aiohttp import web

from specbench.engines.sglang import EXTRA_BODY
from specbench.engines.sglang_scoring import SglangScoring
from specbench.sweep.scoring import ParityError, Target, generate, prompt_token_ids, score
from specbench.workloads.request import Request

T = TypeVar("T")

PAGES = Path(__file__).parents[1] / "engines" / "pages" / "sglang"
CHAT = ({"role": "user", "content": "Reply with only the word yes."},)


class Double:
    """Answers like the server that the pages come from, and refuses what it would not have answered so."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    async def tokenize(self, request: web.Request) -> web.Response:
        body = await self._body(request)
        assert set(body) == {"model", "messages"}
        return self._page("tokenize_chat.json")

    async def completions(self, request: web.Request) -> web.Response:
        body = await self._body(request)
        if body["prompt"] != self.prompt:
            return web.json_response({"object": "error", "message": "too long", "code": 400}, status=400)
        assert body["return_token_ids"]
        assert body["stream_options"]["continuous_usage_stats"]
        return self._page("stop_completion.sse", "text/event-stream")

    async def generate(self, request: web.Request) -> web.Response:
        body = await self._body(request)
        assert body["return_logprob"]
        if body["logprob_start_len"] != 16 or body["top_logprobs_num"] != 20:
            return web.json_response({"meta_info": {"input_token_logprobs": []}})
        return self._page("generate_scores.json")

    @property
    def prompt(self) -> list[int]:
        found: list[int] = json.loads((PAGES / "tokenize_chat.json").read_text())["tokens"]
        return found

    async def _body(self, request: web.Request) -> dict[str, Any]:
        self.seen.append(await request.json())
        return self.seen[-1]

    @staticmethod
    def _page(name: str, content_type: str = "application/json") -> web.Response:
        return web.Response(body=(PAGES / name).read_bytes(), content_type=content_type)


def ask(work: Callable[[Target], Awaitable[T]], double: Double | None = None) -> T:
    """Run ``work`` against a double."""
    served = double or Double()

    async def main() -> T:
        app = web.Application()
        app.router.add_post("/v1/tokenize", served.tokenize)
        app.router.add_post("/v1/completions", served.completions)
        app.router.add_post("/generate", served.generate)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            async with aiohttp.ClientSession() as session:
                return await work(Target(session, url, "m", SglangScoring(), EXTRA_BODY))
        finally:
            await runner.cleanup()

    return asyncio.run(main())


def test_a_prompt_is_continued_from_its_own_ids() -> None:
    double = Double()

    async def both(server: Target) -> Any:
        ids = await prompt_token_ids(server, Request(id="r", category="c", max_tokens=8, messages=CHAT))
        return await generate(server, ids, max_tokens=12, temperature=0.0)

    out = ask(both, double)
    assert out.token_ids == (10539, 30, 2)
    assert out.chunk_tokens == (1, 1, 1)
    assert out.finish_reason == "stop"
    assert out.text == "Yes."
    sent = double.seen[-1]
    assert (sent["top_k"], sent["top_p"], sent["return_spec_tokens_details"]) == (-1, 1.0, True)


def test_an_output_is_scored_by_the_native_route() -> None:
    prompt, output = list(range(17)), [10539, 30, 2, 253]
    found = ask(lambda server: score(server, prompt, output))
    np.testing.assert_allclose(found.logprobs, [-2.7455, -1.1303, -0.5018, -20.4783], atol=1e-4)
    assert found.ranks[2] == 1
    assert found.ranks[3] == -1  # not told
    assert found.top_ids.shape == found.top_logprobs.shape == (4, 20)
    assert (np.diff(found.top_logprobs, axis=1) <= 0).all()


def test_what_it_does_not_answer_is_said() -> None:
    with pytest.raises(ParityError, match="HTTP 400 from /v1/completions"):
        ask(lambda server: generate(server, [1, 2], max_tokens=8, temperature=0.0))
    with pytest.raises(ParityError, match="input_token_logprobs of 2 tokens"):
        ask(lambda server: score(server, [1, 2], [3]))
