"""MT-Bench, Spec-Bench and SPEED-Bench questions: rows with `turns`, of which the first is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from specbench.workloads.readers.base import request
from specbench.workloads.readers.chat import first_exchange, messages, split_answer
from specbench.workloads.readers.errors import BadRow, Drop
from specbench.workloads.readers.prompts import ID_NAMES, settings
from specbench.workloads.readers.record import Record, kind
from specbench.workloads.source_request import SourceRequest

_PLACEHOLDER: Final = "FULL BENCHMARK DATA SHOULD BE FETCHED"
"""What SPEED-Bench ships in place of texts that its prepare script has to fetch."""


def matches(row: Mapping[str, Any]) -> bool:
    """Whether a row has turns of questions."""
    return "turns" in row and "choices" not in row


def parse(record: Record) -> SourceRequest:
    """The first question of a row; see `RowReader.parse`."""
    turns = record.value("turns")
    if turns is None or turns == []:
        raise Drop("empty_conversation")
    if not isinstance(turns, (list, tuple)):
        raise BadRow(f"turns must be a list, got {kind(turns)}")
    fields = settings(record, _first(record.value("reference")))
    ident = record.ident(*ID_NAMES)
    first = turns[0]
    if isinstance(first, Mapping):
        sent, reference = (
            first_exchange(record, turns) if "role" in first or "from" in first else _aiperf(record, turns)
        )
        fields["reference"] = reference or fields["reference"]
        return request(record, id=ident, messages=sent, **fields)
    if first is not None and not isinstance(first, str):
        raise BadRow(f"a turn must be a string, got {kind(first)}")
    if first is None or not first.strip():
        raise Drop("empty_prompt")
    if first.startswith(_PLACEHOLDER):
        raise Drop("placeholder_text")
    if len(turns) > 1:
        record.notes.append("later_turns_left_out")
    return request(record, id=ident, prompt=first, **fields)


def _aiperf(record: Record, turns: Any) -> tuple[tuple[dict[str, Any], ...], str | None]:
    """The first turn of an AIPerf multi-turn session: an object with its text."""
    text = turns[0].get("text", turns[0].get("texts"))
    if any(turns[0].get(media) for media in ("image", "images", "audio", "audios", "video", "videos")):
        raise Drop("non_text_content")
    content = "".join(text) if isinstance(text, list) and all(isinstance(t, str) for t in text) else text
    if len(turns) > 1:
        record.notes.append("later_turns_left_out")
    return split_answer(messages([{"role": "user", "content": content}]))


def _first(reference: Any) -> str | None:
    """The reference answer to the first turn."""
    if isinstance(reference, (list, tuple)):
        reference = reference[0] if reference else None
    return reference if isinstance(reference, str) and reference else None
