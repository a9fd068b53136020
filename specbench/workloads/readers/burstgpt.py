"""BurstGPT 1 to 3. Columns go by name: the third release inserted two before the counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specbench.workloads.readers.base import request
from specbench.workloads.readers.record import Record
from specbench.workloads.source_request import Shape, SourceRequest


def matches(row: Mapping[str, Any]) -> bool:
    """Whether a row has BurstGPT's columns."""
    return "request tokens" in row and "response tokens" in row


def parse(record: Record) -> SourceRequest:
    """A row of lengths; a response of zero tokens marks a failed request. See `RowReader.parse`."""
    record.arrive("timestamp", unit="s", required=True)
    prompt_tokens, output_tokens = record.lengths(("request tokens",), ("response tokens",))
    log = (record.text("log type") or "").lower()
    return request(
        record,
        shape=Shape(prompt_tokens=prompt_tokens),
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        session_id=record.ident("session id"),
        category="chat" if "conversation" in log else "api" if "api" in log else None,
        text_source="none",
    )
