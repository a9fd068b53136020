"""Sweeps over servers that run already, behind keys, TLS and proxies that misbehave."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from specbench.analysis.run import analyse
from specbench.verdict.exit_codes import ExitCode
from specbench.verdict.rule import judge
from tests.engines.simulated.servers import DRAFT_MODEL, Running, launched
from tests.sweep.conftest import Bench, measure

PKI = Path(__file__).parent / "pki"
SIM = {"time_scale": 0.05}
FLAGS = ("--max-model-len", "2048", "--max-num-seqs", "8")
KEY = "sk-open-sesame-0815"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Running]]:
    """The baseline's server and one that drafts."""
    folder = tmp_path_factory.mktemp("servers")
    with (
        launched(folder, *FLAGS, sim=SIM) as plain,
        launched(folder, *FLAGS, sim=SIM, speculation=DRAFT_MODEL) as drafting,
    ):
        yield plain, drafting


@dataclass
class Gate:
    """A reverse proxy in a thread: TLS, a key, hidden pages, and an end after some completions."""

    upstream: str
    key: str | None = None
    hidden: frozenset[str] = frozenset()
    ends_after: int | None = None
    url: str = ""
    paths: list[str] = field(default_factory=list)
    _completions: int = 0
    _over: asyncio.Event = field(default_factory=asyncio.Event)

    async def pass_on(self, request: web.Request) -> web.StreamResponse:
        self.paths.append(request.path)
        if self.key is not None and request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.json_response({"error": "no such key"}, status=401)
        if request.path in self.hidden:
            return web.json_response({"error": "not found"}, status=404)
        if request.path.endswith("completions"):
            self._completions += 1
            if self.ends_after is not None and self._completions > self.ends_after:
                self._over.set()
        body, query = await request.read(), request.query_string
        address = f"{self.upstream}{request.path}" + (f"?{query}" if query else "")
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.request(request.method, address, data=body or None) as answer,
        ):
            out = web.StreamResponse(status=answer.status)
            out.content_type = answer.content_type
            await out.prepare(request)
            async for data in answer.content.iter_any():
                await out.write(data)
            await out.write_eof()
            return out

    async def serve(self, tls: bool, ready: threading.Event, stop: asyncio.Event) -> None:
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", self.pass_on)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        context = None
        if tls:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(PKI / "server.pem", PKI / "server.key")
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        assert runner.addresses
        self.url = f"http{'s' if tls else ''}://localhost:{runner.addresses[0][1]}"
        ready.set()
        ends = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(self._over.wait())]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        await runner.cleanup()
        for end in ends:
            end.cancel()


