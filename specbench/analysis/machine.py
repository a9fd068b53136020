"""The machine in the steady window of a cell, from the samples in its record. Definitions: docs/method.md.

Nothing is filled in: a figure for which samples are missing is null, with the reason.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from specbench.analysis.compare import PairedRatio, paired
from specbench.runs.observation import OBSERVATION_SCHEMA, THROTTLE_REASONS, THROTTLED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specbench.analysis.run import ArmLoad
    from specbench.analysis.window import Window
    from specbench.runs.observation import GpuSeries, HostSeries, Observation

MAX_GAP_S: Final = 5.0
"""Between neighbouring samples; with a longer gap energy is not told."""

MIN_SAMPLES: Final = 2
"""Inside the window: with fewer, most of an energy would be the edges' interpolation."""

COUNTER: Final = "energy counter"
POWER: Final = "power samples"

MIXED_CLOCKS: Final = 0.03
"""Arms whose mean SM clocks differ by more than this at the same load differ in more than speculation."""

MIXED_THROTTLING: Final = 0.05
"""The same of the share of throttled samples, in absolute terms."""


@dataclass(frozen=True, slots=True)
class GpuUse:
    """The GPUs of a launch in one window. Means are over time and then over GPUs; null is not measured.

    Attributes:
        utilization: share of time in which some kernel ran, 0 to 1: not how full the SMs were.
        memory_peak_bytes: highest, on the GPU that had most in use.
        power_w, power_limit_w, energy_j: of all GPUs together.
        throttled: share of samples in which something held the clocks down; ``reasons`` by name.
        energy_source: `COUNTER` or `POWER`.
        energy_why_null: why there is no energy.
    """

    gpus: int
    samples: int
    utilization: float | None = None
    memory_peak_bytes: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    sm_clock_mhz: float | None = None
    throttled: float | None = None
    reasons: dict[str, float] = field(default_factory=dict)
    energy_j: float | None = None
    energy_source: str | None = None
    energy_why_null: str | None = None


@dataclass(frozen=True, slots=True)
class HostUse:
    """The whole machine and the engine's processes in one window.

    Attributes:
        cpu_share: of all cores, 0 to 1.
        engine_cores: cores that the engine kept busy, null when its processes cannot be seen.
        memory_peak_bytes, engine_peak_bytes: in use on the machine, and resident memory of the engine.
    """

    cpu_share: float | None = None
    engine_cores: float | None = None
    memory_peak_bytes: int | None = None
    engine_peak_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class MachineUse:
    """One cell. ``tokens_per_joule`` is output tokens over the energy of its GPUs, both of the window."""

    gpu: GpuUse | None = None
    gpu_why_null: str | None = None
    host: HostUse | None = None
    host_why_null: str | None = None
    tokens_per_joule: float | None = None


def machine_use(seen: Observation | None, window: Window, tokens: int | None) -> MachineUse:
    """Cut the samples of a cell to its window.

    Tokens per joule is ``tokens / E``. ``E`` adds up the GPUs; of one, it is the difference of its energy counter
    between the edges of the window, else the trapezoid ``sum((P[i] + P[i+1]) / 2 * (t[i+1] - t[i]))`` over its
    power samples. Values at the edges lie on the straight line between the samples around them. Source of both
    figures: NVML (`specbench.observe.nvml`). The energy of the host is not in it.

    Args:
        seen: null when the run is from before machines were observed.
        tokens: output tokens in the window; null when they were not counted.
    """
    if seen is None:
        return MachineUse(gpu_why_null="not recorded", host_why_null="not recorded")
    if seen.schema != OBSERVATION_SCHEMA:
        unread = f"recorded as {seen.schema}, which this version does not read"
        return MachineUse(gpu_why_null=unread, host_why_null=unread)
    gpu, why = _gpu_use(seen, window)
    host = None if seen.host is None else _host_use(seen.host, window)
    return MachineUse(
        gpu=gpu,
        gpu_why_null=why,
        host=host,
        host_why_null=seen.host_why_null if seen.host is None else _TOO_FEW if host is None else None,
        tokens_per_joule=tokens / gpu.energy_j if gpu is not None and gpu.energy_j and tokens else None,
    )


_TOO_FEW: Final = "too few samples fell into the steady window"


