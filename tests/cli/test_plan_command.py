"""`specbench plan`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from specbench.cli import plan
from specbench.cli.errors import CliError
from specbench.config.plan import NATURAL_LENGTH

CONFIG = """\
name: demo
target: org/model
engine:
  kind: KIND
  args: {max-model-len: 2048}
  env: {HF_TOKEN: "${TEST_TOKEN}"}
arms:
  - method: ngram
    k: [3, 5]
    settings: {prompt_lookup_min: 2, prompt_lookup_max: 4}
loads: {closed: [1, 4]}
workload: {source: quickstart, max_output_tokens: 100}
measure: {rounds: 2}
"""


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_TOKEN", "hf_secretsecret")
    monkeypatch.setenv("COLUMNS", "120")


def run(tmp_path: Path, text: str, *options: str, kind: str = "simulated") -> Result:
    path = tmp_path / "sweep.yaml"
    path.write_text(text.replace("KIND", kind))
    app = typer.Typer()
    plan.register(app)
    return CliRunner().invoke(app, [str(path), *options])


def data(result: Result) -> Any:
    return json.loads(result.stdout)


def test_plan_for_a_person(tmp_path: Path) -> None:
    result = run(tmp_path, CONFIG)
    assert result.exit_code == 0, result.output
    text = result.stdout
    assert "demo: org/model on simulated" in text
    assert "3 arms x 2 rounds x 2 loads = 12 cells in 6 launches" in text
    for heading in ("Arms", "Commands", "Loads", "Order", "Time"):
        assert f"\n{heading}\n" in text
    assert "rough default" in text
    assert "Problems" not in text
    assert "hf_secretsecret" not in text


def test_plan_as_data(tmp_path: Path) -> None:
    result = run(tmp_path, CONFIG, "--json")
    plan_data = data(result)
    assert plan_data["schema"] == "specbench.plan/1"
    assert [arm["id"] for arm in plan_data["arms"]] == ["baseline", "ngram-k3", "ngram-k5"]
    assert [(load["id"], load["requests"], load["warmup_requests"]) for load in plan_data["loads"]] == [
        ("c1", 16, 2),
        ("c4", 32, 8),
    ]
    order = [launch["arm"] for launch in plan_data["launches"]]
    assert order[3:] == order[2::-1]
    assert plan_data["estimate_basis"] == {"startup": "rough default", "tokens_per_s": "rough default"}
    assert "hf_secretsecret" not in result.stdout


def test_commands_can_be_copied(tmp_path: Path) -> None:
    arms = data(run(tmp_path, CONFIG, "--json", kind="vllm"))["arms"]
    words = shlex.split(arms[1]["command"])
    assert "HF_TOKEN=${TEST_TOKEN}" in words
    assert words[words.index("--port") + 1] == "PORT"
    speculation = json.loads(words[words.index("--speculative-config") + 1])
    assert speculation["num_speculative_tokens"] == 3
    assert "--speculative-config" not in arms[0]["command"]


def test_a_missing_engine_is_told(tmp_path: Path) -> None:
    text = CONFIG.replace("kind: KIND", "kind: KIND\n  command: [no-such-program-here, serve]")
    result = run(tmp_path, text, "--json", kind="vllm")
    assert result.exit_code == 0, result.output
    assert "no-such-program-here" in data(result)["engine_missing"]
    assert "The engine cannot run here" in run(tmp_path, text, kind="vllm").stdout


def test_models_need_not_be_here(tmp_path: Path) -> None:
    result = run(tmp_path, CONFIG.replace("org/model", "/no/such/model"), "--json")
    assert result.exit_code == 0, result.output
    problem = next(p for p in data(result)["problems"] if p["key"] == "target")
    assert problem["where"] == f"{tmp_path}/sweep.yaml:2"
    assert problem["message"] == "/no/such/model does not exist"
    assert not problem["fatal"]


def test_fatal_problems_of_the_engine_end_with_2(tmp_path: Path) -> None:
    result = run(tmp_path, CONFIG.replace("method: ngram", "method: telepathy"), kind="vllm")
    assert result.exit_code == 2
    assert f"error {tmp_path}/sweep.yaml:8: arms[0].method" in result.stdout
    # One entry, two arms, one problem.
    assert result.stdout.count("arms[0].method") == 1


def test_repeated_prompts_are_noted(tmp_path: Path) -> None:
    result = run(tmp_path, CONFIG.replace("[1, 4]", "[1, 64]"))
    assert result.exit_code == 0
    assert "prompts for cells of up to 512 requests: prompts repeat" in result.stdout


@pytest.mark.parametrize(
    ("parity", "said"),
    [
        (
            "tier: smoke",
            "64 prompts cannot settle 2 points, even if none differs: set parity.prompts to 1,354",
        ),
        (
            "tier: gate",
            "256 prompts settle 2 points only if < 0.95 % of the prompts differ: set parity.prompts to 1,354",
        ),
        ("tier: gate, prompts: 200", "200 prompts settle 2 points only if < 0.74 % of the prompts differ"),
    ],
)
def test_too_few_prompts_for_the_margin_of_a_task_are_noted(tmp_path: Path, parity: str, said: str) -> None:
    text = f"{CONFIG}parity: {{{parity}, task: {{command: score}}}}\n".replace("quickstart", "./many.jsonl")
    (tmp_path / "many.jsonl").write_text(
        "".join(f'{{"id": "p{i}", "prompt": "say {i}"}}\n' for i in range(300))
    )
    result = run(tmp_path, text)
    assert result.exit_code == 0, result.output
    assert f"parity.task.margin: {said}" in result.stdout
    wide = run(tmp_path, text.replace("command: score", "command: score, margin: 0.3"))
    assert "parity.task" not in wide.stdout


def test_a_task_without_a_tier_is_noted(tmp_path: Path) -> None:
    found = data(run(tmp_path, f"{CONFIG}parity: {{task: {{command: score, margin: 0.3}}}}\n", "--json"))
    (only,) = [p for p in found["problems"] if p["key"].startswith("parity")]
    assert (only["key"], only["fatal"]) == ("parity.task", False)
    assert only["message"] == "`sweep` checks no parity without a tier, so it scores nothing"


def test_filler_and_budget_are_noted(tmp_path: Path) -> None:
    rows = [
        {"id": f"r{i}", "category": "a", "prompt": "lorem", "text_source": "filler:lorem"} for i in range(90)
    ]
    (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, rows)))
    text = CONFIG.replace("quickstart", "./r.jsonl").replace("rounds: 2", "rounds: 2, time_budget: 10s")
    problems = {p["key"]: p["message"] for p in data(run(tmp_path, text, "--json"))["problems"]}
    assert problems["workload.source"] == "some prompts are filler text (filler:lorem)"
    assert problems["measure.time_budget"] == "about 0 of 2 rounds fit"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rounds: 2", "round: 2", "sweep.yaml:13: measure.round: unknown key; did you mean rounds?"),
        ("quickstart", "nothing", "sweep.yaml:12: workload.source: no shipped dataset is called 'nothing'"),
        ("KIND", "vlm", "sweep.yaml:4: engine.kind: 'vlm' is not an engine"),
        (
            "quickstart",
            "quickstart, categories: [x]",
            "sweep.yaml:12: workload.categories: quickstart has no",
        ),
    ],
)
def test_errors(old: str, new: str, message: str, tmp_path: Path) -> None:
    result = run(tmp_path, CONFIG.replace(old, new))
    assert isinstance(result.exception, CliError)
    assert int(result.exception.exit_code) == 2
    assert message in str(result.exception)


def test_many_errors_come_together(tmp_path: Path) -> None:
    result = run(tmp_path, CONFIG.replace("rounds: 2", "rounds: 0").replace("[1, 4]", "[0]"))
    assert str(result.exception).startswith("the config has 2 problems\n  ")


@pytest.mark.parametrize(
    ("k", "said"),
    [
        ("[3]", "adaptive: 3 to 16 rounds of that arm"),
        ("[1, 3]", "adaptive: 2 rounds of all 2 speculative arms to pick the best, then 3 to 16 rounds"),
        ("[1, 2, 3, 4, 5, 6]", "adaptive: 1 round of 4 of the 6 speculative arms and a curve over K to pick"),
    ],
)
def test_an_adaptive_plan_says_how_the_arm_is_picked(tmp_path: Path, k: str, said: str) -> None:
    text = (
        "name: demo\ntarget: org/model\nengine: {kind: simulated}\nloads: {closed: [1]}\n"
        f"arms: [{{method: draft_model, draft: d, name: draft, k: {k}}}]\nmeasure: {{strategy: adaptive}}\n"
    )
    result = run(tmp_path, text)
    assert result.exit_code == 0, result.output
    assert said in result.stdout.replace("\n", " ")


def test_the_time_of_the_open_check_is_told(tmp_path: Path) -> None:
    more = """\
