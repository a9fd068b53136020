"""From a file to requests: find the format, read the rows, account for every one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from specbench.workloads.readers.base import Format
from specbench.workloads.readers.container import Source
from specbench.workloads.readers.errors import BadRow, Drop, NotARow, ReadError
from specbench.workloads.readers.record import Record, kind
from specbench.workloads.readers.registry import FORMATS
from specbench.workloads.readers.rows import Row, rows
from specbench.workloads.source_request import ReadReport, SourceRequest

OnBadRow = Literal["error", "skip"]

SNIFF_ROWS: Final = 100
"""Rows looked at to tell the format; most of the readable ones must agree."""

_PLAIN_TEXT_SUFFIXES: Final = frozenset({".txt", ".text", ".md", ".prompts", ""})


class Scan:
    """One pass over a file in file order and constant memory (but for ids, where the file has them).

    Iterate for (arrival in ns, request); ``arrival_s`` of the requests is not set, since the earliest
    time is only known at the end, in ``earliest_ns``. ``report`` is complete when iteration ends.

    Raises:
        ReadError: on iteration, at the first malformed row unless they are skipped.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        format: str | None = None,  # noqa: A002
        on_bad_row: OnBadRow = "error",
        encoding: str | None = None,
    ) -> None:
        self.path = Path(path)
        self._source = Source(self.path, encoding)
        self._skip = on_bad_row == "skip"
        self.format = _chosen(self._source, format) if format else _found(self._source)
        self.report = ReadReport(format=self.format.name)
        self.earliest_ns: int | None = None
        self.by_record = self._source.kind in {"json", "parquet"}
        self._file = self.path.name
        self._textual = self._source.kind in {"csv", "text"}
        self._last_ns: int | None = None
        self._reader = self.format.reader()

    def __iter__(self) -> Iterator[tuple[int | None, SourceRequest]]:
        """See the class."""
        report = self.report
        for repair in self._source.warnings:
            report.warn(repair)
        names = _Names(report)
        for row in rows(self._source):
            report.rows_read += 1
            record = None
            try:
                record = self._record(row)
                request = self._reader.parse(record)
            except NotARow:
                report.rows_read -= 1
            except BadRow as bad:
                if not self._skip:
                    raise ReadError(self.path, str(bad), row.number, by_record=self.by_record) from None
                report.bad_row(row.number, str(bad))
            except Drop as drop:
                report.drop(str(drop))
                self._account(row, record)
            else:
                report.loaded += 1
                self._account(row, record)
                yield record.time_ns, names.unique(request, row.number)
        if report.rows_read == 0:
            raise ReadError(self.path, "no rows")

    def finish(self, requests: list[SourceRequest]) -> list[SourceRequest]:
        """Resolve what needs all rows; call once after iterating."""
        return self._reader.finish(requests, self.report)

    def _record(self, row: Row) -> Record:
        if row.bad is not None:
            raise BadRow(row.bad)
        value = _as_object(row.value, self.format.name)
        return Record(value, number=row.number, file=self._file, textual=self._textual)

    def _account(self, row: Row, record: Record | None) -> None:
        """Count what a well-formed row needed, and its place in time."""
        for repair in row.repairs:
            self.report.warn(repair)
        if record is None:
            return
        for repair in record.warnings:
            self.report.warn(repair)
        for note in record.notes:
            self.report.note(note)
        time = record.time_ns
        if time is None:
            return
        if self._last_ns is not None and time < self._last_ns:
            self.report.warn("out_of_order")
        self._last_ns = time
        if self.earliest_ns is None or time < self.earliest_ns:
            self.earliest_ns = time


class _Names:
    """Makes ids unique: the second `r1` becomes `r1#2`.

    Ids made from line or record numbers are kept as a range, so that a file without ids of its own
    costs no memory.
    """

    def __init__(self, report: ReadReport) -> None:
        self._report = report
        self._seen: set[str] = set()
        self._last_made = 0

    def unique(self, request: SourceRequest, number: int) -> SourceRequest:
        made = request.source.id is None and request.id == str(number)
        if not self._taken(request.id):
            if made:
                self._last_made = number
            else:
                self._seen.add(request.id)
            return request
        if not made:
            self._report.warn("duplicate_id")
        again = 2
        while self._taken(f"{request.id}#{again}"):
            again += 1
        name = f"{request.id}#{again}"
        self._seen.add(name)
        return msgspec.structs.replace(request, id=name)

    def _taken(self, name: str) -> bool:
        if name in self._seen:
            return True
        return name.isdecimal() and len(name) < 19 and 0 < int(name) <= self._last_made


def scan(
    path: str | Path,
    *,
    format: str | None = None,  # noqa: A002
    on_bad_row: OnBadRow = "error",
    encoding: str | None = None,
) -> Scan:
    """A pass over a file of any size; see `Scan`."""
    return Scan(path, format=format, on_bad_row=on_bad_row, encoding=encoding)


