"""NVML's answers in SI units, and what it refuses."""

from __future__ import annotations

import pynvml  # type: ignore[import-untyped]  # nvidia-ml-py ships no types
import pytest

from specbench.observe.nvml import Nvml
from tests.observe.fake_nvml import CALLS, FakeGpu, install

POWER = "nvmlDeviceGetPowerUsage"
ENERGY = "nvmlDeviceGetTotalEnergyConsumption"
EVENTS = "nvmlDeviceGetCurrentClocksEventReasons"


def test_the_binding_has_every_function_that_is_faked() -> None:
    assert [name for name in CALLS if not callable(getattr(pynvml, name, None))] == []


def test_a_reading_is_in_si_units(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeGpu(reasons=0x4 | 0x20))
    nvml = Nvml.open()
    (gpu,) = nvml.devices
    assert (gpu.name, gpu.index, gpu.mig) == ("NVIDIA H200", 0, False)
    assert (gpu.memory_total_bytes, gpu.power_limit_w) == (141 << 30, 700.0)
    found = nvml.read(gpu)
    assert found.utilization == pytest.approx(0.97)
    assert found.memory_used_bytes == 100 << 30
    assert found.power_w == pytest.approx(412.345)
    assert found.energy_j == pytest.approx(5_000_000.123)
    assert found.sm_clock_mhz == 1980
    assert found.clock_reasons == 0x24
    assert nvml.why_null == {}


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND])
def test_what_is_not_supported_is_null_and_not_asked_again(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    gpu = FakeGpu(fails={ENERGY: code})
    install(monkeypatch, gpu)
    nvml = Nvml.open()
    for _ in range(3):
        found = nvml.read(nvml.devices[0])
        assert found.energy_j is None
        assert found.power_w is not None
    assert gpu.asked.count(ENERGY) == 1
    assert nvml.why_null == {(gpu.uuid, "energy_j"): str(pynvml.NVMLError(code))}


def test_a_lost_gpu_is_null_until_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu()
    install(monkeypatch, gpu)
    nvml = Nvml.open()
    gpu.fails = dict.fromkeys(CALLS, pynvml.NVML_ERROR_GPU_IS_LOST)
    lost = nvml.read(nvml.devices[0])
    assert (lost.utilization, lost.power_w, lost.energy_j, lost.clock_reasons) == (None,) * 4
    assert nvml.why_null[gpu.uuid, "power_w"] == "GPU is lost"
    gpu.fails = {}
    assert nvml.read(nvml.devices[0]).power_w is not None


def test_older_names_of_the_clock_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu(reasons=0x40)
    install(monkeypatch, gpu)
    gpu.fails = {EVENTS: pynvml.NVML_ERROR_FUNCTION_NOT_FOUND}  # an old driver under a new binding
    nvml = Nvml.open()
    assert nvml.read(nvml.devices[0]).clock_reasons == 0x40
    monkeypatch.delattr(pynvml, EVENTS)  # an old binding
    assert nvml.read(nvml.devices[0]).clock_reasons == 0x40
    assert nvml.why_null == {}


def test_slices_stand_for_a_gpu_that_is_cut_and_tell_of_memory_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = [FakeGpu(uuid=f"MIG-{i}", used=i << 30) for i in (1, 2)]
    install(monkeypatch, FakeGpu(slices=parts), FakeGpu(uuid="GPU-1"))
    nvml = Nvml.open()
    assert [(d.uuid, d.index, d.mig) for d in nvml.devices] == [
        ("MIG-1", 0, True),
        ("MIG-2", 0, True),
        ("GPU-1", 1, False),
    ]
    found = nvml.read(nvml.devices[1])
    assert found.memory_used_bytes == 2 << 30
    # Their GPU's power would be the neighbours' too.
    assert (found.power_w, found.energy_j, found.utilization) == (None, None, None)
    assert POWER not in parts[1].asked
    assert nvml.why_null["MIG-2", "power_w"] == "a MIG slice has no figure of its own"


def test_a_device_that_does_not_answer_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = FakeGpu(fails=dict.fromkeys(CALLS, pynvml.NVML_ERROR_GPU_IS_LOST))
    install(monkeypatch, dead, FakeGpu(uuid="GPU-1"))
    assert [d.uuid for d in Nvml.open().devices] == ["GPU-1"]


def test_processes_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu(pids=(11, 12))
    install(monkeypatch, gpu)
    nvml = Nvml.open()
    assert nvml.processes(nvml.devices[0]) == frozenset({11, 12})
    gpu.fails = {"nvmlDeviceGetComputeRunningProcesses_v3": pynvml.NVML_ERROR_NO_PERMISSION}
    assert nvml.processes(nvml.devices[0]) is None
