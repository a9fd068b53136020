"""Variants of the small draft model: another vocabulary, 8-bit weights, a mask token."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.engine.checkpoint_files import read_bfloat16, write_safetensors

EXTRA_ROWS = 128
SHIFT = 1000
"""Ids from here on are moved by this; the special tokens below keep theirs."""


def make_other_vocabulary(draft: Path, folder: Path) -> Path:
    """The same model with ids of its own and a larger vocabulary: useless unless ids are translated."""
    config = _config(draft)
    size = int(config["vocab_size"])
    moved = np.concatenate([np.arange(SHIFT), np.roll(np.arange(SHIFT, size), SHIFT)])
    tokenizer = json.loads((draft / "tokenizer.json").read_text(encoding="utf-8"))
    new = np.empty(size, np.int64)
    new[moved] = np.arange(size)
    vocabulary = tokenizer["model"]["vocab"]
    tokenizer["model"]["vocab"] = {token: int(new[number]) for token, number in vocabulary.items()}
    tensors = dict(read_bfloat16(draft / "model.safetensors"))
    rows = tensors["model.embed_tokens.weight"]
    tensors["model.embed_tokens.weight"] = np.concatenate(
        [rows[moved], np.zeros((EXTRA_ROWS, rows.shape[1]), np.float32)]
    )
    _write(draft, folder, config | {"vocab_size": size + EXTRA_ROWS}, tensors)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    return folder


def make_int8(draft: Path, folder: Path) -> Path:
    """The same model with 8-bit weights and activations, in the format of compressed-tensors."""
    scheme = {"num_bits": 8, "type": "int", "symmetric": True}
    config = _config(draft) | {
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "format": "int-quantized",
            "config_groups": {
                "group_0": {
                    "targets": ["Linear"],
                    "weights": {**scheme, "strategy": "channel", "dynamic": False},
                    "input_activations": {**scheme, "strategy": "token", "dynamic": True},
                }
            },
            "ignore": ["lm_head"],
        }
    }
    tensors: dict[str, NDArray[Any]] = {}
    for name, value in read_bfloat16(draft / "model.safetensors").items():
        if "_proj." not in name:
            tensors[name] = value
            continue
        scale = np.abs(value).max(axis=1, keepdims=True) / 127
        tensors[name] = np.round(value / scale).astype(np.int8)
        tensors[f"{name}_scale"] = scale.astype(np.float32)
    return _write(draft, folder, config, tensors)


def make_parallel(draft: Path, folder: Path) -> Path:
    """The same model with a token for places to fill in, as if it had been trained for parallel drafting."""
    return _write(
        draft, folder, _config(draft) | {"pard_token": 0}, dict(read_bfloat16(draft / "model.safetensors"))
    )


def _config(draft: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((draft / "config.json").read_text(encoding="utf-8"))
    return config


def _write(draft: Path, folder: Path, config: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(draft / name, folder / name)
    write_safetensors(folder / "model.safetensors", tensors)
    return folder
