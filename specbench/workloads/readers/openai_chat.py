"""OpenAI chat logs and SGLang `openai`: one request body per row, alone or beside its response."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specbench.workloads.readers.base import request
from specbench.workloads.readers.chat import answer_text, messages, output_cap, sampling, split_answer, tools
from specbench.workloads.readers.errors import BadRow, Drop
from specbench.workloads.readers.prompts import ANSWER_NAMES, ID_NAMES, OUTPUT_NAMES, SESSION_NAMES, arrive
from specbench.workloads.readers.prompts import parse as parse_prompt
from specbench.workloads.readers.record import Record, kind
from specbench.workloads.source_request import SourceRequest


def matches(row: Mapping[str, Any]) -> bool:
    """Whether a row is, or wraps, a chat request."""
    body = row.get("request")
    return _chat_name(row) is not None or (isinstance(body, Mapping) and _chat_name(body) is not None)


def parse(record: Record) -> SourceRequest:
    """A chat request; see `RowReader.parse`."""
    body: Any = record.data
    if _chat_name(body) is None and isinstance(record.value("prompt"), str):
        return parse_prompt(record)  # files may hold both kinds of row
    arrive(record)
    if _chat_name(body) is None:
        body = record.value("request")
        if not isinstance(body, Mapping) or _chat_name(body) is None:
            raise BadRow("no messages")
    sent, reference = split_answer(messages(body[_chat_name(body)]))
    response = record.value("response", *ANSWER_NAMES)
    usage = _usage(record.data) or (_usage(response) if isinstance(response, Mapping) else {})
    category = record.value("category")
    output_tokens = record.count("completion_tokens", "output_tokens", data=usage)
    if output_tokens is None:
        output_tokens = record.count(*OUTPUT_NAMES)
    return request(
        record,
        id=record.ident(*ID_NAMES),
        messages=sent,
        tools=tools(body),
        sampling=sampling(body),
        max_tokens=output_cap(record, body),
        prompt_tokens=record.count("prompt_tokens", "input_tokens", data=usage or record.data),
        output_tokens=output_tokens,
        session_id=record.ident(*SESSION_NAMES),
        category=category if isinstance(category, str) and category else None,
        reference=reference or answer_text(response),
    )


def parse_batch(record: Record) -> SourceRequest:
    """A row of an OpenAI batch input file; see `RowReader.parse`."""
    body = record.value("body")
    if not isinstance(body, Mapping):
        raise BadRow(f"body must be an object, got {kind(body)}")
    url = record.text("url") or ""
    if "embeddings" in url or "moderations" in url:
        raise Drop("not_a_generation")
    request_id = record.ident("custom_id")
    if request_id is None:
        raise BadRow("custom_id is missing")
    common: dict[str, Any] = {
        "id": request_id,
        "tools": tools(body),
        "sampling": sampling(body),
        "max_tokens": output_cap(record, body),
    }
    prompt = body.get("prompt", body.get("input"))
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
        prompt = prompt[0]
    if "messages" in body or isinstance(prompt, list):
        sent, reference = split_answer(messages(body.get("messages", prompt)))
        return request(record, messages=sent, reference=reference, **common)
    if not isinstance(prompt, str):
        raise BadRow("body has neither messages nor a prompt")
    if not prompt.strip():
        raise Drop("empty_prompt")
    return request(record, prompt=prompt, **common)


def matches_batch(row: Mapping[str, Any]) -> bool:
    """Whether a row is a batch request."""
    return "custom_id" in row and "body" in row


def _chat_name(body: Mapping[str, Any]) -> str | None:
    return next((n for n in ("messages", "chat_messages") if n in body), None)


def _usage(holder: Mapping[str, Any]) -> Mapping[str, Any]:
    usage = holder.get("usage")
    return usage if isinstance(usage, Mapping) else {}
