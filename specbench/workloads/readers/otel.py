"""OpenTelemetry spans with GenAI attributes: one flat span per row, or a trace object around `spans`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specbench.workloads.readers.base import request
from specbench.workloads.readers.chat import answer_text, embedded, messages, output_cap, split_answer
from specbench.workloads.readers.errors import BadRow, Drop
from specbench.workloads.readers.record import Record, kind
from specbench.workloads.source_request import Shape, SourceRequest

_SAMPLING = ("temperature", "top_p", "top_k", "seed")
_CALLS = frozenset({"chat", "text_completion", "generate_content"})


def matches(row: Mapping[str, Any]) -> bool:
    """Whether a row is a span with attributes."""
    return "span_id" in row and isinstance(row.get("attributes"), Mapping) and "start_time" in row


def parse(record: Record) -> SourceRequest:
    """A span; see `RowReader.parse`."""
    record.arrive("start_time", unit="ns", required=True)
    attributes = record.value("attributes")
    if not isinstance(attributes, Mapping):
        raise BadRow(f"attributes must be an object, got {kind(attributes)}")
    if attributes.get("gen_ai.operation.name") not in _CALLS:
        raise Drop("not_a_generation")
    status = record.value("status")
    if isinstance(status, Mapping) and status.get("code") in {2, "ERROR", "STATUS_CODE_ERROR"}:
        raise Drop("failed_request")
    settings = {key: attributes.get(f"gen_ai.request.{key}") for key in ("max_tokens", *_SAMPLING)}
    prompt_tokens = record.count("gen_ai.usage.input_tokens", data=attributes)
    answer = attributes.get("gen_ai.output.text", attributes.get("gen_ai.output.messages"))
    session = attributes.get("gen_ai.conversation.id", record.value("trace_id"))
    fields: dict[str, Any] = {
        "id": record.ident("span_id"),
        "session_id": session if isinstance(session, str) else None,
        "prompt_tokens": prompt_tokens,
        "output_tokens": record.count("gen_ai.usage.output_tokens", data=attributes),
        "max_tokens": output_cap(record, settings),
        "sampling": {key: settings[key] for key in _SAMPLING if settings[key] is not None} or None,
    }
    asked = embedded(attributes.get("gen_ai.input.messages"))
    if asked is not None:
        sent, reference = split_answer(messages(asked))
        return request(record, messages=sent, reference=answer_text(answer) or reference, **fields)
    if not prompt_tokens:
        raise Drop("text_not_stored")
    return request(record, shape=Shape(prompt_tokens=prompt_tokens), text_source="none", **fields)