def _gpu_use(seen: Observation, window: Window) -> tuple[GpuUse | None, str | None]:
    if not seen.gpus:
        return None, seen.gpu_why_null or "no GPU was seen"
    inside = {g.uuid: [i for i, t in enumerate(g.t_s) if window.holds(t)] for g in seen.gpus}
    if not all(inside.values()):
        return None, seen.gpu_why_null or "no sample fell into the steady window"

    def means(field_name: str) -> list[float | None]:
        return [_mean([getattr(g, field_name)[i] for i in inside[g.uuid]]) for g in seen.gpus]

    memory = [b for g in seen.gpus for i in inside[g.uuid] if (b := g.memory_used_bytes[i]) is not None]
    masks = [m for g in seen.gpus for i in inside[g.uuid] if (m := g.clock_reasons[i]) is not None]
    energies = [_energy(g, window) for g in seen.gpus]
    joules = [e for e, _ in energies]
    sources = sorted({text for e, text in energies if e is not None})
    return GpuUse(
        gpus=len(seen.gpus),
        samples=min(len(x) for x in inside.values()),
        utilization=_all_mean(means("utilization")),
        memory_peak_bytes=max(memory) if memory else None,
        power_w=_all_sum(means("power_w")),
        power_limit_w=_all_sum([g.power_limit_w for g in seen.gpus]),
        sm_clock_mhz=_all_mean(means("sm_clock_mhz")),
        throttled=_share(masks, THROTTLED),
        reasons={
            name: share for bit, name in THROTTLE_REASONS.items() if (share := _share(masks, bit) or 0) > 0
        },
        energy_j=_all_sum(joules),
        energy_source=" and ".join(sources) if None not in joules else None,
        energy_why_null=next((text for e, text in energies if e is None), None),
    ), None


def _energy(gpu: GpuSeries, window: Window) -> tuple[float | None, str]:
    """Joules of one GPU in the window and where they come from, or null and why."""
    counted = _between(gpu.t_s, gpu.energy_j, window)
    if isinstance(counted, list):
        steps = [b - a for (_, a), (_, b) in itertools.pairwise(counted)]
        if min(steps) >= 0 and sum(steps) > 0:  # else the driver was loaded anew, or the counter stands still
            return sum(steps), COUNTER
    drawn = _between(gpu.t_s, gpu.power_w, window)
    if isinstance(drawn, list):
        return sum((p + q) / 2 * (u - t) for (t, p), (u, q) in itertools.pairwise(drawn)), POWER
    refused = gpu.why_null.get("power_w")
    unknown = all(p is None for p in gpu.power_w)
    return None, f"GPU {gpu.index} gives no power figure ({refused})" if unknown and refused else drawn


def _between(
    times: Sequence[float], values: Sequence[float | None], window: Window
) -> list[tuple[float, float]] | str:
    """Points from edge to edge of the window, the edges' values interpolated; or why there are none."""
    known = [(t, v) for t, v in zip(times, values, strict=True) if v is not None]
    inside = [(t, v) for t, v in known if window.start_s < t < window.end_s]
    before = [x for x in known if x[0] <= window.start_s]
    after = [x for x in known if x[0] >= window.end_s]
    if len(inside) < MIN_SAMPLES:
        return f"{len(inside)} samples fell into the steady window, {MIN_SAMPLES} are needed"
    if not before or not after:
        return "the steady window reaches beyond the samples"
    points = [before[-1], *inside, after[0]]
    if max(u - t for (t, _), (u, _) in itertools.pairwise(points)) > MAX_GAP_S:
        return f"samples are more than {MAX_GAP_S:.0f} s apart"
    start = _on_line(points[0], points[1], window.start_s)
    end = _on_line(points[-2], points[-1], window.end_s)
    return [(window.start_s, start), *inside, (window.end_s, end)]


def _on_line(a: tuple[float, float], b: tuple[float, float], t_s: float) -> float:
    return a[1] + (b[1] - a[1]) * (t_s - a[0]) / (b[0] - a[0])


