"""Request records as an Arrow table, one row per request, and back without loss."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

from specbench.load.record import ErrorClass, RequestAcceptance, RequestRecord

SCHEMA_VERSION: Final = "specbench.requests/1"
_VERSION_KEY: Final = b"specbench.schema"

_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("id", pa.string(), nullable=False),
    pa.field("index", pa.int64(), nullable=False),
    pa.field("category", pa.string(), nullable=False),
    pa.field("intended_s", pa.float64(), nullable=False),
    pa.field("sent_s", pa.float64()),
    pa.field("end_s", pa.float64()),
    pa.field("chunk_s", pa.list_(pa.float64()), nullable=False),
    pa.field("chunk_tokens", pa.list_(pa.int32()), nullable=False),
    pa.field("token_ids", pa.list_(pa.int32()), nullable=False),
    pa.field("prompt_tokens", pa.int64()),
    pa.field("cached_tokens", pa.int64()),
    pa.field("output_tokens", pa.int64()),
    pa.field("finish_reason", pa.string()),
    pa.field("http_status", pa.int32()),
    pa.field("error_class", pa.string()),
    pa.field("error", pa.string()),
    pa.field("spec_drafted_steps", pa.int64()),
    pa.field("spec_draft_tokens", pa.int64()),
    pa.field("spec_accepted_tokens", pa.int64()),
    pa.field("spec_histogram", pa.list_(pa.int64())),
]
SCHEMA: Final = pa.schema(_FIELDS, metadata={_VERSION_KEY: SCHEMA_VERSION.encode()})

_PLAIN: Final = tuple(name for name in SCHEMA.names if name != "error_class" and not name.startswith("spec_"))


class WrongSchema(ValueError):
    """A table is not one of request records, or from another version."""


def records_to_table(records: Iterable[RequestRecord]) -> pa.Table:
    """Columns as in `SCHEMA`.

    Raises:
        ValueError: a time is not finite.
    """
    kept = list(records)
    for record in kept:
        _check_finite(record)
    columns: dict[str, list[Any]] = {name: [getattr(r, name) for r in kept] for name in _PLAIN}
    columns["error_class"] = [r.error_class and r.error_class.value for r in kept]
    spec = [r.acceptance for r in kept]
    columns["spec_drafted_steps"] = [a and a.drafted_steps for a in spec]
    columns["spec_draft_tokens"] = [a and a.draft_tokens for a in spec]
    columns["spec_accepted_tokens"] = [a and a.accepted_tokens for a in spec]
    columns["spec_histogram"] = [a and a.histogram for a in spec]
    return pa.table(columns, schema=SCHEMA)


def table_to_records(table: pa.Table) -> list[RequestRecord]:
    """The records of a table made by `records_to_table`.

    Raises:
        WrongSchema: it is something else.
    """
    version = (table.schema.metadata or {}).get(_VERSION_KEY, b"none").decode("utf-8", "replace")
    if version != SCHEMA_VERSION:
        raise WrongSchema(f"the table's schema is {version!r}, this program reads {SCHEMA_VERSION!r}")
    missing = [name for name in SCHEMA.names if name not in table.schema.names]
    if missing:
        raise WrongSchema(f"the table of requests lacks the columns {', '.join(missing)}")
    return list(_rows(table))


def _rows(table: pa.Table) -> Iterator[RequestRecord]:
    for row in table.select(SCHEMA.names).to_pylist():
        acceptance = None
        if row["spec_drafted_steps"] is not None:
            acceptance = RequestAcceptance(
                drafted_steps=row["spec_drafted_steps"],
                draft_tokens=row["spec_draft_tokens"],
                accepted_tokens=row["spec_accepted_tokens"],
                histogram=tuple(row["spec_histogram"] or ()),
            )
        error_class = row["error_class"]
        yield RequestRecord(
            **{name: row[name] for name in _PLAIN},
            error_class=None if error_class is None else ErrorClass(error_class),
            acceptance=acceptance,
        )


def _check_finite(record: RequestRecord) -> None:
    times = (record.intended_s, record.sent_s, record.end_s, *record.chunk_s)
    if not all(t is None or math.isfinite(t) for t in times):
        raise ValueError(f"request {record.id!r} (index {record.index}) has a time that is not finite")
