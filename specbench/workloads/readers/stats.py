"""Statistics that accumulate over chunks in bounded memory. Pure: numbers in, numbers out."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

EXACT_BELOW: Final = 1 << 20
"""Counts below this are kept one by one, those above to three significant digits."""

QUANTILES: Final = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)

REORDER_ROWS: Final = 1 << 16
"""Rows by which an arrival may be late in the file and still be put in order."""

MAX_BLOCKS: Final = 5_000_000
"""Distinct prefix blocks remembered; beyond them reuse is of the rows so far."""


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """A summary of whole numbers: linear-interpolated quantiles, as `numpy.quantile` gives them."""

    n: int
    mean: float
    min: int
    max: int
    quantiles: dict[str, float]
    """By name, ``p50`` for the median."""
    histogram: list[tuple[int, int, int]]
    """(from, below, how many) in doublings."""


class Counts:
    """An exact histogram of whole numbers >= 0 in bounded memory (rounded above `EXACT_BELOW`)."""

    def __init__(self) -> None:
        self._low: Ints = np.zeros(1024, np.int64)
        self._high: dict[int, int] = {}
        self._sum = 0
        self.n = 0

    def add(self, values: Ints) -> None:
        """Count values; negative ones stand for unknown and are left out."""
        values = values[values >= 0]
        if not len(values):
            return
        self.n += len(values)
        self._sum += int(values.sum())
        for value in values[values >= EXACT_BELOW].tolist():
            step = 10 ** (len(str(value)) - 3)
            rounded = round(value / step) * step
            self._high[rounded] = self._high.get(rounded, 0) + 1
        low = values[values < EXACT_BELOW]
        if len(low):
            counted = np.bincount(low)
            if len(counted) > len(self._low):
                size = min(EXACT_BELOW, 1 << (len(counted) - 1).bit_length())
                self._low = np.concatenate([self._low, np.zeros(size - len(self._low), np.int64)])
            self._low[: len(counted)] += counted

    @property
    def total(self) -> int:
        """The exact sum of all values."""
        return self._sum

    def summary(self) -> Distribution | None:
        """The distribution so far; null when nothing was counted."""
        if self.n == 0:
            return None
        present = np.flatnonzero(self._low)
        high = sorted(self._high)
        values = np.concatenate([present, np.array(high, np.int64)])
        counts = np.concatenate([self._low[present], np.array([self._high[v] for v in high], np.int64)])
        cumulative = np.cumsum(counts)

        def quantile(q: float) -> float:
            place = q * (self.n - 1)
            below, above = math.floor(place), math.ceil(place)
            low, up = (int(values[np.searchsorted(cumulative, p, side="right")]) for p in (below, above))
            return low + (up - low) * (place - below)

        edges = [0, *(1 << i for i in range(int(values[-1]).bit_length() + 1))]
        sums = [int(counts[(values >= a) & (values < b)].sum()) for a, b in pairwise(edges)]
        filled = [i for i, count in enumerate(sums) if count]
        return Distribution(
            n=self.n,
            mean=self._sum / self.n,
            min=int(values[0]),
            max=int(values[-1]),
            quantiles={f"p{round(q * 100)}": quantile(q) for q in QUANTILES},
            histogram=[(edges[i], edges[i + 1], sums[i]) for i in range(filled[0], filled[-1] + 1)],
        )


class Arrivals(msgspec.Struct, frozen=True, kw_only=True):
    """How requests arrive. What cannot be told is null."""

    n: int
    span_s: float
    rate_per_s: float | None
    """(n - 1) / span: the reciprocal of the mean gap."""
    gap_cv: float | None
    """Standard deviation of the gaps between arrivals over their mean; 1 for a Poisson process."""
    dispersion_1s: float | None
    """Variance over mean of the counts in whole 1 s bins; 1 for a Poisson process."""
    dispersion_60s: float | None
    peak_to_mean_1s: float | None
    timeline_bin_s: float
    timeline: list[int]
    """Arrivals per bin, at most 1,024 bins."""
    why_null: str | None = None


class _Bins:
    """Counts per bin of a sorted stream, kept as sums: a bin is closed when a later one begins."""

    def __init__(self, width_ns: int) -> None:
        self._width = width_ns
        self._open = 0
        self._open_count = 0
        self._sum = 0
        self._squares = 0
        self._peak = 0

    def add(self, since_start_ns: Ints) -> None:
        bins, counts = np.unique(since_start_ns // self._width, return_counts=True)
        if bins[0] == self._open:
            counts[0] += self._open_count
        else:
            self._close(np.array([self._open_count], np.int64))
        self._close(counts[:-1])
        self._open, self._open_count = int(bins[-1]), int(counts[-1])

    def _close(self, counts: Ints) -> None:
        if len(counts):
            self._sum += int(counts.sum())
            self._squares += int((counts * counts).sum())
            self._peak = max(self._peak, int(counts.max()))

    def dispersion(self) -> float | None:
        """Sample variance over mean of all whole bins (the open one is cut off by the end of the trace)."""
        n = self._open
        if n < 2 or self._sum == 0:
            return None
        mean = self._sum / n
        return (self._squares - n * mean * mean) / (n - 1) / mean

    def peak_to_mean(self) -> float | None:
        """The fullest whole bin over the mean."""
        return self._peak * self._open / self._sum if self._open and self._sum else None


class ArrivalCounter:
    """Arrival statistics of a stream that is out of order by at most ``reorder_rows`` rows."""

    def __init__(self, reorder_rows: int = REORDER_ROWS) -> None:
        self._hold = reorder_rows
        self._waiting: Ints = np.empty(0, np.int64)
        self._n = 0
        self._first = 0
        self._last = 0
        self._gap_sum = 0.0
        self._gap_squares = 0.0
        self._one, self._sixty = _Bins(10**9), _Bins(60 * 10**9)
        self._timeline = np.zeros(1024, np.int64)
        self._timeline_ns = 10**9
        self._too_late = False

    def add(self, times_ns: Ints) -> None:
        """Take arrivals in file order."""
        self._waiting = np.sort(np.concatenate([self._waiting, times_ns]), kind="stable")
        if len(self._waiting) > 2 * self._hold:
            self._release(self._waiting[: -self._hold])
            self._waiting = self._waiting[-self._hold :]

    def _release(self, times: Ints) -> None:
        if not len(times) or self._too_late:
            self._n += len(times)
            return
        if self._n == 0:
            self._first = self._last = int(times[0])
        elif int(times[0]) < self._last:
            self._too_late = True
            self._n += len(times)
            return
        gaps = np.diff(times, prepend=self._last) / 1e9
        if self._n == 0:
            gaps = gaps[1:]
        self._gap_sum += float(gaps.sum())
        self._gap_squares += float((gaps * gaps).sum())
        self._n += len(times)
        self._last = int(times[-1])
        since = times - self._first
        self._one.add(since)
        self._sixty.add(since)
        while since[-1] // self._timeline_ns >= len(self._timeline):
            halves = self._timeline.reshape(-1, 2).sum(axis=1)
            self._timeline = np.concatenate([halves, np.zeros(len(halves), np.int64)])
            self._timeline_ns *= 2
        np.add.at(self._timeline, since // self._timeline_ns, 1)

    def summary(self) -> Arrivals | None:
        """The statistics of everything taken; call once. Null without arrivals."""
        self._release(self._waiting)
        self._waiting = self._waiting[:0]
        if self._n == 0:
            return None
        span_s = (self._last - self._first) / 1e9
        if self._too_late or self._n < 3 or span_s == 0:
            reason = (
                f"arrivals are out of order by more than {self._hold} rows: sort the file by time"
                if self._too_late
                else "fewer than three arrivals"
                if self._n < 3
                else "all arrivals are at one time"
            )
            return Arrivals(
                n=self._n,
                span_s=span_s,
                rate_per_s=None,
                gap_cv=None,
                dispersion_1s=None,
                dispersion_60s=None,
                peak_to_mean_1s=None,
                timeline_bin_s=self._timeline_ns / 1e9,
                timeline=[],
                why_null=reason,
            )
        gaps = self._n - 1
        mean = self._gap_sum / gaps
        variance = max(0.0, self._gap_squares / gaps - mean * mean)
        used = int((self._last - self._first) // self._timeline_ns) + 1
        return Arrivals(
            n=self._n,
            span_s=span_s,
            rate_per_s=gaps / span_s,
            gap_cv=math.sqrt(variance) / mean,
            dispersion_1s=self._one.dispersion(),
            dispersion_60s=self._sixty.dispersion(),
            peak_to_mean_1s=self._one.peak_to_mean(),
            timeline_bin_s=self._timeline_ns / 1e9,
            timeline=self._timeline[:used].tolist(),
        )


class PrefixReuse(msgspec.Struct, frozen=True, kw_only=True):
    """What an infinite prefix cache would save, by the block ids that the file records."""

    requests: int
    block_tokens: int
    blocks: int
    hit_ratio: float
    """Leading blocks already seen over all blocks."""
    truncated: bool
    """Whether memory for distinct blocks ran out, so that the ratio is of the first rows only."""


class PrefixCounter:
    """Counts reuse of leading prefix blocks in file order."""

    def __init__(self) -> None:
        self._seen: set[object] = set()
        self._requests = self._blocks = self._hits = self._block_tokens = 0
        self._full = False

    def add(self, ids: tuple[int, ...], block_tokens: int, session: str | None) -> None:
        """One request's block ids; ``session`` limits their scope, null for ids that hold everywhere."""
        if self._full:
            return
        keys: list[object] = list(ids) if session is None else [(session, block) for block in ids]
        hits = next((i for i, key in enumerate(keys) if key not in self._seen), len(keys))
        self._requests += 1
        self._blocks += len(ids)
        self._hits += hits
        self._block_tokens = block_tokens
        self._seen.update(keys)
        self._full = len(self._seen) > MAX_BLOCKS

    def summary(self) -> PrefixReuse | None:
        """The reuse so far; null when no request had block ids."""
        if not self._blocks:
            return None
        return PrefixReuse(
            requests=self._requests,
            block_tokens=self._block_tokens,
            blocks=self._blocks,
            hit_ratio=self._hits / self._blocks,
            truncated=self._full,
        )


_WORD = re.compile(r"\w+|[^\w\s]")


def copied_4grams(prompt: str, answer: str) -> tuple[int, int]:
    """(4-grams of the answer that the prompt already holds, 4-grams of the answer).

    Of words and punctuation marks, not of tokens: the share says what n-gram drafting could copy,
    and words need no tokenizer.
    """
    grams = _four_grams(answer)
    known = set(_four_grams(prompt))
    return sum(gram in known for gram in grams), len(grams)


def _four_grams(text: str) -> list[tuple[str, ...]]:
    words = _WORD.findall(text)
    return list(zip(words, words[1:], words[2:], words[3:], strict=False))
