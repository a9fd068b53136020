"""AIPerf `single_turn` and `inputs_json`: texts with times and delays in milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from specbench.workloads.readers.base import RowReader, request
from specbench.workloads.readers.chat import messages, output_cap, sampling, split_answer, tools
from specbench.workloads.readers.errors import BadRow, Drop
from specbench.workloads.readers.record import Record, kind
from specbench.workloads.source_request import SourceRequest

_MEDIA: Final = ("image", "images", "audio", "audios", "video", "videos")
_MARKS: Final = frozenset({"timestamp", "delay", "session_id", "output_length", *_MEDIA})


def matches_single_turn(row: Mapping[str, Any]) -> bool:
    """Whether a row is a text with AIPerf's own fields beside it."""
    if "prompt" in row or not ("text" in row or "texts" in row):
        return False
    return row.get("type") == "single_turn" or not _MARKS.isdisjoint(row)


class SingleTurnReader(RowReader):
    """Texts; those of one session that carry a delay follow each other."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}

    def parse(self, record: Record) -> SourceRequest:
        """See `RowReader.parse`."""
        record.arrive("timestamp", unit="ms")
        if any(record.value(name) for name in _MEDIA):
            raise Drop("non_text_content")
        text = record.value("text", "texts")
        if isinstance(text, list) and all(isinstance(item, str) for item in text):
            text = "".join(text)
        if text is not None and not isinstance(text, str):
            raise BadRow(f"text must be a string, got {kind(text)}")
        if text is None or not text.strip():
            raise Drop("empty_prompt")
        output_tokens = record.count("output_length")
        if output_tokens == 0:
            raise Drop("zero_output")
        session_id = record.ident("session_id")
        delay_s = record.seconds("delay", unit="ms")
        after = self._last.get(session_id) if session_id and record.time_ns is None else None
        made = request(
            record,
            id=record.ident("id"),
            prompt=text,
            session_id=session_id,
            after=after,
            delay_s=delay_s if after else None,
            output_tokens=output_tokens,
        )
        if session_id:
            self._last[session_id] = made.id
        return made


def matches_inputs(row: Mapping[str, Any]) -> bool:
    """Whether a row is a session of ready request bodies."""
    return isinstance(row.get("payloads"), list)


def parse_inputs(record: Record) -> SourceRequest:
    """The first body of a session; see `RowReader.parse`."""
    payloads = record.value("payloads")
    if not isinstance(payloads, list) or not all(isinstance(body, Mapping) for body in payloads):
        raise BadRow("payloads must be a list of request bodies")
    if not payloads:
        raise Drop("empty_conversation")
    body = payloads[0]
    if len(payloads) > 1:
        record.notes.append("later_turns_left_out")
    session_id = record.ident("session_id")
    fields: dict[str, Any] = {
        "id": session_id,
        "session_id": session_id,
        "max_tokens": output_cap(record, body),
        "sampling": sampling(body),
        "tools": tools(body),
    }
    if "messages" in body:
        sent, reference = split_answer(messages(body["messages"]))
        return request(record, messages=sent, reference=reference, **fields)
    prompt = body.get("prompt")
    if not isinstance(prompt, str):
        raise BadRow("a payload has neither messages nor a prompt")
    if not prompt.strip():
        raise Drop("empty_prompt")
    return request(record, prompt=prompt, **fields)
