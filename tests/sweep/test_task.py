"""The task level of a parity check, from a scorer in the config to the words of the reports."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pyarrow.parquet as pq
import pytest

from specbench.config.source import load_config
from specbench.parity.run import judge_run
from specbench.runs.parity import ArmParity, TaskParity
from specbench.runs.rundir import RunDir
from specbench.sweep.task import TaskCheck
from tests.sweep.conftest import Bench, measure

PROMPTS = [
    {"id": f"q{i}", "prompt": f"tell me about the number {i} and the next one", "reference": f"answer {i}"}
    for i in range(8)
] + [{"id": "chat#9", "messages": [{"role": "user", "content": "what comes after one two three"}]}]

SCORER = """
import json, sys
rows = [json.loads(line) for line in sys.stdin]
with open("asked.jsonl", "a") as file:
    file.write(json.dumps(rows) + "\\n")
for row in reversed(rows):
    print(json.dumps({"id": row["id"], "score": SCORE}))
"""


def write(bench: Bench, **task: Any) -> None:
    bench.write(
        sim={"time_scale": 0},
        arms=[{"method": "draft_model", "draft": "sim-draft", "k": 3, "name": "draft"}],
        workload={"source": "./prompts.jsonl", "max_output_tokens": 16},
        measure=measure(rounds=1),
        parity={
            "tier": "smoke",
            "prompts": 18,
            "tokens": 16,
            "task": {"command": ["python3", "./score.py"], **task},
        },
    )
    (bench.folder / "prompts.jsonl").write_text("".join(json.dumps(p) + "\n" for p in PROMPTS))


def scorer(bench: Bench, score: str) -> None:
    (bench.folder / "score.py").write_text(SCORER.replace("SCORE", score))


def asked(bench: Bench) -> list[list[dict[str, Any]]]:
    """What each run of the scorer was given."""
    path = bench.folder / "asked.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def the_run(bench: Bench) -> RunDir:
    (folder,) = (bench.folder / "runs").iterdir()
    return RunDir.open(folder)


def finish(bench: Bench) -> tuple[int, str]:
    """Finish the run; its exit code and all it printed."""
    done = bench.run("parity", str(bench.config), "--run", str(the_run(bench).path))
    return done.returncode, done.stdout + done.stderr


def test_from_the_config_to_the_reports(bench: Bench) -> None:
    write(bench)
    scorer(bench, '0 if row["role"] == "S" else 1')
    done = bench.run("parity", str(bench.config))
    assert done.returncode == 11, done.stdout + done.stderr
    said = "mean score 0.0000, the baseline's 1.0000, on 9 prompts: not the same (difference -1.0000"
    assert f"draft-k3: FAIL: task: {said}" in done.stdout
    assert "parity.task.margin: 9 prompts cannot settle 2 points, even if none differs" in done.stderr
    run = the_run(bench)
    (rows,) = asked(bench)

    # 9 prompts greedily and 18 sampled, by the baseline twice and by the arm at two loads; no draft's rows.
    assert len(rows) == len({row["id"] for row in rows}) == 4 * 27
    assert {(r["role"], r["arm"], r["load"]) for r in rows} == {
        *(("A", "baseline", "c1"), ("A2", "baseline", "c2")),
        *(("S", "draft-k3", "c1"), ("S", "draft-k3", "c2")),
    }
    row = next(r for r in rows if r["prompt_id"] == "q3" and r["temperature"] == 0.0)
    assert set(row) == {
        *("id", "prompt_id", "arm", "role", "load", "temperature"),
        *("text", "finish_reason", "prompt", "reference"),
    }
    assert (row["prompt"], row["reference"]) == ("tell me about the number 3 and the next one", "answer 3")
    assert row["finish_reason"] in ("stop", "length")
    chat = next(r for r in rows if r["prompt_id"] == "chat_9")
    assert (chat["prompt"], chat["reference"]) == (PROMPTS[-1]["messages"], None)
    assert all(r["text"].strip() for r in rows)
    greedy = {(r["prompt_id"], r["text"]) for r in rows if r["temperature"] == 0.0}
    assert len(greedy) == 9  # a lossless engine: the same text by all

    # Judged again from the files alone, and printed by every report.
    before = (run.parity_path / "result.json").read_bytes()
    assert bench.run("parity", str(run.path)).returncode == 11
    assert (run.parity_path / "result.json").read_bytes() == before
    report = bench.run("report", str(run.path), "--out", str(bench.folder / "again"))
    assert f"draft-k3: {said}" in " ".join(report.stdout.split())
    for name in ("report.md", "report.html"):
        text = (bench.folder / "again" / name).read_text()
        assert "Task level" in text
        assert "on 9 prompts: not the same" in text
    result = json.loads((bench.folder / "again" / "result.json").read_text())
    (found,) = result["parity_task"]
    assert (found["arm"], found["decision"], found["prompts"]) == ("draft-k3", "FAIL", 9)
    assert (found["mean_arm"], found["mean_baseline"], found["margin"]) == (0.0, 1.0, 0.02)
    assert "draft-k3: FAIL (task: mean score 0.0000" in result["parity"]
    assert "parity/task.json" in result["files"]


def again(bench: Bench) -> ArmParity:
    """Score what is not scored, and judge: what is left of ``specbench parity --run`` when nothing else is."""
    run = the_run(bench)
    asyncio.run(TaskCheck(load_config(bench.config), run).score())
    found = judge_run(run)
    assert found is not None
    (arm,) = found.arms
    assert len(arm.loads) == 2  # every other test is there, whatever the scorer does
    assert all(x.tests for x in arm.loads)
    return arm


def task(arm: ArmParity) -> TaskParity:
    assert arm.task is not None
    return arm.task


def test_scored_once_for_the_same_outputs_and_failures_lose_nothing(bench: Bench) -> None:
    write(bench, margin=0.5)
    scorer(bench, "0.75")
    done = bench.run("parity", str(bench.config))
    assert done.returncode == 20, done.stdout + done.stderr
    assert "task: mean score 0.7500, the baseline's 0.7500, on 9 prompts: equal within 0.5" in done.stdout
    run = the_run(bench)
    assert "on 9 prompts: equal within 0.5" in finish(bench)[1]
    assert len(asked(bench)) == 1

    write(bench, margin=0.02)  # another margin is another judgement of the same scores
    assert "on 9 prompts: not shown to be equal within 0.02" in task(again(bench)).words
    assert len(asked(bench)) == 1
    scorer(bench, "0.5")  # another script is another scorer
    assert task(again(bench)).mean_arm == 0.5
    assert len(asked(bench)) == 2

    scorer(bench, '2 if row["id"] == "S-draft-k3-c1/3" else 1')
    code, text = finish(bench)
    assert code == 20
    why = "the score of S-draft-k3-c1/3 is 2; give a number from 0 to 1; repeat the command with --run RUN"
    assert "warning: task level: line " in text
    assert "  task: not shown: line " in text
    assert why in text
    (last,) = [e for e in run.journal.read() if e["event"] == "parity_task_scored" and e["problem"]]
    assert why in last["problem"]
    scorer(bench, "1")  # what failed is tried again
    assert task(again(bench)).mean_arm == 1.0
    assert len(asked(bench)) == 4

    # Outputs that were exchanged are not those that were scored; older files have no text to score.
    path = run.parity_path / "S-draft-k3-c1.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["text"]), path)
    judged = bench.run("parity", str(run.path))
    assert "task: not shown: the outputs are not those scored" in judged.stdout
    assert "S-draft-k3-c1/0 has no text: it was written by an older specbench" in task(again(bench)).words
    assert task(again(bench)).decision == "NOT SHOWN"
    assert len(asked(bench)) == 4


def test_secrets_of_the_command_are_not_stored(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "hunter2hunter2")
    write(bench, command=["sh", "-c", "echo no $0 >&2; exit 4", "${JUDGE_KEY}"])
    assert bench.run("parity", str(bench.config)).returncode == 20
    run = the_run(bench)
    record = run.task_scores()
    assert record is not None
    assert 'ended with code 4 (its last lines: "no ${JUDGE_KEY}"' in str(record.problem)
    kept = [
        run.task_path,
        run.path / "journal.jsonl",
        run.path / "manifest.json",
        run.parity_path / "result.json",
    ]
    assert not any("hunter2" in path.read_text() for path in kept)


def test_prompts_that_cannot_be_told_apart_are_not_scored(bench: Bench) -> None:
    write(bench)
    scorer(bench, "1")
    path = bench.folder / "prompts.jsonl"
    path.write_text(path.read_text() + json.dumps({"id": "chat_9", "prompt": "another one two"}) + "\n")
    done = bench.run("parity", str(bench.config))
    assert "task: not shown: 2 rows of workload.source are called 'chat_9' (# counts as _)" in done.stdout
    assert asked(bench) == []
    path.write_text("".join(json.dumps(p) + "\n" for p in PROMPTS[1:]))
    assert "0 rows of workload.source are called 'q0' (# counts as _): put back" in task(again(bench)).words
    assert asked(bench) == []
