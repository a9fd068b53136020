"""`specbench plan` leaves out what an engine would not serve in full, or not draft for to its end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specbench.cli.preview import make_preview
from specbench.config.model import Target
from specbench.config.source import load_config
from specbench.workloads.source_request import Source, SourceRequest
from specbench.workloads.tokens import served_tokens
from tests.workloads.tiny_tokenizer import byte_level

OUTPUT = 40


@pytest.mark.parametrize(
    ("kind", "method", "draft", "kept"),
    [
        ("vllm", "ngram", "", 0),
        ("vllm", "draft_model", "org/draft", 6),
        ("sglang", "ngram", "", 2),
        ("simulated", "ngram", "", 0),
    ],
)
def test_the_room_that_an_arm_needs_is_left(
    tmp_path: Path, kind: str, method: str, draft: str, kept: int
) -> None:
    model = byte_level(tmp_path / "model")
    text = "the cat sat on the mat " * 20
    path = tmp_path / "sweep.yaml"
    (tmp_path / "x.jsonl").write_text(
        "\n".join(json.dumps({"prompt": prompt}) for prompt in (*["why?"] * 8, text)) + "\n"
    )

    def over(context: int) -> int:
        flag = "context-length" if kind == "sglang" else "max-model-len"
        path.write_text(
            f"""\
name: demo
target: {model}
engine: {{kind: {kind}, command: [no-such-program, serve], args: {{{flag}: {context}}}}}
arms:
  - {{method: {method}, k: 3{", draft: " + draft if draft else ""}}}
loads: {{closed: [1]}}
workload: {{source: ./x.jsonl, max_output_tokens: {OUTPUT}}}
"""
        )
        return make_preview(load_config(path, check_paths=False)).account.dropped.get("over_context", 0)

    asked = SourceRequest(id="x", source=Source(file="", line=1), prompt=text)
    target = Target(model=str(model), revision=None, tokenizer=None)
    need = served_tokens(target).prompt_tokens(asked) + OUTPUT + kept
    assert over(need) == 0
    assert over(need - 1) == 1
