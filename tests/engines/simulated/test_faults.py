"""Every fault switch does what it says."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from specbench.config.model import EngineConfig, Target
from specbench.engines.base import FailureClass
from specbench.engines.simulated.engine import SimulatedEngine
from tests.engines.simulated.servers import DRAFT_MODEL, WAIT_S, Running, command, launched, wait_until_ready

BODY = {"model": "target", "prompt": "hello", "max_tokens": 30, "ignore_eos": True}
STREAM = {**BODY, "stream": True}
ENGINE = SimulatedEngine(
    Target.model_validate("sim/target"), EngineConfig.model_validate({"kind": "simulated"})
)


def run_to_end(*flags: str, **options: Any) -> subprocess.CompletedProcess[str]:
    words = command(*flags, port=options.pop("port", 0), **{"speculation": None, "sim": {}, **options})
    return subprocess.run(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=WAIT_S, check=False
    )


def test_sigterm_ends_cleanly_with_zero(tmp_path: Path) -> None:
    with launched(tmp_path) as server:
        server.process.terminate()
        assert server.wait_for_exit() == 0
        log = server.log.read_text()
    assert "Application startup complete." in log
    assert re.search(
        r"CPU KV cache size: 65,536 tokens, Maximum concurrency for 2,048 tokens per request", log
    )


def test_sigterm_ends_running_streams_too(tmp_path: Path) -> None:
    with launched(tmp_path, sim={"time_scale": 5.0}) as server:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as client:
            body = b'{"model":"target","prompt":"x","max_tokens":900,"ignore_eos":true,"stream":true}'
            client.sendall(
                b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )
            client.recv(100)
            server.process.terminate()
            assert server.wait_for_exit() == 0


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("oom", FailureClass.OUT_OF_MEMORY),
        ("kv", FailureClass.KV_TOO_SMALL),
        ("vocabulary", FailureClass.VOCABULARY),
        ("exit", FailureClass.UNKNOWN),
    ],
)
def test_a_failed_start_exits_1_and_is_explained(kind: str, expected: FailureClass) -> None:
    done = run_to_end(sim={"faults": {"fail_start": kind}})
    assert done.returncode == 1
    failure = ENGINE.explain(done.stdout, done.returncode)
    assert failure.kind is expected
    assert failure.log_lines


@pytest.mark.parametrize(
    ("speculation", "expected"),
    [
        ({"method": "ngram", "num_speculative_tokens": 0}, FailureClass.BAD_SPECULATION),
        ({**DRAFT_MODEL, "disable_by_batch_size": 4}, FailureClass.BAD_SPECULATION),
        ({"method": "guess", "num_speculative_tokens": 2}, FailureClass.UNSUPPORTED_METHOD),
        ({"method": "mtp", "num_speculative_tokens": 2}, FailureClass.UNSUPPORTED_METHOD),
    ],
)
def test_bad_speculation_exits_1_and_is_explained(
    speculation: dict[str, Any], expected: FailureClass
) -> None:
    done = run_to_end(speculation=speculation)
    assert done.returncode == 1
    assert ENGINE.explain(done.stdout, done.returncode).kind is expected


@pytest.mark.parametrize("flags", [["--no-such-flag"], ["--speculative-config", "{"], ["--sim", '{"x":1}']])
def test_a_bad_command_line_exits_2(flags: list[str]) -> None:
    done = run_to_end(*flags)
    assert done.returncode == 2
    assert "error:" in done.stdout


def test_a_taken_port_exits_1(tmp_path: Path) -> None:
    with launched(tmp_path) as server:
        done = run_to_end(port=int(server.url.rsplit(":", 1)[1]))
    assert done.returncode == 1
    assert ENGINE.explain(done.stdout, done.returncode).kind is FailureClass.PORT_IN_USE


def test_a_hanging_start_refuses_connections_and_can_be_stopped(tmp_path: Path) -> None:
    with launched(tmp_path, sim={"faults": {"startup_hang": True}}, ready=False) as server:
        wait_for_text(server, "Initializing")
        with pytest.raises(OSError, match="refused"):
            server.get("/health")
        server.process.terminate()
        assert server.wait_for_exit() == 0


def test_sigterm_can_be_ignored(tmp_path: Path) -> None:
    with launched(tmp_path, sim={"faults": {"ignore_sigterm": True}}) as server:
        server.process.terminate()
        time.sleep(0.2)
        server.get("/health")
        assert server.process.poll() is None


def test_a_child_can_outlive_its_parent(tmp_path: Path) -> None:
    with launched(tmp_path, sim={"faults": {"spawn_child_that_ignores_sigterm": True}}) as server:
        (child,) = psutil.Process(server.process.pid).children()
        assert os.getpgid(child.pid) == server.process.pid
        os.killpg(server.process.pid, signal.SIGTERM)
        assert server.wait_for_exit() == 0
        assert child.is_running()
        os.killpg(server.process.pid, signal.SIGKILL)
        psutil.wait_procs([child], timeout=WAIT_S)
        assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_death_under_way_cuts_the_stream_and_exits_0_like_vllm(tmp_path: Path) -> None:
    with launched(tmp_path, sim={"faults": {"die_after_requests": 1}}) as server:
        assert server.raw(STREAM).endswith(b"data: [DONE]\n\n")
        cut = server.raw(STREAM)
        assert cut.count(b'"finish_reason":null') == 2
        assert b"[DONE]" not in cut
        assert server.wait_for_exit() == 0
        assert ENGINE.explain(server.log.read_text(), 0).kind is FailureClass.ENGINE_DIED


@pytest.mark.parametrize(
    ("fault", "there", "missing"),
    [
        ("error_in_stream_after", b'data: {"error"', b'"finish_reason":"length"'),
        ("truncate_stream_after", b'"finish_reason":null', b"[DONE]"),
    ],
)
def test_streams_go_wrong_after_n_requests(fault: str, there: bytes, missing: bytes, tmp_path: Path) -> None:
    with launched(tmp_path, sim={"faults": {fault: 2}}) as server:
        for _ in range(2):
            good = server.raw(STREAM)
            assert b'"finish_reason":"length"' in good
            assert b"error" not in good
        bad = server.raw(STREAM)
        assert there in bad
        assert missing not in bad
        server.get("/health")


def test_a_stalled_stream_says_nothing_more(tmp_path: Path) -> None:
    with launched(tmp_path, sim={"faults": {"stall_after": 0}}) as server:
        seen = server.raw(STREAM, timeout_s=0.5)
        assert seen.count(b"data: ") == 2
        server.process.terminate()
        assert server.wait_for_exit() == 0


def test_every_nth_request_is_refused(tmp_path: Path) -> None:
    with launched(tmp_path, sim={"faults": {"http_400_every": 2, "http_500_every": 3}}) as server:
        statuses = [server.post("/v1/completions", BODY)[0] for _ in range(6)]
    assert statuses == [200, 400, 500, 400, 200, 500]


def test_metrics_can_be_missing_or_start_anew(tmp_path: Path) -> None:
    with (
        launched(tmp_path, sim={"faults": {"no_metrics": True}}) as server,
        pytest.raises(OSError, match="404"),
    ):
        server.get("/metrics")
    with launched(tmp_path, sim={"faults": {"counters_reset_after": 2}}) as server:
        totals = []
        for _ in range(3):
            server.post("/v1/completions", BODY)
            totals.append(server.counters().generation_tokens)
    assert totals == [30, 0, 30]


@pytest.mark.parametrize(
    ("style", "marks"),
    [
        ("crlf", [b"}\r\n\r\ndata: {"]),
        ("comments", [b": keep-alive\n\n", b"event: message\ndata: {"]),
        ("nospace", [b"data:{", b"data:[DONE]"]),
    ],
)
def test_events_can_be_framed_in_other_ways(style: str, marks: list[bytes], tmp_path: Path) -> None:
    with launched(tmp_path, sim={"faults": {"sse_style": style}}) as server:
        raw = server.raw(STREAM)
    assert all(mark in raw for mark in marks)


def test_a_slow_start_is_ready_later(tmp_path: Path) -> None:
    with launched(tmp_path, sim={"startup_s": 0.5}, ready=False) as server:
        started = time.monotonic()
        wait_until_ready(server)
        assert time.monotonic() - started > 0.4


def wait_for_text(server: Running, text: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while text not in server.log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
