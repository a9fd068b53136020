"""Contexts that SGLang would refuse, and what it cuts off at the end of one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from specbench.config.grid import Arm
from specbench.config.model import EngineConfig, Target
from specbench.engines.base import Problem, context_kept
from specbench.engines.sglang import SglangEngine

BASELINE = Arm(id="baseline")
ALLOW = {"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"}


def engine(
    target: str, args: dict[str, Any] | None = None, env: dict[str, str] | None = None
) -> SglangEngine:
    config = {"kind": "sglang", "args": {"mem-fraction-static": 0.8, **(args or {})}, "env": env or {}}
    made = SglangEngine(Target.model_validate(target), EngineConfig.model_validate(config))
    made._found = "0.5.23"
    return made


def folder(path: Path, positions: int) -> str:
    path.mkdir()
    (path / "config.json").write_text(json.dumps({"vocab_size": 10, "max_position_embeddings": positions}))
    return str(path)


def fatal(problems: list[Problem]) -> list[str]:
    return [p.key for p in problems if p.fatal]


def test_a_context_that_the_target_does_not_have(tmp_path: Path) -> None:
    target = folder(tmp_path / "t", 2048)
    assert fatal(engine(target, {"context_length": 4096}).problems(BASELINE, None)) == [
        "engine.args.context_length"
    ]
    assert fatal(engine(target, {"context-length": "4096"}).problems(BASELINE, None)) == [
        "engine.args.context-length"
    ]
    own = Arm(id="arm", method="ngram", k=4, args={"context-length": 4096})
    assert fatal(engine(target).problems(own, 1)) == ["arms[1].args.context-length"]
    assert fatal(engine(target, {"context-length": 2048}).problems(BASELINE, None)) == []
    assert fatal(engine(target, {"context-length": 4096}, ALLOW).problems(BASELINE, None)) == []
    other = {"json-model-override-args": '{"max_position_embeddings": 4096}'}
    assert fatal(engine(target, {"context-length": 4096, **other}).problems(BASELINE, None)) == []


def test_a_draft_that_reads_less_than_the_target_does_not_start(tmp_path: Path) -> None:
    target, draft = folder(tmp_path / "t", 8192), folder(tmp_path / "d", 2048)
    arm = Arm(id="arm", method="eagle3", draft=draft, k=3)
    (problem,) = engine(target).problems(arm, 1)
    assert problem.fatal
    assert problem.key == "arms[1].draft"
    assert "the draft reads 2048 tokens, the target 8192" in problem.message
    assert "context-length: 2048" in problem.mend
    assert engine(target, {"context-length": 2048}).problems(arm, 1) == []
    assert engine(target, env=ALLOW).problems(arm, 1) == []


def test_answers_end_two_tokens_before_the_context_in_every_arm() -> None:
    it = engine("org/target")
    assert context_kept(it, BASELINE) == 2
    assert context_kept(it, Arm(id="arm", method="eagle3", draft="org/head", k=3)) == 2
