"""Variables in a config, and keeping their values out of what is stored."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench.config.environment import VariableError, escape, redact, substitute
from specbench.config.source import ConfigError, load_config
from tests.config.test_source import GOOD, load


@pytest.mark.parametrize(
    ("text", "expected", "used"),
    [
        ("plain", "plain", {}),
        ("${A}/x", "1/x", {"A": "1"}),
        ("${A}${B}", "1two", {"A": "1", "B": "two"}),
        ("${NO:-d e}", "d e", {}),
        ("${EMPTY:-d}", "d", {}),
        ("${EMPTY}", "", {"EMPTY": ""}),
        ("${NO:-}", "", {}),
        ("$${A} costs $5", "${A} costs $5", {}),
        ("$A", "$A", {}),
    ],
)
def test_substitute(text: str, expected: str, used: dict[str, str]) -> None:
    assert substitute(text, {"A": "1", "B": "two", "EMPTY": ""}) == (expected, used)


@pytest.mark.parametrize("text", ["${", "${}", "${A", "${A-b}", "${a b}", "${NO}"])
def test_substitute_refuses(text: str) -> None:
    with pytest.raises(VariableError):
        substitute(text, {"A": "1"})


@given(st.text(alphabet="${}AB:-", max_size=12))
def test_escape_is_undone_by_substitute(text: str) -> None:
    assert substitute(escape(text), {"A": "x"}) == (text, {})


@settings(max_examples=40)
@given(
    st.text(st.characters(exclude_categories=("C", "Z")), min_size=4, max_size=20).filter(
        lambda s: not s[0].isdigit()
    )
)
def test_redact_finds_escaped_forms(secret: str) -> None:
    if secret.lower() in {"true", "false"} or secret in "<>***" or set(secret) <= set("*"):
        return
    for text in (secret, json.dumps({"x": secret}), shlex.quote(secret), f"a {secret} b"):
        assert secret not in redact(text, {secret}).replace("***", "")
        assert "***" in redact(text, {secret})


def test_redact_leaves_short_and_plain_values() -> None:
    assert redact("k=3 true 4096", {"3", "true", "4096"}) == "k=3 true 4096"


def test_redact_takes_the_longest_and_never_rereads() -> None:
    assert redact("abcdef abcd", {"abcd": "SHORT", "abcdef": "LONG", "LONG": "X"}) == "${LONG} ${SHORT}"


ENV = GOOD.replace(
    "  kind: simulated",
    """  kind: simulated
  args: {max-len: "${LEN}", seed: ${SEED}}
  env: {HF_TOKEN: "${TOKEN}", DB_PASSWORD: hunter2secret}""".replace("seed: ${SEED}", 'seed: "${SEED}"'),
)


def test_secrets_are_not_stored(tmp_path: Path) -> None:
    loaded = load(tmp_path, ENV, TOKEN="hf_abcdefgh", LEN="2048", SEED="7")
    assert loaded.config.engine.env["HF_TOKEN"] == "hf_abcdefgh"
    assert loaded.secrets == {"hf_abcdefgh", "2048", "7", "hunter2secret"}
    stored = json.dumps(loaded.resolved) + loaded.safe_text
    assert "hf_abcdefgh" not in stored
    assert "hunter2secret" not in stored
    assert loaded.resolved["engine"]["env"] == {"HF_TOKEN": "${TOKEN}", "DB_PASSWORD": "${DB_PASSWORD}"}
    assert loaded.redact("--key hf_abcdefgh") == "--key ${TOKEN}"


def test_resolved_config_loads_again(tmp_path: Path) -> None:
    loaded = load(tmp_path, ENV.replace("demo", '"demo"'), TOKEN="hf_abcdefgh", LEN="2048", SEED="7")
    path = tmp_path / "again.yaml"
    path.write_text(json.dumps({**loaded.resolved, "verdict": {}}))
    again = load_config(path, environ={"TOKEN": "hf_abcdefgh", "DB_PASSWORD": "hunter2secret"})
    assert again.config == loaded.config


def test_variables_become_what_is_wanted(tmp_path: Path) -> None:
    text = GOOD.replace(
        "k: [3, 5]", "k: ${K}\n    settings:\n      prompt_lookup_max: ${N}\n      tag: ${TAG}"
    )
    text = text.replace("target: org/model", "target:\n  model: ${M}\n  revision: ${REV}")
    loaded = load(
        tmp_path, text + "gate: ${GATE}\n", K="3", N="4", TAG="007", M="org/m", REV="1234567", GATE="true"
    )
    arm = loaded.config.arms[0]
    assert (arm.k, arm.settings) == (3, {"prompt_lookup_max": 4, "tag": "007"})
    assert loaded.config.target.revision == "1234567"
    assert loaded.config.gate is True


def test_a_wrong_variable_is_named_and_not_shown(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, GOOD.replace("k: [3, 5]", "k: ${K}"), K="s3cret-value")
    assert "arms[0].k: found the value of ${K}; expected a whole number" in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_variable_can_hold_a_path(tmp_path: Path) -> None:
    (tmp_path / "m" / "t").mkdir(parents=True)
    loaded = load(tmp_path, GOOD.replace("org/model", "${MODELS}/t"), MODELS=str(tmp_path / "m"))
    assert loaded.config.target.model == str(tmp_path / "m" / "t")
    assert loaded.resolved["target"]["model"] == "${MODELS}/t"


def test_missing_path_in_a_variable_is_not_shown(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, GOOD.replace("org/model", "${MODELS}/t"), MODELS="/private/place")
    assert "${MODELS}/t does not exist" in str(caught.value)
    assert "/private/place" not in str(caught.value)
