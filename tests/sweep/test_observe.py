"""The observer of a launch: samples on the cell's clock, of this machine and of what belongs to the launch."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from specbench.engines.attached import Attached
from specbench.engines.base import LaunchSpec
from specbench.engines.process import StopReport
from specbench.runs.observation import Observation
from specbench.sweep.observe import NOT_HERE, LaunchObserver
from tests.observe.fake_nvml import FakeGpu, install


def spec(*argv: str, local: bool = True, env: dict[str, str] | None = None) -> LaunchSpec:
    return LaunchSpec("arm", argv, env or {}, 1, "http://127.0.0.1:1", "m", local=local)


@dataclass
class Server:
    """A running server whose only process is this one."""

    spec: LaunchSpec
    started_at: float = 0.0
    processes: frozenset[int] = field(default_factory=lambda: frozenset({os.getpid()}))

    def poll(self) -> int | None:
        return None

    def pids(self) -> frozenset[int]:
        return self.processes

    def log_text(self) -> str:
        return ""

    def read_log(self, offset: int) -> tuple[str, int]:
        return "", offset

    async def stop(self, grace_s: float) -> StopReport:
        return StopReport("terminated", 0)


@contextmanager
def observing(server: Server | Attached) -> Iterator[LaunchObserver]:
    observer = LaunchObserver(server, interval_s=0.005)
    observer.start()
    try:
        yield observer
    finally:
        observer.stop()


DURATION_S = 0.2


def cell_of(observer: LaunchObserver) -> Observation:
    """A short cell, the second one of its launch."""
    observer.cut(time.time(), 0.0)
    began = time.time()
    time.sleep(DURATION_S)
    found = observer.cut(began, DURATION_S)
    assert found is not None
    return found


def test_a_cell_gets_the_samples_of_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeGpu(uuid="GPU-0", pids=(os.getpid(),)), FakeGpu(uuid="GPU-1", pids=(1,)))
    with observing(Server(spec("vllm", "serve"))) as observer:
        found = cell_of(observer)
        assert observer.cut(None, None) is None
        assert (observer.stop() or 0) > 1 << 20
    (gpu,) = found.gpus
    assert (gpu.uuid, gpu.name, gpu.power_limit_w) == ("GPU-0", "NVIDIA H200", 700.0)
    assert found.gpu_basis == "processes of the engine on it"
    assert found.gpu_why_null is None
    n = len(gpu.t_s)
    assert n >= 2
    assert (
        gpu.t_s[0] <= 0 <= DURATION_S <= gpu.t_s[-1]
    )  # what happened at either end lies between two samples
    assert list(gpu.t_s) == sorted(gpu.t_s)
    for name in ("utilization", "memory_used_bytes", "power_w", "energy_j", "sm_clock_mhz", "clock_reasons"):
        assert len(getattr(gpu, name)) == n
    assert found.host is not None
    assert all(0 <= t <= DURATION_S for t in found.host.t_s)
    assert len(found.host.engine_rss_bytes) == len(found.host.t_s) == len(found.host.cpu_s)
    assert min(found.host.engine_rss_bytes) > 1 << 20


def test_a_machine_without_a_driver_has_a_host_and_a_reason() -> None:
    with observing(Server(spec("vllm", "serve"))) as observer:
        found = cell_of(observer)
    assert found.gpus == ()
    assert found.gpu_why_null is not None
    assert found.host is not None


def test_a_container_shows_gpus_by_their_memory_and_no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu(uuid="GPU-1", used=1 << 30)
    install(monkeypatch, FakeGpu(uuid="GPU-0", pids=(99,)), gpu)
    with observing(Server(spec("docker", "run", "--gpus=all", "image", local=False))) as observer:
        cell_of(observer)
        gpu.used = 100 << 30
        found = cell_of(observer)
        assert observer.stop() is None  # it would be the memory of docker's own command
    assert [g.uuid for g in found.gpus] == ["GPU-1"]
    assert found.gpu_basis == "memory taken on it since the launch began"
    assert found.host is not None
    assert found.host.engine_cpu_s == ()
    assert found.host.cpu_s != ()


@pytest.mark.parametrize(
    "server",
    [
        Attached(spec()),
        Server(spec("ssh", "gpu-box", "vllm", "serve", local=False)),
        Server(spec("srun", "--gres=gpu:1", "vllm", "serve", local=False)),
    ],
    ids=["attached", "ssh", "srun"],
)
def test_an_engine_that_is_elsewhere_is_not_mixed_up_with_this_machine(
    monkeypatch: pytest.MonkeyPatch, server: Server | Attached
) -> None:
    install(monkeypatch, FakeGpu(pids=(os.getpid(),)))
    with observing(server) as observer:
        found = cell_of(observer)
        assert observer.stop() is None
    assert found == Observation(gpu_why_null=NOT_HERE, host_why_null=NOT_HERE)
