"""Time and peak memory of `workload inspect` and `workload sample` on a week-long Azure-format trace.

    python benchmarks/workloads/azure_week.py --rows 16803695

Writes an invented CSV of that many rows (about 41 bytes each) into a temporary folder, runs each command
in a process of its own, prints seconds and peak resident memory, and removes the file.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

WEEK_S = 7 * 86400
CHUNK_ROWS = 500_000
_COMMAND = "import sys; from specbench.cli.main import main; main(sys.argv[1:])"


def generate(path: Path, rows: int, seed: int, slips: int) -> None:
    """An Azure 2024 CSV with bursty arrivals and log-normal lengths; ``slips`` rows are out of order."""
    rng = np.random.default_rng(seed)
    start = np.datetime64("2024-05-10T00:00:00", "us")
    at_us = 0
    mean_gap_us = WEEK_S * 1e6 / rows
    slipped = set(rng.integers(1, rows, slips).tolist())
    with path.open("w", encoding="ascii", newline="") as stream:
        stream.write("TIMESTAMP,ContextTokens,GeneratedTokens\n")
        for first in range(0, rows, CHUNK_ROWS):
            n = min(CHUNK_ROWS, rows - first)
            times = at_us + np.cumsum(rng.gamma(0.4, mean_gap_us / 0.4, n)).astype(np.int64)
            at_us = int(times[-1])
            for place in slipped:
                if first < place < first + n:
                    times[place - first] -= 50_000
            prompts = np.clip(rng.lognormal(7.2, 1.1, n), 1, 8192).astype(int).tolist()
            outputs = np.clip(rng.lognormal(2.4, 1.0, n), 1, 2000).astype(int).tolist()
            stamps = np.datetime_as_string(start + times.astype("m8[us]"), unit="us")
            stream.writelines(
                f"{stamp[:10]} {stamp[11:]}+00:00,{prompt},{output}\n"
                for stamp, prompt, output in zip(stamps.tolist(), prompts, outputs, strict=True)
            )


def measure(arguments: list[str]) -> tuple[float, float]:
    """(seconds, peak resident MiB) of a specbench command.

    Raises:
        subprocess.CalledProcessError: the command failed.
    """
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", _COMMAND, *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    code = os.waitstatus_to_exitcode(status)
    process.returncode = code
    if code:
        raise subprocess.CalledProcessError(code, arguments)
    return seconds, usage.ru_maxrss / 1024


def main() -> None:
    """Generate, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--slips", type=int, default=100, help="rows whose time lies 50 ms too early")
    parser.add_argument("--keep", type=Path, help="write the CSV here and keep it; measure nothing")
    options = parser.parse_args()
    if options.keep is not None:
        generate(options.keep, options.rows, options.seed, options.slips)
        return
    with tempfile.TemporaryDirectory() as folder:
        trace, out = Path(folder) / "trace.csv", Path(folder) / "sample.jsonl"
        generate(trace, options.rows, options.seed, options.slips)
        print(f"{options.rows:,} rows, {trace.stat().st_size / 1e6:,.0f} MB")
        for name, arguments in (
            ("inspect", ["workload", "inspect", str(trace), "--json"]),
            ("sample -n 2000", ["workload", "sample", str(trace), str(out), "-n", "2000", "--seed", "7"]),
        ):
            seconds, peak_mib = measure(arguments)
            print(f"{name:>16}  {seconds:8.1f} s  {peak_mib:8.0f} MiB peak")


if __name__ == "__main__":
    main()
