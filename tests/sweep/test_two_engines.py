"""Two engines in one run: each is compared with its own baseline, and the engines with each other."""

from __future__ import annotations

import json

import pytest

from specbench.runs.rundir import RunDir
from tests.sweep.conftest import Bench, measure


def test_each_engine_has_its_own_baseline(bench: Bench) -> None:
    slow = {"max-model-len": 2048, "max-num-seqs": 8, "sim": {"time_scale": 0.3, "costs": {"base_ms": 20.0}}}
    bench.write(
        sim={"time_scale": 0.3, "costs": {"base_ms": 10.0}},
        other_engines={"slow": {"kind": "simulated", "args": slow, "stop_timeout": 2}},
        arms=[
            {"method": "draft_model", "draft": "d", "k": 3, "name": "draft", "engine": ["simulated", "slow"]},
            {"method": "ngram", "k": 2, "engine": "slow"},
        ],
        loads={"closed": [1]},
        measure=measure(rounds=1),
    )
    done = bench.sweep()
    assert done.returncode == 0, done.stdout + done.stderr
    run = bench.the_run()
    result = json.loads((run.path / "result.json").read_text())
    assert {a["arm"]: a["engine"] for a in result["arms"]} == {
        "baseline": "",
        "baseline@slow": "slow",
        "draft-k3": "",
        "draft-k3@slow": "slow",
        "ngram-k2@slow": "slow",
    }
    at = {x["arm"]: x for x in result["results"]}
    for arm, base in (("draft-k3", "baseline"), ("draft-k3@slow", "baseline@slow")):
        ratio = at[arm]["output_tokens_per_s"] / at[base]["output_tokens_per_s"]
        assert at[arm]["speedup"]["value"] == pytest.approx(ratio)
        assert ratio > 1.2
    engines = {x["engine"]: x for x in result["engines"]}
    assert engines["simulated"]["baseline_ratio"]["value"] is None
    assert 0.35 < engines["slow"]["baseline_ratio"]["value"] < 0.75  # steps cost twice as much
    assert engines["slow"]["fastest"] == "draft-k3@slow"
    assert "Engines beside each other" in (run.path / "report.html").read_text()
    assert "Engines beside each other" in (run.path / "report.md").read_text()
    # One engine failing to tell itself apart would resume the other's cells.
    assert len({c.identity["engine"]["args"]["sim"]["costs"]["base_ms"] for c in run.cells()}) == 2
    # The same engine's version and settings are compared, never those of the other.
    assert [d for d in result["engine_differences"] if d["code"] == "unexplained"] == []


def test_an_engine_that_is_not_there_is_named(bench: Bench) -> None:
    bench.write(arms=[{"method": "ngram", "k": 2, "engine": "sglng"}])
    done = bench.sweep()
    assert done.returncode == 2
    assert "sglng" in done.stderr
    assert "simulated" in done.stderr


def test_each_engines_arms_are_scored_by_its_own_baseline(bench: Bench) -> None:
    bench.write(
        sim={"time_scale": 0},
        other_engines={
            "other": {"kind": "simulated", "args": {"max-model-len": 2048, "sim": {"time_scale": 0}}}
        },
        arms=[{"method": "ngram", "k": 2, "engine": ["simulated", "other"]}],
        loads={"closed": [1]},
        workload={"source": "chat", "requests_per_slot": 6, "min_requests": 6, "max_output_tokens": 16},
        parity={"tier": "smoke", "prompts": 8, "tokens": 16},
    )
    done = bench.run("parity", str(bench.config))
    assert done.returncode == 20, done.stdout + done.stderr  # so few tokens decide nothing
    (folder,) = (bench.folder / "runs").iterdir()
    result = json.loads((folder / "parity" / "result.json").read_text())
    assert {a["arm"]: a["tokens"] > 0 for a in result["arms"]} == {"ngram-k2": True, "ngram-k2@other": True}
    scored = set(RunDir.open(folder).parity_outputs(scored=True))
    assert scored == {
        *("A-baseline-c1", "A2-baseline-c1", "S-ngram-k2-c1"),
        *("A-baseline@other-c1", "A2-baseline@other-c1", "S-ngram-k2@other-c1"),
    }
