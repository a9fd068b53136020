"""From any format to `specbench.requests/1`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from specbench.workloads.readers.base import Stateless
from specbench.workloads.readers.reading import OnBadRow, Scan, placed, read, refuse_unusable, scan
from specbench.workloads.readers.specbench_requests import header, write
from specbench.workloads.source_request import ReadReport, SourceRequest

STREAM_ABOVE_BYTES = 64 << 20
"""Larger files are read twice rather than held, when their rows are in order of time."""


def convert_file(
    path: str | Path,
    out: str | Path,
    *,
    format: str | None = None,  # noqa: A002
    on_bad_row: OnBadRow = "error",
    encoding: str | None = None,
    stream_above_bytes: int = STREAM_ABOVE_BYTES,
) -> ReadReport:
    """Write all requests of a file in arrival order; nothing is written when the file is refused.

    Raises:
        ReadError: as `scan`; and for a file of which no row is usable.
    """
    path, out = Path(path), Path(out)

    def fresh() -> Scan:
        return scan(path, format=format, on_bad_row=on_bad_row, encoding=encoding)

    first = fresh()
    if path.stat().st_size >= stream_above_bytes and isinstance(first.format.reader(), Stateless):
        untimed = sum(time is None for time, _ in first)
        report = first.report
        refuse_unusable(path, report)
        if "out_of_order" not in report.warnings and untimed in {0, report.loaded}:
            write(out, header(path, report), _placed(fresh(), first.earliest_ns))
            return report
    requests, report = read(path, format=format, on_bad_row=on_bad_row, encoding=encoding)
    refuse_unusable(path, report)
    write(out, header(path, report), requests)
    return report


def _placed(one_pass: Scan, earliest_ns: int | None) -> Iterator[SourceRequest]:
    for time, request in one_pass:
        yield placed(request, time, earliest_ns)
