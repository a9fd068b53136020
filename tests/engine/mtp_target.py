"""A tiny target with a multi-token-prediction layer, whose output and whose drafts are known beforehand.

It is a MiMo model whose attention and MLP add nothing, so that each token alone decides the next one:
``next(t) = argmax(H @ rmsnorm(E[t]))`` with random ``E`` and ``H``. Its draft layer reads the same and drafts
the same, so that every draft is right.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.engine.checkpoint_files import write_safetensors

HIDDEN = 128
INNER = 128
HEAD = 64
EPSILON = 1e-6


def make_mtp_target(tokenizer: Path, folder: Path, seed: int = 0) -> Path:
    """The model in ``folder``, with the tokenizer of another one; the same seed gives the same bytes."""
    vocabulary = json.loads((tokenizer / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    config = {
        "architectures": ["MiMoForCausalLM"],
        "model_type": "qwen2",  # MiMo's own type needs code from the hub
        "vocab_size": vocabulary,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": 1,
        "num_attention_heads": HIDDEN // HEAD,
        "num_key_value_heads": 1,
        "num_nextn_predict_layers": 1,
        "max_position_embeddings": 2048,
        "rms_norm_eps": EPSILON,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "dtype": "float32",
    }
    rng = np.random.default_rng(seed)
    tensors = {
        "model.embed_tokens.weight": _random(rng, vocabulary, HIDDEN),
        "lm_head.weight": _random(rng, vocabulary, HIDDEN),
        "model.norm.weight": np.ones(HIDDEN, np.float32),
    }
    tensors |= _silent_layer(rng, "model.layers.0")
    draft = "model.mtp_layers.0"
    tensors |= _silent_layer(rng, draft)
    for name in ("token_layernorm", "hidden_layernorm", "final_layernorm"):
        tensors[f"{draft}.{name}.weight"] = np.ones(HIDDEN, np.float32)
    # The columns are the target's hidden state, which it ignores, and the token's embedding.
    tensors[f"{draft}.input_proj.weight"] = np.eye(HIDDEN, 2 * HIDDEN, HIDDEN, dtype=np.float32)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / name, folder / name)
    write_safetensors(folder / "model.safetensors", tensors)
    return folder


def next_tokens(folder_seed: int, vocabulary: int, token: int, count: int) -> list[int]:
    """The ``count`` tokens that the model of this seed writes after ``token``."""
    rng = np.random.default_rng(folder_seed)
    embedding, head = _random(rng, vocabulary, HIDDEN), _random(rng, vocabulary, HIDDEN)
    out = []
    for _ in range(count):
        x = embedding[token]
        token = int(np.argmax(head @ (x / np.sqrt(np.mean(x * x) + EPSILON))))
        out.append(token)
    return out


def _silent_layer(rng: np.random.Generator, name: str) -> dict[str, NDArray[np.float32]]:
    """A layer that computes, and adds zero."""
    sizes = {"q": HIDDEN, "k": HEAD, "v": HEAD}
    tensors = {f"{name}.self_attn.{p}_proj.weight": _random(rng, n, HIDDEN) for p, n in sizes.items()}
    tensors |= {f"{name}.self_attn.{p}_proj.bias": np.zeros(n, np.float32) for p, n in sizes.items()}
    tensors[f"{name}.self_attn.o_proj.weight"] = np.zeros((HIDDEN, HIDDEN), np.float32)
    tensors[f"{name}.mlp.gate_proj.weight"] = _random(rng, INNER, HIDDEN)
    tensors[f"{name}.mlp.up_proj.weight"] = _random(rng, INNER, HIDDEN)
    tensors[f"{name}.mlp.down_proj.weight"] = np.zeros((HIDDEN, INNER), np.float32)
    for norm in ("input_layernorm", "post_attention_layernorm"):
        tensors[f"{name}.{norm}.weight"] = np.ones(HIDDEN, np.float32)
    return tensors


def _random(rng: np.random.Generator, rows: int, columns: int) -> NDArray[np.float32]:
    return rng.normal(0, 1, (rows, columns)).astype(np.float32)
