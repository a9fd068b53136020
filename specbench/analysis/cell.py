"""From the files of one cell to its numbers, or to the reason why it is not valid."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from specbench.analysis.acceptance import pool_requests
from specbench.analysis.counts import chunks_merged, engine_disagrees, scrape_errors, usage_disagrees
from specbench.analysis.latency import CellTimes, measure
from specbench.analysis.machine import MachineUse, machine_use
from specbench.analysis.open_load import KEEPS_UP, OpenTimes, open_times, rate_problem
from specbench.analysis.steady import steadiness
from specbench.analysis.variate import Steps
from specbench.analysis.window import NoWindowError, Window, open_window, steady_window
from specbench.load.table import WrongSchema, table_to_records
from specbench.observe.counters import CounterReset, EngineCounters, difference
from specbench.runs.files import RunFileError

if TYPE_CHECKING:
    from specbench.load.record import RequestAcceptance, RequestRecord
    from specbench.runs.records import CellCounters, CellRecord
    from specbench.runs.rundir import RunDir

MAX_FAILED_SHARE: Final = 0.001
"""More failed requests than this and the cell does not count: a failure frees a slot and flatters."""


@dataclass(slots=True)
class Cell:
    """One cell, measured. ``invalid`` holds the reasons why it must not be used; empty means valid.

    ``request_acceptance`` adds up the engine's own counts of the requests that ended in the window; null when
    it sent none. ``open_times`` are those of an open or trace load.
    """

    record: CellRecord
    requests: int = 0
    failed_requests: int = 0
    window: Window | None = None
    times: CellTimes | None = None
    window_counters: EngineCounters | None = None
    cell_counters: EngineCounters | None = None
    request_acceptance: RequestAcceptance | None = None
    open_times: OpenTimes | None = None
    mean_output_tokens: float | None = None
    steps: Steps | None = None
    machine: MachineUse | None = None
    invalid: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def valid(self) -> bool:
        """Measured, and nothing speaks against using it."""
        return self.record.status == "ok" and not self.invalid


def load_cell(run: RunDir, record: CellRecord) -> Cell:
    """Read one cell and judge whether it may be used.

    Raises:
        RunFileError: a file of the cell is damaged.
    """
    cell = Cell(record)
    table = run.requests(record.id)
    if table is None:
        if record.status == "ok":
            cell.invalid.append("its requests.parquet is missing")
        return cell
    try:
        records = table_to_records(table)
    except WrongSchema as error:
        folder = run.cell_path(record.id)
        raise RunFileError(f"{folder}/requests.parquet: {error}; move {folder} away and --resume") from error
    cell.requests = len(records)
    cell.failed_requests = sum(1 for r in records if not r.ok)
    if record.status != "ok":
        return cell
    outputs = [r.output_tokens for r in records if r.ok and r.output_tokens is not None]
    cell.mean_output_tokens = sum(outputs) / len(outputs) if outputs else None
    _check_failures(cell, records)
    try:
        closed = record.load_kind == "closed"
        cell.window = steady_window(records, record.concurrency) if closed else open_window(records)
    except NoWindowError as error:
        cell.invalid.append(f"no steady window: {error}")
        return cell
    cell.times = measure(records, cell.window)
    cell.steps = _steps(records, cell.window)
    cell.machine = machine_use(record.machine, cell.window, cell.times.tokens)
    steady = steadiness(records, cell.window) if closed else None
    if steady is not None and steady.problem is not None:
        cell.invalid.append(steady.problem)
    cell.request_acceptance = pool_requests(
        r.acceptance for r in records if r.ok and r.end_s is not None and cell.window.holds(r.end_s)
    )
    if cell.times.output_tokens_per_s is None:
        cell.invalid.append("no token count: the server sent neither token ids nor continuous usage")
    if not closed:
        _use_open(cell, records)
    _check_client(cell)
    if (differing := usage_disagrees(records)) is not None:
        cell.warnings.append(differing)
    _use_counters(cell, run.counters(record.id), records)
    return cell


def _steps(records: list[RequestRecord], window: Window) -> Steps | None:
    """Of the requests that ended in the window; null when nothing was decoded or a count is unknown."""
    ended = [
        r
        for r in records
        if r.ok and r.end_s is not None and window.holds(r.end_s) and len(r.chunk_tokens) > 1
    ]
    if not ended or min(min(r.chunk_tokens) for r in ended) < 0:
        return None
    tokens = tuple(sum(r.chunk_tokens[1:]) for r in ended)
    return Steps(tokens, tuple(len(r.chunk_tokens) - 1 for r in ended)) if sum(tokens) else None


def _check_failures(cell: Cell, records: list[RequestRecord]) -> None:
    if cell.requests and cell.failed_requests / cell.requests > MAX_FAILED_SHARE:
        kinds: dict[str, int] = {}
        for r in records:
            if not r.ok:
                name = str(r.error_class) if r.error_class else "no finish reason"
                kinds[name] = kinds.get(name, 0) + 1
        detail = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))
        first = next((r.error for r in records if r.error), None)
        cell.invalid.append(
            f"{cell.failed_requests} of {cell.requests} requests failed ({detail})"
            + (f": {first[:200]}" if first else "")
        )


def _use_open(cell: Cell, records: list[RequestRecord]) -> None:
    assert cell.window is not None
    cell.open_times = open_times(records, cell.window)
    problem = rate_problem(cell.record.offered_per_s, cell.record.delivered_per_s)
    if problem is not None:
        cell.invalid.append(f"{problem}: the load was not the one asked for")
    if cell.open_times.kept_up < KEEPS_UP:
        cell.warnings.append(
            f"the engine ended {cell.open_times.kept_up:.0%} of the requests that arrived in the window: the "
            "queue grew, so latencies depend on how long the cell was"
        )


def _check_client(cell: Cell) -> None:
    client = cell.record.client or {}
    if client.get("client_bound"):
        cell.invalid.append("client-bound: " + "; ".join(str(r) for r in client.get("reasons", [])))


def _use_counters(cell: Cell, counters: CellCounters | None, records: list[RequestRecord]) -> None:
    if counters is None:
        cell.warnings.append("engine counters are missing: acceptance is not known")
        return
    cell.warnings += scrape_errors(counters.errors)
    start, opened, closed, end = (
        _snapshot(counters, at) for at in ("start", "window_open", "window_close", "end")
    )
    try:
        if opened is not None and closed is not None:
            cell.window_counters = difference(opened, closed)
        if start is not None and end is not None:
            cell.cell_counters = difference(start, end)
    except CounterReset as error:
        cell.invalid.append(f"{error}: the engine restarted inside the cell")
        return
    if (problem := engine_disagrees(records, cell.cell_counters)) is not None:
        cell.invalid.append(problem)
    if (merged := chunks_merged(records, cell.cell_counters)) is not None:
        cell.warnings.append(merged)


def _snapshot(counters: CellCounters, at: str) -> EngineCounters | None:
    scrape = counters.find(at)
    return None if scrape is None else counters_from_dict(scrape.canonical)


def counters_from_dict(values: dict[str, Any]) -> EngineCounters:
    """The inverse of ``dataclasses.asdict`` after a trip through JSON."""
    known = {k: v for k, v in values.items() if k in EngineCounters.__dataclass_fields__}
    known["accepted_per_position"] = tuple(known.get("accepted_per_position") or ())
    return EngineCounters(**known)
