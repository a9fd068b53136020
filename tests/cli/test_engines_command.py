"""`specbench engines`."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner, Result

from specbench.cli import engines
from specbench.cli.errors import CliError


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def run(*options: str) -> Result:
    app = typer.Typer()
    engines.register(app)
    return CliRunner().invoke(app, list(options))


def test_both_engines_for_a_person() -> None:
    text = run().stdout
    assert text.startswith("vllm 0.32.0\n")
    assert "\nsglang 0.5.23\n" in text
    for heading in ("Methods", "Good to know", "Settings", "In other versions only", "Never existed"):
        assert f"\n{heading}\n" in text
    assert "synthetic (lossy)" in text


def test_one_version_shows_what_it_has_and_what_others_have() -> None:
    text = run("--engine", "vllm", "--version", "v0.15.0").stdout
    assert text.startswith("vllm 0.15.0\n")
    methods, _, others = text.partition("In other versions only")
    assert "suffix" in methods
    assert "dflash" not in methods
    (line,) = [line for line in others.splitlines() if line.startswith("dflash")]
    assert "since 0.20.0" in line


def test_the_data_is_whole() -> None:
    data = json.loads(run("--json").stdout)
    assert data["schema"] == "specbench.engines/1"
    vllm, sglang = data["engines"]
    assert (vllm["engine"], sglang["engine"]) == ("vllm", "sglang")
    suffix = next(m for m in vllm["methods"] if m["name"] == "suffix")
    assert (suffix["learns"], suffix["needs"]) == (True, ["arctic-inference==0.1.1"])
    gone = {s["name"]: s for s in vllm["not_in_this_version"]["settings"]}
    assert gone["disable_logprobs"]["span"] == {"since": None, "until": "0.11.1"}
    assert "report_speculative_metrics" in {n["name"] for n in vllm["never_existed"]}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--engine", "vlm"), "did you mean 'vllm'?"),
        (("--engine", "tgi"), "use vllm or sglang"),
        (("--version", "0.32.0"), "needs --engine"),
        (("--engine", "vllm", "--version", "new"), "'new' is no version"),
    ],
)
def test_a_bad_question_is_answered(options: tuple[str, ...], message: str) -> None:
    error = run(*options).exception
    assert isinstance(error, CliError)
    assert message in str(error)
