"""SGLang arms and what is found wrong with them, for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from specbench.config.grid import Arm
from specbench.config.model import EngineConfig, Target
from specbench.engines.base import Problem
from specbench.engines.registry import make_engine
from specbench.engines.sglang import SglangEngine

BASELINE = Arm(id="baseline")


def engine(
    target: str | dict[str, Any] = "org/target", version: str | None = "0.5.23", **config: Any
) -> SglangEngine:
    """An engine that need not ask a Python for its version, unless ``version`` is null."""
    made = make_engine(
        Target.model_validate(target), EngineConfig.model_validate({"kind": "sglang", **config})
    )
    assert isinstance(made, SglangEngine)
    made._found = version
    return made


def arm(method: str, draft: str | None = None, k: int | None = None, **rest: Any) -> Arm:
    return Arm(id="arm", method=method, draft=draft, k=k, **rest)


TREE = {"num_steps": 5, "eagle_topk": 4, "num_draft_tokens": 8}


def found(one: Arm, target: str | dict[str, Any] = "org/target", **config: Any) -> list[Problem]:
    config.setdefault("args", {"mem-fraction-static": 0.8})
    return engine(target, **config).problems(one, None if one.is_baseline else 0)


def checkpoint(folder: Path, vocabulary: dict[str, int], **config: Any) -> str:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"vocab_size": 4, **config}))
    (folder / "tokenizer.json").write_text(
        json.dumps({"model": {"vocab": vocabulary}, "added_tokens": [{"id": 3, "content": "<s>"}]})
    )
    return str(folder)
