"""What a config names as its source, read and accounted for: a shipped dataset, or a file of any format."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from specbench.config.model import Workload
from specbench.config.source import is_path
from specbench.workloads.readers import ReadError, read
from specbench.workloads.requests_file import WorkloadError, read_requests
from specbench.workloads.source_request import ReadReport, SourceRequest

UNCATEGORISED: Final = "uncategorised"
"""Category of requests whose source has none."""

SHIPPED: Final = "shipped"
"""Format name of a dataset that comes with specbench."""

MAX_BAD_LINES: Final = 20


class SourceAccount(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the rows of the source: ``rows_read == loaded + sum(dropped) + bad``.

    ``remarks`` are sentences about choices that a reader of a report must know.
    """

    source: str
    format: str
    rows_read: int
    loaded: int
    used: int
    """Requests that may be sent: loaded, in the chosen categories, and fitting the context."""
    dropped: dict[str, int] = {}
    bad: int = 0
    bad_lines: tuple[tuple[int, str], ...] = ()
    """(line or record, reason) of the first malformed rows."""
    warnings: dict[str, int] = {}
    notes: dict[str, int] = {}
    remarks: tuple[str, ...] = ()

    def sentences(self) -> tuple[str, ...]:
        """The account in words; empty when there is nothing to know beyond the source's name."""
        lines = []
        if self.dropped:
            lines.append(
                f"{self.source}: {sum(self.dropped.values())} of {self.rows_read} rows were left out: "
                + ", ".join(f"{n} {reason}" for reason, n in self.dropped.items())
            )
        if self.bad:
            first = "".join(f"; the first is {line}: {reason}" for line, reason in self.bad_lines[:1])
            lines.append(f"{self.source}: {self.bad} malformed rows were skipped, as asked{first}")
        if self.warnings:
            repaired = ", ".join(f"{name} {n}" for name, n in self.warnings.items())
            lines.append(f"{self.source}: repaired or noticed while reading: {repaired}")
        if self.notes:
            lines.append(f"{self.source}: " + ", ".join(f"{name} {n}" for name, n in self.notes.items()))
        return (*lines, *self.remarks)


@dataclass(frozen=True, slots=True)
class LoadedSource:
    """All requests of a source that are in the chosen categories, and the account of its rows."""

    requests: list[SourceRequest]
    account: SourceAccount


def load_source(workload: Workload, base_dir: Path) -> LoadedSource:
    """Read a workload's source: shipped files in their order, a file of one's own in order of arrival.

    Args:
        base_dir: where a relative path starts.

    Raises:
        WorkloadError: no such dataset or file, malformed rows (``FILE:LINE: reason``), an unknown category,
            a file without a usable row.
    """
    if is_path(workload.source):
        path = base_dir / Path(workload.source).expanduser()
        rows, report = read_file(
            path, format=workload.format, encoding=workload.encoding, skip=workload.on_bad_row == "skip"
        )
    else:
        if workload.format is not None:
            raise WorkloadError(["workload.format: only a file has a format: remove it, or name a file"])
        rows = _shipped(workload.source)
        report = ReadReport(format=SHIPPED, rows_read=len(rows), loaded=len(rows))
    chosen = _in_categories(workload, rows)
    account = account_of(workload.source, report, len(chosen))
    return LoadedSource(chosen, account)


def read_file(
    path: Path,
    *,
    format: str | None,  # noqa: A002
    encoding: str | None,
    skip: bool,
) -> tuple[list[SourceRequest], ReadReport]:
    """All requests of a file.

    Raises:
        WorkloadError: it cannot be read, or none of its rows is usable.
    """
    try:
        rows, report = read(path, format=format, encoding=encoding, on_bad_row="skip" if skip else "error")
    except ReadError as error:
        mend = "" if error.line is None else " (workload.on_bad_row: skip leaves such rows out)"
        raise WorkloadError([f"{error}{mend}"]) from None
    except OSError as error:
        raise WorkloadError([f"{path}: cannot be read: {error.strerror or error}"]) from None
    if not rows:
        reasons = [f"{n} {reason}" for reason, n in report.dropped.items()]
        reasons += [f"{report.bad} malformed"] if report.bad else []
        raise WorkloadError([f"{path}: none of its {report.rows_read} rows is usable: {', '.join(reasons)}"])
    return rows, report


def account_of(source: str, report: ReadReport, used: int) -> SourceAccount:
    """A read report as it is kept with a run; of a path only the file's name."""
    return SourceAccount(
        source=source_name(source),
        format=report.format,
        rows_read=report.rows_read,
        loaded=report.loaded,
        used=used,
        dropped=dict(report.dropped),
        bad=report.bad,
        bad_lines=tuple(report.bad_lines[:MAX_BAD_LINES]),
        warnings=dict(report.warnings),
        notes=dict(report.notes),
    )


def source_name(source: str) -> str:
    """A dataset's name, or a file's without its folder."""
    return Path(source).name if is_path(source) else source


def category_of(request: SourceRequest) -> str:
    """Its category; ``uncategorised`` without one."""
    return request.category or UNCATEGORISED


def did_you_mean(word: str, names: Sequence[str]) -> str:
    """``; did you mean 'x'?`` or nothing."""
    near = difflib.get_close_matches(word, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _shipped(source: str) -> list[SourceRequest]:
    # Imported here so that a path needs no shipped data.
    from specbench.workloads.shipped import dataset_files, dataset_names

    names = sorted(dataset_names())
    if source not in names:
        mend = (
            f"; for a file write ./{source}"
            if "/" in source or Path(source).suffix in {".jsonl", ".json", ".csv", ".parquet", ".gz", ".txt"}
            else did_you_mean(source, names)
        )
        raise WorkloadError(
            [f"workload.source: no shipped dataset is called {source!r}{mend}; there are: {', '.join(names)}"]
        )
    by_id: dict[str, SourceRequest] = {}
    for path in dataset_files(source):
        for request in read_requests(path):
            if request.id in by_id:
                place, other = (f"{r.source.file}:{r.source.line}" for r in (request, by_id[request.id]))
                raise WorkloadError([f"{place}: the id {request.id!r} is also in {other}"])
            by_id[request.id] = request
    return list(by_id.values())


def _in_categories(workload: Workload, requests: list[SourceRequest]) -> list[SourceRequest]:
    if workload.categories is None:
        return requests
    wanted = set(workload.categories)
    if not wanted:
        raise WorkloadError(["workload.categories: is empty: name a category or remove the key"])
    available = sorted({category_of(request) for request in requests})
    unknown = [category for category in workload.categories if category not in available]
    if unknown:
        raise WorkloadError(
            [
                f"workload.categories: {workload.source} has no category {category!r}"
                f"{did_you_mean(category, available)}; it has: {', '.join(available)}"
                for category in unknown
            ]
        )
    return [request for request in requests if category_of(request) in wanted]
