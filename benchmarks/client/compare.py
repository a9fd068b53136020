"""Our load client beside vLLM's, AIPerf and GuideLLM, one after another in one run, on the same pinned core.

    python benchmarks/client/compare.py [--only specbench,...] [--core 1] [--out results.json]

Every client is measured from outside, all in the same way. The sink runs on core 0, the client with all its
processes on one other core. CPU time and memory come from the process table, chunks and requests from the
sink, sampled four times a second while all streams are open; start-up and evaluation are left out. Phases:

light     256 streams of 10 chunks/s: CPU per chunk, lateness of the client's own times
full      more chunks than the client can take: the chunks/s that it takes
half      half of that: lateness of its times
requests  answers of one chunk: requests/s
many      1,000 streams of 2 chunks/s: memory, against `light`

With ``--streams 10000`` it also opens so many with our client, on two cores together with the sink.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil
from clients import Client, Job, Ours, all_clients, environment
from sink import Sink, serving

PERIOD_S = 0.25
LIMIT_S = 150.0
FULL_S = 6.0
FULL_TRIES = 3
FIRST_FACTOR = 2.0
"""Offered in `full` at first, over the rate that the CPU time per chunk at light load promises."""
MOST_OFFERED = 180_000.0
"""The sink can do no more on one core."""
BUSY_SHARE = 0.9
"""Of its core; below it, the client could have taken more than it was offered."""


@dataclass(slots=True)
class Sample:
    """The state of client and sink at one moment."""

    t_s: float
    cpu_s: float
    pss_bytes: int
    active: int
    requests: int
    chunks: int


@dataclass(slots=True)
class Phase:
    """One run of one client, seen from outside."""

    name: str
    streams: int
    chunks_per_request: int
    window_s: float = 0.0
    chunks_per_s: float = math.nan
    requests_per_s: float = math.nan
    cpu_share: float = math.nan
    cpu_us_per_chunk: float = math.nan
    sink_cpu_share: float = math.nan
    pss_mib: float = math.nan
    lateness_ms: dict[str, float] = field(default_factory=dict)
    failures: int | None = None
    error: str | None = None


def run_phase(
    client: Client,
    name: str,
    *,
    streams: int,
    rate: float,
    chunks: int,
    requests: int,
    core: str,
    tokens_per_chunk: int = 1,
    ttft_ms: float = 20.0,
    lateness: bool = False,
    memory: bool = False,
) -> Phase:
    """Start sink and client, watch until the client ends, and work out the numbers."""
    phase = Phase(name, streams, chunks)
    print(
        f"  {client.name}: {name} ({streams} streams, {rate:g} chunks/s each, {requests} requests)",
        flush=True,
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(rate, tokens_per_chunk=tokens_per_chunk, ttft_ms=ttft_ms) as sink,
    ):
        job = Job(sink.url, streams, requests, chunks * tokens_per_chunk, Path(folder))
        samples, sink_cpu, failed = _watch(client, job, sink, core, memory)
        if failed is not None:
            phase.error = failed
            return phase
        log = sink.log()
        _work_out(phase, samples, sink_cpu)
        try:
            phase.failures = client.failures(job)
            if lateness:
                phase.lateness_ms = _quantiles(client.lateness_s(job, log))
        except (LookupError, ValueError, OSError) as error:
            phase.error = f"its report could not be read: {error}"
    return phase


def _watch(
    client: Client, job: Job, sink: Sink, core: str, memory: bool
) -> tuple[list[Sample], list[tuple[float, float]], str | None]:
    samples: list[Sample] = []
    sink_cpu: list[tuple[float, float]] = []
    words = ["taskset", "-c", core, *client.command(job)]
    log_path = job.folder / "client.log"
    with log_path.open("wb") as log:
        child = subprocess.Popen(words, stdout=log, stderr=log, env=environment(client), cwd=job.folder)
        tree = Tree(child.pid)
        deadline = time.monotonic() + LIMIT_S
        while child.poll() is None:
            if time.monotonic() > deadline:
                tree.kill()
                return samples, sink_cpu, f"not finished after {LIMIT_S:.0f} s"
            stats = sink.stats()
            cpu_s = tree.cpu_s()
            pss = tree.pss_bytes() if memory and stats["active"] else 0
            samples.append(
                Sample(stats["now_ns"] / 1e9, cpu_s, pss, stats["active"], stats["requests"], stats["chunks"])
            )
            sink_cpu.append((samples[-1].t_s, sink.cpu_s()))
            time.sleep(PERIOD_S)
    if child.returncode != 0:
        tail = log_path.read_text(errors="replace").strip().splitlines()[-4:]
        return samples, sink_cpu, f"exit code {child.returncode}: {' | '.join(tail)[-600:]}"
    return samples, sink_cpu, None


class Tree:
    """A process and all its descendants; CPU time of those that ended stays counted."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._cpu_s: dict[int, float] = {}

    def processes(self) -> list[psutil.Process]:
        try:
            return [self._root, *self._root.children(recursive=True)]
        except psutil.Error:
            return []

    def cpu_s(self) -> float:
        for process in self.processes():
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            self._cpu_s[process.pid] = times.user + times.system
        return sum(self._cpu_s.values())

    def pss_bytes(self) -> int:
        """Memory with shared pages split among their users."""
        total = 0
        for process in self.processes():
            try:
                total += process.memory_full_info().pss
            except psutil.Error:
                continue
        return total

    def kill(self) -> None:
        for process in self.processes():
            try:
                process.kill()
            except psutil.Error:
                continue


