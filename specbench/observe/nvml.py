"""NVIDIA's management library, read so that nothing it does can end a sweep: what it refuses is null.

What the numbers mean (NVML API reference, nvmlUtilization_t, nvmlDeviceGetPowerUsage,
nvmlDeviceGetTotalEnergyConsumption, nvmlDeviceGetCurrentClocksEventReasons):

- utilisation is the share of the last 1/6 to 1 second in which one or more kernels ran. It says nothing of how
  many SMs they filled;
- power is the board's, averaged over 1 s on Ampere (except GA100) and newer, the present one before;
- the energy counter runs since the driver was loaded, on Volta and newer;
- a MIG slice has memory and processes of its own; utilisation, power and clocks are its whole GPU's, so that
  they are not read for it: they would be the neighbours' as well.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pynvml  # type: ignore[import-untyped]  # nvidia-ml-py ships no types

SLICE_FIELDS: Final = ("memory_used_bytes",)
"""What a MIG slice can tell of itself alone."""


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU, or a MIG slice of one.

    Attributes:
        index: NVML's number of the GPU, which is the order on the bus; a slice has its GPU's.
        uuid: ``GPU-…`` or ``MIG-…``, as `CUDA_VISIBLE_DEVICES` takes it.
    """

    handle: Any
    index: int
    name: str
    uuid: str
    mig: bool = False
    memory_total_bytes: int | None = None
    power_limit_w: float | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at one device; null is what NVML did not give.

    Attributes:
        at_s: on the clock of ``time.perf_counter``.
        utilization: share of time in which a kernel ran, 0 to 1.
        energy_j: counter since the driver was loaded.
        clock_reasons: NVML's bit mask of what sets the clocks.
    """

    at_s: float
    utilization: float | None = None
    memory_used_bytes: int | None = None
    power_w: float | None = None
    energy_j: float | None = None
    sm_clock_mhz: float | None = None
    clock_reasons: int | None = None


def _clock_reasons(handle: Any) -> int:
    """By the present name of the call, or by the one that older drivers and bindings have."""
    current = getattr(pynvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    if current is not None:
        with contextlib.suppress(pynvml.NVMLError_FunctionNotFound):
            return int(current(handle))
    return int(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


_READERS: Final[dict[str, Callable[[Any], float]]] = {
    "utilization": lambda h: pynvml.nvmlDeviceGetUtilizationRates(h).gpu / 100,
    "memory_used_bytes": lambda h: int(pynvml.nvmlDeviceGetMemoryInfo(h).used),
    "power_w": lambda h: pynvml.nvmlDeviceGetPowerUsage(h) / 1000,
    "energy_j": lambda h: pynvml.nvmlDeviceGetTotalEnergyConsumption(h) / 1000,
    "sm_clock_mhz": lambda h: float(pynvml.nvmlDeviceGetClockInfo(h, pynvml.NVML_CLOCK_SM)),
    "clock_reasons": _clock_reasons,
}


@dataclass(slots=True)
class Nvml:
    """A session with the driver. Use `open`; `close` it.

    ``why_null`` maps (uuid, field) to NVML's words for the last reading that it refused.
    """

    devices: tuple[Device, ...]
    why_null: dict[tuple[str, str], str] = field(default_factory=dict)
    _never: set[tuple[str, str]] = field(default_factory=set)

    @classmethod
    def open(cls) -> Nvml:
        """Find the devices; one that does not answer is left out.

        Raises:
            pynvml.NVMLError: there is no driver, or no access to it.
        """
        pynvml.nvmlInit()
        try:
            found: list[Device] = []
            for index in range(pynvml.nvmlDeviceGetCount()):
                with contextlib.suppress(pynvml.NVMLError):
                    found += _devices(index)
        except pynvml.NVMLError:
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()
            raise
        return cls(tuple(found))

    def close(self) -> None:
        """End the session."""
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()

    def read(self, device: Device) -> Reading:
        """Look once. What a device does not support is not asked for again."""
        values: dict[str, Any] = {}
        for name, reader in _READERS.items():
            key = (device.uuid, name)
            if key in self._never:
                continue
            if device.mig and name not in SLICE_FIELDS:
                self._never.add(key)
                self.why_null[key] = "a MIG slice has no figure of its own"
                continue
            try:
                values[name] = reader(device.handle)
            except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound) as error:
                self._never.add(key)
                self.why_null[key] = str(error)
            except pynvml.NVMLError as error:  # a GPU that fell off the bus, a driver that restarts
                self.why_null[key] = str(error)
        return Reading(at_s=time.perf_counter(), **values)

    def processes(self, device: Device) -> frozenset[int] | None:
        """Ids of the processes that compute on a device, as the driver counts them; null when it will not say.

        In a container they may be those of the host, or none.
        """
        try:
            return frozenset(
                int(p.pid) for p in pynvml.nvmlDeviceGetComputeRunningProcesses_v3(device.handle)
            )
        except pynvml.NVMLError:
            return None


def _devices(index: int) -> list[Device]:
    """A GPU, or its slices when it is cut into some."""
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    if not _is_cut(handle):
        return [_device(handle, index, mig=False)]
    slices = []
    for number in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        with contextlib.suppress(pynvml.NVMLError):  # numbers without a slice
            part = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
            slices.append(_device(part, index, mig=True))
    return slices


def _is_cut(handle: Any) -> bool:
    try:
        return bool(pynvml.nvmlDeviceGetMigMode(handle)[0] == pynvml.NVML_DEVICE_MIG_ENABLE)
    except pynvml.NVMLError:
        return False


def _device(handle: Any, index: int, *, mig: bool) -> Device:
    total = limit = None
    with contextlib.suppress(pynvml.NVMLError):
        total = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    if not mig:
        with contextlib.suppress(pynvml.NVMLError):
            limit = pynvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000
    return Device(
        handle=handle,
        index=index,
        name=_text(pynvml.nvmlDeviceGetName(handle)),
        uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
        mig=mig,
        memory_total_bytes=total,
        power_limit_w=limit,
    )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
