"""What a format is: how its rows are recognised, and how one becomes a request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from specbench.workloads.readers.container import Kind
from specbench.workloads.readers.errors import BadRow
from specbench.workloads.readers.record import Record, shown
from specbench.workloads.source_request import ReadReport, Source, SourceRequest


class RowReader(ABC):
    """Reads the rows of one file in file order. Formats with state between rows keep it here."""

    @abstractmethod
    def parse(self, record: Record) -> SourceRequest:
        """One row as a request.

        Raises:
            BadRow: the row is malformed.
            Drop: the row is well-formed and cannot be used.
            NotARow: the line belongs to the file, not to its rows.
        """

    def finish(
        self,
        requests: list[SourceRequest],
        report: ReadReport,  # noqa: ARG002 - formats that look at all rows count here
    ) -> list[SourceRequest]:
        """Resolve what needs all rows; called once, with the kept requests or with none when streaming."""
        return requests


class Stateless(RowReader):
    """A format whose rows stand for themselves."""

    def __init__(self, parse: Callable[[Record], SourceRequest]) -> None:
        self._parse = parse

    def parse(self, record: Record) -> SourceRequest:
        """See `RowReader.parse`."""
        return self._parse(record)


@dataclass(frozen=True)
class Format:
    """A registry line: name, what it is, the kinds of file it comes in, and its reader."""

    name: str
    title: str
    kinds: frozenset[Kind]
    matches: Callable[[Mapping[str, Any]], bool]
    """Whether a row, by its keys and values, is of this format. Keys of tables are lower-case."""
    reader: Callable[[], RowReader]


JSON: frozenset[Kind] = frozenset({"jsonl", "json"})
CSV: frozenset[Kind] = frozenset({"csv"})
PARQUET: frozenset[Kind] = frozenset({"parquet"})
TEXT: frozenset[Kind] = frozenset({"text"})


def text_source(value: Any) -> str:
    """``recorded``, ``matched:<corpus>`` or ``filler:<kind>``: filler must stay filler, whatever reads it.

    Raises:
        BadRow: something else.
    """
    kind, _, detail = value.partition(":") if isinstance(value, str) else ("", "", "")
    if value != "recorded" and not (kind in {"matched", "filler"} and detail):
        raise BadRow(f"text_source must be recorded, matched:<corpus> or filler:<kind>, got {shown(value)}")
    return str(value)


def request(record: Record, *, id: str | None = None, **fields: Any) -> SourceRequest:  # noqa: A002
    """A request of this row; without an id of its own it is named by its line or record number.

    Raises:
        BadRow: the row says where its text comes from, in words that specbench does not know.
    """
    if "shape" not in fields and (said := record.value("text_source")) is not None:
        fields["text_source"] = text_source(said)
    return SourceRequest(
        id=id if id is not None else str(record.number),
        source=Source(file=record.file, line=record.number, id=id),
        **fields,
    )
