"""The machine, and what the engine's processes take of it. All of it is off the timing path."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import platform
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil
import pynvml  # type: ignore[import-untyped]  # nvidia-ml-py ships no types

GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Gpu:
    """One NVIDIA GPU. ``total_bytes`` is its whole memory, ``used_bytes`` what is taken now."""

    name: str
    total_bytes: int
    used_bytes: int
    driver: str


@dataclass(frozen=True, slots=True)
class Machine:
    """Where a sweep runs.

    Attributes:
        cores: cores that this process may use (logical).
        cpu_flags: instruction sets that matter to engines, such as ``avx512f`` and ``amx_bf16``.
        memory_bytes: of the machine, or of the container's limit when that is smaller.
        fingerprint: hex SHA-256 of the hardware facts: equal fingerprints mean comparable machines.
    """

    hostname: str
    cpu: str
    cores: int
    cpu_flags: tuple[str, ...]
    memory_bytes: int
    gpus: tuple[Gpu, ...]
    os: str
    python: str
    fingerprint: str


_FLAGS: Final = (
    "avx",
    "avx2",
    "avx512f",
    "avx512_bf16",
    "avx512_vnni",
    "amx_bf16",
    "amx_int8",
    "asimd",
    "sve",
)


def machine() -> Machine:
    """Facts about this machine; unknown ones are empty, never guessed."""
    model, flags = _cpu()
    gpus = nvidia_gpus()
    cores = available_cores()
    memory_bytes = memory_limit_bytes()
    facts = (
        model,
        str(cores),
        *flags,
        str(round(memory_bytes / GIB)),
        *(f"{gpu.name}/{round(gpu.total_bytes / GIB)}" for gpu in gpus),
    )
    return Machine(
        hostname=platform.node(),
        cpu=model,
        cores=cores,
        cpu_flags=flags,
        memory_bytes=memory_bytes,
        gpus=gpus,
        os=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=platform.python_version(),
        fingerprint=hashlib.sha256("\n".join(facts).encode()).hexdigest(),
    )


def available_cores() -> int:
    """Logical cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_limit_bytes() -> int:
    """The machine's memory, or the container's limit when that is smaller."""
    total = int(psutil.virtual_memory().total)
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # "max" is no limit
            return min(total, int(Path(path).read_text(encoding="ascii")))
    return total


def nvidia_gpus() -> tuple[Gpu, ...]:
    """NVIDIA GPUs by NVML's order; none without a driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        found = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
            name = _text(pynvml.nvmlDeviceGetName(handle))
            found.append(Gpu(name, int(memory.total), int(memory.used), driver))
        return tuple(found)
    except pynvml.NVMLError:
        return ()
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _cpu() -> tuple[str, tuple[str, ...]]:
    """Model name and interesting instruction sets."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or platform.machine(), ()
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip().lower(), value.strip())
    flags = set((fields.get("flags") or fields.get("features") or "").split())
    name = fields.get("model name") or platform.processor() or platform.machine()
    return name, tuple(flag for flag in _FLAGS if flag in flags)


@dataclass(frozen=True, slots=True)
class TreeUse:
    """What a process tree took between two points in time.

    Attributes:
        peak_rss_bytes: highest sum of resident memory; pages that processes share count in each of them.
        cpu_s: processor time used by the processes that were seen, in seconds.
        wall_s: time between the first and the last sample.
        samples: how often the tree was looked at.
        processes: most processes at once.
    """

    peak_rss_bytes: int
    cpu_s: float
    wall_s: float
    samples: int
    processes: int

    @property
    def mean_cores(self) -> float | None:
        """Processor time per wall time; null before the second sample."""
        return self.cpu_s / self.wall_s if self.wall_s > 0 else None


@dataclass(frozen=True, slots=True)
class HostReading:
    """The whole machine and a process tree at one moment.

    Attributes:
        at_s: on the clock of ``time.perf_counter``.
        machine_cpu_s: processor time used on all cores since the machine started, waiting for disks not counted.
        machine_memory_bytes: total minus available.
        tree_cpu_s: as `TreeUse.cpu_s` so far.
        tree_rss_bytes: sum of resident memory.
    """

    at_s: float
    machine_cpu_s: float
    machine_memory_bytes: int
    tree_cpu_s: float
    tree_rss_bytes: int