@contextmanager
def gate(upstream: Running, *, tls: bool = False, **how: Any) -> Iterator[Gate]:
    """A proxy on a free port, ended at the end."""
    ready = threading.Event()
    made: dict[str, Any] = {}

    async def run() -> None:
        made["stop"], made["loop"] = asyncio.Event(), asyncio.get_running_loop()
        made["gate"] = Gate(upstream.url, **how)
        await made["gate"].serve(tls, ready, made["stop"])

    thread = threading.Thread(target=asyncio.run, args=(run(),), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield made["gate"]
    finally:
        if thread.is_alive():
            made["loop"].call_soon_threadsafe(made["stop"].set)
            thread.join(10)


def attach(bench: Bench, baseline: str, arm: str, *, rounds: int = 1, **engine: Any) -> None:
    """The tiny config over two servers."""
    bench.write(
        engine={"kind": "endpoint", "url": baseline, "model": "target", **engine},
        arms=[{"method": "draft_model", "draft": "sim-draft", "k": 4, "name": "draft", "url": arm}],
        measure=measure(rounds=rounds),
    )


def result_of(bench: Bench) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((bench.the_run().path / "result.json").read_text())
    return result


def test_two_running_servers_are_compared_and_left_running(
    bench: Bench, servers: tuple[Running, Running]
) -> None:
    plain, drafting = servers
    attach(bench, plain.url, drafting.url + "/v1/", rounds=2)
    done = bench.sweep()
    assert done.returncode == 0, done.stdout + done.stderr
    assert [c.status for c in bench.the_run().cells()] == ["ok"] * 8
    result = result_of(bench)
    at = {(x["arm"], x["load"]): x for x in result["results"]}
    assert at["draft-k4", "c2"]["acceptance"]["length"] > 1.2
    assert at["draft-k4", "c2"]["acceptance"]["coverage"] == pytest.approx(1.0)
    assert at["baseline", "c2"]["acceptance"]["length"] is None
    launches = bench.the_run().launches()
    assert {x.version for x in launches} == {bench.the_run().manifest().engine_version.removeprefix("vllm ")}
    assert {x.arm: x.speculating for x in launches} == {"baseline": False, "draft-k4": True}
    assert all(x.argv == () and x.stop is not None and x.stop["how"] == "left_running" for x in launches)
    assert plain.process.poll() is None
    assert drafting.process.poll() is None
    assert result["grade"] in "CD"
    assert any("every round measured the same launch" in reason for reason in result["grade_reasons"])
    assert "one and the same launch" in (bench.the_run().path / "report.md").read_text()


def test_tls_with_an_own_authority_and_a_key(
    bench: Bench, servers: tuple[Running, Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SB_KEY", KEY)
    plain, drafting = servers
    headers = {"Authorization": "Bearer ${SB_KEY}"}
    with gate(plain, tls=True, key=KEY) as first, gate(drafting, tls=True, key=KEY) as second:
        attach(bench, first.url, second.url, headers=headers)
        refused = bench.sweep()
        assert refused.returncode == 3, refused.stdout + refused.stderr
        assert "engine.ca" in refused.stderr

        attach(bench, first.url, second.url, headers=headers, ca=str(PKI / "ca.pem"))
        done = bench.sweep()
        assert done.returncode == 0, done.stdout + done.stderr
        run = bench.the_run()
        assert [c.status for c in run.cells()] == ["ok"] * 4
        leaks = [p for p in run.path.rglob("*") if p.is_file() and KEY.encode() in p.read_bytes()]
        assert leaks == []
        assert run.manifest().config["engine"]["headers"] == headers

        monkeypatch.setenv("SB_KEY", "sk-the-wrong-one")
        wrong = bench.sweep()
        assert wrong.returncode != 0
        assert "refused the key (HTTP 401)" in wrong.stderr
        assert "sk-the-wrong-one" not in wrong.stderr


def test_without_a_metrics_page_acceptance_comes_from_the_chunks(
    bench: Bench, servers: tuple[Running, Running]
) -> None:
    hidden = frozenset({"/metrics", "/version", "/server_info"})
    with gate(servers[0], hidden=hidden) as first, gate(servers[1], hidden=hidden) as second:
        attach(bench, first.url, second.url)
        done = bench.sweep()
    assert done.returncode == 0, done.stdout + done.stderr
    assert [c.status for c in bench.the_run().cells()] == ["ok"] * 4
    result = result_of(bench)
    at = {(x["arm"], x["load"]): x for x in result["results"]}
    acceptance = at["draft-k4", "c2"]["acceptance"]
    assert acceptance["length"] is None
    assert acceptance["tokens_per_step"] > 1.2
    assert "chunk" in acceptance["source"]
    assert at["baseline", "c2"]["acceptance"]["tokens_per_step"] == pytest.approx(1.0, abs=0.1)
    assert bench.the_run().manifest().engine_version == "unknown"
    text = (bench.the_run().path / "report.md").read_text()
    assert "404" in text
    assert text.count("HTTP 404 from /metrics") < 5


def test_a_server_that_dies_in_a_cell_is_a_result(bench: Bench, servers: tuple[Running, Running]) -> None:
    with gate(servers[1], ends_after=12) as mortal:
        attach(bench, servers[0].url, mortal.url)
        done = bench.sweep()
    cells = bench.the_run().cells()
    assert {c.status for c in cells if c.arm == "baseline"} == {"ok"}, done.stdout + done.stderr
    lost = [c for c in cells if c.arm == "draft-k4" and c.status == "failed"]
    assert lost
    assert {c.failure.kind for c in lost if c.failure} == {"engine_died"}
    assert next(x for x in bench.the_run().launches() if x.arm == "draft-k4").status == "died"


def test_the_wrong_model_is_refused_with_the_name_to_use(
    bench: Bench, servers: tuple[Running, Running]
) -> None:
    attach(bench, servers[0].url, servers[1].url, model="llama")
    done = bench.sweep()
    assert done.returncode != 0
    run = bench.the_run()
    failure = next(x.failure for x in run.launches() if x.failure)
    assert "offers target, not llama" in failure.summary
    assert "engine.model" in failure.mend


def test_nobody_there(bench: Bench, servers: tuple[Running, Running]) -> None:
    attach(bench, "http://127.0.0.1:9", servers[1].url)
    done = bench.sweep()
    assert done.returncode != 0
    assert "http://127.0.0.1:9 cannot be reached" in done.stderr
    assert "Traceback" not in done.stderr


def test_one_server_for_two_arms(bench: Bench, servers: tuple[Running, Running]) -> None:
    plain = servers[0].url
    attach(bench, plain, plain.replace("127.0.0.1", "localhost") + "/")
    done = bench.sweep()
    assert done.returncode == 2
    assert "the server of the arm draft-k4 is the baseline's" in done.stderr
    attach(bench, plain, plain, allow_same=True)
    done = bench.sweep()
    assert done.returncode == 0, done.stdout + done.stderr
    run = bench.the_run()
    assert {c.status for c in run.cells()} == {"ok"}
    # Whatever it measures, it says nothing about speculation.
    verdict = judge(analyse(run))
    assert (verdict.decision, verdict.exit_code) == ("INVALID", ExitCode.INVALID)
    assert verdict.headline.startswith("An A/A test, no verdict: one server against itself came out at ")
    assert "the baseline's own server" in verdict.arms["draft-k4"].reasons[0]
