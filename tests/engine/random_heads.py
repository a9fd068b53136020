"""EAGLE heads with random weights: they draft nonsense, which is enough to see that speculation runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tests.engine.checkpoint_files import write_safetensors

DRAFT_VOCAB = 2048
"""An EAGLE-3 head of this file proposes only the first so many tokens of the target."""


def make_head(kind: Literal["eagle", "eagle3"], target: Path, folder: Path, seed: int = 0) -> Path:
    """A one-layer head for a Llama target, written to ``folder``; the same seed gives the same bytes."""
    config: dict[str, Any] = json.loads((target / "config.json").read_text(encoding="utf-8"))
    config |= {"num_hidden_layers": 1, "tie_word_embeddings": False, "dtype": "float32"}
    hidden, inner, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    rng = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> NDArray[np.float32]:
        return rng.normal(0, 0.02, (rows, columns)).astype(np.float32)

    ones = np.ones(hidden, np.float32)
    wide = 2 * hidden if kind == "eagle3" else hidden
    layer = {
        "self_attn.q_proj.weight": matrix(q, wide),
        "self_attn.k_proj.weight": matrix(kv, wide),
        "self_attn.v_proj.weight": matrix(kv, wide),
        "self_attn.o_proj.weight": matrix(hidden, q),
        "mlp.gate_proj.weight": matrix(inner, hidden),
        "mlp.up_proj.weight": matrix(inner, hidden),
        "mlp.down_proj.weight": matrix(hidden, inner),
        "post_attention_layernorm.weight": ones,
    }
    if kind == "eagle":
        config["architectures"] = ["LlamaForCausalLMEagle"]
        tensors: dict[str, NDArray[Any]] = {f"layers.0.{name}": w for name, w in layer.items()}
        tensors |= {"fc.weight": matrix(hidden, 2 * hidden), "fc.bias": np.zeros(hidden, np.float32)}
    else:
        config |= {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": DRAFT_VOCAB}
        layer |= {"input_layernorm.weight": ones, "hidden_norm.weight": ones}
        tensors = {f"midlayer.{name}": w for name, w in layer.items()}
        tensors |= {
            "fc.weight": matrix(hidden, 3 * hidden),
            "norm.weight": ones,
            "lm_head.weight": matrix(DRAFT_VOCAB, hidden),
            "d2t": np.zeros(DRAFT_VOCAB, np.int64),
        }
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(target / name, folder / name)
    write_safetensors(folder / "model.safetensors", tensors)
    return folder
