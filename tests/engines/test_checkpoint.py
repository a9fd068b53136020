"""What a model folder says of its context, as the engines read it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specbench.engines.checkpoint import read_checkpoint


@pytest.mark.parametrize(
    ("config", "positions"),
    [
        ({"max_position_embeddings": 8192}, 8192),
        ({"text_config": {"max_position_embeddings": 4096}, "max_position_embeddings": 1}, 4096),
        ({"text_config": {}, "max_position_embeddings": 4096}, 4096),
        ({"n_positions": 1024}, 1024),
        ({"max_position_embeddings": 8192, "seq_length": 2048}, 2048),
        ({}, None),
        ({"max_position_embeddings": 2048, "rope_scaling": {"type": "linear", "factor": 4.0}}, 8192),
        ({"max_position_embeddings": 2048, "rope_parameters": {"rope_type": "default"}}, 2048),
        (
            {"max_position_embeddings": 131072, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
            131072,
        ),
        (
            {
                "max_position_embeddings": 32768,
                "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 32768},
            },
            131072,
        ),
        (
            {
                "max_position_embeddings": 163840,
                "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096},
            },
            163840,
        ),
    ],
)
def test_positions(tmp_path: Path, config: dict[str, Any], positions: int | None) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = read_checkpoint(str(tmp_path))
    assert found is not None
    assert found.max_positions == positions
