"""HumanEval: function heads to complete, with the accepted completion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specbench.workloads.readers.base import request
from specbench.workloads.readers.errors import BadRow, Drop
from specbench.workloads.readers.record import Record
from specbench.workloads.source_request import SourceRequest


def matches(row: Mapping[str, Any]) -> bool:
    """Whether a row is a HumanEval task."""
    return "task_id" in row and "prompt" in row and ("entry_point" in row or "canonical_solution" in row)


def parse(record: Record) -> SourceRequest:
    """A task; see `RowReader.parse`."""
    prompt = record.text("prompt")
    if prompt is None:
        raise BadRow("prompt is missing")
    if not prompt.strip():
        raise Drop("empty_prompt")
    return request(
        record,
        id=record.ident("task_id"),
        prompt=prompt,
        category="code",
        reference=record.text("canonical_solution"),
    )
