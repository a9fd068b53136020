"""From a source of prompts to the exact requests of a cell, the same in every process and on every machine.

All arms, launches and rounds send the same requests in the same order (common random numbers: the
differences between prompts cancel in the ratios). Categories are interleaved so that any stretch of a
cell, the steady window above all, has them in the right proportion.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from specbench.config.grid import Load
from specbench.config.model import Workload
from specbench.config.plan import requests_in_cell
from specbench.config.source import is_path
from specbench.workloads.request import CellMix, Request, digest
from specbench.workloads.requests_file import WorkloadError, read_requests
from specbench.workloads.source_request import SourceRequest

MAX_SEED: Final = 2**31 - 1
"""Largest seed that every engine takes."""

UNCATEGORISED: Final = "uncategorised"
"""Category of requests whose source has none."""


def load_source(workload: Workload, base_dir: Path) -> list[SourceRequest]:
    """All requests of a workload's source that are in its categories, in the order of the files.

    Args:
        base_dir: where a relative path starts.

    Raises:
        WorkloadError: no such dataset or file, bad lines, an unknown category, an id used twice.
    """
    by_id: dict[str, SourceRequest] = {}
    for path in _files(workload.source, base_dir):
        for request in read_requests(path):
            if request.id in by_id:
                place, other = (f"{r.source.file}:{r.source.line}" for r in (request, by_id[request.id]))
                raise WorkloadError([f"{place}: the id {request.id!r} is also in {other}"])
            by_id[request.id] = request
    requests = list(by_id.values())
    if workload.categories is None:
        return requests
    wanted = set(workload.categories)
    if not wanted:
        raise WorkloadError(["workload.categories: is empty: name a category or remove the key"])
    available = sorted({_category(request) for request in requests})
    unknown = [category for category in workload.categories if category not in available]
    if unknown:
        raise WorkloadError(
            [
                f"workload.categories: {workload.source} has no category {category!r}"
                f"{_did_you_mean(category, available)}; it has: {', '.join(available)}"
                for category in unknown
            ]
        )
    return [request for request in requests if _category(request) in wanted]


def build_cell_mix(
    workload: Workload, source: Sequence[SourceRequest], load: Load, warmup_per_slot: int, seed: int
) -> CellMix:
    """The requests of every cell at a load.

    Warm-up requests are none of the measured ones while the source is big enough; in a source that is
    smaller than the cell, requests come again in the same order, as ``r2#2``, ``r2#3``, ...
    With ``workload.seconds`` the list is as long as the time may need and the source allows.

    Args:
        source: from `load_source`.
        seed: ``measure.order_seed``.

    Raises:
        WorkloadError: the source is empty, or has a request without text.
    """
    pools: dict[str, list[SourceRequest]] = {}
    for request in source:
        pools.setdefault(_category(request), []).append(request)
    if not pools:
        raise WorkloadError([f"workload.source: {workload.source} has no request"])
    for category, pool in pools.items():
        pool.sort(key=lambda r, c=category: _key(seed, load.id, c, r.id))  # type: ignore[misc]
    shares = _shares(workload, pools)
    taken = dict.fromkeys(pools, 0)
    uses: dict[str, int] = {}

    def take(count: int) -> tuple[Request, ...]:
        chosen = []
        for category in interleave(shares, count):
            row = pools[category][taken[category] % len(pools[category])]
            taken[category] += 1
            uses[row.id] = uses.get(row.id, 0) + 1
            chosen.append(_request(workload, row, uses[row.id], seed))
        return tuple(chosen)

    count, warmup_count = requests_in_cell(workload, load), warmup_per_slot * load.concurrency
    if workload.seconds is not None:
        # The list starts again when it runs out before the time: it need not hold the source twice.
        count = min(count, max(6 * load.concurrency, len(source) - warmup_count))
    measured = take(count)
    repeats = max(uses.values()) > 1
    # What the measured requests left of each pool comes first in the warm-up.
    warmup = take(warmup_count)
    return CellMix(warmup=warmup, measured=measured, digest=digest(warmup + measured), repeats=repeats)


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


def _shares(workload: Workload, pools: Mapping[str, Sequence[SourceRequest]]) -> dict[str, float]:
    """Weights are shares of requests; without weights, the source's own proportions."""
    weights = (
        {category: workload.categories[category] for category in pools}
        if isinstance(workload.categories, dict)
        else {category: float(len(pool)) for category, pool in pools.items()}
    )
    total = sum(weights[k] for k in sorted(weights))
    return {category: weight / total for category, weight in weights.items()}


def _request(workload: Workload, row: SourceRequest, use: int, seed: int) -> Request:
    if row.messages is None and row.prompt is None:
        raise WorkloadError(
            [f"{row.source.file}:{row.source.line}: {row.id!r} has a length but no text to send"]
        )
    request_id = row.id if use == 1 else f"{row.id}#{use}"
    sampling = workload.sampling
    cap = workload.max_output_tokens
    return Request(
        id=request_id,
        category=_category(row),
        messages=row.messages,
        prompt=row.prompt,
        max_tokens=min(cap, row.max_tokens or cap),
        output_mode=workload.output_mode,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        seed=_seed(request_id, seed) if sampling.temperature > 0 else None,
        text_source=row.text_source,
        source=workload.source if not is_path(workload.source) else Path(workload.source).name,
    )


def _category(request: SourceRequest) -> str:
    return request.category or UNCATEGORISED


def _files(source: str, base_dir: Path) -> list[Path]:
    if is_path(source):
        return [base_dir / Path(source).expanduser()]
    # Imported here so that a path needs no shipped data.
    from specbench.workloads.shipped import dataset_files, dataset_names

    names = sorted(dataset_names())
    if source not in names:
        mend = (
            f"; for a file write ./{source}"
            if "/" in source or source.endswith((".jsonl", ".json"))
            else _did_you_mean(source, names)
        )
        raise WorkloadError(
            [f"workload.source: no shipped dataset is called {source!r}{mend}; there are: {', '.join(names)}"]
        )
    return dataset_files(source)


def _key(*parts: object) -> bytes:
    return hashlib.sha256("\x00".join(map(str, parts)).encode()).digest()


def _seed(request_id: str, seed: int) -> int:
    return int.from_bytes(_key("sampling", seed, request_id)[:8]) % (MAX_SEED + 1)


def _did_you_mean(word: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