def read(
    path: str | Path,
    *,
    format: str | None = None,  # noqa: A002
    on_bad_row: OnBadRow = "error",
    encoding: str | None = None,
    limit: int | None = None,
) -> tuple[list[SourceRequest], ReadReport]:
    """All requests of a file, in stable arrival order, and what became of every row.

    ``limit`` stops after that many requests in file order. Requests without a time keep their place
    after those with one.

    Raises:
        ReadError: at the first malformed row unless ``on_bad_row`` is ``skip``; at any damage to the
            container; for a file that holds no rows or no format that specbench knows.
    """
    one_pass = scan(path, format=format, on_bad_row=on_bad_row, encoding=encoding)
    pairs = list(islice(one_pass, limit)) if limit is not None else list(one_pass)
    requests = one_pass.finish([request for _, request in pairs])
    earliest = one_pass.earliest_ns
    if earliest is None:
        return requests, one_pass.report
    timed = sorted(
        zip((time for time, _ in pairs), requests, strict=True),
        key=lambda pair: (pair[0] is None, pair[0] or 0),
    )
    untimed = sum(time is None for time, _ in pairs)
    if untimed:
        one_pass.report.note("rows_without_time", untimed)
    return [placed(request, time, earliest) for time, request in timed], one_pass.report


def placed(request: SourceRequest, time_ns: int | None, earliest_ns: int | None) -> SourceRequest:
    """The request with its arrival in seconds after the earliest time of the file."""
    if time_ns is None or earliest_ns is None:
        return request
    return msgspec.structs.replace(request, arrival_s=(time_ns - earliest_ns) / 1e9)


def refuse_unusable(path: Path, report: ReadReport) -> None:
    """Stop before a file of no requests is written.

    Raises:
        ReadError: no row was loaded; says what became of them.
    """
    if report.loaded == 0:
        reasons = [f"{n} dropped as {reason}" for reason, n in report.dropped.items()]
        reasons += [f"{report.bad} malformed"] if report.bad else []
        raise ReadError(path, f"none of the {report.rows_read} rows is usable: {', '.join(reasons)}")


def sniff(path: str | Path) -> str:
    """The name of the format of a file, by its content.

    Raises:
        ReadError: none of the formats fits, or the file cannot be read.
    """
    return _found(Source(Path(path))).name


def _chosen(source: Source, name: str) -> Format:
    """The named format, if the file is of a kind it comes in."""
    by_name = {known.name: known for known in FORMATS}
    if name not in by_name:
        close = get_close_matches(name, by_name, 1)
        hint = f"did you mean {close[0]}?" if close else "one of " + ", ".join(by_name)
        raise ReadError(source.path, f"unknown format {name!r}: {hint}")
    known = by_name[name]
    if name == "prompt-text":
        source.kind = "text"
    elif source.kind == "text" and "csv" in known.kinds:
        source.kind = "csv"
    if source.kind not in known.kinds:
        raise ReadError(
            source.path, f"the file is {source.kind}, format {name} is {' or '.join(sorted(known.kinds))}"
        )
    return known


def _found(source: Source) -> Format:
    """The format that most of the first readable rows are of; the first registered one of equals."""
    if source.kind == "text":
        return _plain_text(source)
    seen = list(islice(rows(source), SNIFF_ROWS))
    if not seen:
        raise ReadError(source.path, "no rows")
    candidates = [known for known in FORMATS if source.kind in known.kinds]
    votes = dict.fromkeys(range(len(candidates)), 0)
    for row in seen:
        if row.bad is not None:
            continue
        value = row.value if isinstance(row.value, Mapping) else _object_of(row.value)
        fit = next(
            (i for i, known in enumerate(candidates) if value is not None and known.matches(value)), None
        )
        if fit is not None:
            votes[fit] += 1
    best = max(votes, key=lambda i: (votes[i], -i))
    if votes[best]:
        return candidates[best]
    by_record = source.kind in {"json", "parquet"}
    first_bad = next((row for row in seen if row.bad is not None), None)
    if first_bad is not None and (first_bad is seen[0] or all(row.bad is not None for row in seen)):
        raise ReadError(source.path, first_bad.bad or "", first_bad.number, by_record=by_record)
    first = seen[0]
    if isinstance(first.value, Mapping):
        keys = ", ".join(list(map(str, first.value))[:8]) or "none"
        reason = f"no known format has these fields: {keys}. See `specbench workload list`"
    else:
        reason = f"expected a row with fields, got {kind(first.value)}"
    raise ReadError(source.path, reason, first.number, by_record=by_record)


def _plain_text(source: Source) -> Format:
    """Plain text is every file's last resort: refused where the name promises something else."""
    suffix = source.path.suffix.lower()
    if suffix == ".gz":
        suffix = source.path.with_suffix("").suffix.lower()
    if suffix not in _PLAIN_TEXT_SUFFIXES:
        first = next(iter(rows(source)), None)
        line = first.number if first else 1
        what = "a header that names a known column" if suffix in {".csv", ".tsv"} else "JSON"
        raise ReadError(
            source.path,
            f"not {what}: if every line is a prompt, pass --format prompt-text",
            line,
        )
    return next(known for known in FORMATS if known.name == "prompt-text")


def _object_of(value: Any) -> dict[str, Any] | None:
    """A row that is no object but can only mean one: a prompt, or a list of messages."""
    if isinstance(value, str):
        return {"prompt": value}
    if isinstance(value, list) and value and all(isinstance(m, Mapping) and "role" in m for m in value):
        return {"messages": value}
    return None


def _as_object(value: Any, format_name: str) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    made = _object_of(value)
    if made is None or (("prompt" in made) != format_name.startswith("prompt-")):
        raise BadRow(f"expected an object, got {kind(value)}")
    return made
