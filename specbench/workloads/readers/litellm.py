"""LiteLLM spend logs: lengths and times, and the messages where the proxy was told to keep them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specbench.workloads.readers.base import request
from specbench.workloads.readers.chat import answer_text, embedded, messages, split_answer
from specbench.workloads.readers.errors import Drop
from specbench.workloads.readers.record import Record
from specbench.workloads.source_request import Shape, SourceRequest

_START = ("startTime", "starttime")


def matches(row: Mapping[str, Any]) -> bool:
    """Whether a row is of a spend log or a standard logging payload."""
    return any(n in row for n in _START) and "completion_tokens" in row


def parse(record: Record) -> SourceRequest:
    """A logged call; see `RowReader.parse`."""
    record.arrive(*_START, unit="s", required=True)
    call = (record.text("call_type") or "completion").lower()
    if not any(word in call for word in ("completion", "responses", "generate_content", "messages")):
        raise Drop("not_a_generation")
    if "fail" in (record.text("status") or "").lower():
        raise Drop("failed_request")
    if str(record.value("cache_hit")).lower() == "true":
        raise Drop("cache_hit")
    prompt_tokens, output_tokens = record.lengths(("prompt_tokens",), ("completion_tokens",))
    fields: dict[str, Any] = {
        "id": record.ident("request_id", "id"),
        "session_id": record.ident("session_id"),
        "prompt_tokens": prompt_tokens,
        "output_tokens": output_tokens,
    }
    kept = embedded(record.value("messages"))
    if isinstance(kept, list) and kept:
        sent, reference = split_answer(messages(kept))
        return request(
            record, messages=sent, reference=answer_text(record.value("response")) or reference, **fields
        )
    record.notes.append("text_not_stored")
    return request(record, shape=Shape(prompt_tokens=prompt_tokens), text_source="none", **fields)
