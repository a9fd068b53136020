"""A whole sweep beside a driver that is made up: from samples to the report."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.sweep.conftest import Bench

ROOT = Path(__file__).parents[2]

DRIVER = """
import time
import psutil, pynvml, pytest
from tests.observe.fake_nvml import FakeGpu, _Process, install

install(pytest.MonkeyPatch(), FakeGpu(uuid="GPU-0"), FakeGpu(uuid="GPU-1"))
pynvml.nvmlDeviceGetComputeRunningProcesses_v3 = lambda gpu: (
    [_Process(p.pid) for p in psutil.Process().children(recursive=True)] if gpu.uuid == "GPU-1" else []
)
pynvml.nvmlDeviceGetTotalEnergyConsumption = lambda gpu: int(time.monotonic() * gpu.power_mw)
"""


def test_a_sweep_on_a_gpu_reports_energy_and_headroom(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = bench.folder / "driver"
    driver.mkdir()
    (driver / "sitecustomize.py").write_text(DRIVER)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(driver), str(ROOT)]))
    bench.write(
        sim={"time_scale": 0.5},
        loads={"closed": [2]},
        workload={"source": "chat", "requests_per_slot": 28, "max_output_tokens": 32},
        measure={"warmup_per_slot": 1, "client_lag_limit": 5.0, "rounds": 1},
    )
    done = bench.sweep()
    assert done.returncode == 0, done.stdout + done.stderr
    for cell in bench.the_run().cells():
        assert cell.machine is not None
        (gpu,) = cell.machine.gpus
        assert gpu.uuid == "GPU-1"
        assert cell.machine.gpu_basis == "processes of the engine on it"
        assert cell.window is not None
        assert cell.window.closed_s is not None
        assert gpu.t_s[0] <= 0 < cell.window.closed_s <= gpu.t_s[-1]
    result = json.loads((bench.the_run().path / "result.json").read_text())
    for item in result["results"]:
        found = item["machine"]
        assert found["energy_source"] == "energy counter"
        # The made-up counter runs at the made-up power.
        assert found["tokens_per_joule"] == pytest.approx(item["output_tokens_per_s"] / 412.345, rel=0.01)
        assert found["engine_cores"] >= 0
    assert result["headroom"][0]["message"] == (
        "GPU was 97% busy in the baseline at concurrency 2, at 59% of the power limit: "
        "speculation competes for time on it."
    )
    assert "Machine during the measurement" in (bench.the_run().path / "report.html").read_text()
