"""The parity check where servers tell no token ids or no scores: texts, from the config to the reports."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest
import yaml

from specbench.config.grid import Arm, expand_arms
from specbench.config.source import load_config
from specbench.engines.vllm_scoring import VllmScoring
from specbench.parity.data import Role
from specbench.parity.text_data import TextOutput, from_table
from specbench.runs.rundir import RunDir
from specbench.sweep.cell import Served
from specbench.sweep.parity import ParityCheck
from tests.engines.simulated.servers import DRAFT_MODEL, launched
from tests.sweep.conftest import Bench, measure

GOOD = {"method": "draft_model", "draft": "sim-draft", "k": 3, "name": "good"}
BAD = {**GOOD, "name": "bad", "args": {"sim": {"verifier": "position_off_by_one"}}}
NAMES = {
    *("A-baseline-c1", "A2-baseline-c2"),
    *("S-good-k3-c1", "S-good-k3-c2", "S-bad-k3-c1", "S-bad-k3-c2"),
}
SCORER = """
import json, sys
for line in sys.stdin:
    row = json.loads(line)
    print(json.dumps({"id": row["id"], "score": int(bool(row["text"]))}))
"""


def texts_of(run: RunDir) -> dict[str, list[TextOutput]]:
    return {name: from_table(table) for name, table in run.parity_texts().items()}


def events(run: RunDir, name: str) -> list[dict[str, Any]]:
    return [e for e in run.journal.read() if e["event"] == name]


def test_from_a_server_that_withholds_to_the_reports_and_again(bench: Bench) -> None:
    bench.write(
        sim={"time_scale": 0, "token_ids": False},
        arms=[GOOD, BAD],
        workload={"source": "chat", "requests_per_slot": 6, "min_requests": 6, "max_output_tokens": 16},
        measure=measure(rounds=1),
        parity={
            "tier": "smoke",
            "prompts": 16,
            "tokens": 32,
            "task": {"command": ["python3", "./score.py"], "margin": 0.2},
        },
    )
    (bench.folder / "score.py").write_text(SCORER)
    done = bench.run("parity", str(bench.config))
    assert done.returncode == 11, done.stdout + done.stderr
    assert "good-k3: INCONCLUSIVE: texts only: nothing found in 16 prompts; a bug that" in done.stdout
    assert "bad-k3: FAIL: greedy, first difference at c1: of 16 texts" in done.stdout
    assert "the server does not return the prompt's token ids" in done.stdout
    (folder,) = (bench.folder / "runs").iterdir()
    run = RunDir.open(folder)
    (told,) = events(run, "parity_texts")
    assert told["arm"] == "baseline"
    assert "does not return the prompt's token ids" in told["reason"]
    texts = texts_of(run)
    assert set(texts) == NAMES
    assert run.parity_outputs(scored=True) == run.parity_outputs(scored=False) == {}
    assert len(events(run, "launch_started")) == 4  # A, two arms, A'; nothing is scored
    base, good = texts["A-baseline-c1"], texts["S-good-k3-c2"]
    assert [(x.prompt_id, x.temperature) for x in base] == [(x.prompt_id, x.temperature) for x in good]
    assert {(x.role, x.temperature) for x in base} == {(Role.A, 0.0), (Role.A, 1.0)}
    assert all(x.tokens is not None and x.top is not None and len(x.top[0]) == 5 for x in base)
    assert [x.text for x in base if x.greedy] == [x.text for x in good if x.greedy]
    samples = [{x.text for x in texts[n] if not x.greedy} for n in ("A-baseline-c1", "A2-baseline-c2")]
    assert samples[0] != samples[1]  # two samples, though the launches share their seed
    result = run.parity_result()
    assert result is not None
    task = result.arms[0].task
    assert task is not None
    assert (task.decision, task.mean_arm) == ("EQUIVALENT", 1.0)

    # Without an engine: the same again, and in the reports.
    before = (folder / "parity" / "result.json").read_bytes()
    assert bench.run("parity", str(folder)).returncode == 11
    assert (folder / "parity" / "result.json").read_bytes() == before
    report = bench.run("report", str(folder), "--out", str(bench.folder / "again"))
    assert report.returncode == 0, report.stderr
    stored = json.loads((bench.folder / "again" / "result.json").read_text())
    assert "good-k3: INCONCLUSIVE (texts only: nothing found" in stored["parity"]
    assert "parity/texts/S-good-k3-c1.parquet" in stored["files"]

    # Only what is missing is written again.
    (folder / "parity" / "texts" / "S-good-k3-c2.parquet").unlink()
    resumed = bench.run("parity", str(bench.config), "--run", str(folder))
    assert resumed.returncode == 11, resumed.stdout + resumed.stderr
    collected = [e["name"] for e in events(run, "parity_collected")]
    assert collected[-1] == "S-good-k3-c2"
    assert len(collected) == len(NAMES) + 1
    assert len(events(run, "parity_texts")) == 1
    assert set(texts_of(run)) == NAMES


@pytest.fixture
def check(tmp_path: Path) -> ParityCheck:
    """A check of one arm, without a conductor."""
    config = {
        "name": "order",
        "target": "sim-target",
        "engine": {"kind": "simulated"},
        "arms": [GOOD],
        "loads": {"closed": [1, 2]},
        "workload": {"source": "chat", "max_output_tokens": 16},
        "parity": {"tier": "smoke", "prompts": 8, "tokens": 16},
    }
    path = tmp_path / "sweep.yaml"
    path.write_text(yaml.safe_dump(config))
    loaded = load_config(path)
    run = RunDir.create(tmp_path / "runs", "order")
    return ParityCheck(loaded.config, loaded.base_dir, run, expand_arms(loaded.config))


def collect(check: ParityCheck, url: str, arm: Arm, *, again: bool = False) -> None:
    async def main() -> None:
        async with aiohttp.ClientSession() as session:
            spec = SimpleNamespace(base_url=url, served_model="target", extra_body={}, extra_chat={})
            process = SimpleNamespace(poll=lambda: 1, log_text=lambda: "")
            explain = lambda log, code: SimpleNamespace(summary=f"dead, exit code {code}{log}")  # noqa: E731
            engine = SimpleNamespace(scoring=VllmScoring, explain=explain)
            served = SimpleNamespace(engine=engine, spec=spec, process=process, session=session)
            await check.collect(arm, cast("Served", served), again=again)

    asyncio.run(main())


def test_an_arm_that_comes_before_the_baseline_waits_for_its_word(check: ParityCheck, tmp_path: Path) -> None:
    baseline, arm = check.arms
    with (
        launched(tmp_path, sim={"time_scale": 0, "token_ids": False, "logprobs": "refused"}) as plain,
        launched(
            tmp_path,
            speculation=DRAFT_MODEL,
            sim={"time_scale": 0, "token_ids": False, "logprobs": "left_out"},
        ) as drafting,
    ):
        collect(check, drafting.url, arm)
        assert check.failures == {}
        assert check.run.parity_texts() == {}
        assert check.wants(arm)
        collect(check, plain.url, baseline)
        assert set(check.run.parity_texts()) == {"A-baseline-c1"}
        collect(check, drafting.url, arm)
        assert not check.wants(arm)
        assert check.unfinished(baseline)
        collect(check, plain.url, baseline, again=True)
    assert not check.unfinished(baseline)
    assert check.drafts_wanted() == []
    seen = [e["event"] for e in check.run.journal.read()]
    assert seen == ["parity_waits", "parity_texts", *["parity_collected"] * 4]
    assert all(x.tokens is None and x.text for rows in texts_of(check.run).values() for x in rows)


def test_scores_that_are_refused_take_the_arms_ids_back(check: ParityCheck, tmp_path: Path) -> None:
    baseline, arm = check.arms
    with launched(tmp_path, sim={"time_scale": 0, "scores": "refused"}) as server:
        collect(check, server.url, arm)
        assert not check.wants(arm)  # ids are all that an arm has to tell
        collect(check, server.url, baseline)
        assert check.wants(arm)
        collect(check, server.url, arm)
    (told,) = events(check.run, "parity_texts")
    assert "prompt_logprobs: unknown parameter" in told["reason"]
    assert set(check.run.parity_texts()) == {"A-baseline-c1", "S-good-k3-c1", "S-good-k3-c2"}


def test_a_dead_server_is_no_reason_for_texts(check: ParityCheck, tmp_path: Path) -> None:
    baseline, _ = check.arms
    sim = {"time_scale": 0, "token_ids": False, "faults": {"http_500_every": 2}}
    with launched(tmp_path, sim=sim) as server:
        collect(check, server.url, baseline)
    assert check.failures == {"baseline": "dead, exit code 1"}
    assert [e["event"] for e in check.run.journal.read()] == ["parity_failed"]
    assert check.wants(baseline)
