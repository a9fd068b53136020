"""A request as every arm sends it, and the mix of them."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request. Exactly one of ``messages`` and ``prompt`` is set.

    ``text_source`` is ``recorded`` (real text), ``matched:<corpus>`` or ``filler:<kind>``;
    filler may drive a load but never a verdict.
    """

    id: str
    category: str
    messages: tuple[dict[str, Any], ...] | None = None
    prompt: str | None = None
    max_tokens: int
    output_mode: Literal["natural", "forced"] = "natural"
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int | None = None
    seed: int | None = None
    text_source: str = "recorded"
    source: str = ""


def digest(requests: tuple[Request, ...]) -> str:
    """Hex SHA-256 of the requests in their order: equal digests mean byte-identical traffic."""
    h = hashlib.sha256()
    for request in requests:
        h.update(msgspec.json.encode(request, order="deterministic"))
        h.update(b"\n")
    return h.hexdigest()


class CellMix(msgspec.Struct, frozen=True, kw_only=True):
    """What one cell sends: warm-up first, then the measured requests in order."""

    warmup: tuple[Request, ...]
    measured: tuple[Request, ...]
    digest: str
    repeats: bool = False
    """Whether a prompt appears more than once in ``measured`` (the source is smaller than the cell)."""
