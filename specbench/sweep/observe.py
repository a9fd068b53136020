"""The machine beside a launch: samplers that run from its start to its stop, cut into cells."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from specbench.engines.attached import Attached
from specbench.engines.prefix import CONTAINERS
from specbench.observe.gpu_choice import Launched, choose
from specbench.observe.gpu_sampler import GpuSampler
from specbench.observe.host import ProcessTreeSampler
from specbench.runs.observation import GpuSeries, HostSeries, Observation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specbench.engines.running import Running
    from specbench.observe.host import HostReading
    from specbench.observe.nvml import Device, Reading

OTHER_MACHINES: Final = frozenset({"ssh", "srun", "kubectl"})
"""Programs that start an engine on a machine that is not this one."""

NOT_HERE: Final = "the engine does not run on this machine, or was not started here"


class LaunchObserver:
    """Samples from `start` to `stop`; nothing that it meets ends a sweep."""

    def __init__(self, process: Running, interval_s: float = 1.0) -> None:
        self._spec = process.spec
        programs = {Path(word).name for word in process.spec.argv}
        self._here = not isinstance(process, Attached) and (
            process.spec.local or not programs & OTHER_MACHINES
        )
        self._container = not process.spec.local and bool(programs & CONTAINERS)
        self._tree = ProcessTreeSampler(process.pids, interval_s)
        self._gpus = GpuSampler(process.pids, interval_s)

    def start(self) -> None:
        """Begin."""
        self._tree.start()
        if self._here:
            self._gpus.start()

    def stop(self) -> int | None:
        """End; gives the peak of the engine's resident memory in bytes, null when it cannot be seen."""
        self._gpus.stop()
        use = self._tree.stop()
        seen = self._here and not self._container  # else it is the memory of docker's or ssh's own command
        return use.peak_rss_bytes or None if seen else None

    def cut(self, epoch_unix_s: float | None, duration_s: float | None) -> Observation | None:
        """What was sampled in a cell.

        Args:
            epoch_unix_s: wall-clock time of the cell's zero; null when nothing was sent.
            duration_s: of the cell.
        """
        if epoch_unix_s is None or duration_s is None:
            return None
        if not self._here:
            return Observation(gpu_why_null=NOT_HERE, host_why_null=NOT_HERE)
        self._gpus.fresh()  # one sample after the cell, so that its end lies between two
        zero_s = time.perf_counter() - (time.time() - epoch_unix_s)
        host = self._tree.readings(zero_s, zero_s + duration_s)
        launched = Launched.of(self._spec.argv, self._spec.env, os.environ, container=self._container)
        choice = choose(self._gpus.devices, self._gpus.seen, launched)
        return Observation(
            gpus=tuple(self._series(d, zero_s, duration_s) for d in choice.devices),
            gpu_basis=choice.basis,
            gpu_why_null=self._gpus.why_null or choice.why_null,
            host=_host(host, zero_s, engine=not self._container) if host else None,
            host_why_null=None if host else "no sample fell into the cell",
        )

    def _series(self, device: Device, zero_s: float, duration_s: float) -> GpuSeries:
        return _gpu(
            device,
            self._gpus.readings(device, zero_s, zero_s + duration_s),
            zero_s,
            self._gpus.field_why_null(device),
        )


def _gpu(device: Device, found: Sequence[Reading], zero_s: float, why_null: dict[str, str]) -> GpuSeries:
    return GpuSeries(
        index=device.index,
        name=device.name,
        uuid=device.uuid,
        mig=device.mig,
        memory_total_bytes=device.memory_total_bytes,
        power_limit_w=device.power_limit_w,
        t_s=tuple(round(x.at_s - zero_s, 3) for x in found),
        utilization=tuple(x.utilization for x in found),
        memory_used_bytes=tuple(x.memory_used_bytes for x in found),
        power_w=tuple(x.power_w for x in found),
        energy_j=tuple(x.energy_j for x in found),
        sm_clock_mhz=tuple(x.sm_clock_mhz for x in found),
        clock_reasons=tuple(x.clock_reasons for x in found),
        why_null=why_null,
    )


def _host(found: Sequence[HostReading], zero_s: float, *, engine: bool) -> HostSeries:
    return HostSeries(
        cores=psutil.cpu_count() or 1,
        t_s=tuple(round(x.at_s - zero_s, 3) for x in found),
        cpu_s=tuple(round(x.machine_cpu_s, 3) for x in found),
        memory_used_bytes=tuple(x.machine_memory_bytes for x in found),
        engine_cpu_s=tuple(round(x.tree_cpu_s, 3) for x in found) if engine else (),
        engine_rss_bytes=tuple(x.tree_rss_bytes for x in found) if engine else (),
    )
