"""SGLang itself, on the CPU platform plugin: each kind of arm from start to a stop that leaves nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psutil
import pytest

from specbench.config.grid import Arm
from specbench.engines import ports
from specbench.engines.base import Description, FailureClass
from specbench.engines.process import EngineProcess, StopReport
from specbench.engines.ready import LaunchFailed, wait_ready
from specbench.engines.sglang import SglangEngine, is_tested
from specbench.load.closed import run_closed
from specbench.load.record import RequestRecord
from specbench.load.transport import open_client
from specbench.observe import prometheus
from specbench.observe.counters import EngineCounters, difference
from specbench.sweep.scoring import Generated, Scored, Target, generate, prompt_token_ids, score
from specbench.workloads.request import Request
from tests.engine.random_heads import make_head

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

TOKENS = 24
TIMEOUT_S = 400.0
YES = Request(
    id="yes",
    category="t",
    messages=({"role": "user", "content": "Reply with only the word yes."},),
    max_tokens=TOKENS,
)
SAMPLED = Request(
    id="sampled",
    category="t",
    prompt="Once upon a time",
    max_tokens=8,
    temperature=1.0,
    output_mode="forced",
)
LIST = "one two three four one two three four one two three four one two"


@dataclass(frozen=True)
class Served:
    """What one launch said and did."""

    described: Description
    records: list[RequestRecord]
    moved: EngineCounters
    token_ids: list[int]
    ended: RequestRecord
    parity: Generated
    scores: Scored | None
    phases: list[str]
    members: frozenset[int]
    stopped: StopReport


Serve = Callable[[Arm], Served]


@pytest.fixture(scope="module")
def serve(sglang_engine: SglangEngine, tmp_path_factory: pytest.TempPathFactory) -> Serve:
    """Launch an arm, send it two streamed requests through the load client and one for its token ids."""
    return lambda arm: asyncio.run(_serve(sglang_engine, arm, tmp_path_factory.mktemp(arm.id)))


@pytest.fixture(scope="module")
def baseline(serve: Serve) -> Served:
    """The arm without speculation."""
    return serve(Arm(id="baseline"))


async def _serve(engine: SglangEngine, arm: Arm, folder: Path) -> Served:
    assert [p for p in engine.problems(arm, 0) if p.fatal] == []
    spec = engine.launch(arm, ports.free_port())
    phases: list[str] = []
    process = EngineProcess.start(spec, folder / "engine.log", folder)
    try:
        async with aiohttp.ClientSession() as session:
            await wait_ready(engine, spec, process, session, TIMEOUT_S, lambda name, _: phases.append(name))
            described = await engine.describe(session, spec.base_url, process.log_text())
            assert await engine.reset_prefix_cache(session, spec.base_url) is True
            before = await _counters(engine, session, spec.base_url)
            async with open_client(
                spec.base_url,
                spec.served_model,
                connections=2,
                stall_timeout_s=120,
                total_timeout_s=240,
                extra_body=spec.extra_body,
                extra_chat=spec.extra_chat,
            ) as client:
                run = await run_closed(client, _requests(), 2)
                moved = difference(before, await _counters(engine, session, spec.base_url))
                # A greedy and a sampled request in one batch, as a parity check sends them.
                ended, sampled = (await run_closed(client, [YES, SAMPLED], 2)).records
            server = Target(session, spec.base_url, spec.served_model, engine.scoring(), spec.extra_body)
            prompt = await prompt_token_ids(server, YES)
            parity = await generate(server, prompt, max_tokens=8, temperature=0.0)
            scores = await score(server, prompt, parity.token_ids) if arm.is_baseline else None
            token_ids = await _token_ids(server)
        members = process.pids()
    finally:
        stopped = await process.stop(30.0)
    assert sampled.error is None
    assert len(sampled.token_ids) == sampled.output_tokens == 8
    records = list(run.records)
    return Served(described, records, moved, token_ids, ended, parity, scores, phases, members, stopped)


def _requests() -> list[Request]:
    question = ({"role": "user", "content": "Count from one to ten, then again."},)
    return [
        Request(id="chat", category="t", messages=question, max_tokens=TOKENS, output_mode="forced"),
        Request(id="text", category="t", prompt=LIST, max_tokens=TOKENS, output_mode="forced"),
    ]


async def _counters(engine: SglangEngine, session: aiohttp.ClientSession, url: str) -> EngineCounters:
    async with session.get(url + engine.metrics_path) as page:
        return engine.counters(prometheus.parse(await page.text()))


async def _token_ids(server: Target) -> list[int]:
    """Ids of a completion; those of its prompt must be what the tokenizer's own page says."""
    body = {"model": server.model, "prompt": LIST, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    url = server.base_url + "/v1/completions"
    async with server.session.post(url, json={**body, "return_token_ids": True}) as answer:
        assert answer.status == 200, await answer.text()
        (choice,) = (await answer.json())["choices"]
    text = Request(id="text", category="t", prompt=LIST, max_tokens=TOKENS)
    assert choice["prompt_token_ids"] == list(await prompt_token_ids(server, text))
    ids: list[int] = choice["token_ids"]
    return ids


def _check_common(engine: SglangEngine, served: Served) -> None:
    found = served.described
    assert found.version == engine.version()
    assert is_tested(found.version)
    assert found.max_model_len == 1024
    assert found.kv_capacity_tokens == 4096
    assert found.settings["max_running_requests"] == 8
    assert found.settings["disable_radix_cache"] is True
    assert not [key for key in found.settings if key.endswith(("_port", "_path", "served_model_name"))]
    assert {"loading weights", "allocating KV memory", "starting the server"} <= set(served.phases)
    assert [r.error for r in served.records] == [None, None]
    for record in served.records:
        assert record.output_tokens == sum(record.chunk_tokens) == TOKENS
        assert record.finish_reason == "length"
    # The end of text counts, though chat streams show it in the last usage alone.
    assert served.ended.error is None
    assert served.ended.finish_reason == "stop"
    assert served.ended.output_tokens == sum(served.ended.chunk_tokens) > 1
    assert served.moved.generation_tokens == 2 * TOKENS
    assert served.moved.first_outputs == 2
    assert served.moved.cached_prompt_tokens == 0
    assert len(served.members) >= 3  # server, scheduler, detokenizer
    assert served.stopped.clean
    assert served.stopped.killed == ()
    assert not any(psutil.pid_exists(pid) for pid in served.members)


def _check_acceptance(served: Served, k: int) -> None:
    """The engine's per-request counts against what the client saw."""
    for record in served.records:
        a = record.acceptance
        assert a is not None
        assert a.accepted_tokens is not None
        assert sum(a.histogram) == a.drafted_steps
        assert sum(i * n for i, n in enumerate(a.histogram)) == a.accepted_tokens
        assert len(a.histogram) <= k + 1
        # Every step gives its accepted tokens and one more; the first token comes from the prefill, and
        # what was accepted past the end is counted but not sent.
        past_the_end = a.accepted_tokens + a.drafted_steps - (TOKENS - 1)
        assert 0 <= past_the_end <= k
        assert len(record.chunk_tokens) == a.drafted_steps + 1


def test_the_baseline_serves_and_does_not_speculate(sglang_engine: SglangEngine, baseline: Served) -> None:
    _check_common(sglang_engine, baseline)
    assert baseline.described.speculating is False
    assert baseline.described.speculation == {}
    assert [r.acceptance for r in baseline.records] == [None, None]
    assert all(r.chunk_tokens == [1] * TOKENS for r in baseline.records)
    assert len(baseline.token_ids) == TOKENS
    out, scores = baseline.parity, baseline.scores
    assert scores is not None
    assert out.finish_reason == "stop"
    assert len(out.token_ids) == baseline.ended.output_tokens == sum(out.chunk_tokens)
    # What a server without speculation wrote greedily, it finds the likeliest of all.
    assert scores.ranks.tolist() == [1] * len(out.token_ids)
    assert scores.top_ids[:, 0].tolist() == list(out.token_ids)


def test_ngram(sglang_engine: SglangEngine, serve: Serve, baseline: Served) -> None:
    served = serve(Arm(id="ngram-k4", method="ngram", k=4))
    _check_common(sglang_engine, served)
    assert served.described.speculation["speculative_num_draft_tokens"] == 4
    assert "root" in served.described.speculation["k_meaning"]
    _check_acceptance(served, k=3)
    for record in served.records:
        assert record.acceptance is not None
        assert record.acceptance.draft_tokens == 3 * record.acceptance.drafted_steps  # its whole budget
    assert served.token_ids == baseline.token_ids
    assert served.parity.token_ids == baseline.parity.token_ids
    differing = _differing_settings(baseline, served)
    assert differing == {"disable_overlap_schedule"}


def test_a_draft_model(
    sglang_engine: SglangEngine, serve: Serve, baseline: Served, draft_model: Path
) -> None:
    served = serve(Arm(id="draft-k3", method="draft_model", draft=str(draft_model), k=3))
    _check_common(sglang_engine, served)
    assert served.described.speculation["speculative_algorithm"] == "STANDALONE"
    _check_acceptance(served, k=3)
    assert sum(r.acceptance.accepted_tokens or 0 for r in served.records if r.acceptance) > 0
    assert served.token_ids == baseline.token_ids
    assert served.parity.token_ids == baseline.parity.token_ids
    assert _differing_settings(baseline, served) == {"disable_overlap_schedule"}


def test_an_eagle_head_of_random_weights_is_never_accepted_and_harmless(
    sglang_engine: SglangEngine, serve: Serve, baseline: Served, target_model: Path, tmp_path: Path
) -> None:
    head = make_head("eagle", target_model, tmp_path / "head")
    served = serve(Arm(id="eagle-k2", method="eagle", draft=str(head), k=2))
    _check_common(sglang_engine, served)
    _check_acceptance(served, k=2)
    for record in served.records:
        assert record.acceptance is not None
        assert record.acceptance.draft_tokens == 2 * record.acceptance.drafted_steps
    assert served.token_ids == baseline.token_ids
    assert served.parity.token_ids == baseline.parity.token_ids


def test_an_eagle3_head_with_adaptive_steps(
    sglang_engine: SglangEngine, serve: Serve, baseline: Served, target_model: Path, tmp_path: Path
) -> None:
    head = make_head("eagle3", target_model, tmp_path / "head")
    arm = Arm(id="eagle3-k3", method="EAGLE3", draft=str(head), k=3, settings={"adaptive": True})
    served = serve(arm)
    _check_common(sglang_engine, served)
    assert served.described.speculation["speculative_adaptive"] is True
    _check_acceptance(served, k=7)
    assert served.token_ids == baseline.token_ids
    assert served.parity.token_ids == baseline.parity.token_ids


def _differing_settings(a: Served, b: Served) -> set[str]:
    one, other = a.described.settings, b.described.settings
    return {key for key in {*one, *other} if one.get(key) != other.get(key)}


def test_a_method_that_sglang_lacks_is_explained_from_its_own_log(
    sglang_engine: SglangEngine, tmp_path: Path
) -> None:
    """The catalogue was written from recorded logs; this is the log of the version that is installed."""
    arm = Arm(id="bad", method="medusa", k=3)
    assert any(p.fatal for p in sglang_engine.problems(arm, 0))
    spec = sglang_engine.launch(arm, ports.free_port())

    async def run() -> None:
        process = EngineProcess.start(spec, tmp_path / "engine.log", tmp_path)
        try:
            async with aiohttp.ClientSession() as session:
                await wait_ready(sglang_engine, spec, process, session, TIMEOUT_S)
        finally:
            await process.stop(20.0)

    with pytest.raises(LaunchFailed) as caught:
        asyncio.run(run())
    failure = caught.value.failure
    assert failure.kind is FailureClass.UNSUPPORTED_METHOD
    assert "MEDUSA does not exist in SGLang" in failure.summary