class ProcessTreeSampler:
    """Looks at a process tree, and at the machine around it, once a second in a thread of its own.

    Resident memory is used and not the exact PSS, since reading that walks every mapping of the engine.
    ``pids`` is called in the thread and gives the processes that belong to the tree now; finding them
    means looking at every process of the machine, so it is called only every ``refresh_s``.
    """

    def __init__(
        self, pids: Callable[[], Iterable[int]], interval_s: float = 1.0, refresh_s: float = 5.0
    ) -> None:
        self._pids = pids
        self._interval_s = interval_s
        self._refresh_s = refresh_s
        self._members: tuple[int, ...] = ()
        self._refreshed_at = -math.inf
        self._end = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="process-tree-sampler", daemon=True)
        self._known: dict[int, psutil.Process] = {}
        self._first_cpu_s: dict[int, float] = {}
        self._last_cpu_s: dict[int, float] = {}
        self._peak_rss = 0
        self._samples = 0
        self._processes = 0
        self._history: list[HostReading] = []
        self._first_at = 0.0
        self._last_at = 0.0

    def start(self) -> None:
        """Begin; the first sample is taken at once."""
        self._thread.start()

    def stop(self) -> TreeUse:
        """End, after a last sample, and give the totals; safe to call again."""
        if not self._end.is_set():
            self._end.set()
            self._thread.join()
            self.sample()
        return self.use

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def readings(self, from_s: float, to_s: float) -> list[HostReading]:
        """Those between two moments of ``time.perf_counter``."""
        with self._lock:
            return [x for x in self._history if from_s <= x.at_s <= to_s]

    def _cpu_s(self) -> float:
        return sum(cpu_s - self._first_cpu_s[pid] for pid, cpu_s in self._last_cpu_s.items())

    @property
    def use(self) -> TreeUse:
        """The totals so far."""
        with self._lock:
            return TreeUse(
                peak_rss_bytes=self._peak_rss,
                cpu_s=self._cpu_s(),
                wall_s=self._last_at - self._first_at,
                samples=self._samples,
                processes=self._processes,
            )

    def sample(self) -> None:
        """Look once, now."""
        rss = seen = 0
        cpu_s: dict[int, float] = {}
        if time.monotonic() - self._refreshed_at >= self._refresh_s:
            self._members = tuple(self._pids())
            self._refreshed_at = time.monotonic()
        for pid in self._members:
            try:
                process = self._known.setdefault(pid, psutil.Process(pid))
                if not process.is_running():  # ended, or its number has a new owner
                    continue
                with process.oneshot():
                    memory, times = process.memory_info(), process.cpu_times()
            except psutil.Error:
                continue
            rss += memory.rss
            cpu_s[pid] = times.user + times.system
            seen += 1
        machine_cpu_s, whole = _machine_cpu_s(), psutil.virtual_memory()
        now, at_s = time.monotonic(), time.perf_counter()
        with self._lock:
            if not self._samples:
                self._first_at = now
            for pid, value in cpu_s.items():
                # A process that appeared after the first sample began in between: all its time counts.
                self._first_cpu_s.setdefault(pid, 0.0 if self._samples else value)
                self._last_cpu_s[pid] = value
            self._last_at = now
            self._samples += 1
            self._peak_rss = max(self._peak_rss, rss)
            self._processes = max(self._processes, seen)
            self._history.append(
                HostReading(at_s, machine_cpu_s, int(whole.total - whole.available), self._cpu_s(), rss)
            )

    def _run(self) -> None:
        while True:
            self.sample()
            if self._end.wait(self._interval_s):
                return


def _machine_cpu_s() -> float:
    """Processor time that anybody used on this machine, all cores added up."""
    times = psutil.cpu_times()  # time of guests is in user and nice
    return sum(float(getattr(times, name, 0.0)) for name in ("user", "nice", "system", "irq", "softirq"))
