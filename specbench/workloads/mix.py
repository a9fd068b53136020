"""From a source of prompts to the exact requests of a cell, the same in every process and on every machine.

All arms, launches and rounds send the same requests in the same order (common random numbers: the
differences between prompts cancel in the ratios). Categories are interleaved so that any stretch of a
cell, the steady window above all, has them in the right proportion.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import UNSET, structs

from specbench.config.grid import Load
from specbench.config.model import Workload
from specbench.config.plan import requests_in_cell
from specbench.workloads.arrivals import arrival_times
from specbench.workloads.loading import category_of, source_name
from specbench.workloads.request import Arrival, CellMix, Request, digest
from specbench.workloads.requests_file import WorkloadError
from specbench.workloads.source_request import SourceRequest

MAX_SEED: Final = 2**31 - 1
"""Largest seed that every engine takes."""


def build_cell_mix(
    workload: Workload, source: Sequence[SourceRequest], load: Load, warmup_per_slot: int, seed: int
) -> CellMix:
    """The requests of every cell at a load.

    Warm-up requests are none of the measured ones while the source is big enough; in a source that is
    smaller than the cell, requests come again in the same order, as ``r2#2``, ``r2#3``, ...
    With ``workload.seconds`` the list is as long as the time may need and the source allows.
    An open load also gets its arrival times.

    Args:
        source: from `load_source`.
        seed: ``measure.order_seed``.

    Raises:
        WorkloadError: the source is empty, or has a request without text.
    """
    pools: dict[str, list[SourceRequest]] = {}
    for request in source:
        pools.setdefault(category_of(request), []).append(request)
    if not pools:
        raise WorkloadError([f"workload.source: {workload.source} has no request"])
    for category, pool in pools.items():
        pool.sort(key=lambda r, c=category: _key(seed, load.id, c, r.id))  # type: ignore[misc]
    weights = workload.categories if isinstance(workload.categories, dict) else None
    if weights is not None and not pools.keys() <= weights.keys():
        weights = None  # filler has a category of its own
    shares = category_shares(weights, {category: float(len(pool)) for category, pool in pools.items()})
    taken = dict.fromkeys(pools, 0)
    uses: dict[str, int] = {}
    again = _repeat_mark(source)

    def take(count: int) -> tuple[Request, ...]:
        chosen = []
        for category in interleave(shares, count):
            row = pools[category][taken[category] % len(pools[category])]
            taken[category] += 1
            uses[row.id] = uses.get(row.id, 0) + 1
            chosen.append(make_request(workload, row, seed, uses[row.id], again))
        return tuple(chosen)

    count, warmup_count = requests_in_cell(workload, load), warmup_per_slot * load.concurrency
    if workload.seconds is not None and load.open is None:
        # The list starts again when it runs out before the time: it need not hold the source twice.
        count = min(count, max(6 * load.concurrency, len(source) - warmup_count))
    measured = take(count)
    repeats = max(uses.values()) > 1
    # What the measured requests left of each pool comes first in the warm-up.
    warmup = take(warmup_count)
    schedule: tuple[Arrival, ...] = ()
    if load.open is not None:
        times = arrival_times(load.open, count, seed)
        schedule = tuple(Arrival(at_s=t) for t in times)
    return CellMix(
        warmup=warmup,
        measured=measured,
        schedule=schedule,
        digest=digest(warmup + measured, schedule),
        repeats=repeats,
    )


def stretched(mix: CellMix, rate_per_s: float) -> CellMix:
    """The same requests with their arrivals, which were drawn for 1 per second, at another rate."""
    schedule = tuple(structs.replace(a, at_s=a.at_s / rate_per_s) for a in mix.schedule)
    return structs.replace(mix, schedule=schedule, digest=digest(mix.warmup + mix.measured, schedule))


def interleave(shares: Mapping[str, float], count: int) -> list[str]:
    """A deterministic sequence of categories that keeps every share at every point.

    In each prefix of length i, category k appears i * share_k times give or take less than one: the
    chairman assignment of R. Tijdeman, Discrete Mathematics 32 (1980) 323-330. A window of a cell is the
    difference of two prefixes and so off by less than two.

    Args:
        shares: positive, adding up to 1.
    """
    names = sorted(shares)
    slack = 1.0 / (2 * len(names) - 2) if len(names) > 1 else 0.0
    used = dict.fromkeys(names, 0)
    sequence = []
    for place in range(1, count + 1):
        ready = [k for k in names if shares[k] * place - used[k] >= slack - 1e-9]
        # Among those that may come, the one that must come soonest.
        best = min(ready or names, key=lambda k: ((used[k] + 1 - slack) / shares[k], k))
        used[best] += 1
        sequence.append(best)
    return sequence


def category_shares(weights: Mapping[str, float] | None, sizes: Mapping[str, float]) -> dict[str, float]:
    """Weights are shares of requests; without weights, the source's own proportions. Adds up to 1."""
    used = {category: weights[category] for category in sizes} if weights is not None else dict(sizes)
    total = sum(used[k] for k in sorted(used))
    return {category: weight / total for category, weight in used.items()}


def make_request(
    workload: Workload, row: SourceRequest, seed: int, use: int = 1, again: str = "#"
) -> Request:
    """A row as every arm sends it. The config's sampling wins over the recorded one; its cap is a ceiling.

    Args:
        use: how many times the row has been taken, this time included.
        again: what stands between id and ``use`` from the second time on.

    Raises:
        WorkloadError: the row has no text.
    """
    if row.messages is None and row.prompt is None:
        raise WorkloadError(
            [
                f"{row.source.file}:{row.source.line}: {row.id!r} has a length but no text to send: name "
                "this file in workload.lengths.source, and in workload.source a set that has text"
            ]
        )
    request_id = row.id if use == 1 else f"{row.id}{again}{use}"
    sampling = workload.sampling
    return Request(
        id=request_id,
        category=category_of(row),
        messages=row.messages,
        prompt=row.prompt,
        max_tokens=output_cap(workload, row),
        output_mode=workload.output_mode,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        seed=_seed(request_id, seed) if sampling.temperature > 0 else None,
        text_source=row.text_source,
        source=source_name(workload.source),
        tools=row.tools if row.tools else UNSET,
    )


def output_cap(workload: Workload, row: SourceRequest) -> int:
    """Tokens at most: the workload's cap, the recorded cap and the recorded length, whichever is least."""
    return min([workload.max_output_tokens, *(n for n in (row.max_tokens, row.output_tokens) if n)])


def _repeat_mark(source: Sequence[SourceRequest]) -> str:
    """``#``; a longer one where the source's own ids (of repeated rows, say) could be taken for repeats."""
    mark = "#"
    while any(mark in request.id for request in source):
        mark += "#"
    return mark


def _key(*parts: object) -> bytes:
    return hashlib.sha256("\x00".join(map(str, parts)).encode()).digest()


def _seed(request_id: str, seed: int) -> int:
    return int.from_bytes(_key("sampling", seed, request_id)[:8]) % (MAX_SEED + 1)
