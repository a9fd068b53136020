"""The open-loop check end to end on the simulated engine: rates, pairs, resume, verdict."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specbench.report.build import build
from tests.sweep.conftest import Bench, measure

SIM = {"time_scale": 0.03}
CHECK = {"rounds": 2, "requests": 120}


def config(check: Any = CHECK, **changes: Any) -> dict[str, Any]:
    return {
        "loads": {"closed": [4]},
        "workload": {"source": "chat", "requests_per_slot": 6, "min_requests": 6, "max_output_tokens": 24},
        "measure": measure(rounds=2, open_check=check),
        "verdict": {"min_speedup": 1e-9, "margins": {"ttft_p95": 4, "tpot_p99": None}},
        **changes,
    }


def events(bench: Bench, name: str) -> list[dict[str, Any]]:
    return [e for e in bench.the_run().journal.read() if e["event"] == name]


def test_the_recommended_arm_is_checked_at_shares_of_the_baseline(bench: Bench) -> None:
    arms = [{"method": "draft_model", "draft": "sim-draft", "k": [1, 3], "name": "draft"}]
    bench.write(SIM, arms=arms, **config())
    done = bench.sweep()
    assert done.returncode == 0, done.stdout + done.stderr
    run = bench.the_run()
    (planned,) = events(bench, "open_check_planned")
    arm = planned["arm"]
    assert planned["load"] == "c4"
    assert planned["rates"]["check90"] == pytest.approx(0.9 * planned["requests_per_s"], rel=0.01)
    cells = [c for c in run.cells() if c.load.startswith("check")]
    # Two rounds of two arms at two rates, after the rounds of the closed loads.
    assert sorted({(c.round, c.arm) for c in cells}) == [(n, a) for n in (3, 4) for a in ("baseline", arm)]
    assert all(c.status == "ok" for c in cells)
    assert len(cells) == 8
    for load in ("check70", "check90"):
        tables = [run.requests(c.id) for c in cells if c.load == load]
        sent = {
            tuple(sorted(zip(t["id"].to_pylist(), t["intended_s"].to_pylist(), strict=True)))
            for t in tables
            if t
        }
        assert len(sent) == 1  # the same requests at the same times in both arms
    # The plan is in the journal before the first launch of the check.
    names = [(e["event"], e.get("launch", "")) for e in run.journal.read()]
    first = next(
        i for i, (event, launch) in enumerate(names) if event == "launch_started" and "r03" in launch
    )
    assert names.index(("open_check_planned", "")) < first
    result = json.loads((run.path / "result.json").read_text())
    assert result["complete"] is True
    assert result["open_check"]["arm"] == arm
    assert [x["pairs"] for x in result["open_check"]["rates"]] == [2, 2]
    assert {g["metric"] for x in result["open_check"]["rates"] for g in x["guards"]} == {"errors", "ttft_p95"}
    assert result["loads"] == ["c4"]
    for page in ("report.md", "report.html"):
        assert "Open-loop check" in (run.path / page).read_text()
    assert "Open-loop check" in done.stdout


def test_an_interrupted_check_goes_on_at_the_same_rates(bench: Bench) -> None:
    bench.write(SIM, **config())
    process = bench.start("--plain")
    bench.interrupt(process, lambda: bench.events().count("cell_ok") >= 5)
    (planned,) = events(bench, "open_check_planned")
    assert build(bench.the_run()).verdict == "INCONCLUSIVE"
    again = bench.sweep("--resume")
    assert again.returncode == 0, again.stdout + again.stderr
    assert events(bench, "open_check_planned") == [planned]
    cells = [c for c in bench.the_run().cells() if c.load.startswith("check")]
    assert len(cells) == 8
    assert all(c.status == "ok" for c in cells)
    assert build(bench.the_run()).complete
    bench.write(SIM, **config({**CHECK, "rounds": 5}))
    refused = bench.sweep("--resume")
    assert refused.returncode == 2
    assert "open_check.rounds: 2 -> 5" in refused.stderr


def test_without_a_recommended_arm_there_is_nothing_to_check(bench: Bench) -> None:
    bench.write(SIM, **config(True, verdict={"min_speedup": 50.0}))
    done = bench.sweep()
    assert done.returncode == 0, done.stdout + done.stderr
    (ended,) = events(bench, "open_check_finished")
    assert "no arm is recommended" in ended["reason"]
    assert build(bench.the_run()).complete


def test_plan_says_what_the_check_adds_and_bad_settings_are_refused(bench: Bench) -> None:
    bench.write(**config(True))
    shown = bench.run("plan", str(bench.config))
    assert shown.returncode == 0, shown.stderr
    assert "3 to 6 pairs of launches at 0.7 and 0.9" in shown.stdout
    bench.write(**config({"shares": [1.2]}))
    assert "less than 1" in bench.run("plan", str(bench.config)).stderr
    bench.write(**{**config(True), "loads": {"open": [{"rate": 3.0}]}})
    assert "measure.open_check needs closed loads" in bench.run("plan", str(bench.config)).stderr
