"""vLLM's other methods: each starts, serves, counts what the client counts, and stops clean."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from specbench.config.grid import Arm
from specbench.engines import ports
from specbench.engines.base import Description, FailureClass, LaunchSpec
from specbench.engines.process import EngineProcess
from specbench.engines.ready import LaunchFailed, wait_ready
from specbench.engines.vllm import VllmEngine
from specbench.observe import prometheus
from specbench.observe.counters import EngineCounters, difference
from tests.engine.conftest import TARGET
from tests.engine.heads import make_eagle, make_medusa, make_proposer
from tests.engine.random_heads import make_head

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

K = 3
TOKENS = 32
TIMEOUT_S = 400.0
PROMPT = "one two three four one two three four one two three four one two"


@dataclass(frozen=True, slots=True)
class Served:
    """What one request looked like from both sides."""

    found: Description
    chunks: tuple[int, ...]
    told_accepted: int
    moved: EngineCounters


async def read_counters(
    engine: VllmEngine, session: aiohttp.ClientSession, spec: LaunchSpec
) -> EngineCounters:
    async with session.get(spec.base_url + engine.metrics_path) as page:
        return engine.counters(prometheus.parse(await page.text()))


async def stream(session: aiohttp.ClientSession, spec: LaunchSpec) -> tuple[tuple[int, ...], int]:
    """Tokens of every chunk, and the accepted drafts that the last chunk tells."""
    body = {
        "model": spec.served_model,
        "prompt": PROMPT,
        "max_tokens": TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "return_token_ids": True,
        "stream_options": {"include_usage": True},
    }
    sizes, accepted = [], -1
    async with session.post(spec.base_url + "/v1/completions", json=body) as answer:
        assert answer.status == 200, await answer.text()
        async for line in answer.content:
            text = line.decode().strip().removeprefix("data: ")
            if not text or text == "[DONE]":
                continue
            event = json.loads(text)
            sizes += [len(choice["token_ids"]) for choice in event["choices"] if choice.get("token_ids")]
            told = (event.get("metrics") or {}).get("speculative_decoding")
            accepted = told["num_accepted_draft_tokens"] if told else accepted
    return tuple(sizes), accepted


def serve(engine: VllmEngine, arm: Arm, folder: Path) -> Served:
    """One launch of an arm from start to a stop that leaves nothing."""
    assert [p for p in engine.problems(arm, 0) if p.fatal] == []
    spec = engine.launch(arm, ports.free_port())

    async def run() -> Served:
        process = EngineProcess.start(spec, folder / "engine.log", folder)
        try:
            async with aiohttp.ClientSession() as session:
                await wait_ready(engine, spec, process, session, TIMEOUT_S)
                found = await engine.describe(session, spec.base_url, process.log_text())
                before = await read_counters(engine, session, spec)
                chunks, told = await stream(session, spec)
                moved = difference(before, await read_counters(engine, session, spec))
        finally:
            report = await process.stop(20.0)
        assert report.clean
        assert report.killed == ()
        assert ports.is_free(spec.port)
        return Served(found, chunks, told, moved)

    return asyncio.run(run())


def check(served: Served, method: str) -> None:
    """The engine's counters and per-request numbers agree with the tokens that the client received."""
    moved = served.moved
    assert served.found.speculating is True
    assert served.found.speculation["method"] == method
    assert not [key for key in served.found.settings if "per_request_spec" in key]
    assert sum(served.chunks) == TOKENS == moved.generation_tokens
    assert moved.decode_outputs is not None
    assert moved.accepted_tokens is not None
    assert len(served.chunks) <= moved.decode_outputs + 1
    # Drafts accepted past the last token are counted and not sent: at most K of them.
    sent = TOKENS - 1 - moved.decode_outputs
    assert 0 <= moved.accepted_tokens - sent <= K
    assert served.told_accepted == moved.accepted_tokens
    assert sum(moved.accepted_per_position) == moved.accepted_tokens
    assert moved.drafts is not None
    assert moved.drafts > 0


@pytest.mark.parametrize("kind", ["eagle", "eagle3"])
def test_a_head_of_random_weights_runs(kind: str, vllm_engine: VllmEngine, tmp_path: Path) -> None:
    head = (
        make_eagle(TARGET, tmp_path / "head")
        if kind == "eagle"
        else make_head("eagle3", TARGET, tmp_path / "head")
    )
    served = serve(vllm_engine, Arm(id=kind, method=kind, draft=str(head), k=K), tmp_path)
    check(served, kind)
    assert served.moved.draft_tokens == K * (served.moved.drafts or 0)


def test_medusa_heads_of_random_weights_run(vllm_engine: VllmEngine, tmp_path: Path) -> None:
    heads = make_medusa(TARGET, tmp_path / "heads")
    served = serve(vllm_engine, Arm(id="medusa", method="medusa", draft=str(heads), k=K), tmp_path)
    check(served, "medusa")
    assert served.moved.draft_tokens == K * (served.moved.drafts or 0)


def test_a_proposer_class_of_ones_own_runs_and_is_accepted(vllm_engine: VllmEngine, tmp_path: Path) -> None:
    path = make_proposer(tmp_path / "proposer")
    arm = Arm(
        id="custom", method="custom_class", draft=path, k=K, env={"PYTHONPATH": str(tmp_path / "proposer")}
    )
    served = serve(vllm_engine, arm, tmp_path)
    check(served, "custom_class")
    assert (served.moved.accepted_tokens or 0) > 0
    assert max(served.chunks) > 1


def test_layers_that_the_target_does_not_have_are_told_before_and_explained_after(
    vllm_engine: VllmEngine, tmp_path: Path
) -> None:
    arm = Arm(id="mtp", method="mtp", k=1)
    (warned,) = vllm_engine.problems(arm, 0)
    assert not warned.fatal
    assert "no multi-token-prediction layers" in warned.message
    with pytest.raises(LaunchFailed) as caught:
        serve(vllm_engine, arm, tmp_path)
    assert caught.value.failure.kind is FailureClass.UNSUPPORTED_METHOD
    assert "cannot do mtp" in caught.value.failure.summary
