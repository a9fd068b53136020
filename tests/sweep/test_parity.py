"""The parity check against running engines: what is asked of them, and what comes of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import numpy as np
import pytest

from specbench.engines.simulated.lm import LanguageModel, seed_of
from specbench.engines.simulated.sampling import log_probabilities
from specbench.engines.simulated.tokenizer import decode, encode
from specbench.engines.vllm_scoring import VllmScoring
from specbench.parity.data import Role, from_table
from specbench.runs.parity import ParityResult
from specbench.runs.rundir import RunDir
from specbench.sweep.scoring import (
    ParityError,
    Target,
    generate,
    prompt_token_ids,
    score,
)
from specbench.workloads.request import Request
from tests.engines.simulated.servers import DRAFT_MODEL, launched
from tests.sweep.conftest import Bench, measure

T = TypeVar("T")


def ask(url: str, work: Callable[[Target], Awaitable[T]]) -> T:
    async def main() -> T:
        async with aiohttp.ClientSession() as session:
            return await work(Target(session, url, "target", VllmScoring()))

    return asyncio.run(main())


def request(**changes: Any) -> Request:
    return Request(id="r", category="chat", max_tokens=8, **changes)


def test_scores_are_the_models_own(tmp_path: Path) -> None:
    prompt, output = encode("tell me about numbers"), encode("one two three four five")
    with launched(tmp_path) as server:
        found = ask(server.url, lambda t: score(t, prompt, output))
    model = LanguageModel(seed_of("target", "sim/target"))
    rows = log_probabilities(model.score_prompt([*prompt, *output]))[len(prompt) - 1 :]
    ids = np.array(output)
    np.testing.assert_allclose(found.logprobs, rows[np.arange(len(ids)), ids], rtol=1e-5)
    np.testing.assert_array_equal(found.ranks, (rows > rows[np.arange(len(ids)), ids][:, None]).sum(1) + 1)
    np.testing.assert_array_equal(found.top_ids, np.argsort(-rows, axis=1, kind="stable")[:, :20])
    assert (np.diff(found.top_logprobs, axis=1) <= 0).all()


def test_outputs_come_as_ids_in_steps(tmp_path: Path) -> None:
    with launched(tmp_path, speculation=DRAFT_MODEL) as server:
        chat = request(messages=({"role": "user", "content": "tell me about numbers"},))
        ids = ask(server.url, lambda t: prompt_token_ids(t, chat))
        text = ask(server.url, lambda t: prompt_token_ids(t, request(prompt="tell me")))
        out = ask(server.url, lambda t: generate(t, ids, max_tokens=40, temperature=0.0))
        again = ask(server.url, lambda t: generate(t, ids, max_tokens=40, temperature=0.0))
    assert list(text) == encode("tell me")
    assert len(ids) > 3
    assert out == again
    assert sum(out.chunk_tokens) == len(out.token_ids) <= 40
    assert out.chunk_tokens[0] == 1
    assert 1 < max(out.chunk_tokens) <= 5
    assert out.text == decode(list(out.token_ids))


def test_a_refusal_says_what_the_server_said(tmp_path: Path) -> None:
    with launched(tmp_path) as server:
        too_long = [5] * 3000
        with pytest.raises(ParityError, match=r"HTTP 400 from /v1/completions: .*maximum context length"):
            ask(server.url, lambda t: generate(t, too_long, max_tokens=40, temperature=0.0))
        with pytest.raises(ParityError, match="HTTP 400"):
            ask(server.url, lambda t: score(t, too_long, [1]))


GOOD = {
    "method": "draft_model",
    "draft": "sim-draft",
    "k": 3,
    "name": "good",
    "settings": {"draft_sample_method": "probabilistic"},
}
BAD = {**GOOD, "name": "bad", "args": {"sim": {"verifier": "argmax_at_temperature"}}}
# A bug that a few thousand tokens cannot miss, whatever batches the timing makes of them; how small a bug
# each test sees is tests/parity's question, on seeded samples.
SLY = {**GOOD, "name": "sly", "args": {"sim": {"verifier": "argmax_at_temperature"}}}
SMALL = {"tier": "smoke", "prompts": 16, "tokens": 64}


def write(bench: Bench, **changes: Any) -> None:
    bench.write(
        sim={"time_scale": 0},
        arms=[GOOD, SLY],
        workload={"source": "chat", "requests_per_slot": 6, "min_requests": 6, "max_output_tokens": 16},
        measure=measure(rounds=1),
        parity=SMALL,
        **changes,
    )


def test_parity_command_finds_the_changed_arm(bench: Bench) -> None:
    write(bench)
    done = bench.run("parity", str(bench.config))
    assert done.returncode == 11, done.stdout + done.stderr
    assert "sly-k3: FAIL: " in done.stdout
    told = done.stdout[done.stdout.index("sly-k3: FAIL: ") :]
    assert (
        "sampled, S5 at c1: scores along the draft's own direction" in told
    )  # so the draft was served and scored
    assert "sampled, S3 at c2" in told
    assert "good-k3: INCONCLUSIVE" in done.stdout  # so few tokens cannot show equivalence
    (folder,) = (bench.folder / "runs").iterdir()
    run = RunDir.open(folder)
    outputs = {name: from_table(table) for name, table in run.parity_outputs(scored=True).items()}
    assert set(outputs) == {
        f"{name}{scorer}"
        for name in (
            *("A-baseline-c1", "A2-baseline-c2"),
            *("S-good-k3-c1", "S-good-k3-c2", "S-sly-k3-c1", "S-sly-k3-c2"),
        )
        for scorer in ("", "@sim-draft-effb4c")
    }
    assert run.parity_outputs(scored=False) == {}
    base, sly = outputs["A-baseline-c1"], outputs["S-sly-k3-c2"]
    assert {s.role for s in base} == {Role.A}
    assert [s.prompt_ids.tolist() for s in base] == [s.prompt_ids.tolist() for s in sly]
    greedy = [(a, b) for a, b in zip(base, sly, strict=True) if a.greedy]
    assert len(greedy) == 16
    assert all(a.output_ids.tolist() == b.output_ids.tolist() for a, b in greedy)
    # The launches share a seed, and yet are samples of their own (a short answer may come twice).
    samples = [
        [s.output_ids.tolist() for s in outputs[name] if not s.greedy]
        for name in ("A-baseline-c1", "A2-baseline-c2", "S-good-k3-c1", "S-good-k3-c2")
    ]
    assert sum(len({tuple(texts[i]) for texts in samples}) == 4 for i in range(16)) >= 10
    assert all(s.logprobs.max() <= 0 and s.top_ids.shape[1] == 20 for s in sly)
    assert any(s.positions is not None and s.positions.max() == 3 for s in sly)

    before = (folder / "parity" / "result.json").read_bytes()
    again = bench.run("parity", str(folder))
    assert again.returncode == 11
    assert (folder / "parity" / "result.json").read_bytes() == before
    stored = json.loads(before)
    assert stored["schema"] == ParityResult.__struct_defaults__[0] == "specbench.parity-result/1"

    report = bench.run("report", str(folder), "--out", str(bench.folder / "again"))
    assert report.returncode == 0, report.stderr
    assert "sly-k3: FAIL" in json.loads((bench.folder / "again" / "result.json").read_text())["parity"]


def test_a_sweep_checks_parity_after_its_cells(bench: Bench) -> None:
    bench.write(
        sim={"time_scale": 0.02},
        arms=[BAD],
        workload={
            "source": "chat",
            "requests_per_slot": 6,
            "min_requests": 6,
            "max_output_tokens": 16,
            "sampling": {"temperature": 0.8, "top_p": 0.95, "top_k": 40},
        },
        measure=measure(rounds=1),
        parity={**SMALL, "tier": "gate"},
    )
    done = bench.sweep("--gate")
    assert done.returncode == 11, done.stdout + done.stderr
    assert "Speculation changes the output" in done.stdout
    events = bench.events()
    assert events.index("parity_collected") > events.index("cell_ok")
    assert events[-1] == "sweep_finished"
    run = bench.the_run()
    assert [x.arm for x in run.launches()].count("baseline") == 2  # one of them only scores
    # Greedily, by the law that the scorer knows, and as the workload is served.
    for table in run.parity_outputs(scored=True).values():
        laws = zip(table["temperature"].to_pylist(), table["top_p"].to_pylist(), strict=True)
        assert set(laws) == {(0.0, 1.0), (1.0, 1.0), (0.8, 0.95)}
    parity = run.parity_result()
    assert parity is not None
    assert any(x.load.endswith(" as served") for x in parity.arms[0].loads)
    resumed = bench.sweep("--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert bench.events().count("parity_scored") == events.count("parity_scored")


def test_unknown_tier_and_runs_without_parity_are_refused(bench: Bench) -> None:
    write(bench)
    wrong = bench.run("parity", str(bench.config), "--tier", "huge")
    assert wrong.returncode == 2
    assert "choose one of smoke, gate, nightly" in wrong.stderr
    missing = bench.run("parity", str(bench.folder))
    assert missing.returncode == 2
    assert "not a run directory" in missing.stderr


def test_an_engine_that_dies_while_it_writes_is_blamed_by_its_own_log(bench: Bench) -> None:
    bench.write(
        sim={"time_scale": 0},
        arms=[{**GOOD, "args": {"sim": {"faults": {"die_after_requests": 12}}}}],
        workload={"source": "chat", "requests_per_slot": 6, "min_requests": 6, "max_output_tokens": 16},
        parity={"tier": "smoke", "prompts": 8, "tokens": 16},
    )
    done = bench.run("parity", str(bench.config))
    assert done.returncode == 20, done.stdout + done.stderr
    (warning,) = [line for line in done.stderr.splitlines() if line.startswith("warning: good-k3: ")]
    assert "simulated fault: the engine core died" in warning
    assert "no output of this arm was scored" in done.stdout