def _host_use(host: HostSeries, window: Window) -> HostUse | None:
    inside = [i for i, t in enumerate(host.t_s) if window.holds(t)]
    if len(inside) < MIN_SAMPLES:
        return None
    first, last = inside[0], inside[-1]
    seconds = host.t_s[last] - host.t_s[first]
    engine = host.engine_cpu_s
    return HostUse(
        cpu_share=(host.cpu_s[last] - host.cpu_s[first]) / seconds / host.cores,
        engine_cores=(engine[last] - engine[first]) / seconds if engine else None,
        memory_peak_bytes=max(host.memory_used_bytes[i] for i in inside),
        engine_peak_bytes=max(host.engine_rss_bytes[i] for i in inside) or None if engine else None,
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def _all_mean(values: Sequence[float | None]) -> float | None:
    total = _all_sum(values)
    return None if total is None else total / len(values)


def _all_sum(values: Sequence[float | None]) -> float | None:
    """Null when one of them is: a sum over some GPUs is not the launch's."""
    known = [v for v in values if v is not None]
    return sum(known) if known and len(known) == len(values) else None


def _share(masks: Sequence[int], bits: int) -> float | None:
    return sum(1 for m in masks if m & bits) / len(masks) if masks else None


@dataclass(frozen=True, slots=True)
class ArmMachine:
    """One arm at one load: means over its valid cells, peaks over all of them.

    ``tokens_per_joule_ratio`` is over the baseline, paired within rounds; more than 1 is less energy per token.
    """

    gpus: int | None = None
    utilization: float | None = None
    memory_peak_bytes: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    sm_clock_mhz: float | None = None
    throttled: float | None = None
    reasons: dict[str, float] = field(default_factory=dict)
    tokens_per_joule: float | None = None
    tokens_per_joule_ratio: PairedRatio = field(default_factory=lambda: PairedRatio(()))
    energy_source: str | None = None
    energy_why_null: str | None = None
    gpu_why_null: str | None = None
    host: HostUse | None = None
    host_why_null: str | None = None


def arm_machine(x: ArmLoad, baseline: ArmLoad) -> ArmMachine | None:
    """Over the valid cells; null without any."""
    uses = [c.machine for c in x.valid if c.machine is not None]
    if not uses:
        return None
    gpus = [u.gpu for u in uses if u.gpu is not None]
    hosts = [u.host for u in uses if u.host is not None]
    names = dict.fromkeys(name for g in gpus for name in g.reasons)
    why = next((u.gpu_why_null for u in uses if u.gpu_why_null is not None), None)
    per_joule = [u.tokens_per_joule for u in uses]
    energy_why = next((g.energy_why_null for g in gpus if g.energy_why_null is not None), None)
    return ArmMachine(
        gpus=max((g.gpus for g in gpus), default=None),
        utilization=_mean([g.utilization for g in gpus]),
        memory_peak_bytes=_max([g.memory_peak_bytes for g in gpus]),
        power_w=_mean([g.power_w for g in gpus]),
        power_limit_w=_mean([g.power_limit_w for g in gpus]),
        sm_clock_mhz=_mean([g.sm_clock_mhz for g in gpus]),
        throttled=_mean([g.throttled for g in gpus]),
        reasons={name: sum(g.reasons.get(name, 0.0) for g in gpus) / len(gpus) for name in names},
        tokens_per_joule=_mean(per_joule),
        tokens_per_joule_ratio=_energy_ratio(x, baseline),
        energy_source=" and ".join(dict.fromkeys(g.energy_source for g in gpus if g.energy_source)) or None,
        energy_why_null=None if _mean(per_joule) is not None else energy_why or why or "tokens are not known",
        gpu_why_null=None if gpus else why,
        host=HostUse(
            cpu_share=_mean([h.cpu_share for h in hosts]),
            engine_cores=_mean([h.engine_cores for h in hosts]),
            memory_peak_bytes=_max([h.memory_peak_bytes for h in hosts]),
            engine_peak_bytes=_max([h.engine_peak_bytes for h in hosts]),
        )
        if hosts
        else None,
        host_why_null=None
        if hosts
        else next((u.host_why_null for u in uses if u.host_why_null is not None), None),
    )


def _energy_ratio(x: ArmLoad, baseline: ArmLoad) -> PairedRatio:
    if x.arm.method is None:
        return PairedRatio((), "this is the baseline")
    own, base = _per_joule(x), _per_joule(baseline)
    alike = {r for r in own if r in base and own[r][1] == base[r][1]}
    return paired(
        {r: own[r][0] for r in alike},
        {r: base[r][0] for r in alike},
        "no round has the energy of both this arm and the baseline, taken the same way",
    )


def _per_joule(x: ArmLoad) -> dict[int, tuple[float, str | None]]:
    """Round to tokens per joule and where the joules come from."""
    return {
        c.record.round: (c.machine.tokens_per_joule, c.machine.gpu.energy_source)
        for c in x.valid
        if c.machine is not None and c.machine.gpu is not None and c.machine.tokens_per_joule is not None
    }


def _max(values: Sequence[int | None]) -> int | None:
    known = [v for v in values if v is not None]
    return max(known) if known else None
