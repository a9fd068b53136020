"""Langfuse exports: observations as JSONL or CSV, of which the generations are requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from specbench.workloads.readers.base import request
from specbench.workloads.readers.chat import (
    answer_text,
    embedded,
    messages,
    output_cap,
    sampling,
    split_answer,
    tools,
)
from specbench.workloads.readers.errors import BadRow, Drop
from specbench.workloads.readers.record import Record, kind
from specbench.workloads.source_request import SourceRequest

_TRACE: Final = ("trace_id", "traceId", "traceid")
_START: Final = ("start_time", "startTime", "starttime")
_USAGE: Final = ("usage_details", "usageDetails", "usagedetails", "usage")


def matches(row: Mapping[str, Any]) -> bool:
    """Whether a row is an observation of a trace."""
    return (
        any(n in row for n in _TRACE) and any(n in row for n in _START) and "input" in row and "type" in row
    )


def parse(record: Record) -> SourceRequest:
    """An observation; see `RowReader.parse`."""
    record.arrive(*_START, required=True)
    observed = record.text("type")
    if observed is None:
        raise BadRow("type is missing")
    if observed.upper() != "GENERATION":
        raise Drop("not_a_generation")
    if (record.text("level") or "").upper() == "ERROR":
        raise Drop("failed_request")
    usage = embedded(record.value(*_USAGE)) or {}
    if not isinstance(usage, Mapping):
        raise BadRow(f"usage_details must be an object, got {kind(usage)}")
    parameters = embedded(record.value("model_parameters", "modelParameters", "modelparameters"))
    parameters = parameters if isinstance(parameters, Mapping) else {}
    asked = embedded(record.value("input"))
    body = asked if isinstance(asked, Mapping) else {}
    fields: dict[str, Any] = {
        "id": record.ident("id"),
        "session_id": record.ident("session_id", "sessionId", "sessionid"),
        "prompt_tokens": record.count("input", "prompt_tokens", "promptTokens", data=usage),
        "output_tokens": record.count("output", "completion_tokens", "completionTokens", data=usage),
        "sampling": sampling(parameters) or sampling(body),
        "max_tokens": output_cap(record, body if "messages" in body else parameters),
        "tools": tools(body),
    }
    answer = answer_text(record.value("output"))
    history = asked if isinstance(asked, list) else body.get("messages")
    if history is not None:
        sent, reference = split_answer(messages(history))
        return request(record, messages=sent, reference=answer or reference, **fields)
    prompt = body.get("prompt") if body else asked
    if prompt is None:
        raise Drop("empty_prompt")
    if not isinstance(prompt, str):
        raise BadRow("input must be a string, messages, or an object with messages or prompt")
    if not prompt.strip():
        raise Drop("empty_prompt")
    return request(record, prompt=prompt, reference=answer, **fields)
