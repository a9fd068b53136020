"""Readiness: only our own, healthy, answering server with our model counts."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import aiohttp
import pytest

from specbench.config.model import EngineConfig, Target
from specbench.engines.base import Failure, FailureClass, LaunchSpec
from specbench.engines.process import EngineProcess
from specbench.engines.ready import LaunchFailed, Ready, wait_ready
from specbench.engines.vllm import VllmEngine
from tests.engines.children import POLITE, child, server
from tests.engines.conftest import Start


class SmallEngine(VllmEngine):
    """vLLM's HTTP dialect with the log of the small test server."""

    progress_patterns: tuple[tuple[str, str], ...] = (
        ("loading weights", r"^loading"),
        ("capturing graphs", r"^capturing"),
    )

    def explain(self, log: str, returncode: int | None) -> Failure:
        return Failure(FailureClass.ENGINE_DIED, f"ended with {returncode}", "read the log", (log.strip(),))


ENGINE = SmallEngine(
    Target(model="target", revision=None, tokenizer=None), EngineConfig.model_validate({"kind": "vllm"})
)


def wait(process: EngineProcess, timeout_s: float = 30.0, seen: list[str] | None = None) -> Ready:
    async def run() -> Ready:
        async with aiohttp.ClientSession() as session:
            return await wait_ready(
                ENGINE,
                process.spec,
                process,
                session,
                timeout_s,
                lambda name, _: seen.append(name) if seen is not None else None,
            )

    return asyncio.run(run())


def failure(process: EngineProcess, timeout_s: float = 30.0) -> Failure:
    with pytest.raises(LaunchFailed) as caught:
        wait(process, timeout_s)
    return caught.value.failure


@contextmanager
def foreign_server(model: str) -> Iterator[int]:
    """A healthy server of this test process, which is no child of the engine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"data": [{"id": "%s"}]}' % model.encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_request(self, code: object = "-", size: object = "-") -> None:
            pass

    foreign = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=foreign.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield foreign.server_address[1]
    finally:
        foreign.shutdown()
        thread.join()
        foreign.server_close()


def hang_up(listener: socket.socket) -> None:
    """Accept and close at once, until the listener is closed."""
    with contextlib.suppress(OSError):
        while True:
            listener.accept()[0].close()


def test_a_serving_engine_is_ready_and_its_phases_are_told(start: Start) -> None:
    seen: list[str] = []
    process = start(server())
    ready = wait(process, seen=seen)
    assert seen == ["starting", "loading weights", "capturing graphs"]
    assert [name for name, _ in ready.phases] == seen
    times = [at for _, at in ready.phases]
    assert times == sorted(times)
    assert ready.startup_s >= times[-1]


def test_death_is_explained_at_once(start: Start) -> None:
    process = start(child("print('no such flag'); raise SystemExit(2)"))
    found = failure(process)
    assert found == Failure(FailureClass.ENGINE_DIED, "ended with 2", "read the log", ("no such flag",))


def test_a_stale_server_on_the_port_is_not_taken_for_ours(start: Start) -> None:
    with foreign_server("specbench-arm") as port:
        found = failure(start(child(POLITE, port=port)))
    assert found.kind is FailureClass.WRONG_SERVER
    assert re.search(rf"Port {port} is served by another process \(pid \d+\)", found.summary)


def test_a_listener_that_speaks_no_http_is_not_taken_for_ours(start: Start) -> None:
    with socket.socket() as foreign:
        foreign.bind(("127.0.0.1", 0))
        foreign.listen()
        threading.Thread(target=hang_up, args=(foreign,), daemon=True).start()
        found = failure(start(child(POLITE, port=foreign.getsockname()[1])))
        foreign.shutdown(socket.SHUT_RDWR)
    assert found.kind is FailureClass.WRONG_SERVER


def test_a_server_with_another_model_is_refused(start: Start) -> None:
    found = failure(start(server("somebody-elses-model")))
    assert found.kind is FailureClass.WRONG_SERVER
    assert "offers somebody-elses-model, not specbench-arm" in found.summary


def test_behind_docker_or_ssh_only_the_name_is_checked(start: Start) -> None:
    with foreign_server("another-model") as port:
        spec = child(POLITE, port=port)
        remote = LaunchSpec(
            spec.arm_id, spec.argv, spec.env, port, spec.base_url, spec.served_model, local=False
        )
        found = failure(start(remote))
    assert "offers another-model" in found.summary


def test_an_engine_that_refuses_the_first_request_is_not_ready(start: Start) -> None:
    found = failure(start(server("specbench-arm", "400")))
    assert found.kind is FailureClass.REQUESTS_FAILED
    assert "HTTP 400" in found.summary
    assert found.log_lines[-1] == "capturing graphs"


def test_an_engine_that_dies_in_its_first_step_is_explained_though_it_exits_with_zero(start: Start) -> None:
    found = failure(start(server("specbench-arm", "500")))
    assert found.kind is FailureClass.ENGINE_DIED
    assert found.summary == "ended with 0"
    assert "the engine fell over" in found.log_lines[0]


def test_a_start_that_takes_too_long_names_the_last_phase(start: Start) -> None:
    process = start(child("import time; print('loading weights', flush=True); time.sleep(120)"))
    found = failure(process, timeout_s=1.0)
    assert found.kind is FailureClass.STARTUP_TIMEOUT
    assert "last seen loading weights" in found.summary
    assert found.log_lines == ("loading weights",)
    assert process.poll() is None
