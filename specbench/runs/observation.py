"""What the machine did while a cell ran, inside ``cell.json``: samples about a second apart, on the cell's clock.

Samples lie between the start and the end of the cell's requests, and one on each side of them, so that what
happened at any moment in between can be told. Null is what was not measured; nothing is filled in.
"""

from __future__ import annotations

from typing import Final

import msgspec

OBSERVATION_SCHEMA: Final = "specbench.observation/1"

THROTTLE_REASONS: Final = {
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "thermal (software)",
    0x040: "thermal (hardware)",
    0x080: "power brake",
    0x200: "board limit",
    0x400: "reliability",
}
"""Bits of NVML's clock reasons (nvmlClocksEventReason*, nvmlClocksThrottleReason* of older versions) that hold
clocks down under load. An idle GPU, application clocks that somebody set and a display's clock are not among
them."""

THROTTLED: Final = sum(THROTTLE_REASONS)
"""Any of them."""


class GpuSeries(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU, or MIG slice, that the launch used. All lists are as long as ``t_s``.

    ``clock_reasons`` are NVML's bit masks (`THROTTLE_REASONS`). ``energy_j`` is a counter.
    ``why_null`` maps a field to NVML's words for a reading that it refused.
    """

    index: int
    name: str
    uuid: str
    mig: bool = False
    memory_total_bytes: int | None = None
    power_limit_w: float | None = None
    t_s: tuple[float, ...] = ()
    utilization: tuple[float | None, ...] = ()
    memory_used_bytes: tuple[int | None, ...] = ()
    power_w: tuple[float | None, ...] = ()
    energy_j: tuple[float | None, ...] = ()
    sm_clock_mhz: tuple[float | None, ...] = ()
    clock_reasons: tuple[int | None, ...] = ()
    why_null: dict[str, str] = {}


class HostSeries(msgspec.Struct, frozen=True, kw_only=True):
    """The whole machine, and the engine's processes on it. All lists are as long as ``t_s``.

    ``cpu_s`` and ``engine_cpu_s`` are counters of processor time over all cores. The engine's lists are empty
    when its processes cannot be seen.
    """

    cores: int
    t_s: tuple[float, ...] = ()
    cpu_s: tuple[float, ...] = ()
    memory_used_bytes: tuple[int, ...] = ()
    engine_cpu_s: tuple[float, ...] = ()
    engine_rss_bytes: tuple[int, ...] = ()


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """One cell. ``gpu_basis`` says how it was told which GPUs the launch used."""

    schema: str = OBSERVATION_SCHEMA
    gpus: tuple[GpuSeries, ...] = ()
    gpu_basis: str | None = None
    gpu_why_null: str | None = None
    host: HostSeries | None = None
    host_why_null: str | None = None
