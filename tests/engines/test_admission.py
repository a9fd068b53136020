"""Loads that are more than an engine lets run are told before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from specbench.config.grid import expand_arms, expand_loads
from specbench.config.model import Config
from specbench.engines.base import Problem
from specbench.engines.checks import sweep_problems
from specbench.engines.registry import make_engine

SGLANG = {"kind": "sglang", "command": "no-such-python -m sglang.launch_server"}
VLLM = {"kind": "vllm", "command": "no-such-vllm serve"}
SIMULATED = {"kind": "simulated"}


def admission(
    engine: dict[str, Any],
    closed: list[int],
    args: dict[str, Any] | None = None,
    own: dict[str, Any] | None = None,
) -> list[Problem]:
    config = Config.model_validate(
        {
            "name": "demo",
            "target": "org/model",
            "engine": {**engine, "args": args or {}},
            "arms": [{"method": "ngram", "k": 3, "args": own or {}}],
            "loads": {"closed": closed, "open": [{"rate": 1000}]},
        }
    )
    engines = {"": make_engine(config.target, config.engine)}
    found = sweep_problems(engines, expand_arms(config), expand_loads(config), 0.0)
    return [p for p in found if "in flight" in p.message]


@pytest.mark.parametrize(
    ("engine", "closed", "args"),
    [
        (SGLANG, [1, 256], {}),
        (SGLANG, [300], {"max_running_requests": 300}),
        (VLLM, [256], {}),
        (VLLM, [64], {"max-num-seqs": 16, "data-parallel-size": 4}),
        (SIMULATED, [8], {"max-num-seqs": 8}),
    ],
)
def test_loads_that_are_let_in(engine: dict[str, Any], closed: list[int], args: dict[str, Any]) -> None:
    assert admission(engine, closed, args) == []


@pytest.mark.parametrize(
    ("engine", "closed", "args", "says", "fatal"),
    [
        (SGLANG, [1, 512], {}, "max-running-requests is not set, which makes it 256, and loads.closed keeps 512", True),
        (SGLANG, [512], {"max-running-requests": 300}, "max-running-requests is 300", False),
        (VLLM, [300], {}, "max-num-seqs is not set, and may come out as 256", False),
        (VLLM, [300], {"max-num-seqs": 8}, "max-num-seqs is 8", False),
        (SIMULATED, [300], {}, "max-num-seqs is not set, and may come out as 256", False),
    ],
)  # fmt: skip
def test_loads_above_the_limit_are_told_once_with_the_mend(
    engine: dict[str, Any], closed: list[int], args: dict[str, Any], says: str, fatal: bool
) -> None:
    (found,) = admission(engine, closed, args)
    assert says in found.message
    assert found.fatal is fatal
    assert found.key.startswith("engine.args.max-")
    assert f"to {closed[-1]} or more in engine.args, for all arms" in found.mend


def test_an_arm_with_a_limit_of_its_own_is_named() -> None:
    (found,) = admission(SGLANG, [8], {"max-running-requests": 16}, {"max-running-requests": 4})
    assert found.key == "arms[0].args.max-running-requests"
    assert "is 4" in found.message
    # The shared limit is told with the baseline, the arm's own with the arm.
    assert [
        p.key for p in admission(SGLANG, [8], {"max-running-requests": 4}, {"max-running-requests": 2})
    ] == [
        "engine.args.max-running-requests",
        "arms[0].args.max-running-requests",
    ]
