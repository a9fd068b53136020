"""Dequantise a GGUF file to a bfloat16 model folder. Run by the engine's Python, which has transformers.

Usage: python convert_gguf.py FILE.gguf OUTPUT_FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig


def main(gguf: Path, out: Path) -> None:
    """Write ``out`` with weights, tokenizer and chat template."""
    folder = str(gguf.parent)
    model = AutoModelForCausalLM.from_pretrained(
        folder,
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=gguf.name)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