def _work_out(phase: Phase, samples: list[Sample], sink_cpu: list[tuple[float, float]]) -> None:
    """Rates over the time in which (nearly) all streams were open."""
    open_ = [i for i, s in enumerate(samples) if s.active >= 0.9 * phase.streams]
    if phase.chunks_per_request == 1:  # too short to be seen open
        moving = [i for i in range(1, len(samples)) if samples[i].requests > samples[i - 1].requests]
        open_ = moving[1:-1]
    if len(open_) < 4:
        phase.error = f"all streams were open in only {len(open_)} samples"
        return
    a, b = samples[open_[1]], samples[open_[-1]]
    phase.window_s = b.t_s - a.t_s
    # A request starts when the client has read all of the one before it; what the sink sent may still lie in
    # the kernel. So chunks are counted by requests, unless each stream has a single long one.
    started = b.requests - a.requests
    chunks = started * phase.chunks_per_request if started >= 2 * phase.streams else b.chunks - a.chunks
    phase.requests_per_s = started / phase.window_s
    phase.chunks_per_s = chunks / phase.window_s
    phase.cpu_share = (b.cpu_s - a.cpu_s) / phase.window_s
    phase.cpu_us_per_chunk = 1e6 * (b.cpu_s - a.cpu_s) / chunks if chunks else math.nan
    phase.sink_cpu_share = (sink_cpu[open_[-1]][1] - sink_cpu[open_[1]][1]) / phase.window_s
    phase.pss_mib = max(s.pss_bytes for s in samples) / 2**20


def _quantiles(late_s: list[float]) -> dict[str, float]:
    if not late_s:
        raise LookupError("no chunk time in it")
    ordered = sorted(late_s)
    places = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
    return {name: 1e3 * ordered[min(len(ordered) - 1, int(q * len(ordered)))] for name, q in places.items()}


def measure(client: Client, core: str) -> list[Phase]:
    """All phases of one client; what fails is reported and not repeated."""
    light = run_phase(
        client, "light", streams=256, rate=10, chunks=40, requests=768, core=core, lateness=True, memory=True
    )
    phases = [light]
    if light.error and not light.chunks_per_s > 0:
        return phases
    # A chunk that comes alone costs a wake-up of its own, so that the full rate is found by trying.
    chunks, offered = 50, FIRST_FACTOR * 1e6 / light.cpu_us_per_chunk
    for _ in range(FULL_TRIES):
        full = run_phase(
            client, "full", streams=256, rate=offered / 256, chunks=chunks, core=core,
            requests=max(1024, int(offered * FULL_S / chunks)),
        )  # fmt: skip
        if full.error or full.cpu_share > BUSY_SHARE:
            break
        offered = min(3 * offered, MOST_OFFERED)
    phases.append(full)
    if full.chunks_per_s > 0:
        half = 0.5 * full.chunks_per_s
        phases.append(
            run_phase(
                client, "half", streams=256, rate=half / 256, chunks=chunks, core=core, lateness=True,
                requests=max(768, int(half * 8 / chunks)),
            )
        )  # fmt: skip
    quick = run_phase(
        client, "requests", streams=64, rate=0, chunks=1, core=core,
        requests=int(min(150_000, max(2000, full.chunks_per_s))), ttft_ms=0,
    )  # fmt: skip
    phases.append(quick)
    phases.append(
        run_phase(client, "many", streams=1000, rate=2, chunks=15, requests=1000, core=core, memory=True)
    )
    return phases


