"""Configs of servers that run already: what is refused, and where."""

from __future__ import annotations

from pathlib import Path

import pytest

from specbench.config.attach import base_url, place
from specbench.config.source import ConfigError, LoadedConfig, load_config

HEAD = "name: a\ntarget: org/model\nloads: {closed: [1]}\n"
GOOD = (
    HEAD
    + """engine:
  kind: endpoint
  url: http://one:8000/v1
arms:
  - {method: ngram, k: 3, url: "https://two/v1/"}
"""
)


def load(folder: Path, text: str, **environ: str) -> LoadedConfig:
    path = folder / "sweep.yaml"
    path.write_text(text)
    return load_config(path, environ=environ)


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(folder, text)
    return str(caught.value).replace(str(folder) + "/", "")


def test_a_good_one(tmp_path: Path) -> None:
    config = load(tmp_path, GOOD).config
    assert (config.engine.url, config.arms[0].url) == ("http://one:8000/v1", "https://two/v1/")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("  url: http://one:8000/v1\n", "", "sweep.yaml:4: engine: needs `url`"),
        (', url: "https://two/v1/"', "", "sweep.yaml:8: arms[0]: needs `url`"),
        ("http://one:8000/v1", "one:8000", "sweep.yaml:6: engine.url: 'one:8000' is not an http(s) address"),
        ("http://one:8000/v1", "http://one:80x", "sweep.yaml:6: engine.url: is not an address"),
        ("https://two/v1/", "https://me:secret@two", "arms[0].url: must not hold a password"),
        ("https://two/v1/", "https://two/v1?a=b", "arms[0].url: must end before any `?`"),
        ("https://two/v1/", "HTTP://One:8000", "the server of the arm ngram-k3 is the baseline's"),
        (
            "kind: endpoint",
            "kind: endpoint\n  args: {tp: 2}",
            "sweep.yaml:6: engine.args: nothing is started",
        ),
        ("kind: endpoint", "kind: endpoint\n  command: vllm serve", "engine.command: nothing is started"),
        ("k: 3,", "k: 3, env: {A: b},", "arms[0].env: nothing is started"),
        ("k: 3,", "k: [3, 4],", "the server of the arm ngram-k4 is that of the arm ngram-k3"),
        ("kind: endpoint", "kind: vllm", "sweep.yaml:6: engine.url: is only for `kind: endpoint`"),
        ("kind: endpoint", "kind: vllm", "sweep.yaml:8: arms[0].url: is only for `kind: endpoint`"),
    ],
)
def test_refused(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in GOOD
    assert words in refusal(tmp_path, GOOD.replace(old, new))


def test_the_same_server_when_that_is_meant(tmp_path: Path) -> None:
    same = GOOD.replace("https://two/v1/", "http://one:8000")
    load(tmp_path, same.replace("kind: endpoint", "kind: endpoint\n  allow_same: true"))


def test_a_certificate_file_is_found_from_the_config(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("")
    text = GOOD.replace("kind: endpoint", "kind: endpoint\n  ca: ./ca.pem")
    assert load(tmp_path, text).config.engine.ca == str(tmp_path / "ca.pem")
    assert "engine.ca: ./no.pem does not exist" in refusal(tmp_path, text.replace("ca.pem", "no.pem"))


def test_keys_are_hidden(tmp_path: Path) -> None:
    text = GOOD.replace("kind: endpoint", 'kind: endpoint\n  headers: {Authorization: "Bearer ${KEY}"}')
    loaded = load(tmp_path, text, KEY="sk-0815-4711")
    assert loaded.config.engine.headers == {"Authorization": "Bearer sk-0815-4711"}
    assert loaded.resolved["engine"]["headers"] == {"Authorization": "Bearer ${KEY}"}
    literal = load(tmp_path, text.replace("${KEY}", "sk-0815-4711"))
    assert "sk-0815" not in str(literal.resolved)
    assert "sk-0815" not in literal.safe_text


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("http://localhost:80", "http://127.0.0.1/v1/", True),
        ("https://x", "https://X.:443/", True),
        ("http://x:1", "http://x:2", False),
        ("http://x/a", "http://x/b/v1", False),
        ("http://[::1]:8000", "http://0.0.0.0:8000", True),
    ],
)
def test_places(a: str, b: str, same: bool) -> None:
    assert (place(a) == place(b)) is same


def test_base_url() -> None:
    assert {base_url(f"http://x/p{end}") for end in ("", "/", "/v1", "/v1/")} == {"http://x/p"}
