"""An adaptive sweep on the simulated engine: explore, confirm, stop by the rule, resume."""

from __future__ import annotations

import json
import signal
from typing import Any

from tests.sweep.conftest import Bench, engines_of, measure

DRAFT = {"method": "draft_model", "draft": "sim-draft", "name": "draft"}
CLEAR = {"draft_quality": 0.95, "costs": {"draft_base_ms": 0.01}}
"""A draft that is right nearly always and costs nothing: no noise hides that it pays."""


def planned(bench: Bench) -> list[dict[str, Any]]:
    return [e for e in bench.the_run().journal.read() if e["event"] == "round_planned"]


def test_explore_confirm_and_stop(bench: Bench) -> None:
    bench.write(
        sim={**CLEAR, "time_scale": 0.1},
        arms=[{**DRAFT, "k": [1, 4]}],
        loads={"closed": [2]},
        measure=measure(strategy="adaptive", looks=[2, 3, 4]),
        verdict={"min_speedup": 0.2},
    )
    done = bench.sweep()
    assert done.returncode == 0, done.stdout + done.stderr
    run = bench.the_run()
    result = json.loads((run.path / "result.json").read_text())
    assert result["strategy"] == "adaptive"
    assert result["complete"]
    assert result["looks"] == [2, 3, 4]
    assert result["verdict"] == "GO", done.stdout
    rounds = planned(bench)
    assert rounds[0]["stage"] == "explore"
    assert rounds[0]["arms"] == ["draft-k1", "draft-k4"]
    assert rounds[-1]["stage"] == "confirm"
    winner = result["recommended"]["arm"]
    assert rounds[-1]["arms"] == [winner]
    stages = {c.round: c.stage for c in run.cells()}
    assert stages == {e["round"]: e["stage"] for e in rounds}
    # Confirming rounds run the baseline and the winner only, in turned order.
    confirm = [n for n, stage in stages.items() if stage == "confirm"]
    order = {n: [x.arm for x in run.launches() if x.round == n] for n in confirm}
    assert all(sorted(x) == sorted(["baseline", winner]) for x in order.values())
    pairs = {n: order[n] for n in confirm if n % 2 and n + 1 in order}
    assert all(order[n + 1] == x[::-1] for n, x in pairs.items())
    manifest = run.manifest()
    assert manifest.rule.strategy == "adaptive"
    assert manifest.rule.explore_rounds == 2
    assert manifest.rule.max_rounds == 6
    assert manifest.rule.margins == {"ttft_p95": 0.15, "tpot_p99": 0.1}
    assert bench.events()[0] == "rule_registered"

    # The rule is registered: another one is refused.
    bench.write(
        sim={**CLEAR, "time_scale": 0.1},
        arms=[{**DRAFT, "k": [1, 4]}],
        loads={"closed": [2]},
        measure=measure(strategy="adaptive", looks=[2, 4]),
        verdict={"min_speedup": 0.2},
    )
    assert "measure.looks: [2, 3, 4] -> [2, 4]" in bench.sweep("--resume").stderr


def test_interrupted_and_resumed_it_goes_on_where_it_was(bench: Bench) -> None:
    how = {"strategy": "adaptive", "looks": [2, 3], "max_rounds": 3}
    settings: dict[str, Any] = {
        "sim": {**CLEAR, "time_scale": 0.1},
        "arms": [{**DRAFT, "k": 4}],
        "loads": {"closed": [1]},
        "verdict": {"min_speedup": 0.2},
        "measure": measure(**how),
    }
    bench.write(**settings)
    process = bench.start()
    out = bench.interrupt(process, lambda: bench.events().count("cell_ok") >= 3, signal.SIGINT)
    assert process.returncode == 130, out
    assert engines_of(bench.folder) == []
    before = planned(bench)
    kept = {c.id for c in bench.the_run().cells() if c.status == "ok"}
    again = bench.sweep("--resume")
    assert again.returncode == 0, again.stdout + again.stderr
    after = planned(bench)
    assert after[: len(before)] == before
    assert [e["round"] for e in after] == list(range(1, len(after) + 1))
    cells = bench.the_run().cells()
    assert kept <= {c.id for c in cells}
    assert all(c.status == "ok" and c.stage == "confirm" for c in cells)
    assert bench.events()[-2:] == ["campaign_stopped", "sweep_finished"]


def test_the_best_arm_that_cannot_run_ends_it(bench: Bench) -> None:
    bench.write(
        arms=[{**DRAFT, "k": 4, "args": {"sim": {"time_scale": 0.05, "faults": {"fail_start": "kv"}}}}],
        loads={"closed": [1]},
        measure=measure(strategy="adaptive"),
    )
    done = bench.sweep()
    assert "INVALID" in done.stdout
    # Two rounds without a pair are enough to know.
    assert len(planned(bench)) == 2


def test_of_many_values_of_k_four_run_and_a_curve_picks(bench: Bench) -> None:
    bench.write(
        sim={**CLEAR, "time_scale": 0.1},
        arms=[{**DRAFT, "k": [1, 2, 3, 4, 5, 6]}],
        loads={"closed": [2]},
        measure=measure(strategy="adaptive", looks=[2, 3], max_rounds=3),
        verdict={"min_speedup": 0.2},
    )
    done = bench.sweep()
    assert done.returncode == 0, done.stdout + done.stderr
    run = bench.the_run()
    assert planned(bench)[0]["arms"] == ["draft-k1", "draft-k3", "draft-k4", "draft-k6"]
    assert [e["stage"] for e in planned(bench)][:2] == ["explore", "confirm"]
    assert run.manifest().rule.ladders == ({f"draft-k{k}": k for k in range(1, 7)},)
    result = json.loads((run.path / "result.json").read_text())
    winner = result["recommended"]["arm"]
    measured = {c.arm for c in run.cells()}
    reasons = {x["arm"]: " ".join(x["reasons"]) for x in result["results"] if x["arm"] not in measured}
    assert reasons
    assert all(f"not measured; {winner} was picked before it" in text for text in reasons.values())
    assert "by the curve through K = 1, 3, 4, 6" in done.stdout.replace("\n", " ").replace("  ", " ")
