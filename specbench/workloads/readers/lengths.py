"""Lengths without text: Vidur's processed traces, and any table with a column for each of the two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from specbench.workloads.readers.base import request
from specbench.workloads.readers.prompts import (
    ID_NAMES,
    INPUT_NAMES,
    OUTPUT_NAMES,
    PROMPT_NAMES,
    SESSION_NAMES,
    arrive,
)
from specbench.workloads.readers.record import Record
from specbench.workloads.source_request import Shape, SourceRequest

_INPUT: Final = ("num_prefill_tokens", *INPUT_NAMES)
_OUTPUT: Final = ("num_decode_tokens", *OUTPUT_NAMES)


def matches(row: Mapping[str, Any]) -> bool:
    """Whether a row has both lengths and no prompt."""
    return (
        any(name in row for name in _INPUT)
        and any(name in row for name in _OUTPUT)
        and not any(name in row for name in (*PROMPT_NAMES, "messages", "conversations", "conversation"))
    )


def parse(record: Record) -> SourceRequest:
    """A row of lengths; see `RowReader.parse`."""
    if record.value("arrived_at") is not None:
        record.arrive("arrived_at", unit="s")
    else:
        arrive(record)
    prompt_name = next((name for name in _INPUT if name in record.data), _INPUT[0])
    output_name = next((name for name in _OUTPUT if name in record.data), _OUTPUT[0])
    prompt_tokens, output_tokens = record.lengths((prompt_name,), (output_name,))
    category = record.value("category", "task")
    return request(
        record,
        id=record.ident(*ID_NAMES),
        shape=Shape(prompt_tokens=prompt_tokens),
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        session_id=record.ident(*SESSION_NAMES),
        category=category if isinstance(category, str) and category else None,
        text_source="none",
    )
