"""`specbench init` and `specbench schema`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from specbench.cli import init, schema
from specbench.cli.errors import CliError
from specbench.config.schema import schema_text
from specbench.config.source import load_config


@pytest.fixture(autouse=True)
def _working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> Result:
    app = typer.Typer()
    init.register(app)
    schema.register(app)
    return CliRunner().invoke(app, list(arguments))


def refusal(*arguments: str) -> str:
    result = run(*arguments)
    assert isinstance(result.exception, CliError), result.output
    assert int(result.exception.exit_code) == 2
    return str(result.exception)


def test_init_writes_a_valid_config() -> None:
    result = run("init", "org/My-Model")
    assert result.exit_code == 0, result.output
    next_steps = "next: specbench doctor specbench.yaml, then specbench plan specbench.yaml"
    assert result.stdout == f"wrote specbench.yaml\n{next_steps}\n"
    config = load_config(Path("specbench.yaml")).config
    assert (config.name, config.target.model, config.engine.kind) == ("my-model", "org/My-Model", "vllm")
    assert [path.name for path in Path().iterdir()] == ["specbench.yaml"]


def test_init_for_the_simulated_engine() -> None:
    assert run("init", "--engine", "simulated", "--out", "sim.yaml").exit_code == 0
    assert load_config(Path("sim.yaml")).config.engine.kind == "simulated"


def test_init_never_overwrites_unasked() -> None:
    Path("specbench.yaml").write_text("mine")
    assert refusal("init") == "specbench.yaml exists: give another --out, or --force to overwrite it"
    assert Path("specbench.yaml").read_text() == "mine"
    assert run("init", "--force").exit_code == 0
    assert load_config(Path("specbench.yaml")).config.name == "qwen3-8b"


def test_init_writes_paths_as_the_config_needs_them() -> None:
    Path("models/t").mkdir(parents=True)
    Path("models/t/config.json").touch()
    Path("conf").mkdir()
    for typed in ("./models/t", "models/t"):
        assert run("init", typed, "--out", "conf/s.yaml", "--force").exit_code == 0
        assert "model: ../models/t\n" in Path("conf/s.yaml").read_text()
    load_config(Path("conf/s.yaml"))
    assert run("init", "models/t").exit_code == 0
    assert "model: ./models/t\n" in Path("specbench.yaml").read_text()


def test_init_refusals() -> None:
    Path("folder").mkdir()
    assert refusal("init", "--engine", "vlm").startswith("--engine: 'vlm' is not one of vllm, ")
    assert (
        refusal("init", "--out", "folder")
        == "folder is a folder: name the file, for example folder/specbench.yaml"
    )
    assert (
        refusal("init", "--out", "none/s.yaml") == "none/s.yaml: cannot be written: No such file or directory"
    )
    assert [path.name for path in Path().iterdir()] == ["folder"]


def test_schema() -> None:
    assert run("schema").stdout == schema_text()
    assert run("schema", "--out", "s.json").stdout == "wrote s.json\n"
    assert json.loads(Path("s.json").read_text())["title"] == "specbench config"
    assert (
        refusal("schema", "--out", "none/s.json")
        == "none/s.json: cannot be written: No such file or directory"
    )
