"""Prompt lengths as the server will see them, and requests that cannot fit."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from specbench.config.model import Target, Workload
from specbench.workloads.context import Context, context_limit, fit_context
from specbench.workloads.requests_file import WorkloadError
from specbench.workloads.source_request import Source, SourceRequest
from specbench.workloads.tokens import NoTokenizer, ServedTokens, served_tokens
from tests.workloads.tiny_tokenizer import byte_level


def ask(text: str, id: str = "q", **fields: Any) -> SourceRequest:  # noqa: A002
    return SourceRequest(
        id=id,
        source=Source(file="x.jsonl", line=1),
        messages=({"role": "user", "content": text},),
        **fields,
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return byte_level(tmp_path_factory.mktemp("model"))


@pytest.fixture
def tokens(model: Path) -> ServedTokens:
    return served_tokens(Target(model=str(model), revision=None, tokenizer=None))


def test_the_template_is_part_of_the_prompt(tokens: ServedTokens) -> None:
    request = ask("the cat")
    assert tokens.render(request) == "<|user|> the cat <|end|>\n<|assistant|>"
    assert tokens.prompt_tokens(request) == len(tokens.encode(tokens.render(request)))
    assert tokens.prompt_tokens(request) > len(tokens.encode("the cat"))
    tool = {"type": "function", "function": {"name": "lookup"}}
    assert '"lookup"' in tokens.render(ask("the cat", tools=(tool,)))
    parts = SourceRequest(
        id="p",
        source=Source(file="x", line=1),
        messages=(
            {"role": "user", "content": [{"type": "text", "text": "the "}, {"type": "text", "text": "cat"}]},
        ),
    )
    assert tokens.render(parts) == tokens.render(request)


def test_ids_and_text_go_round(tokens: ServedTokens) -> None:
    text = "the cat sat, über alles — 猫"
    assert tokens.decode(tokens.encode(text)) == text


@pytest.mark.parametrize("text", ["", "the cat", "猫" * 50, "\x00\ufffd🙂", "a" * 999])
def test_the_quick_bound_never_undercounts(tokens: ServedTokens, text: str) -> None:
    assert tokens.most_tokens(ask(text)) >= tokens.prompt_tokens(ask(text))


def test_a_hub_id_is_looked_up_in_the_cache_only(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(NoTokenizer, match="org/m is not in the local Hugging Face cache"):
        served_tokens(Target(model="org/m", revision=None, tokenizer=None))
    snapshot = byte_level(tmp_path / "hub" / "models--org--m" / "snapshots" / "abc123")
    ref = snapshot.parents[1] / "refs" / "main"
    ref.parent.mkdir()
    ref.write_text("abc123")
    assert served_tokens(Target(model="org/m", revision=None, tokenizer=None)).name == "org/m"
    assert served_tokens(Target(model="org/m", revision="abc123", tokenizer=None)).name == "org/m"
    assert served_tokens(Target(model="sim", revision=None, tokenizer=str(model))).encode("the cat")


def test_without_the_library_it_says_how_to_get_it(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(NoTokenizer, match=r"pip install 'specbench-llm\[tokenizers\]'"):
        served_tokens(Target(model=str(model), revision=None, tokenizer=None))


def test_what_is_damaged_or_missing_is_named(tmp_path: Path) -> None:
    bare = byte_level(tmp_path / "bare", template=None)
    with pytest.raises(NoTokenizer, match="bare has no chat template"):
        served_tokens(Target(model=str(bare), revision=None, tokenizer=None)).prompt_tokens(ask("x"))
    (bare / "chat_template.jinja").write_text("{{ raise_exception('only user turns') }}")
    with pytest.raises(NoTokenizer, match="only user turns"):
        served_tokens(Target(model=str(bare), revision=None, tokenizer=None)).prompt_tokens(ask("x"))
    override = tmp_path / "other.jinja"
    override.write_text("{{ messages[0].content }}!")
    other = served_tokens(
        Target(model=str(bare), revision=None, tokenizer=None), {"chat_template": str(override)}
    )
    assert other.render(ask("x")) == "x!"
    (bare / "tokenizer.json").write_text("{")
    with pytest.raises(NoTokenizer, match=r"tokenizer\.json of bare cannot be read"):
        served_tokens(Target(model=str(bare), revision=None, tokenizer=None))
    with pytest.raises(NoTokenizer, match=r"has no tokenizer\.json"):
        served_tokens(Target(model=str(tmp_path), revision=None, tokenizer=None))


@pytest.mark.parametrize(
    ("args", "limit"),
    [
        ({"max-model-len": 2048}, 2048),
        ({"--max_model_len": "4096"}, 4096),
        ({"max-model-len": "32k"}, 32_000),
        ({"max-model-len": "32K"}, 32_768),
        ({"max-model-len": "25.6k"}, 25_600),
        ({"max-model-len": "25.6K"}, None),
        ({"context-length": 8192}, 8192),
        ({"max-model-len": True}, None),
        ({"max-model-len": "auto"}, None),
        ({}, None),
    ],
)
def test_limits(args: dict[str, Any], limit: int | None) -> None:
    assert context_limit(args) == limit


def workload(**changes: Any) -> Workload:
    return Workload.model_validate(changes)


def test_what_does_not_fit_is_left_out_with_its_numbers(tokens: ServedTokens) -> None:
    rows = [ask("the cat sat", "short"), ask("the cat sat on the mat " * 60, "long")]
    need = tokens.prompt_tokens(rows[1])
    exact = fit_context(workload(max_output_tokens=40), rows, Context(need + 40), tokens)
    assert [r.id for r in exact.requests] == ["short", "long"]
    assert (exact.over, exact.remarks) == (0, ())
    fitted = fit_context(workload(max_output_tokens=40), rows, Context(need + 39), tokens)
    assert [r.id for r in fitted.requests] == ["short"]
    assert fitted.over == 1
    assert f"the context of {need + 39} tokens" in fitted.remarks[0]
    assert f"'long' needs {need} prompt + 40 output = {need + 40} tokens" in fitted.remarks[0]
    kept = fit_context(workload(max_output_tokens=40), rows, Context(need + 42, kept=3), tokens)
    assert [r.id for r in kept.requests] == ["short"]
    assert f"the context of {need + 42} tokens" in kept.remarks[0]
    assert "3 stay free for the engine and its drafts" in kept.remarks[0]
    assert fit_context(workload(max_output_tokens=40), rows, Context(need + 43, kept=3), tokens).over == 0
    # The recorded output length, not the workload's cap, decides.
    short_answer = [ask("the cat sat on the mat " * 60, "long", output_tokens=5)]
    assert fit_context(workload(max_output_tokens=40), short_answer, Context(need + 5), tokens).over == 0


def test_nothing_fits(tokens: ServedTokens) -> None:
    with pytest.raises(
        WorkloadError, match=r"1 of 1 requests do not fit the context of 10 tokens.*raise it, or lower"
    ):
        fit_context(workload(), [ask("the cat sat")], Context(10), tokens)


def test_without_a_tokenizer_only_long_prompts_are_worth_a_remark() -> None:
    missing = NoTokenizer("no tokenizer here")
    short = fit_context(workload(max_output_tokens=40), [ask("short")], Context(2048), missing)
    assert short.remarks == ()
    long = fit_context(
        workload(max_output_tokens=40), [ask("short"), ask("x" * 3000)], Context(2048), missing
    )
    assert len(long.requests) == 2
    assert "1 of 2 prompts were not checked" in long.remarks[0]
    assert "no tokenizer here" in long.remarks[0]


def test_special_tokens_of_the_config_reach_the_template(tmp_path: Path) -> None:
    folder = byte_level(tmp_path / "m", template="{{ eos_token }}|{{ messages | length }}")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["eos_token"] = {"content": "<end>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert (
        served_tokens(Target(model=str(folder), revision=None, tokenizer=None)).render(ask("x")) == "<end>|1"
    )
