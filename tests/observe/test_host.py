"""The machine's facts, and the sampler of a process tree."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pynvml  # type: ignore[import-untyped]  # nvidia-ml-py ships no types
import pytest

from specbench.observe import host
from specbench.observe.host import ProcessTreeSampler, machine


def test_the_facts_are_this_machines() -> None:
    found = machine()
    assert found.cores == host.available_cores() >= 1
    assert 0 < found.memory_bytes <= psutil.virtual_memory().total
    assert found.cpu
    assert found.python == ".".join(map(str, sys.version_info[:3]))


def test_the_fingerprint_is_of_the_hardware_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = machine()
    assert len(before.fingerprint) == 64
    monkeypatch.setattr("platform.node", lambda: "another-name")
    assert machine().fingerprint == before.fingerprint
    monkeypatch.setattr(host, "available_cores", lambda: before.cores + 1)
    assert machine().fingerprint != before.fingerprint


def test_cpu_facts_are_read_from_cpuinfo(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: fpu avx avx2 sse2\n\nmodel name\t: Second\n"
    monkeypatch.setattr(Path, "read_text", lambda self, **_: text)
    assert host._cpu() == ("Some CPU", ("avx", "avx2"))


def test_gpus_come_from_nvml_with_memory_and_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    class Memory:
        total, used = 80 << 30, 1 << 30

    for name, value in {
        "nvmlInit": None,
        "nvmlShutdown": None,
        "nvmlSystemGetDriverVersion": b"570.1",
        "nvmlDeviceGetCount": 2,
        "nvmlDeviceGetHandleByIndex": "handle",
        "nvmlDeviceGetMemoryInfo": Memory,
        "nvmlDeviceGetName": "NVIDIA H200",
    }.items():
        monkeypatch.setattr(pynvml, name, lambda *_, v=value: v)
    assert host.nvidia_gpus() == (host.Gpu("NVIDIA H200", 80 << 30, 1 << 30, "570.1"),) * 2


def test_no_driver_means_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", missing)
    assert host.nvidia_gpus() == ()


def busy(mib: int) -> subprocess.Popen[str]:
    """A child that takes memory and processor time, then says so and waits."""
    script = (
        f"import time; kept = bytearray({mib} << 20); end = time.process_time() + 0.2\n"
        "while time.process_time() < end: pass\n"
        "print('done', flush=True); time.sleep(120)"
    )
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)


def test_memory_and_processor_time_of_all_processes_are_added() -> None:
    children: list[subprocess.Popen[str]] = []
    sampler = ProcessTreeSampler(lambda: [child.pid for child in children], refresh_s=0.0)
    try:
        sampler.sample()
        children += [busy(64), busy(64)]
        for child in children:
            assert child.stdout is not None
            child.stdout.readline()
        sampler.sample()
    finally:
        for child in children:
            child.kill()
            child.communicate()
    use = sampler.use
    assert use.processes == 2
    assert use.samples == 2
    assert use.peak_rss_bytes > 2 * (64 << 20)
    assert use.cpu_s >= 0.35
    assert use.mean_cores is not None
    assert use.mean_cores > 0
    sampler.sample()  # both are gone: peaks and totals stay
    assert sampler.use.peak_rss_bytes == use.peak_rss_bytes
    assert sampler.use.cpu_s == use.cpu_s


def test_time_before_the_first_sample_does_not_count() -> None:
    sampler = ProcessTreeSampler(lambda: [os.getpid()])
    sampler.sample()
    assert sampler.use.cpu_s == 0
    assert sampler.use.mean_cores is None


def test_the_processes_are_looked_for_only_now_and_then() -> None:
    asked = []

    def pids() -> list[int]:
        asked.append(1)
        return [os.getpid()]

    sampler = ProcessTreeSampler(pids, refresh_s=60.0)
    for _ in range(3):
        sampler.sample()
    assert len(asked) == 1
    assert sampler.use.samples == 3
    assert sampler.use.processes == 1


def test_the_thread_samples_until_it_is_stopped() -> None:
    sampler = ProcessTreeSampler(lambda: [os.getpid()], interval_s=60.0)
    with sampler:
        pass
    assert sampler.stop().samples == 2  # the first and the last, whatever the interval
    assert sampler.use.peak_rss_bytes > 0


def test_readings_are_counters_of_the_tree_and_of_the_machine() -> None:
    sampler = ProcessTreeSampler(lambda: [os.getpid()])
    began = time.perf_counter()
    sampler.sample()
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    between = time.perf_counter()
    sampler.sample()
    first, last = sampler.readings(began, time.perf_counter())
    assert last.tree_cpu_s - first.tree_cpu_s >= 0.05  # the system counts in hundredths of a second
    assert last.machine_cpu_s - first.machine_cpu_s >= 0.05  # ours is part of it
    assert 0 < first.tree_rss_bytes < first.machine_memory_bytes <= psutil.virtual_memory().total
    assert sampler.readings(between, time.perf_counter()) == [last]
    assert sampler.readings(began - 2, began - 1) == []
