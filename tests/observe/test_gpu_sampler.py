"""The thread that reads GPUs: it survives the driver, and tells what a launch uses."""

from __future__ import annotations

import threading
import time

import pynvml  # type: ignore[import-untyped]  # nvidia-ml-py ships no types
import pytest

from specbench.observe import gpu_sampler
from specbench.observe.gpu_sampler import GpuSampler
from tests.observe.fake_nvml import CALLS, FakeGpu, install

WAIT_S = 20.0
"""Bound of what takes milliseconds."""


def test_every_gpu_is_read_and_the_launchs_own_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = FakeGpu(uuid="GPU-0", pids=(7, 8), used=1 << 30), FakeGpu(uuid="GPU-1", pids=(9,))
    install(monkeypatch, mine, other)
    sampler = GpuSampler(lambda: [8], interval_s=60.0)
    began = time.perf_counter()
    sampler.start()
    try:
        assert sampler.fresh(WAIT_S)
        mine.used = 90 << 30
        assert sampler.fresh(WAIT_S)
        assert [d.uuid for d in sampler.devices] == ["GPU-0", "GPU-1"]
        seen = sampler.seen
        assert seen.on == {"GPU-0"}
        assert seen.lists == {"GPU-0": True, "GPU-1": True}
        assert seen.taken_bytes == {"GPU-0": 89 << 30, "GPU-1": 0}
        readings = sampler.readings(sampler.devices[0], began, time.perf_counter())
        assert [x.memory_used_bytes for x in readings][-1] == 90 << 30
        assert [x.at_s for x in readings] == sorted(x.at_s for x in readings)
    finally:
        sampler.stop()
    sampler.stop()


def test_readings_reach_one_beyond_each_end(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeGpu())
    sampler = GpuSampler(list, interval_s=60.0)
    sampler.start()
    for _ in range(5):
        assert sampler.fresh(WAIT_S)
    sampler.stop()
    device = sampler.devices[0]
    all_ = sampler.readings(device, 0.0, float("inf"))
    assert len(all_) >= 5
    middle = all_[2].at_s
    assert sampler.readings(device, middle, middle) == all_[1:4]
    gap = (all_[2].at_s + all_[3].at_s) / 2
    assert sampler.readings(device, gap, gap) == all_[2:4]  # nothing in it, but one on each side
    assert sampler.readings(device, 0.0, all_[0].at_s / 2) == all_[:1]


def test_no_driver_is_a_reason_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", missing)
    sampler = GpuSampler(list)
    sampler.start()
    assert not sampler.fresh(WAIT_S)
    sampler.stop()
    assert sampler.devices == ()
    assert sampler.why_null == "no NVIDIA driver answers (NVML Shared Library Not Found)"


def test_a_gpu_that_is_lost_leaves_nulls(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu()
    install(monkeypatch, gpu)
    sampler = GpuSampler(list, interval_s=60.0)
    sampler.start()
    try:
        assert sampler.fresh(WAIT_S)
        gpu.fails = dict.fromkeys(CALLS, pynvml.NVML_ERROR_GPU_IS_LOST)
        assert sampler.fresh(WAIT_S)
        last = sampler.readings(sampler.devices[0], 0.0, float("inf"))[-1]
        assert (last.power_w, last.utilization, last.memory_used_bytes) == (None, None, None)
        assert sampler.field_why_null(sampler.devices[0])["power_w"] == "GPU is lost"
        assert sampler.why_null is None
    finally:
        sampler.stop()


def test_whatever_a_binding_raises_ends_the_sampling_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeGpu())
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUtilizationRates", lambda _: object())
    sampler = GpuSampler(list)
    sampler.start()
    assert not sampler.fresh(WAIT_S)
    sampler.stop()
    assert sampler.why_null is not None
    assert "AttributeError" in sampler.why_null


def test_a_driver_that_hangs_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeGpu())
    free = threading.Event()

    def hang(_: object) -> int:
        free.wait(WAIT_S)
        return 1

    monkeypatch.setattr(pynvml, "nvmlDeviceGetPowerUsage", hang)
    monkeypatch.setattr(gpu_sampler, "STOP_WAIT_S", 0.05)
    sampler = GpuSampler(list)
    sampler.start()
    try:
        assert not sampler.fresh(0.05)
        sampler.stop()  # comes back
        assert not sampler.fresh(0.05)
    finally:
        free.set()
