"""Looks at all GPUs about once a second, in a thread of its own, from the start of a launch to its end."""

from __future__ import annotations

import bisect
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

import pynvml  # type: ignore[import-untyped]  # nvidia-ml-py ships no types

from specbench.observe.gpu_choice import Seen
from specbench.observe.nvml import Device, Nvml, Reading

STOP_WAIT_S: Final = 5.0
"""A driver that hangs must not hold up a sweep: after this the thread is left to itself."""


class GpuSampler:
    """All GPUs are read, since which ones a launch uses shows only once it has loaded its model.

    ``members`` is called in the thread, every ``refresh_s`` and in `fresh`, and gives the processes of the launch.
    """

    def __init__(
        self, members: Callable[[], Iterable[int]], interval_s: float = 1.0, refresh_s: float = 5.0
    ) -> None:
        self._members = members
        self._interval_s = interval_s
        self._refresh_s = refresh_s
        self._end = threading.Event()
        self._wake = threading.Event()
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="gpu-sampler", daemon=True)
        self._devices: tuple[Device, ...] = ()
        self._readings: dict[str, list[Reading]] = {}
        self._rounds_began = 0
        self._rounds_done = 0
        self._on: set[str] = set()
        self._lists: dict[str, bool] = {}
        self._why_null: str | None = None
        self._field_why_null: dict[tuple[str, str], str] = {}
        self._refresh = True
        self._over = False

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; safe to call again."""
        self._end.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(STOP_WAIT_S)

    def fresh(self, timeout_s: float = 1.0) -> bool:
        """Have everything read once more, now, processes too; whether that came to an end in time."""
        with self._news:
            if self._over:
                return False
            target = self._rounds_began + 1
            self._refresh = True
            self._wake.set()
            return self._news.wait_for(lambda: self._rounds_done >= target or self._over, timeout_s)

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that answered at the start."""
        with self._news:
            return self._devices

    @property
    def why_null(self) -> str | None:
        """Why there are no devices, or no more readings."""
        with self._news:
            return self._why_null

    @property
    def seen(self) -> Seen:
        """What `specbench.observe.gpu_choice.choose` goes by."""
        with self._news:
            taken: dict[str, int | None] = {}
            for uuid, readings in self._readings.items():
                used = [x.memory_used_bytes for x in readings if x.memory_used_bytes is not None]
                taken[uuid] = max(used) - used[0] if used else None
            return Seen(frozenset(self._on), dict(self._lists), taken)

    def readings(self, device: Device, from_s: float, to_s: float) -> list[Reading]:
        """Those between two moments of ``time.perf_counter``, and one on each side of them."""
        with self._news:
            all_ = list(self._readings.get(device.uuid, ()))
        first = bisect.bisect_left(all_, from_s, key=lambda x: x.at_s)
        beyond = bisect.bisect_right(all_, to_s, key=lambda x: x.at_s)
        return all_[max(0, first - 1) : beyond + 1]

    def field_why_null(self, device: Device) -> dict[str, str]:
        """NVML's words for the fields of a device that it refused at some time."""
        with self._news:
            return {name: text for (uuid, name), text in self._field_why_null.items() if uuid == device.uuid}

    def _run(self) -> None:
        nvml: Nvml | None = None
        try:
            nvml = Nvml.open()
            with self._news:
                self._devices = nvml.devices
            self._rounds(nvml)
            self._finish(None)
        except pynvml.NVMLError as error:
            self._finish(f"no NVIDIA driver answers ({error})")
        except Exception as error:
            # GPUs are context: whatever a driver or its binding does, the sweep goes on.
            self._finish(f"reading GPUs ended with {type(error).__name__}: {error}")
        finally:
            if nvml is not None:
                nvml.close()

    def _rounds(self, nvml: Nvml) -> None:
        refreshed_at = time.monotonic()
        while not self._end.is_set():
            with self._news:
                self._rounds_began += 1
                self._wake.clear()
                refresh, self._refresh = self._refresh, False
            found = {d.uuid: nvml.read(d) for d in nvml.devices}
            lists: dict[str, frozenset[int] | None] = {}
            members: frozenset[int] = frozenset()
            if refresh or time.monotonic() - refreshed_at >= self._refresh_s:
                members = frozenset(self._members())
                lists = {d.uuid: nvml.processes(d) for d in nvml.devices}
                refreshed_at = time.monotonic()
            with self._news:
                self._on |= {uuid for uuid, pids in lists.items() if pids and pids & members}
                for uuid, reading in found.items():
                    self._readings.setdefault(uuid, []).append(reading)
                self._lists.update({uuid: pids is not None for uuid, pids in lists.items()})
                self._field_why_null = dict(nvml.why_null)
                self._rounds_done += 1
                self._news.notify_all()
            if not nvml.devices or self._end.is_set():
                return
            self._wake.wait(self._interval_s)

    def _finish(self, why_null: str | None) -> None:
        with self._news:
            self._why_null = why_null
            self._over = True
            self._news.notify_all()
