"""One launch of a vLLM arm from start to a stop that leaves nothing, and what its requests looked like."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from specbench.config.grid import Arm
from specbench.engines import ports
from specbench.engines.base import Description, LaunchSpec
from specbench.engines.process import EngineProcess
from specbench.engines.ready import wait_ready
from specbench.engines.vllm import VllmEngine
from specbench.observe import prometheus
from specbench.observe.counters import EngineCounters, difference

TOKENS = 32
TIMEOUT_S = 400.0

Prompt = str | list[int]


@dataclass(frozen=True, slots=True)
class Stream:
    """What a client received: the token ids of every chunk, and the accepted drafts that the last one tells."""

    chunks: tuple[tuple[int, ...], ...]
    accepted: int

    @property
    def ids(self) -> list[int]:
        """All its tokens."""
        return [token for chunk in self.chunks for token in chunk]


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests that were sent together, and how far the engine's counters moved meanwhile."""

    streams: tuple[Stream, ...]
    moved: EngineCounters


@dataclass(frozen=True, slots=True)
class Served:
    """A launch that served."""

    found: Description
    batches: tuple[Batch, ...]


def serve(
    engine: VllmEngine,
    arm: Arm,
    folder: Path,
    batches: Sequence[Sequence[Prompt]],
    temperature: float = 0.0,
    tokens: int = TOKENS,
) -> Served:
    """Launch an arm and send it batches of prompts, one batch after the other.

    Raises:
        LaunchFailed: the engine ended before it was ready.
        AssertionError: the arm has fatal problems, or something was left behind.
    """
    assert [p for p in engine.problems(arm, 0) if p.fatal] == []
    spec = engine.launch(arm, ports.free_port())

    async def run() -> Served:
        process = EngineProcess.start(spec, folder / "engine.log", folder)
        try:
            async with aiohttp.ClientSession() as session:
                await wait_ready(engine, spec, process, session, TIMEOUT_S)
                found = await engine.describe(session, spec.base_url, process.log_text())
                done = []
                for prompts in batches:
                    before = await _counters(engine, session, spec)
                    streams = await asyncio.gather(
                        *(_stream(session, spec, prompt, temperature, tokens) for prompt in prompts)
                    )
                    moved = difference(before, await _counters(engine, session, spec))
                    done.append(Batch(tuple(streams), moved))
        finally:
            report = await process.stop(20.0)
        assert report.clean
        assert report.killed == ()
        assert ports.is_free(spec.port)
        return Served(found, tuple(done))

    return asyncio.run(run())


def check(served: Served, method: str, k: int) -> None:
    """The engine's counters and per-request numbers agree with the tokens that the clients received."""
    assert served.found.speculating is True
    assert served.found.speculation["method"] == method
    assert not [key for key in served.found.settings if "per_request_spec" in key]
    for batch in served.batches:
        moved, streams = batch.moved, batch.streams
        assert all(stream.chunks[0] for stream in streams)
        tokens = sum(len(stream.ids) for stream in streams)
        assert tokens == moved.generation_tokens
        assert moved.decode_outputs is not None
        assert moved.accepted_tokens is not None
        assert moved.first_outputs == len(streams)
        assert sum(len(stream.chunks) for stream in streams) <= moved.decode_outputs + len(streams)
        # Drafts accepted past the last token are counted and not sent: at most K of them per request.
        sent = tokens - len(streams) - moved.decode_outputs
        assert 0 <= moved.accepted_tokens - sent <= k * len(streams)
        assert sum(stream.accepted for stream in streams) == moved.accepted_tokens
        assert sum(moved.accepted_per_position) == moved.accepted_tokens
        assert moved.drafts is not None
        assert moved.drafts > 0
        assert (moved.draft_tokens or 0) <= k * moved.drafts


async def _counters(engine: VllmEngine, session: aiohttp.ClientSession, spec: LaunchSpec) -> EngineCounters:
    async with session.get(spec.base_url + engine.metrics_path) as page:
        return engine.counters(prometheus.parse(await page.text()))


async def _stream(
    session: aiohttp.ClientSession, spec: LaunchSpec, prompt: Prompt, temperature: float, tokens: int
) -> Stream:
    body = {
        "model": spec.served_model,
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": temperature,
        "ignore_eos": True,
        "stream": True,
        "return_token_ids": True,
        "stream_options": {"include_usage": True},
    }
    chunks, accepted = [], -1
    async with session.post(spec.base_url + "/v1/completions", json=body) as answer:
        assert answer.status == 200, await answer.text()
        async for line in answer.content:
            text = line.decode().strip().removeprefix("data: ")
            if not text or text == "[DONE]":
                continue
            event = json.loads(text)
            chunks += [tuple(choice["token_ids"]) for choice in event["choices"] if choice.get("token_ids")]
            told = (event.get("metrics") or {}).get("speculative_decoding")
            accepted = told["num_accepted_draft_tokens"] if told else accepted
    return Stream(tuple(chunks), accepted)
