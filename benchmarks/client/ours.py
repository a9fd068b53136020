"""specbench's own client under the benchmark: a closed loop against the sink, its chunk times as JSON.

    python benchmarks/client/ours.py URL CONCURRENCY REQUESTS TOKENS OUT.json [profile]

With ``profile`` the loop runs under cProfile and the costliest functions are printed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import uvloop

from specbench.load.closed import run_closed
from specbench.load.recorder import CellRun
from specbench.load.transport import open_client
from specbench.observe.client import ClientHealth, ClientHealthReport
from specbench.workloads.request import Request


async def drive(url: str, concurrency: int, requests: int, tokens: int) -> tuple[CellRun, ClientHealthReport]:
    """The cell as `specbench sweep` runs it."""
    mix = [
        Request(id=f"r{i}", category="c", prompt=f"#{i} say something", max_tokens=tokens)
        for i in range(requests)
    ]
    async with (
        open_client(url, "sink", connections=concurrency, stall_timeout_s=60, total_timeout_s=600) as client,
        ClientHealth() as health,
    ):
        run = await run_closed(client, mix, concurrency)
    return run, health.report(run.send_lateness_s())


def main() -> None:
    """Run and write."""
    url, concurrency, requests, tokens, out = sys.argv[1:6]
    job = drive(url, int(concurrency), int(requests), int(tokens))
    # Monotonic and wall clock may be slewed apart: the epoch is converted once, right here.
    offset = time.time() - time.perf_counter()
    if len(sys.argv) > 6:
        run, health = _profiled(job)
    else:
        run, health = uvloop.run(job)
    zero = run.epoch_unix - offset
    report: dict[str, Any] = {
        "errors": [str(r.error) for r in run.records if not r.ok],
        "chunks": {r.index: [int((zero + t) * 1e9) for t in r.chunk_s] for r in run.records},
        "lag_p99_s": health.loop_lag_p99_s,
        "lag_max_s": health.loop_lag_max_s,
        "cpu_share": health.cpu_share,
    }
    Path(out).write_text(json.dumps(report), encoding="utf-8")


def _profiled(job: Any) -> tuple[CellRun, ClientHealthReport]:
    import cProfile
    import pstats

    profile = cProfile.Profile()
    result = profile.runcall(asyncio.run, job)
    pstats.Stats(profile).sort_stats("tottime").print_stats(25)
    return result  # type: ignore[no-any-return]  # runcall is untyped


if __name__ == "__main__":
    main()
