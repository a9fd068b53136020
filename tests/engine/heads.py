"""Drafters for real vLLM launches: EAGLE, Medusa and DFlash heads of random weights, a proposer class.

Random heads draft nonsense, which is enough to see that speculation runs. The proposer class copies what
followed the last token before, so that some of its drafts are accepted.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tests.engine.checkpoint_files import write_safetensors

PROPOSER = '''\
import numpy as np


class CopyLast:
    """Drafts what followed the last token the last time that it appeared in the same request."""

    def __init__(self, vllm_config):
        self.k = vllm_config.speculative_config.num_speculative_tokens
        self.limit = vllm_config.model_config.max_model_len

    def load_model(self, model):
        pass

    def propose(self, sampled_token_ids, num_tokens_no_spec, token_ids_cpu, slot_mappings=None):
        return [
            self.draft(token_ids_cpu[i], int(num_tokens_no_spec[i])) if sampled else []
            for i, sampled in enumerate(sampled_token_ids)
        ]

    def draft(self, ids, length):
        seen = np.flatnonzero(ids[: length - 1] == ids[length - 1])
        if seen.size == 0 or length + self.k >= self.limit:
            return []
        start = int(seen[-1]) + 1
        return ids[start : min(start + self.k, length)].tolist()
'''


def make_eagle(target: Path, folder: Path, seed: int = 0) -> Path:
    """A one-layer EAGLE head in vLLM's naming for a Llama target; the same seed gives the same bytes.

    vLLM puts ``Eagle`` before the architecture itself, and its heads have no bias.
    """
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    config |= {"num_hidden_layers": 1, "tie_word_embeddings": False, "dtype": "float32"}
    hidden, inner, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    shapes = {
        "self_attn.q_proj": (config["num_attention_heads"] * dim, hidden),
        "self_attn.k_proj": (config["num_key_value_heads"] * dim, hidden),
        "self_attn.v_proj": (config["num_key_value_heads"] * dim, hidden),
        "self_attn.o_proj": (hidden, config["num_attention_heads"] * dim),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    rng = np.random.default_rng(seed)
    tensors = {
        f"layers.0.{name}.weight": rng.normal(0, 0.02, shape).astype(np.float32)
        for name, shape in shapes.items()
    }
    tensors["layers.0.post_attention_layernorm.weight"] = np.ones(hidden, np.float32)
    tensors["fc.weight"] = rng.normal(0, 0.02, (hidden, 2 * hidden)).astype(np.float32)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    write_safetensors(folder / "model.safetensors", tensors)
    return folder


def make_medusa(target: Path, folder: Path, heads: int = 3, seed: int = 0) -> Path:
    """Medusa heads for a target, written to ``folder``; the same seed gives the same bytes.

    They share one output layer of the whole vocabulary: vLLM 0.32 does not start with a smaller one.
    """
    model = json.loads((target / "config.json").read_text(encoding="utf-8"))
    hidden = int(model["hidden_size"])
    config = {
        "architectures": ["MedusaModel"],
        "model_type": "medusa",
        "hidden_size": hidden,
        "vocab_size": model["vocab_size"],
        "original_lm_head": True,
        "num_heads": heads,
        "num_hidden_layers": 1,
        "dtype": "float32",
    }
    rng = np.random.default_rng(seed)
    tensors = {
        f"blocks.{head}.layers.0.weight": rng.normal(0, 0.02, (hidden, hidden)).astype(np.float32)
        for head in range(heads)
    }
    tensors["lm_heads.0.weight"] = rng.normal(0, 0.02, (config["vocab_size"], hidden)).astype(np.float32)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    write_safetensors(folder / "model.safetensors", tensors)
    return folder


def make_dflash(target: Path, folder: Path, block: int, seed: int = 0) -> Path:
    """A one-layer DFlash draft for a Llama target; it fills ``block`` places, the known token included."""
    model = json.loads((target / "config.json").read_text(encoding="utf-8"))
    hidden, inner, dim = int(model["hidden_size"]), 256, int(model["head_dim"])
    heads, kv_heads, layers = 4, 2, int(model["num_hidden_layers"])
    read = [1, layers // 2, layers - 2]
    config = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "vocab_size": model["vocab_size"],
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": 1,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": dim,
        "max_position_embeddings": model["max_position_embeddings"],
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "block_size": block,
        "dflash_config": {"mask_token_id": 0, "target_layer_ids": read},
        "dtype": "float32",
    }
    rng = np.random.default_rng(seed)
    shapes = {
        "fc": (hidden, len(read) * hidden),
        "layers.0.self_attn.q_proj": (heads * dim, hidden),
        "layers.0.self_attn.k_proj": (kv_heads * dim, hidden),
        "layers.0.self_attn.v_proj": (kv_heads * dim, hidden),
        "layers.0.self_attn.o_proj": (hidden, heads * dim),
        "layers.0.mlp.gate_proj": (inner, hidden),
        "layers.0.mlp.up_proj": (inner, hidden),
        "layers.0.mlp.down_proj": (hidden, inner),
    }
    tensors = {
        f"{name}.weight": rng.normal(0, 0.02, shape).astype(np.float32) for name, shape in shapes.items()
    }
    sizes = {"q_norm": dim, "k_norm": dim}
    norms = {f"layers.0.self_attn.{name}": size for name, size in sizes.items()}
    norms |= dict.fromkeys(
        ("layers.0.input_layernorm", "layers.0.post_attention_layernorm", "hidden_norm", "norm"), hidden
    )
    tensors |= {f"{name}.weight": np.ones(size, np.float32) for name, size in norms.items()}
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    write_safetensors(folder / "model.safetensors", tensors)
    return folder


def make_proposer(folder: Path) -> str:
    """A module with a proposer class in a folder for ``PYTHONPATH``; returns the class path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "copy_last.py").write_text(PROPOSER, encoding="utf-8")
    return "copy_last.CopyLast"
