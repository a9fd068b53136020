"""ShareGPT, SGLang `custom`, and tables of conversations (WildChat, LMSYS): first exchanges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specbench.workloads.readers.base import request
from specbench.workloads.readers.chat import first_exchange
from specbench.workloads.readers.errors import Drop
from specbench.workloads.readers.prompts import ID_NAMES, arrive, settings
from specbench.workloads.readers.record import Record
from specbench.workloads.source_request import SourceRequest

_NAMES = ("conversations", "conversation")


def matches(row: Mapping[str, Any]) -> bool:
    """Whether a row holds a conversation."""
    return any(isinstance(row.get(name), (list, type(None))) for name in _NAMES if name in row)


def parse(record: Record) -> SourceRequest:
    """A conversation; see `RowReader.parse`."""
    arrive(record)
    if not any(name in record.data for name in _NAMES):
        raise Drop("no_conversation_field")
    sent, reference = first_exchange(record, record.value(*_NAMES))
    fields = settings(record, reference)
    if "later_turns_left_out" in record.notes:
        fields["output_tokens"] = None  # a count of the whole conversation is not one of the first answer
        fields["prompt_tokens"] = None
    return request(record, id=record.ident(*ID_NAMES), messages=sent, **fields)
