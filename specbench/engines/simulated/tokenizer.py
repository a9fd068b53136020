"""A made-up vocabulary of 256 tokens: short words, one end of text and one quote mark.

Words of the vocabulary keep their id; any other word or sign is hashed onto one, so every text has
token ids and generated text maps back onto the very ids that made it.
"""

from __future__ import annotations

import itertools
import re
import zlib
from typing import Any, Final

EOS: Final = 0
QUOTE: Final = 1
VOCABULARY_SIZE: Final = 256

_FIRST_WORD: Final = 2
_PIECES = re.compile(r"```|[^\W_]+|[^\w\s]|_")
_QUOTES: Final = frozenset({'"', "```", "“", "”"})


def _words() -> list[str]:
    syllables = ["".join(pair) for pair in itertools.product("bdfgklmnprstvz", "aeiou")]
    longer = ["".join(pair) for pair in itertools.product(syllables, "lnrs")]
    return (syllables + longer)[: VOCABULARY_SIZE - _FIRST_WORD]


TOKEN_TEXT: Final[tuple[str, ...]] = ("</s>", ' "', *(f" {word}" for word in _words()))
_IDS: Final = {text.strip(): token for token, text in enumerate(TOKEN_TEXT)}


def encode(text: str) -> list[int]:
    """Token ids of a text; one per word or sign."""
    ids = []
    for piece in _PIECES.findall(text):
        if piece in _QUOTES:
            ids.append(QUOTE)
            continue
        word = piece.lower()
        token = _IDS.get(word)
        if token is None:
            token = _FIRST_WORD + zlib.crc32(word.encode()) % (VOCABULARY_SIZE - _FIRST_WORD)
        ids.append(token)
    return ids


def decode(tokens: list[int]) -> str:
    """Text of token ids, without the end of text."""
    return "".join(TOKEN_TEXT[token] for token in tokens if token != EOS)


def render_chat(messages: list[dict[str, Any]]) -> str:
    """Chat messages as one prompt that ends where the assistant begins.

    Raises:
        ValueError: a message has no role or a content that is not text.
    """
    lines = []
    for i, message in enumerate(messages):
        role, content = message.get("role"), message.get("content")
        if isinstance(content, list):
            content = " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
        if not isinstance(role, str) or not isinstance(content, str | None):
            raise ValueError(f"messages[{i}] needs a role and a text content")
        lines.append(f"{role}: {content or ''}\n")
    return "".join(lines) + "assistant:"
