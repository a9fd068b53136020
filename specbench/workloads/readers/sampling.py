"""A smaller file that keeps the joint lengths of a large one: stratified, seeded, in bounded memory."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np

from specbench.workloads.readers.azure_columns import AzureColumns, Columns, Unfit
from specbench.workloads.readers.reading import OnBadRow, Scan, placed, refuse_unusable, scan
from specbench.workloads.readers.stats import Ints
from specbench.workloads.source_request import ReadReport, Shape, Source, SourceRequest

Timed = tuple[int | None, SourceRequest]

_CHUNK = 4096
_OUTPUT_CELLS = 64


def joint_cells(prompt: Ints, output: Ints) -> Ints:
    """The cell of each request: doublings of its prompt length by doublings of its output length.

    Unknown lengths are -1 and make a doubling of their own.
    """
    return (_doubling(prompt) * _OUTPUT_CELLS + _doubling(output)).astype(np.int64)


def _doubling(values: Ints) -> Ints:
    return np.where(values < 0, 0, 1 + np.floor(np.log2(np.maximum(values, 0) + 1))).astype(np.int64)


def allocate(counts: dict[int, int], n: int) -> dict[int, int]:
    """How many of ``n`` each cell gives: in proportion, by largest remainder, ties to the lower cell."""
    total = sum(counts.values())
    n = min(n, total)
    shares = {cell: count * n / total for cell, count in counts.items()} if total else {}
    given = {cell: min(int(share), counts[cell]) for cell, share in shares.items()}
    rest = n - sum(given.values())
    for cell in sorted(shares, key=lambda c: (given[c] - shares[c], c))[:rest]:
        given[cell] += 1
    return {cell: count for cell, count in given.items() if count}


class Reservoir:
    """Keeps, of each cell, the requests with the smallest of uniform random keys drawn in file order.

    Every request of a cell is as likely as any other, and the choice depends on the seed and the
    file alone, not on how the file was cut into blocks.
    """

    def __init__(self, wanted: dict[int, int], seed: int) -> None:
        self._wanted = wanted
        self._rng = np.random.default_rng(seed)
        self._heaps: dict[int, list[tuple[float, int]]] = {cell: [] for cell in wanted}
        self._kept: dict[int, Timed] = {}
        self._limit = np.zeros(_OUTPUT_CELLS * _OUTPUT_CELLS)
        for cell in wanted:
            self._limit[cell] = 1.0
        self._seen = 0

    def offer(self, cells: Ints, make: Callable[[int], Timed]) -> None:
        """Requests in file order by their cells; ``make`` builds the kept ones from their place."""
        keys = self._rng.random(len(cells))
        for place in np.flatnonzero(keys < self._limit[cells]).tolist():
            cell, key, index = int(cells[place]), float(keys[place]), self._seen + place
            heap = self._heaps[cell]
            if len(heap) < self._wanted[cell]:
                heapq.heappush(heap, (-key, index))
            elif key < -heap[0][0]:
                del self._kept[heapq.heapreplace(heap, (-key, index))[1]]
            else:
                continue
            self._kept[index] = make(place)
            if len(heap) == self._wanted[cell]:
                self._limit[cell] = -heap[0][0]
        self._seen += len(cells)

    def result(self) -> list[Timed]:
        """What was kept, in file order."""
        return [self._kept[index] for index in sorted(self._kept)]


def sample_file(
    path: str | Path,
    n: int,
    *,
    seed: int,
    format: str | None = None,  # noqa: A002
    on_bad_row: OnBadRow = "error",
    encoding: str | None = None,
) -> tuple[list[SourceRequest], ReadReport]:
    """``n`` requests of a file, stratified by joint length cells, in arrival order.

    Reads the file twice and holds no more than the sample. Each request's ``weight`` is how many of
    its cell it stands for. Arrival times stay as recorded, so that the rate falls with the sample:
    replay it stretched in time, or closed-loop.

    Raises:
        ReadError: as `scan`; and for a file of which no row is usable.
        ValueError: ``n`` below 1.
    """
    if n < 1:
        raise ValueError("a sample needs at least one request")
    path = Path(path)
    if format in {None, "azure"}:
        try:
            return _sample_columns(path, n, seed, encoding)
        except Unfit:
            pass  # read it row by row, which says what is wrong and where

    def fresh() -> Scan:
        return scan(path, format=format, on_bad_row=on_bad_row, encoding=encoding)

    counts: dict[int, int] = {}
    for chunk in _chunks(fresh()):
        _count(counts, _cells(chunk))
    wanted = allocate(counts, n)
    reservoir = Reservoir(wanted, seed)
    one_pass = fresh()
    for chunk in _chunks(one_pass):
        reservoir.offer(_cells(chunk), chunk.__getitem__)
    refuse_unusable(path, one_pass.report)
    kept = reservoir.result()
    requests = one_pass.finish([request for _, request in kept])
    timed = list(zip((time for time, _ in kept), requests, strict=True))
    return _weighted(timed, counts, wanted, one_pass.earliest_ns, one_pass.report), one_pass.report


def _sample_columns(
    path: Path, n: int, seed: int, encoding: str | None
) -> tuple[list[SourceRequest], ReadReport]:
    counts: dict[int, int] = {}
    for block in AzureColumns(path, encoding=encoding):
        _count(counts, joint_cells(block.prompt_tokens, block.output_tokens))
    wanted = allocate(counts, n)
    reservoir = Reservoir(wanted, seed)
    columns = AzureColumns(path, encoding=encoding)
    for block in columns:
        cells = joint_cells(block.prompt_tokens, block.output_tokens)
        reservoir.offer(cells, _maker(block, path.name))
    refuse_unusable(path, columns.report)
    kept = reservoir.result()
    return _weighted(kept, counts, wanted, columns.earliest_ns, columns.report), columns.report


def _maker(block: Columns, file: str) -> Callable[[int], Timed]:
    """Builds the request of a place in a block, as the row reader would."""

    def make(place: int) -> Timed:
        line, prompt_tokens = int(block.line[place]), int(block.prompt_tokens[place])
        request = SourceRequest(
            id=str(line),
            source=Source(file=file, line=line),
            shape=Shape(prompt_tokens=prompt_tokens),
            prompt_tokens=prompt_tokens,
            output_tokens=int(block.output_tokens[place]),
            text_source="none",
        )
        return int(block.time_ns[place]), request

    return make


def _weighted(
    timed: list[Timed],
    counts: dict[int, int],
    wanted: dict[int, int],
    earliest_ns: int | None,
    report: ReadReport,
) -> list[SourceRequest]:
    """In arrival order, with weights, and without pointers to requests that were left out."""
    timed = sorted(timed, key=lambda pair: (pair[0] is None, pair[0] or 0))
    ids = {request.id for _, request in timed}
    cells = _cells(timed).tolist() if timed else []
    made = []
    for (time, request), cell in zip(timed, cells, strict=True):
        fields = {"weight": request.weight * counts[cell] / wanted[cell]}
        if request.after is not None and request.after not in ids:
            report.note("after_left_out")
            request = msgspec.structs.replace(request, after=None, delay_s=None)
        made.append(placed(msgspec.structs.replace(request, **fields), time, earliest_ns))
    return made


def _count(counts: dict[int, int], cells: Ints) -> None:
    for cell, count in zip(*(part.tolist() for part in np.unique(cells, return_counts=True)), strict=True):
        counts[cell] = counts.get(cell, 0) + count


def _cells(chunk: list[Timed]) -> Ints:
    """By recorded lengths; text without them goes by its characters, output by its cap or answer."""
    prompt = [r.prompt_tokens if r.prompt_tokens is not None else len(r.text() or "") for _, r in chunk]
    output = [_output_length(request) for _, request in chunk]
    return joint_cells(np.array(prompt, np.int64), np.array(output, np.int64))


def _output_length(request: SourceRequest) -> int:
    for length in (request.output_tokens, request.max_tokens):
        if length is not None:
            return length
    return len(request.reference) if request.reference is not None else -1


def _chunks(one_pass: Scan) -> Iterator[list[Timed]]:
    chunk: list[Timed] = []
    for pair in one_pass:
        chunk.append(pair)
        if len(chunk) == _CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
