"""What `specbench doctor` finds out about this machine; gathered here, printed elsewhere."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import psutil

from specbench import __version__
from specbench.engines import ledger, ports, sglang, vllm
from specbench.engines.base import EngineMissing
from specbench.engines.command import CommandFailed, installed, python_of
from specbench.engines.vllm_command import DEFAULT_COMMAND, installed_version
from specbench.observe.client import ephemeral_ports, open_file_limit, raise_open_file_limit
from specbench.observe.host import GIB, Machine, machine
from specbench.observe.processors import proposed_cpus


class Level(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at. ``mend`` says what to do and is empty when all is well."""

    area: str
    level: Level
    message: str
    mend: str = ""


LOW_MEMORY_BYTES: Final = 2 * GIB
LOW_DISK_BYTES: Final = 5 * GIB
NO_DISK_BYTES: Final = 64 << 20
FEW_FILES: Final = 1024
FEW_PORTS: Final = 5_000
BUSY_SHARE: Final = 0.25
"""Load average per core above which other work is likely to disturb a measurement."""


def examine_machine(folder: Path) -> list[Check]:
    """Everything that does not depend on a config; ``folder`` is where runs would be written."""
    host = machine()
    return [
        _program(),
        *_dependencies(),
        *_engines(),
        *_devices(host),
        _memory(host),
        quiet_check(host),
        _files(),
        _client(host),
        _disk(folder),
        _ports(),
        *_leftovers(),
    ]


def _program() -> Check:
    return Check(
        "specbench",
        Level.OK,
        f"specbench {__version__} on Python {platform.python_version()} ({sys.executable})",
    )


def _dependencies() -> list[Check]:
    """Installed versions of what specbench itself needs."""
    found, missing = [], []
    for requirement in importlib.metadata.requires("specbench-llm") or ():
        name, marker = _requirement(requirement)
        if "extra" in marker or ("Windows" in marker and os.name != "nt" and "!=" not in marker):
            continue
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    checks = [Check("packages", Level.OK, ", ".join(found))] if found else []
    if missing:
        checks.append(
            Check("packages", Level.FAIL, f"missing: {', '.join(missing)}", "pip install specbench-llm again")
        )
    return checks


def _requirement(text: str) -> tuple[str, str]:
    """Name and environment marker of a requirement."""
    wanted, _, marker = text.partition(";")
    match = re.match(r"[A-Za-z0-9._-]+", wanted.strip())
    return (match[0] if match else wanted.strip()), marker


def _engines() -> list[Check]:
    checks = []
    if shutil.which(DEFAULT_COMMAND[0]) is None:
        checks.append(Check("vllm", Level.OK, "no vllm on PATH: a config names its own in engine.command"))
    else:
        try:
            checks.append(vllm_version_check(installed_version(DEFAULT_COMMAND)))
        except EngineMissing as error:
            checks.append(Check("vllm", Level.WARN, "the vllm on PATH does not work", str(error)))
    if shutil.which("sglang") is not None:
        try:
            python = python_of(("sglang",), script=-1)
            found = installed(python, ("sglang",)) if python else None
            checks.append(sglang_version_check(found[1] if found else "of unknown version"))
        except CommandFailed as error:
            checks.append(
                Check("sglang", Level.WARN, f"the sglang on PATH does not work: {error}", "reinstall it")
            )
    return checks


def vllm_version_check(version: str, where: str = "on PATH") -> Check:
    """Whether a vLLM version is one that specbench was tried with."""
    if vllm.is_tested(version):
        return Check("vllm", Level.OK, f"vllm {version} {where}")
    return Check(
        "vllm",
        Level.WARN,
        f"vllm {version} {where} is outside the versions that specbench was tried with (0.32)",
        "expect unknown settings and counters; pip install 'vllm>=0.32,<0.33' to be sure",
    )


def sglang_version_check(version: str, where: str = "on PATH") -> Check:
    """Whether an SGLang version is one that specbench was written for."""
    if sglang.is_tested(version):
        return Check("sglang", Level.OK, f"sglang {version} {where}")
    return Check(
        "sglang",
        Level.WARN,
        f"sglang {version} {where} is outside the versions that specbench was written for (0.5.23 to 0.6)",
        "expect unknown settings and metrics; pip install 'sglang>=0.5.23,<0.6' to be sure",
    )