measure:
  rounds: 2
  warmup_per_slot: 1
  expect: {startup: 30s, tokens_per_s: {1: 50, 4: 100}}
  open_check: {shares: [0.5], rounds: 4, requests: 196}
"""
    config = CONFIG.replace("measure: {rounds: 2}\n", more)
    result = run(tmp_path, config)
    assert result.exit_code == 0, result.output
    # 100 tokens at most, of which answers use three quarters: 100 / 75 requests/s at 4 in flight, half of it offered,
    # 196 + 4 requests a cell; 4 pairs of launches of 30 s.
    seconds = 2 * 4 * (30 + 200 / (0.5 * 100 / (100 * NATURAL_LENGTH)))
    assert f"{seconds / 60:.0f} min" in result.stdout.split("open-loop check")[1]


def test_production_traffic_outside_of_the_loads_is_told(tmp_path: Path) -> None:
    lines = [
        f'vllm:num_requests_running{{model_name="m"}} {n} {1000 * t}' for t, n in enumerate([1, 2, 4, 40, 40])
    ]
    (tmp_path / "running.prom").write_text("\n".join(lines) + "\n")
    config = CONFIG + "verdict: {traffic_from: ./running.prom}\n"
    result = run(tmp_path, config)
    assert "of production's busy time" in result.stdout
    assert "above the measured concurrencies" in result.stdout
    (tmp_path / "running.prom").write_text("nothing here\n")
    broken = run(tmp_path, config)
    assert broken.exit_code == 2
    assert "verdict.traffic_from" in broken.stdout


def test_a_share_of_the_open_check_is_listed_once(tmp_path: Path) -> None:
    config = CONFIG.replace("{rounds: 2}", "{rounds: 2, open_check: {shares: [0.7, 0.7]}}")
    result = run(tmp_path, config)
    assert isinstance(result.exception, CliError)
    assert "the same share is listed twice" in str(result.exception)
