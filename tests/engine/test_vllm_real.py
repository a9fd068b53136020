"""vLLM itself: one launch with a draft model from start to a stop that leaves nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import psutil
import pytest

from specbench.config.grid import Arm
from specbench.engines import ports
from specbench.engines.base import FailureClass, LaunchSpec
from specbench.engines.process import EngineProcess
from specbench.engines.ready import LaunchFailed, wait_ready
from specbench.engines.vllm import VllmEngine, is_tested
from specbench.observe import prometheus
from specbench.observe.counters import EngineCounters, difference

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

K = 3
TOKENS = 24
TIMEOUT_S = 400.0


async def counters(engine: VllmEngine, session: aiohttp.ClientSession, spec: LaunchSpec) -> EngineCounters:
    async with session.get(spec.base_url + engine.metrics_path) as page:
        return engine.counters(prometheus.parse(await page.text()))


def test_a_draft_model_launch_from_start_to_stop(
    vllm_engine: VllmEngine, draft_model: Path, tmp_path: Path
) -> None:
    engine = vllm_engine
    arm = Arm(id="draft-k3", method="draft_model", draft=str(draft_model), k=K)
    assert [p for p in engine.problems(arm, 0) if p.fatal] == []
    assert is_tested(engine.version())
    spec = engine.launch(arm, ports.free_port())
    phases: list[str] = []

    async def run() -> None:
        process = EngineProcess.start(spec, tmp_path / "engine.log", tmp_path)
        try:
            async with aiohttp.ClientSession() as session:
                ready = await wait_ready(
                    engine, spec, process, session, TIMEOUT_S, lambda name, _: phases.append(name)
                )
                assert ready.startup_s > 0
                assert {"loading weights", "loading the draft", "allocating KV memory"} <= set(phases)
                await serve(process, session)
            members = process.pids()
            assert len(members) >= 3  # server, engine core, worker
        finally:
            report = await process.stop(20.0)
        assert report.clean
        assert report.returncode is not None
        assert report.killed == ()
        assert not any(psutil.pid_exists(pid) for pid in members)
        assert ports.is_free(spec.port)

    async def serve(process: EngineProcess, session: aiohttp.ClientSession) -> None:
        found = await engine.describe(session, spec.base_url, process.log_text())
        assert found.version == engine.version()
        assert found.max_model_len == 1024
        assert found.speculating is True
        assert found.speculation["num_speculative_tokens"] == K
        assert (found.kv_capacity_tokens or 0) > 1024
        assert found.settings["scheduler_config.max_num_seqs"] == 8
        assert found.settings["cache_config.enable_prefix_caching"] is False
        assert not [key for key in found.settings if key.endswith(("_port", "served_model_name", "hf_token"))]

        before = await counters(engine, session, spec)
        body = {
            "model": spec.served_model,
            "prompt": "The capital of France is",
            "max_tokens": TOKENS,
            "temperature": 0,
            "ignore_eos": True,
        }
        async with session.post(spec.base_url + "/v1/completions", json=body) as answer:
            assert answer.status == 200, await answer.text()
            assert (await answer.json())["usage"]["completion_tokens"] == TOKENS
        moved = difference(before, await counters(engine, session, spec))
        assert moved.generation_tokens == TOKENS
        assert moved.first_outputs == 1
        assert moved.drafts is not None
        assert moved.draft_tokens == K * moved.drafts
        assert len(moved.accepted_per_position) == K
        assert sum(moved.accepted_per_position) == moved.accepted_tokens
        assert moved.decode_outputs is not None
        assert moved.decode_outputs <= TOKENS - 1
        assert await engine.reset_prefix_cache(session, spec.base_url) is True

    asyncio.run(run())


def test_a_setting_that_vllm_refuses_is_explained_from_its_own_log(
    vllm_engine: VllmEngine, tmp_path: Path
) -> None:
    """The catalogue was written from recorded logs; this is the log of the version that is installed."""
    arm = Arm(id="bad", method="ngram", k=2, settings={"disable_by_batch_size": 4})
    spec = vllm_engine.launch(arm, ports.free_port())

    async def run() -> None:
        process = EngineProcess.start(spec, tmp_path / "engine.log", tmp_path)
        try:
            async with aiohttp.ClientSession() as session:
                await wait_ready(vllm_engine, spec, process, session, TIMEOUT_S)
        finally:
            await process.stop(20.0)

    with pytest.raises(LaunchFailed) as caught:
        asyncio.run(run())
    failure = caught.value.failure
    assert failure.kind is FailureClass.BAD_SPECULATION
    assert "disable_by_batch_size" in failure.summary
