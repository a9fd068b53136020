"""The machine during the measurement: figures of an arm at a load, context for the verdict, and warnings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from specbench.analysis.machine import MIXED_CLOCKS, MIXED_THROTTLING, ArmMachine, arm_machine
from specbench.analysis.run import BASELINE
from specbench.report import model as m

if TYPE_CHECKING:
    from collections.abc import Callable

    from specbench.analysis.compare import PairedRatio
    from specbench.analysis.run import ArmLoad, RunAnalysis

BUSY: Final = 0.9
"""From here on a GPU has next to no moments in which nothing runs on it."""

IDLE: Final = 0.5
"""Below, it waits more than it works."""

CAVEAT: Final = (
    "Busy is NVML's utilisation: the share of time in which any kernel ran, not how many SMs the kernels filled. "
    "Decoding a small batch keeps a GPU busy by this measure and leaves most of its arithmetic unused; that room is "
    "what speculation uses, and it is not measured here"
)


def machine_at(
    run: RunAnalysis, x: ArmLoad, ratio: Callable[[PairedRatio, float], m.Ratio]
) -> m.MachineAtLoad | None:
    """The figures of one arm at one load; null without a valid cell."""
    found = _machine(run, x)
    if found is None:
        return None
    host = found.host
    return m.MachineAtLoad(
        gpus=found.gpus,
        gpu_utilization=found.utilization,
        gpu_memory_peak_bytes=found.memory_peak_bytes,
        gpu_power_w=found.power_w,
        gpu_power_limit_w=found.power_limit_w,
        gpu_sm_clock_mhz=found.sm_clock_mhz,
        gpu_throttled=found.throttled,
        gpu_throttle_reasons=found.reasons,
        tokens_per_joule=found.tokens_per_joule,
        tokens_per_joule_ratio=ratio(found.tokens_per_joule_ratio, run.manifest.confidence),
        energy_source=found.energy_source,
        energy_why_null=found.energy_why_null,
        gpu_why_null=found.gpu_why_null,
        cpu_share=host.cpu_share if host else None,
        engine_cores=host.engine_cores if host else None,
        memory_peak_bytes=host.memory_peak_bytes if host else None,
        engine_memory_peak_bytes=host.engine_peak_bytes if host else None,
        host_why_null=found.host_why_null,
    )


def headroom(run: RunAnalysis) -> tuple[m.Note, ...]:
    """How busy the GPUs were without speculation, load by load: context for the verdict, never part of it."""
    notes = []
    for x in run.at.values():
        found = _machine(run, x) if x.arm.method is None else None
        if found is None or found.utilization is None:
            continue
        what = "GPU was" if found.gpus == 1 else f"{found.gpus} GPUs were"
        text = f"{what} {found.utilization:.0%} busy in {_baseline(x)} at {_words(x)}"
        if found.power_w and found.power_limit_w:
            text += f", at {found.power_w / found.power_limit_w:.0%} of the power limit"
        if found.utilization >= BUSY:
            text += ": speculation competes for time on it"
        elif found.utilization < IDLE:
            text += ": it waits for something else, the host or requests, more than half of the time"
        else:
            text += ": it is idle for part of the time"
        notes.append(m.Note(code="gpu_busy", message=f"{text}.", action=""))
    return tuple(notes)


def unlike_machines(run: RunAnalysis) -> list[m.Note]:
    """Arms whose GPUs ran under other conditions than the baseline's at the same load."""
    notes = []
    for x in run.at.values():
        if x.arm.method is None:
            continue
        own, base = _machine(run, x), _machine(run, run.at[x.arm.baseline, x.load.id])
        if own is None or base is None:
            continue
        notes += _throttling(x, own, base) + _clocks(x, own, base)
    return notes


def _throttling(x: ArmLoad, own: ArmMachine, base: ArmMachine) -> list[m.Note]:
    if own.throttled is None or base.throttled is None:
        return []
    if abs(own.throttled - base.throttled) <= MIXED_THROTTLING:
        return []
    reasons = ", ".join(dict.fromkeys([*own.reasons, *base.reasons]))
    return [
        m.Note(
            code="gpu_throttling",
            message=f"{x.arm.id} at {_words(x)}: the GPU's clocks were held down in {own.throttled:.0%} of the "
            f"samples, in {_baseline(x)} in {base.throttled:.0%} ({reasons}).",
            action="The arms differ in more than speculation. Heat and power brakes are the machine's: mend them and "
            "run again. A power cap can be speculation's own doing, since it does more work per second; lock the "
            "clocks in all arms to tell.",
        )
    ]


def _clocks(x: ArmLoad, own: ArmMachine, base: ArmMachine) -> list[m.Note]:
    if own.sm_clock_mhz is None or not base.sm_clock_mhz:
        return []
    change = own.sm_clock_mhz / base.sm_clock_mhz - 1
    if abs(change) <= MIXED_CLOCKS:
        return []
    return [
        m.Note(
            code="gpu_clock",
            message=f"{x.arm.id} at {_words(x)}: the SM clock was {own.sm_clock_mhz:,.0f} MHz on average, in "
            f"{_baseline(x)} {base.sm_clock_mhz:,.0f} MHz ({change:+.1%}).",
            action="The arms differ in more than speculation: lock the clocks in all of them "
            "(nvidia-smi --lock-gpu-clocks) and run again.",
        )
    ]


def _machine(run: RunAnalysis, x: ArmLoad) -> ArmMachine | None:
    return arm_machine(x, run.at[x.arm.baseline, x.load.id])


def _baseline(x: ArmLoad) -> str:
    return "the baseline" if x.arm.baseline == BASELINE else x.arm.baseline


def _words(x: ArmLoad) -> str:
    closed = x.load.kind == "closed"
    return f"concurrency {x.load.concurrency}" if closed else x.load.title or x.load.id
