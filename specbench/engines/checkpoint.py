"""What a local model folder says about itself; a model on a hub says nothing here."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model folder.

    Attributes:
        vocab_size: of the language model; null when the config does not say.
        max_positions: longest context that the config allows.
        weight_bytes: size of its weight files.
        is_speculator: whether it is a draft packed with the address of its target, which an engine
            that serves it would unpack into target and draft.
        tokenizer_sha256: of ``tokenizer.json``, if there is one.
    """

    path: Path
    vocab_size: int | None
    max_positions: int | None
    weight_bytes: int
    is_speculator: bool
    tokenizer_sha256: str | None


def is_local(model: str) -> bool:
    """Whether the name is a path and not a hub id."""
    return model.startswith(("/", "./", "../", "~"))


def read_checkpoint(model: str) -> Checkpoint | None:
    """The checkpoint in a folder; None for a hub id and for a folder without a readable ``config.json``."""
    if not is_local(model):
        return None
    path = Path(model).expanduser()
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(config, dict):
        return None
    text = config.get("text_config")
    inner = text if isinstance(text, dict) else {}
    return Checkpoint(
        path=path,
        vocab_size=_number(inner.get("vocab_size", config.get("vocab_size"))),
        max_positions=_number(inner.get("max_position_embeddings", config.get("max_position_embeddings"))),
        weight_bytes=sum(
            file.stat().st_size for pattern in ("*.safetensors", "*.bin") for file in path.glob(pattern)
        ),
        is_speculator="speculators_config" in config,
        tokenizer_sha256=_digest(path / "tokenizer.json"),
    )


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _digest(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
