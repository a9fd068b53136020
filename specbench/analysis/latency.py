"""Throughput and latency of one cell, from its request records. Definitions: docs/method.md.

Nothing is imputed: a value that was not measured is left out and counted.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from specbench.analysis.window import Window
    from specbench.load.record import RequestRecord

MIN_TPOT_TOKENS: Final = 16
"""Requests with fewer output tokens are left out of TPOT percentiles: one step decides theirs."""


def ttft_s(record: RequestRecord) -> float | None:
    """Intended send to the first chunk that carries a token, seconds."""
    return record.chunk_s[0] - record.intended_s if record.ok and record.chunk_s else None


def tpot_s(record: RequestRecord) -> float | None:
    """(last chunk - first chunk) / (tokens - tokens of the first chunk), seconds per token.

    Null when the output ended with its first chunk, or when a chunk's token count is unknown.
    """
    if not record.ok or len(record.chunk_s) < 2 or min(record.chunk_tokens) < 0:
        return None
    after_first = sum(record.chunk_tokens[1:])
    return (record.chunk_s[-1] - record.chunk_s[0]) / after_first if after_first > 0 else None


def tokens_inside(records: Sequence[RequestRecord], window: Window) -> int | None:
    """Output tokens whose chunk arrived inside the window; null when a count is unknown."""
    total = 0
    for record in records:
        for t, n in zip(record.chunk_s, record.chunk_tokens, strict=True):
            if window.holds(t):
                if n < 0:
                    return None
                total += n
    return total


@dataclass(frozen=True, slots=True)
class CellTimes:
    """What a cell's clock says, all inside its steady window.

    ``ttft_s`` is of the requests sent in the window, ``tpot_s`` of those that ended in it
    (each spent its life at full load), ``chunk_gap_s`` of neighbouring chunks of one request in it.
    Arrays are in seconds; ``by_category`` maps to (TPOTs, tokens, chunks).
    """

    output_tokens_per_s: float | None
    tokens: int | None
    chunks: int
    ttft_s: NDArray[np.float64]
    tpot_s: NDArray[np.float64]
    chunk_gap_s: NDArray[np.float64]
    by_category: dict[str, CategoryTimes]


@dataclass(frozen=True, slots=True)
class CategoryTimes:
    """The requests of one category that ended in the window.

    ``decode_s`` and ``decode_tokens`` are summed over them, without first chunks:
    their quotient is the category's token-weighted TPOT.
    """

    requests: int
    decode_s: float
    decode_tokens: int
    decode_chunks: int

    @property
    def tpot_s(self) -> float | None:
        """Seconds per token."""
        return self.decode_s / self.decode_tokens if self.decode_tokens else None

    @property
    def tokens_per_chunk(self) -> float | None:
        """Tokens per chunk after the first."""
        return self.decode_tokens / self.decode_chunks if self.decode_chunks else None


def measure(records: Sequence[RequestRecord], window: Window) -> CellTimes:
    """All times of a cell."""
    tokens = tokens_inside(records, window)
    ttfts = [
        t for r in records if r.sent_s is not None and window.holds(r.sent_s) and (t := ttft_s(r)) is not None
    ]
    ended = [r for r in records if r.ok and r.end_s is not None and window.holds(r.end_s)]
    tpots = [t for r in ended if sum(r.chunk_tokens) >= MIN_TPOT_TOKENS and (t := tpot_s(r)) is not None]
    gaps: list[float] = []
    chunks = 0
    for record in records:
        inside = [t for t in record.chunk_s if window.holds(t)]
        chunks += len(inside)
        gaps += [b - a for a, b in itertools.pairwise(inside)]
    return CellTimes(
        output_tokens_per_s=tokens / window.length_s if tokens else None,
        tokens=tokens,
        chunks=chunks,
        ttft_s=np.asarray(ttfts, dtype=np.float64),
        tpot_s=np.asarray(tpots, dtype=np.float64),
        chunk_gap_s=np.asarray(gaps, dtype=np.float64),
        by_category=_by_category(ended),
    )


def _by_category(ended: Sequence[RequestRecord]) -> dict[str, CategoryTimes]:
    cuts: dict[str, CategoryTimes] = {}
    for category in sorted({r.category for r in ended}):
        own = [r for r in ended if r.category == category and tpot_s(r) is not None]
        cuts[category] = CategoryTimes(
            requests=len(own),
            decode_s=sum(r.chunk_s[-1] - r.chunk_s[0] for r in own),
            decode_tokens=sum(sum(r.chunk_tokens[1:]) for r in own),
            decode_chunks=sum(len(r.chunk_s) - 1 for r in own),
        )
    return cuts