def _devices(host: Machine) -> list[Check]:
    checks = [
        Check(
            "gpu",
            Level.OK,
            f"{gpu.name}, {gpu.total_bytes / GIB:.0f} GiB, {gpu.used_bytes / GIB:.1f} GiB in use, "
            f"driver {gpu.driver}",
        )
        for gpu in host.gpus
    ] or [Check("gpu", Level.OK, "no NVIDIA GPU (NVML finds none): engines run on the CPU")]
    flags = ", ".join(host.cpu_flags) or "no vector instruction sets reported"
    text = f"{host.cpu}, {host.cores} cores, {flags}"
    old = not host.gpus and platform.machine() in ("x86_64", "AMD64") and "avx2" not in host.cpu_flags
    checks.append(
        Check("cpu", Level.WARN, text, "CPU engines need AVX2 or AVX-512: use another machine")
        if old
        else Check("cpu", Level.OK, text)
    )
    return checks


def _memory(host: Machine) -> Check:
    available = psutil.virtual_memory().available
    text = f"{available / GIB:.1f} of {host.memory_bytes / GIB:.1f} GiB available"
    if available < LOW_MEMORY_BYTES:
        return Check("memory", Level.WARN, text, "stop other programs: engines will not find room")
    return Check("memory", Level.OK, text)


def quiet_check(host: Machine) -> Check:
    """Whether other work is running, by the load average of the last minute."""
    load = psutil.getloadavg()[0]
    text = f"load average {load:.1f} on {host.cores} cores"
    if load > max(1.0, BUSY_SHARE * host.cores):
        return Check("quiet", Level.WARN, text, "stop other work before a sweep: it would be measured too")
    return Check("quiet", Level.OK, text)


def _files() -> Check:
    soft, hard = open_file_limit(), raise_open_file_limit()
    if hard is None:
        return Check("files", Level.OK, "no limit of open files")
    text = f"{hard} open files (raised from {soft})" if soft != hard else f"{hard} open files"
    if hard < FEW_FILES:
        return Check("files", Level.WARN, text, "raise the hard limit (`ulimit -Hn`) for large concurrency")
    return Check("files", Level.OK, text)


def _client(host: Machine) -> Check:
    """Where the load client could run, and how many connections it could open to one server."""
    ports_there = ephemeral_ports()
    room = "" if ports_there is None else f"{ports_there:,} local ports for connections; "
    cpus = proposed_cpus()
    if cpus is None:
        text = f"{room}with {host.cores} processors client and engine share them"
    else:
        text = f"{room}to keep the client off the engine's processors: measure.client_cpus: {cpus}"
    if ports_there is not None and ports_there < FEW_PORTS:
        mend = 'sysctl -w net.ipv4.ip_local_port_range="1024 65535" for large concurrency'
        return Check("client", Level.WARN, text, mend)
    return Check("client", Level.OK, text)


def _disk(folder: Path) -> Check:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    free = psutil.disk_usage(str(folder)).free
    text = f"{free / GIB:.1f} GiB free for runs"
    if free < NO_DISK_BYTES:
        return Check("disk", Level.FAIL, text, "free some space: results could not be written")
    if not os.access(folder, os.W_OK):
        return Check("disk", Level.FAIL, f"{folder} is not writable", "choose another folder with `out:`")
    if free < LOW_DISK_BYTES:
        return Check("disk", Level.WARN, text, "free some space: models and logs need it")
    return Check("disk", Level.OK, text)


def _ports() -> Check:
    try:
        return Check("ports", Level.OK, f"free ports on 127.0.0.1, for example {ports.free_port()}")
    except OSError as error:
        return Check(
            "ports", Level.FAIL, f"no port of 127.0.0.1 can be used: {error}", "allow it in the sandbox"
        )


def _leftovers() -> list[Check]:
    checks = []
    for left in ledger.leftovers():
        pids = " ".join(str(pid) for pid, _ in left.processes)
        names = ", ".join(sorted({name for _, name in left.processes}))
        checks.append(
            Check(
                "leftovers",
                Level.FAIL,
                f"an engine of arm {left.entry.arm} still runs ({names}, port {left.entry.port}); its log is "
                f"{left.entry.log}",
                f"end it: kill -9 {pids}",
            )
        )
    return checks or [Check("leftovers", Level.OK, "no engine is left of earlier sweeps")]
