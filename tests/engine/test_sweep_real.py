"""The whole road on real vLLM: interrupted inside a launch and inside a cell, resumed, judged."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import psutil
import pytest
import yaml

from tests.engine.conftest import ROOT
from tests.sweep.conftest import Bench, measure

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]


@pytest.fixture
def real(tmp_path: Path) -> Bench:
    """The quickstart's question made tiny: three arms, two loads, one round."""
    shipped = yaml.safe_load((ROOT / "sweeps" / "quickstart.yaml").read_text())
    engine, folder = shipped["engine"], ROOT / "sweeps"
    engine["command"][0] = str((folder / engine["command"][0]).absolute())
    bench = Bench(tmp_path)
    bench.write(
        target=str((folder / shipped["target"]).resolve()),
        engine=engine,
        arms=[
            {"method": "ngram", "k": 4, "settings": {"prompt_lookup_min": 2, "prompt_lookup_max": 4}},
            {"method": "draft_model", "draft": str((ROOT / "models" / "smollm2-draft").resolve()), "k": 1},
        ],
        loads={"closed": [1, 2]},
        workload={
            "source": "edit",
            "requests_per_slot": 6,
            "min_requests": 6,
            "max_output_tokens": 24,
        },
        measure=measure(rounds=1),
    )
    return bench


def vllm_processes(folder: Path) -> list[str]:
    """Whatever still runs in a run directory under ``folder``."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(folder) in process.cwd():
                found.append(f"{process.pid} {process.name()}")
        except psutil.Error:
            continue
    return found


def test_interrupted_twice_and_resumed(real: Bench) -> None:
    first = real.start()
    out = real.interrupt(first, lambda: "launch_started" in real.events())
    assert first.returncode == 130, out
    assert vllm_processes(real.folder) == []
    run = real.the_run()
    assert run.cells() == []

    def inside_a_cell() -> bool:
        return "cell_ok" in real.events()

    second = real.start("--resume")
    out = real.interrupt(second, inside_a_cell, signal.SIGTERM, timeout=240)
    assert second.returncode == 130, out
    assert vllm_processes(real.folder) == []
    kept = {
        c.id: (run.cell_path(c.id) / "cell.json").stat().st_mtime_ns for c in run.cells() if c.status == "ok"
    }
    assert kept

    done = real.run("sweep", str(real.config), "--resume", timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    cells = run.cells()
    assert [c.status for c in cells] == ["ok"] * 6
    assert {i: (run.cell_path(i) / "cell.json").stat().st_mtime_ns for i in kept} == kept
    assert len(list((real.folder / "runs").iterdir())) == 1
    assert vllm_processes(real.folder) == []

    result = json.loads((run.path / "result.json").read_text())
    assert result["engine"] == "vllm 0.32.0"
    assert result["complete"]
    assert result["verdict"] == "INCONCLUSIVE"  # one round never decides
    assert [d for d in result["engine_differences"] if d["code"] == "unexplained"] == []
    at = {(x["arm"], x["load"]): x for x in result["results"]}
    for arm in ("ngram-k4", "smollm2-draft"):
        key = next(k for k in at if arm in k[0] and k[1] == "c2")
        acceptance = at[key]["acceptance"]
        # Two counts of the same thing: the engine's counters and the client's chunks.
        assert acceptance["tokens_per_step"] == pytest.approx(acceptance["client_tokens_per_chunk"], rel=0.15)
        assert acceptance["tokens_per_step"] >= 1.0
    ngram = at["ngram-k4", "c2"]["acceptance"]
    assert 0 < ngram["coverage"] < 1
    assert 1 < ngram["length"] <= 5
    assert at["baseline", "c2"]["acceptance"]["length"] is None
