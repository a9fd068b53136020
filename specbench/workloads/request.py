"""A request as every arm sends it, and the mix of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType


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
    tools: tuple[dict[str, Any], ...] | UnsetType = UNSET
    """Recorded tools, which are part of the prompt. Unset is left out of the digest; null would not be."""


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """When a request of an open or trace load is due.

    ``at_s`` counts from the start of the cell. A turn of a session has ``after``, the place in the list of
    the request that must have ended, and is due ``delay_s`` after that end, or at ``at_s`` if that is later.
    """

    at_s: float
    after: int | None = None
    delay_s: float = 0.0


def digest(requests: Sequence[Request], schedule: Sequence[Arrival] = ()) -> str:
    """Hex SHA-256 of the requests in their order: equal digests mean byte-identical traffic."""
    h = hashlib.sha256()
    for item in (*requests, *schedule):
        h.update(msgspec.json.encode(item, order="deterministic"))
        h.update(b"\n")
    return h.hexdigest()


class CellMix(msgspec.Struct, frozen=True, kw_only=True):
    """What one cell sends: warm-up first, then the measured requests in order."""

    warmup: tuple[Request, ...]
    measured: tuple[Request, ...]
    digest: str
    schedule: tuple[Arrival, ...] = ()
    """One for each of ``measured``; empty for a closed loop."""
    repeats: bool = False
    """Whether a prompt appears more than once in ``measured`` (the source is smaller than the cell)."""