def open_many(streams: int) -> Phase:
    """Our client with very many streams, one chunk per second each, on two cores with the sink."""
    return run_phase(
        Ours(), "very many", streams=streams, rate=1, chunks=15, requests=streams, core="0,1",
        lateness=True, memory=True,
    )  # fmt: skip


def table(results: dict[str, list[Phase]]) -> Iterator[str]:
    """Markdown, a row per client."""
    yield (
        "| client | chunks/s per core | CPU per chunk | late at half load p50 / p99 | requests/s per core "
        "| memory per 1,000 streams |"
    )
    yield "|---|---|---|---|---|---|"
    for name, phases in results.items():
        at = {p.name: p for p in phases}

        def per_core(phase: str, what: str, at: dict[str, Phase] = at) -> str:
            p = at.get(phase)
            if p is None or not p.cpu_share > 0:
                return "-"
            return f"{getattr(p, what) / max(p.cpu_share, 0.01):,.0f}"

        light, half, many = at.get("light"), at.get("half"), at.get("many")
        late = half.lateness_ms if half is not None else {}
        memory = many.pss_mib - light.pss_mib if many is not None and light is not None else math.nan
        cells = [
            name,
            per_core("full", "chunks_per_s"),
            f"{half.cpu_us_per_chunk:.1f} µs" if half is not None else "-",
            f"{late['p50']:.2f} / {late['p99']:.2f} ms" if late else "-",
            per_core("requests", "requests_per_s"),
            f"{memory * 1000 / 744:.1f} MiB" if math.isfinite(memory) else "-",
        ]
        yield "| " + " | ".join(cells) + " |"


@contextmanager
def many_files() -> Iterator[None]:
    """The open-file limit of this process and its children, as high as allowed."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _raise_priority(nice: int) -> None:
    """Of this process and all its children. Linux weighs sessions first, so that the session counts too."""
    os.nice(nice)
    group = Path("/proc/self/autogroup")
    if group.exists():
        with contextlib.suppress(PermissionError):  # the first of its group has a session already
            os.setsid()
        group.write_text(str(nice), encoding="ascii")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", help="names of clients, comma between")
    parser.add_argument("--core", default="1", help="of the client")
    parser.add_argument(
        "--nice", type=int, help="priority of everything here, below 0 on a busy machine (root)"
    )
    parser.add_argument("--streams", type=int, default=0, help="also open so many with our client")
    parser.add_argument("--out", type=Path, help="all numbers as JSON")
    options = parser.parse_args()
    if options.nice is not None:
        _raise_priority(options.nice)
    wanted = options.only.split(",") if options.only else None
    results: dict[str, list[Phase]] = {}
    with many_files():
        for client in all_clients():
            if wanted is not None and client.name not in wanted:
                continue
            reason = client.missing()
            if reason is not None:
                print(f"  {client.name}: {reason}", flush=True)
                continue
            results[client.name] = measure(client, options.core)
        if options.streams:
            results.setdefault("specbench", []).append(open_many(options.streams))
    if options.out:
        report = {name: [asdict(p) for p in phases] for name, phases in results.items()}
        options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    for name, phases in results.items():
        for p in phases:
            late = ", ".join(f"{k} {v:.2f}" for k, v in p.lateness_ms.items())
            print(
                f"{name:18} {p.name:10} {p.chunks_per_s:9.0f} chunks/s {p.requests_per_s:7.0f} req/s  "
                f"cpu {p.cpu_share:4.0%}  {p.cpu_us_per_chunk:6.1f} us/chunk  sink {p.sink_cpu_share:4.0%}  "
                f"{p.pss_mib:6.0f} MiB  failed {p.failures}  late ms: {late}  {p.error or ''}"
            )
    print("\n".join(table(results)))
    if any(p.error for phases in results.values() for p in phases):
        sys.exit(1)


if __name__ == "__main__":
    main()
