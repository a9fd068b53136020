"""The config that `specbench init` writes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specbench.config.model import Config
from specbench.config.plan import make_plan
from specbench.config.source import load_config
from specbench.config.template import TEMPLATE_KINDS, example_model, render_template, sweep_name
from specbench.workloads.loading import load_source
from specbench.workloads.mix import build_cell_mix


@pytest.mark.parametrize("kind", TEMPLATE_KINDS)
def test_template_is_valid_and_complete(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(render_template(example_model(kind), kind, "sweep.yaml"))
    loaded = load_config(path)
    assert loaded.config.engine.kind == kind
    assert loaded.config.target.model == example_model(kind)
    assert "@@" not in loaded.text
    assert max(map(len, loaded.text.splitlines())) <= 120


@pytest.mark.parametrize("kind", TEMPLATE_KINDS)
def test_template_never_repeats_a_prompt(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(render_template(example_model(kind), kind, "sweep.yaml"))
    config = load_config(path).config
    source = load_source(config.workload, tmp_path).requests
    for load in make_plan(config).loads:
        assert not build_cell_mix(config.workload, source, load, config.measure.warmup_per_slot, 1).repeats


@pytest.mark.parametrize("kind", TEMPLATE_KINDS)
def test_commented_keys_are_valid_too(kind: str) -> None:
    """Every `# key: value` line of the template, uncommented, is a valid config."""
    text = render_template("org/model", kind, "sweep.yaml")
    uncommented = re.sub(r"^( *)# ( *(?:- )?[{a-z_-]+:(?: |$))", r"\1\2", text, flags=re.MULTILINE)
    uncommented = re.sub(r"^( *)# ( *- \{)", r"\1\2", uncommented, flags=re.MULTILINE)
    assert uncommented.count("\n") == text.count("\n")
    assert uncommented != text
    data = yaml.safe_load(uncommented)
    config = Config.model_validate(data)
    assert config.measure.expect.tokens_per_s
    assert config.verdict.limits.ttft_p95_ms == 500
    assert config.gate is True


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(
    model=st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1, max_size=40)
)
def test_any_model_name_survives(model: str, tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(render_template(model, "vllm", "sweep.yaml"), encoding="utf-8")
    read = yaml.safe_load(path.read_text(encoding="utf-8"))["target"]["model"]
    assert read.replace("$$", "$") == model.replace("$$", "$")


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("Qwen/Qwen3-8B", "qwen3-8b"),
        ("./models/my model/", "my-model"),
        ("..", "sweep"),
        ("日本", "sweep"),
        ("x" * 90, "x" * 64),
        ("no", "no"),
    ],
)
def test_name(model: str, name: str) -> None:
    assert sweep_name(model) == name
