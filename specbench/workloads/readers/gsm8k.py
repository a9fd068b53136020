"""GSM8K: school mathematics with worked answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specbench.workloads.readers.base import request
from specbench.workloads.readers.errors import BadRow, Drop
from specbench.workloads.readers.record import Record
from specbench.workloads.source_request import SourceRequest


def matches(row: Mapping[str, Any]) -> bool:
    """Whether a row is a question whose worked answer ends in `#### result`."""
    answer = row.get("answer")
    return isinstance(row.get("question"), str) and isinstance(answer, str) and "####" in answer


def parse(record: Record) -> SourceRequest:
    """A question; see `RowReader.parse`."""
    question = record.text("question")
    if question is None:
        raise BadRow("question is missing")
    if not question.strip():
        raise Drop("empty_prompt")
    return request(record, prompt=question, category="math", reference=record.text("answer"))
