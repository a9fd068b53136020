"""Prompts with optional lengths: vLLM `custom`, GuideLLM files, plain JSONL, JSON, CSV, Parquet and text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from specbench.workloads.readers.base import request
from specbench.workloads.readers.chat import messages, output_cap, sampling, split_answer
from specbench.workloads.readers.errors import BadRow, Drop
from specbench.workloads.readers.record import Record, kind
from specbench.workloads.source_request import SourceRequest

PROMPT_NAMES: Final = (
    "prompt",
    "prompt-0",
    "prompt_0",
    "text_input",
    "instruction",
    "question",
    "query",
    "input",
    "context",
    "content",
    "text",
)
"""Names of the prompt, best first; `prompt-0` is the first turn of GuideLLM's multi-turn columns."""

OUTPUT_NAMES: Final = (
    "output_tokens",
    "output_len",
    "output_length",
    "output_tokens_count",
    "completion_tokens_count",
    "completion_tokens",
    "num_output_tokens",
    "expected_output_len",
)
INPUT_NAMES: Final = (
    "prompt_tokens",
    "prompt_tokens_count",
    "input_tokens_count",
    "input_tokens",
    "prompt_len",
    "input_len",
    "input_length",
)
ANSWER_NAMES: Final = (
    "reference",
    "answer",
    "response",
    "completion",
    "expected_output",
    "output",
    "target",
    "canonical_solution",
)
ID_NAMES: Final = (
    "id",
    "request_id",
    "custom_id",
    "question_id",
    "task_id",
    "conversation_id",
    "prompt_id",
    "uuid",
)
TIME_NAMES: Final = ("timestamp", "arrival_s", "arrival_time", "start_time", "created_at", "time")
SESSION_NAMES: Final = ("session_id", "provided_session_id")
_LATER_TURNS: Final = ("prompt-1", "prompt_1")

# Epoch numbers tell their unit by size; what is smaller counts from a start of its own, in seconds.
_EPOCH_UNITS: Final = ((1e17, "ns"), (1e14, "us"), (1e11, "ms"), (0.0, "s"))


def matches(row: Mapping[str, Any]) -> bool:
    """Whether a row names a prompt."""
    return any(name in row for name in PROMPT_NAMES)


def parse(record: Record) -> SourceRequest:
    """A prompt row; see `RowReader.parse`."""
    arrive(record)
    name, value = record.named_value(*(n for n in PROMPT_NAMES if n in record.data), "prompt")
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        sent, reference = split_answer(messages(value))
        return request(record, id=record.ident(*ID_NAMES), messages=sent, **settings(record, reference))
    if isinstance(value, list) and value and all(isinstance(item, int) for item in value):
        raise Drop("token_ids_prompt")
    if value is None and isinstance(record.value("messages"), list):  # files may hold both kinds of row
        sent, reference = split_answer(messages(record.data["messages"]))
        return request(record, id=record.ident(*ID_NAMES), messages=sent, **settings(record, reference))
    if value is not None and not isinstance(value, str):
        raise BadRow(f"{name} must be a string, got {kind(value)}")
    if not any(n in record.data for n in PROMPT_NAMES):
        raise BadRow("no prompt: name it prompt, or one of " + ", ".join(PROMPT_NAMES[4:]))
    if value is None or not value.strip():
        raise Drop("empty_prompt")
    if name == "instruction" and isinstance(record.value("input"), str) and record.data["input"].strip():
        value = f"{value}\n\n{record.data['input']}"
    if any(isinstance(record.value(later), str) for later in _LATER_TURNS):
        record.notes.append("later_turns_left_out")
    used = "input" if name == "instruction" else name
    reference = next(
        (record.data[n] for n in ANSWER_NAMES if n != used and isinstance(record.data.get(n), str)), None
    )
    fields = settings(record, reference or None)
    system = record.value("system_prompt", "system")
    if isinstance(system, str) and system.strip():
        pair = ({"role": "system", "content": system}, {"role": "user", "content": value})
        return request(record, id=record.ident(*ID_NAMES), messages=pair, **fields)
    return request(record, id=record.ident(*ID_NAMES), prompt=value, **fields)


def settings(record: Record, reference: str | None) -> dict[str, Any]:
    """The fields that every prompt row may carry.

    Raises:
        Drop: ``zero_output``, a row that asks for nothing.
    """
    output_tokens = record.count(*OUTPUT_NAMES)
    if output_tokens == 0:
        raise Drop("zero_output")
    category = record.value("category", "task", "type")
    return {
        "prompt_tokens": record.count(*INPUT_NAMES),
        "output_tokens": output_tokens,
        "max_tokens": output_cap(record, record.data),
        "sampling": None if record.textual else sampling(record.data),
        "session_id": record.ident(*SESSION_NAMES),
        "category": category if isinstance(category, str) and category else None,
        "reference": reference,
    }


def arrive(record: Record) -> None:
    """Take an arrival time if there is one; a bare number is read by its size, and noted.

    Raises:
        BadRow: a time that is neither a date nor a number.
    """
    if record.value("timestamp_start_unix_ms") is not None:
        record.arrive("timestamp_start_unix_ms", unit="ms")
        return
    name, value = record.named_value(*TIME_NAMES)
    if record.textual and value is not None and value.strip().replace(".", "", 1).isdecimal():
        value = float(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        unit = next(unit for floor, unit in _EPOCH_UNITS if abs(value) >= floor)
        record.notes.append(f"times_read_as_{unit}")
        record.arrive(name, unit=unit)
    elif value is not None:
        record.arrive(name, unit="s")
