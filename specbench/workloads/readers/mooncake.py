"""Mooncake traces and what shares their columns: AIPerf `mooncake_trace`, vLLM `timed_trace`.

Mooncake counts milliseconds and blocks of 512 tokens; vLLM's `timed_trace` seconds and blocks of 16.
A file says which by how many blocks its prompts have; without blocks it is read as Mooncake.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from specbench.workloads.readers.base import RowReader, request
from specbench.workloads.readers.chat import messages, output_cap, sampling, split_answer, tools
from specbench.workloads.readers.errors import BadRow, Drop
from specbench.workloads.readers.record import Record, shown
from specbench.workloads.source_request import Prefix, Shape, SourceRequest

MOONCAKE_BLOCK: Final = 512
TIMED_TRACE_BLOCK: Final = 16
_CONTENT: Final = ("text_input", "messages", "payload")


def matches(row: Mapping[str, Any]) -> bool:
    """Whether a row has a time with lengths, or AIPerf's text in their place."""
    if "chat_id" in row or isinstance(row.get("hash_ids"), Mapping):
        return False
    if "text_input" in row:
        return True
    return "input_length" in row and ("timestamp" in row or "delay" in row or "hash_ids" in row)


def matches_timed_trace(row: Mapping[str, Any]) -> bool:
    """Whether a row is of Mooncake's columns with as many blocks as blocks of 16 tokens make."""
    ids, length = row.get("hash_ids"), row.get("input_length")
    if not matches(row) or not isinstance(ids, list) or not isinstance(length, int) or not ids:
        return False
    return abs(len(ids) - length / TIMED_TRACE_BLOCK) < 2 and len(ids) > length / MOONCAKE_BLOCK + 1


def prefix(
    record: Record, prompt_tokens: int, block_tokens: int, scope: Literal["global", "session"] = "global"
) -> Prefix | None:
    """The block ids of a row; a number of blocks that does not fit the length is noted.

    Raises:
        BadRow: ids that are no list of integers.
    """
    ids = record.value("hash_ids")
    if ids is None or ids == []:
        return None
    if not isinstance(ids, list) or not all(type(item) is int for item in ids):
        raise BadRow(f"hash_ids must be a list of integers, got {shown(ids)}")
    if len(ids) != -(-prompt_tokens // block_tokens):
        record.notes.append("blocks_do_not_fit_length")
    return Prefix(block_tokens=block_tokens, ids=tuple(ids), scope=scope)


class TraceReader(RowReader):
    """Rows of a trace; rows of a session follow each other when they carry a delay."""

    def __init__(self, block_tokens: int, unit: str) -> None:
        self._block_tokens = block_tokens
        self._unit = unit
        self._last: dict[str, str] = {}

    def parse(self, record: Record) -> SourceRequest:
        """See `RowReader.parse`."""
        record.arrive("timestamp", unit=self._unit)
        session_id = record.ident("session_id")
        delay_s = record.seconds("delay", unit=self._unit)
        if record.time_ns is None and delay_s is None and session_id is None:
            raise BadRow("timestamp is missing")
        made_id = record.ident("id", "request_id")
        after = self._last.get(session_id) if session_id and record.time_ns is None else None
        fields: dict[str, Any] = {
            "id": made_id,
            "session_id": session_id,
            "after": after,
            "delay_s": delay_s if after else None,
        }
        made = self._content(record, fields)
        if session_id:
            self._last[session_id] = made.id
        return made

    def _content(self, record: Record, fields: dict[str, Any]) -> SourceRequest:
        if not any(name in record.data for name in _CONTENT):
            prompt_tokens, output_tokens = record.lengths(("input_length",), ("output_length",))
            shape = Shape(
                prompt_tokens=prompt_tokens, prefix=prefix(record, prompt_tokens, self._block_tokens)
            )
            fields |= {"prompt_tokens": prompt_tokens, "output_tokens": output_tokens}
            return request(record, shape=shape, text_source="none", **fields)
        payload = record.value("payload")
        body = payload if isinstance(payload, Mapping) else record.data
        output_tokens_or_none = record.count("output_length")
        if output_tokens_or_none == 0:
            raise Drop("zero_output")
        fields |= {
            "prompt_tokens": record.count("input_length"),
            "output_tokens": output_tokens_or_none,
            "max_tokens": output_cap(record, body),
            "sampling": sampling(body),
            "tools": tools(body),
        }
        if body.get("messages") is not None:
            sent, reference = split_answer(messages(body["messages"]))
            return request(record, messages=sent, reference=reference, **fields)
        text = record.text("text_input")
        if text is None or not text.strip():
            raise Drop("empty_prompt")
        return request(record, prompt=text, **fields)
