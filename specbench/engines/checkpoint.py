"""What a local model folder says about itself; a model on a hub says nothing here."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

_LENGTHS: Final = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_sequence_length",
)
"""Names that model families give to the number of positions."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model folder.

    Attributes:
        vocab_size: of the language model; null when the config does not say.
        max_positions: longest context that the config allows, as engines read it.
        weight_bytes: size of its weight files.
        is_speculator: whether it is a draft packed with the address of its target, which an engine
            that serves it would unpack into target and draft.
        tokenizer_sha256: of ``tokenizer.json``, if there is one.
        architectures: names of the model classes.
        config: the whole ``config.json``.
    """

    path: Path
    vocab_size: int | None
    max_positions: int | None
    weight_bytes: int
    is_speculator: bool
    tokenizer_sha256: str | None
    architectures: tuple[str, ...] = ()
    config: dict[str, Any] = field(default_factory=dict)

    def number(self, *names: str) -> int | None:
        """The first of these keys that is a whole number, in the language model's part or the whole."""
        text = self.config.get("text_config")
        for part in (text if isinstance(text, dict) else {}, self.config):
            for name in names:
                value = _number(part.get(name))
                if value is not None:
                    return value
        return None

    @property
    def generation(self) -> dict[str, Any]:
        """Its default sampling parameters (``generation_config.json``); empty when there are none."""
        try:
            defaults = json.loads((self.path / "generation_config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return defaults if isinstance(defaults, dict) else {}

    @property
    def verifier(self) -> str | None:
        """The target that a packed draft names."""
        try:
            return str(self.config["speculators_config"]["verifier"]["name_or_path"])
        except (KeyError, TypeError):
            return None


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
        max_positions=_positions(inner) or _positions(config),
        weight_bytes=sum(
            file.stat().st_size for pattern in ("*.safetensors", "*.bin") for file in path.glob(pattern)
        ),
        is_speculator="speculators_config" in config,
        tokenizer_sha256=_digest(path / "tokenizer.json"),
        architectures=tuple(str(name) for name in config.get("architectures") or ()),
        config=config,
    )


def same_token_ids(one: Checkpoint, other: Checkpoint) -> bool | None:
    """Whether both tokenizers give every token the same id; None when a ``tokenizer.json`` cannot tell."""
    if one.tokenizer_sha256 is None or other.tokenizer_sha256 is None:
        return None
    if one.tokenizer_sha256 == other.tokenizer_sha256:
        return True
    maps = [_token_ids(checkpoint.path / "tokenizer.json") for checkpoint in (one, other)]
    return None if None in maps else maps[0] == maps[1]


def _token_ids(path: Path) -> dict[str, int] | None:
    try:
        tokenizer = json.loads(path.read_text(encoding="utf-8"))
        vocabulary = tokenizer["model"]["vocab"]
        added = {str(token["content"]): int(token["id"]) for token in tokenizer.get("added_tokens") or ()}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    # A unigram tokenizer has a list of pairs instead of a mapping.
    ids = (
        vocabulary
        if isinstance(vocabulary, dict)
        else {pair[0]: number for number, pair in enumerate(vocabulary)}
    )
    return {**ids, **added}


def _positions(config: dict[str, Any]) -> int | None:
    """Positions that a config allows: the least of what it names, stretched by its rotary scaling.

    Linear and dynamic scaling multiply it. The other kinds say the stretched length already (vLLM 0.32
    ``config/model.py:2580``, SGLang 0.5.23 ``get_context_length``), except that older engines also multiplied
    a YaRN model's original length; the larger reading is taken, for the engine to refuse.
    """
    named = [value for key in _LENGTHS if (value := _number(config.get(key)))]
    if not named:
        return None
    least = min(named)
    rope = config.get("rope_scaling") or config.get("rope_parameters")
    if not isinstance(rope, dict) or not isinstance(rope.get("factor"), int | float):
        return least
    kind, factor = rope.get("rope_type", rope.get("type")), float(rope["factor"])
    if kind in ("linear", "dynamic"):
        return int(least * factor)
    original = _number(rope.get("original_max_position_embeddings"))
    return max(least, int(original * factor)) if kind == "yarn" and original else least


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _digest(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
