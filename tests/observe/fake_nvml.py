"""GPUs that answer as NVML's Python binding does: the same names, units, structures and errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pynvml  # type: ignore[import-untyped]  # nvidia-ml-py ships no types
import pytest


@dataclass
class FakeGpu:
    """One GPU, or a slice of one; ``fails`` maps a function's name to the error code that it raises."""

    name: str = "NVIDIA H200"
    uuid: str = "GPU-00000000-0000-0000-0000-000000000000"
    busy_percent: int = 97
    used: int = 100 << 30
    total: int = 141 << 30
    power_mw: int = 412_345
    limit_mw: int = 700_000
    energy_mj: int = 5_000_000_123
    clock_mhz: int = 1980
    reasons: int = 0
    pids: tuple[int, ...] = ()
    slices: list[FakeGpu] = field(default_factory=list)
    fails: dict[str, int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)


class _Process:
    """What nvmlStructToFriendlyObject makes of nvmlProcessInfo_t."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.usedGpuMemory: int | None = None
        self.gpuInstanceId = self.computeInstanceId = 0xFFFFFFFF


def _utilization(gpu: FakeGpu) -> Any:
    return pynvml.c_nvmlUtilization_t(gpu=gpu.busy_percent, memory=40)


def _memory(gpu: FakeGpu) -> Any:
    return pynvml.c_nvmlMemory_t(total=gpu.total, free=gpu.total - gpu.used, used=gpu.used)


def _mig_mode(gpu: FakeGpu) -> list[int]:
    if not gpu.slices:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return [pynvml.NVML_DEVICE_MIG_ENABLE, pynvml.NVML_DEVICE_MIG_ENABLE]


def _slice(gpu: FakeGpu, index: int) -> FakeGpu:
    if index >= len(gpu.slices):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
    return gpu.slices[index]


def _clock(gpu: FakeGpu, kind: int) -> int:
    assert kind == pynvml.NVML_CLOCK_SM
    return gpu.clock_mhz


CALLS: dict[str, Any] = {
    "nvmlDeviceGetName": lambda gpu: gpu.name,
    "nvmlDeviceGetUUID": lambda gpu: gpu.uuid,
    "nvmlDeviceGetMigMode": _mig_mode,
    "nvmlDeviceGetMaxMigDeviceCount": lambda gpu: 7,
    "nvmlDeviceGetMigDeviceHandleByIndex": _slice,
    "nvmlDeviceGetUtilizationRates": _utilization,
    "nvmlDeviceGetMemoryInfo": _memory,
    "nvmlDeviceGetPowerUsage": lambda gpu: gpu.power_mw,
    "nvmlDeviceGetEnforcedPowerLimit": lambda gpu: gpu.limit_mw,
    "nvmlDeviceGetTotalEnergyConsumption": lambda gpu: gpu.energy_mj,
    "nvmlDeviceGetClockInfo": _clock,
    "nvmlDeviceGetCurrentClocksEventReasons": lambda gpu: gpu.reasons,
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda gpu: gpu.reasons,
    "nvmlDeviceGetComputeRunningProcesses_v3": lambda gpu: [_Process(pid) for pid in gpu.pids],
}


def install(monkeypatch: pytest.MonkeyPatch, *gpus: FakeGpu) -> None:
    """Put GPUs in the place of the driver."""

    def call(name: str, answer: Any) -> Any:
        def function(gpu: FakeGpu, *args: Any) -> Any:
            gpu.asked.append(name)
            if name in gpu.fails:
                raise pynvml.NVMLError(gpu.fails[name])
            return answer(gpu, *args)

        return function

    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", lambda: "580.1")
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: len(gpus))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: gpus[index])
    for name, answer in CALLS.items():
        monkeypatch.setattr(pynvml, name, call(name, answer))
