"""A served model's tokenizer in a folder, small enough for a test."""

from __future__ import annotations

import json
from pathlib import Path

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|> {{ m.content }} <|end|>\n{% endfor %}"
    "{% if tools %}<|tools|> {{ tools | tojson }}\n{% endif %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def byte_level(folder: Path, template: str | None = TEMPLATE) -> Path:
    """Writes ``tokenizer.json`` (byte-level BPE of 500 tokens) and a chat template into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    made.train_from_iterator(
        [f"the cat sat on the mat {i} times and then it left " * 4 for i in range(40)], trainer
    )
    made.save(str(folder / "tokenizer.json"))
    config = {"eos_token": "<|end|>"} | ({} if template is None else {"chat_template": template})
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder
