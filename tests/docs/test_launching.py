"""The worked examples of docs/launching.md are what specbench prints."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from specbench.config.grid import BASELINE, Arm
from specbench.config.model import EngineConfig, Target
from specbench.engines.registry import make_engine

PAGE = Path(__file__).parents[2] / "docs" / "launching.md"
PORT = 64999
NGRAM = Arm(id="ngram-k4", method="ngram", k=4)

BLOCKS = re.findall(r"```(yaml|console)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
EXAMPLES = [
    (config, line.strip())
    for (kind, config), (next_kind, line) in itertools.pairwise(BLOCKS)
    if kind == "yaml" and next_kind == "console"
]


def engine_section(text: str) -> dict[str, Any]:
    data = yaml.safe_load(text)
    section: dict[str, Any] = {"kind": "vllm", **data.get("engine", data)}
    section["env"] = {k: "value" if "$" in str(v) else v for k, v in section.get("env", {}).items()}
    return section


@pytest.mark.parametrize(("config", "line"), EXAMPLES, ids=[line.split()[0] for _, line in EXAMPLES])
def test_an_example_is_the_line_that_is_launched(config: str, line: str) -> None:
    engine = make_engine(
        Target.model_validate("org/target"), EngineConfig.model_validate(engine_section(config))
    )
    arm = NGRAM if "ngram-k4" in line else Arm(id=BASELINE)
    assert shlex.join(engine.launch(arm, PORT).argv).replace(str(PORT), "PORT") == line


def test_every_kind_of_prefix_has_an_example_for_both_engines() -> None:
    words = ("docker run", "srun", "ssh")
    for engine, own in (("vllm", ("vllm serve", "-m vllm")), ("sglang", ("sglang serve", "-m sglang"))):
        lines = " ".join(line for _, line in EXAMPLES if engine in line)
        assert [word for word in (*own, *words) if word not in lines] == []
    assert len(EXAMPLES) == 11
