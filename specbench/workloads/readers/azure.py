"""Azure LLM inference traces of 2023, 2024 and 2025 (wall-clock times, up to seven fractional digits)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from specbench.workloads.readers.base import request
from specbench.workloads.readers.errors import Drop
from specbench.workloads.readers.record import Record
from specbench.workloads.source_request import Shape, SourceRequest

TIME: Final = "timestamp"
PROMPT: Final = "contexttokens"
OUTPUT: Final = "generatedtokens"


def matches(row: Mapping[str, Any]) -> bool:
    """Whether a row has the columns of an Azure trace."""
    return PROMPT in row and OUTPUT in row


def parse(record: Record) -> SourceRequest:
    """A row of lengths; see `RowReader.parse`."""
    record.arrive(TIME, required=True)
    prompt_tokens, output_tokens = record.lengths((PROMPT,), (OUTPUT,))
    if record.count("numimages"):
        raise Drop("non_text_content")
    return request(
        record,
        shape=Shape(prompt_tokens=prompt_tokens),
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        text_source="none",
    )
