"""Whole sweeps: measured, judged, gated, resumed, interrupted, broken."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from specbench.runs.rundir import RunDir
from tests.sweep.conftest import Bench, engines_of, measure

BAD_ARM = {"method": "draft_model", "draft": "sim-draft", "k": 3, "name": "draft"}


def test_a_sweep_from_config_to_verdict_and_reports(bench: Bench) -> None:
    bench.write()
    done = bench.sweep()
    assert done.returncode == 0, done.stdout + done.stderr
    run = bench.the_run()
    result = json.loads((run.path / "result.json").read_text())
    assert result["schema"] == "specbench.result/1"
    assert result["complete"]
    assert result["verdict"] in done.stdout
    assert [c.status for c in run.cells()] == ["ok"] * 8
    for name in ("report.html", "report.md", "junit.xml"):
        assert f"{run.id}/{name}" in done.stdout
    # Both arms sent the same requests, in the same order.
    ids = {c.id: run.requests(c.id).column("id").to_pylist() for c in run.cells() if c.load == "c2"}  # type: ignore[union-attr]
    assert len({tuple(v) for v in ids.values()}) == 1
    # Rounds are interleaved: the second is the first reversed.
    order = [x.arm for x in run.launches()]
    assert order[2:] == order[:2][::-1]
    assert engines_of(bench.folder) == []
    # The draft speculates and the baseline does not; client and engine agree on tokens per step.
    at = {(x["arm"], x["load"]): x for x in result["results"]}
    acceptance = at["draft-k3", "c2"]["acceptance"]
    assert acceptance["coverage"] == pytest.approx(1.0)
    assert 1.2 < acceptance["tokens_per_step"] <= 4.0
    assert acceptance["client_tokens_per_chunk"] == pytest.approx(acceptance["tokens_per_step"], rel=0.25)
    assert at["baseline", "c2"]["acceptance"]["length"] is None

    report = bench.run("report", str(run.path), "--out", str(bench.folder / "again"))
    assert report.returncode == 0, report.stderr
    assert (bench.folder / "again" / "result.json").read_bytes() == (run.path / "result.json").read_bytes()
    assert (bench.folder / "again" / "report.html").read_bytes() == (run.path / "report.html").read_bytes()

    gate = bench.run("gate", str(run.path))
    assert gate.returncode == result["exit_code"]
    assert result["headline"] in gate.stdout


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_inside_a_cell_then_resumed(bench: Bench, sign: signal.Signals) -> None:
    bench.write(sim={"time_scale": 0.3})
    process = bench.start()
    out = bench.interrupt(process, lambda: "cell_ok" in bench.events(), sign)
    assert process.returncode == 130, out
    assert "--resume" in out
    assert engines_of(bench.folder) == []
    run = bench.the_run()
    kept = {
        c.id: (run.cell_path(c.id) / "cell.json").stat().st_mtime_ns for c in run.cells() if c.status == "ok"
    }
    assert 1 <= len(kept) < 8
    assert bench.events()[-1] == "sweep_interrupted"

    bench.write(sim={"time_scale": 0.3})
    again = bench.sweep("--resume")
    assert again.returncode == 0, again.stdout + again.stderr
    cells = run.cells()
    assert [c.status for c in cells] == ["ok"] * 8
    assert {
        i: (run.cell_path(i) / "cell.json").stat().st_mtime_ns for i in kept
    } == kept  # not measured twice
    assert len(list((bench.folder / "runs").iterdir())) == 1


def test_interrupted_during_a_launch_then_resumed(bench: Bench) -> None:
    bench.write(sim={"startup_s": 30, "time_scale": 1})
    process = bench.start()
    out = bench.interrupt(process, lambda: "launch_started" in bench.events())
    assert process.returncode == 130, out
    assert engines_of(bench.folder) == []
    assert bench.the_run().cells() == []


def test_a_resume_refuses_another_question_and_says_what_changed(bench: Bench) -> None:
    bench.write()
    assert bench.sweep().returncode == 0
    bench.write(
        workload={"source": "chat", "requests_per_slot": 6, "min_requests": 6, "max_output_tokens": 25}
    )
    again = bench.sweep("--resume")
    assert again.returncode == 2
    assert "workload.max_output_tokens: 24 -> 25" in again.stderr
    bench.write(verdict={"min_speedup": 1.01})
    assert "verdict.min_speedup: 1.05 -> 1.01" in bench.sweep("--resume").stderr


def test_a_resume_of_a_finished_run_measures_nothing(bench: Bench) -> None:
    bench.write()
    assert bench.sweep().returncode == 0
    launches = len(bench.the_run().launches())
    again = bench.sweep("--resume")
    assert again.returncode == 0
    assert len(bench.the_run().launches()) == launches
    # A report that cannot be written is told with its cause, and is no crash.
    page = bench.the_run().path / "report.html"
    page.unlink()
    (page / "in-the-way").mkdir(parents=True)
    unwritten = bench.sweep("--resume")
    assert unwritten.returncode == 3
    assert "error: cannot write" in unwritten.stderr
    assert "Traceback" not in unwritten.stderr


def test_resume_without_a_run_says_so(bench: Bench) -> None:
    bench.write()
    done = bench.sweep("--resume")
    assert done.returncode == 2
    assert "leave out --resume" in done.stderr


def test_one_arm_that_cannot_start_does_not_end_the_sweep(bench: Bench) -> None:
    bench.write(
        arms=[
            {
                **BAD_ARM,
                "args": {"sim": {"time_scale": 0.05, "faults": {"fail_start": "kv"}}},
                "name": "broken",
            },
            BAD_ARM,
        ]
    )
    done = bench.sweep()
    assert done.returncode == 0, done.stdout + done.stderr
    run = bench.the_run()
    by_arm = {
        a: {c.status for c in run.cells() if c.arm == a}
        for a in ("baseline", "draft-k3", "broken-sim-draft-k3")
    }
    assert by_arm["baseline"] == by_arm["draft-k3"] == {"ok"}
    broken = [c for c in run.cells() if c.arm.startswith("broken")]
    assert {c.status for c in broken} == {"failed"}
    assert len(broken) == 4
    # A failure that would come again is not paid for twice.
    assert len([x for x in run.launches() if x.arm.startswith("broken")]) == 1
    result = json.loads((run.path / "result.json").read_text())
    failure = next(f for f in result["failures"] if f["where"].startswith("launch"))
    assert failure["kind"] == "kv_too_small"
    assert failure["mend"]


def test_an_engine_that_dies_in_a_cell_is_a_result(bench: Bench) -> None:
    dying = {"time_scale": 0.05, "faults": {"die_after_requests": 12}}
    bench.write(arms=[{**BAD_ARM, "args": {"sim": dying}}], measure=measure(rounds=1))
    done = bench.sweep()
    run = bench.the_run()
    failed = [c for c in run.cells() if c.arm == "draft-k3" and c.status == "failed"]
    assert failed, done.stdout
    assert failed[0].failure is not None
    assert failed[0].failure.kind == "engine_died"
    assert {c.status for c in run.cells() if c.arm == "baseline"} == {"ok"}
    assert next(x for x in run.launches() if x.arm == "draft-k3").status == "died"


def test_a_baseline_that_cannot_start_ends_the_sweep_with_exit_4(bench: Bench) -> None:
    bench.write(sim={"faults": {"fail_start": "kv"}})
    done = bench.sweep()
    assert done.returncode == 4, done.stdout + done.stderr
    assert "baseline cannot run" in done.stdout


def test_a_time_budget_keeps_whole_rounds(bench: Bench) -> None:
    bench.write(measure=measure(rounds=50, time_budget=12))
    done = bench.sweep()
    assert "time_budget" in done.stdout
    cells = bench.the_run().cells()
    per_round = {n: sum(1 for c in cells if c.round == n) for n in {c.round for c in cells}}
    assert 1 <= len(per_round) < 50
    assert set(per_round.values()) == {4}


def test_gate_in_the_config_sets_the_exit_code(bench: Bench) -> None:
    # A draft that costs more than it brings: NO-GO, or at least no GO.
    costly = {"time_scale": 0.05, "draft_quality": 0.1, "costs": {"draft_base_ms": 20.0}}
    bench.write(sim=costly, gate=True)
    done = bench.sweep()
    assert done.returncode == 10, done.stdout + done.stderr
    assert "NO-GO" in done.stdout


def test_two_sweeps_cannot_write_the_same_run(bench: Bench) -> None:
    bench.write()
    assert bench.sweep().returncode == 0
    with bench.the_run().lock():
        done = bench.sweep("--resume")
    assert done.returncode == 3
    assert "another specbench" in done.stderr


def test_secrets_are_nowhere_in_the_run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SB_TEST_TOKEN", "hunter2hunter2")
    bench.write(measure=measure(rounds=1))
    text = bench.config.read_text().replace(
        "engine:\n", "engine:\n  env:\n    API_TOKEN: ${SB_TEST_TOKEN}\n", 1
    )
    bench.config.write_text(text)
    assert bench.sweep().returncode == 0
    run = bench.the_run()
    leaks = [p for p in run.path.rglob("*") if p.is_file() and b"hunter2hunter2" in p.read_bytes()]
    assert leaks == []


def test_a_damaged_run_gives_an_error_that_names_the_file(bench: Bench) -> None:
    bench.write(measure=measure(rounds=1))
    assert bench.sweep().returncode == 0
    run: RunDir = bench.the_run()
    next(Path(run.path, "cells").glob("*/requests.parquet")).write_bytes(b"PAR1 not really")
    done = bench.run("report", str(run.path))
    assert done.returncode == 3
    assert "requests.parquet" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_drafter_that_remembers_gets_a_launch_for_each_cell(bench: Bench) -> None:
    bench.write(arms=[{"method": "suffix", "k": 3}], measure=measure(rounds=1))
    done = bench.sweep()
    assert done.returncode in (0, 20), done.stdout + done.stderr
    run = bench.the_run()
    launches = {arm: [x for x in run.launches() if x.arm == arm] for arm in ("baseline", "suffix-k3")}
    assert {arm: len(found) for arm, found in launches.items()} == {"baseline": 1, "suffix-k3": 2}
    cells = [c for c in run.cells() if c.arm == "suffix-k3"]
    assert len({c.launch for c in cells}) == len(cells) == 2
    result = json.loads((run.path / "result.json").read_text())
    assert all(x["speedup"]["value"] is not None for x in result["results"] if x["arm"] == "suffix-k3")
    notes = [n["message"] for n in result["warnings"] if n["code"] == "learning_drafter"]
    assert len(notes) == 1
    assert "each of its cells had a launch of its own" in notes[0]


def test_a_sweep_outlives_the_reader_of_its_output_and_nohup_its_terminal(bench: Bench) -> None:
    bench.write(loads={"closed": [1]}, measure=measure(rounds=1))
    process = subprocess.Popen(
        bench.command("sweep", str(bench.config)),
        cwd=bench.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),  # as nohup does
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    while "launch_ready" not in bench.events():
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGHUP)
    assert process.wait(timeout=60) == 0
    assert bench.events()[-1] == "sweep_finished"
    assert (bench.the_run().path / "report.html").exists()
