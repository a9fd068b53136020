"""RAGPulse: one week of a retrieval service. Seconds as text, block ids by part of the prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specbench.workloads.readers.base import request
from specbench.workloads.readers.errors import BadRow
from specbench.workloads.readers.record import Record, kind
from specbench.workloads.source_request import Shape, SourceRequest


def matches(row: Mapping[str, Any]) -> bool:
    """Whether a row has block ids by part of the prompt."""
    return "input_length" in row and isinstance(row.get("hash_ids"), Mapping)


def parse(record: Record) -> SourceRequest:
    """A row of lengths; see `RowReader.parse`.

    The ids name passages of unlike and unrecorded lengths, so that they give no prefix of known size.
    """
    time = record.value("timestamp")
    if isinstance(time, str) and time.strip().replace(".", "", 1).isdecimal():
        record.arrive_at("timestamp", float(time) * 1e9)  # text is the format's own way: no repair
    else:
        record.arrive("timestamp", unit="s", required=True)
    prompt_tokens, output_tokens = record.lengths(("input_length",), ("output_length",))
    ids = record.value("hash_ids")
    if not isinstance(ids, Mapping):
        raise BadRow(f"hash_ids must be an object, got {kind(ids)}")
    record.notes.append("passage_ids_without_lengths")
    return request(
        record,
        shape=Shape(prompt_tokens=prompt_tokens),
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        session_id=record.ident("session_id"),
        category="rag",
        text_source="none",
    )
