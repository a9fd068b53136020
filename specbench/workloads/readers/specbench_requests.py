"""specbench's own request files, `specbench.requests/1`: a header line, then one request per line."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from specbench import __version__
from specbench.workloads.readers.base import RowReader
from specbench.workloads.readers.errors import BadRow, NotARow
from specbench.workloads.readers.record import Record
from specbench.workloads.source_request import ReadReport, SourceRequest

SCHEMA: Final = "specbench.requests/1"


def matches(row: Mapping[str, Any]) -> bool:
    """Whether a line is the header or a request with its source."""
    return row.get("schema") == SCHEMA or (isinstance(row.get("source"), Mapping) and "id" in row)


class RequestsReader(RowReader):
    """Requests as specbench wrote them; a header of another schema version stops the read."""

    def parse(self, record: Record) -> SourceRequest:
        """See `RowReader.parse`."""
        schema = record.data.get("schema")
        if schema is not None:
            if schema != SCHEMA:
                raise BadRow(f"this specbench reads {SCHEMA}, the file is {schema!r}")
            raise NotARow
        try:
            made = msgspec.convert(record.data, SourceRequest, strict=True)
        except msgspec.ValidationError as error:
            raise BadRow(f"not a request of {SCHEMA}: {error}") from None
        if made.arrival_s is not None:
            record.time_ns = round(made.arrival_s * 1e9)
        return made


def header(source: Path, report: ReadReport, *, tokenizer: str | None = None) -> dict[str, Any]:
    """The header line of a file made from ``source``: what it was, and what was left out."""
    return {
        "schema": SCHEMA,
        "source": {"file": source.name, "sha256": sha256(source), "format": report.format},
        "loader": f"specbench {__version__}",
        "counts": {
            "rows_read": report.rows_read,
            "loaded": report.loaded,
            "dropped": report.dropped,
            "bad": report.bad,
        },
        "warnings": report.warnings,
        "notes": report.notes,
        "tokenizer": tokenizer,
    }


def sha256(path: Path) -> str:
    """Hex SHA-256 of a file as it lies on disk."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write(path: Path, head: Mapping[str, Any], requests: Iterable[SourceRequest]) -> int:
    """Write a request file, whole or not at all; returns the number of requests."""
    encode = msgspec.json.Encoder().encode  # key order of tools is part of the prompt: kept
    partial = path.with_name(path.name + ".partial")
    written = 0
    try:
        with partial.open("wb") as stream:
            stream.write(msgspec.json.encode(head) + b"\n")
            for item in requests:
                stream.write(encode(item) + b"\n")
                written += 1
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return written
