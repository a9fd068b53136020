"""OpenAI messages, ShareGPT conversations and request settings, checked and made uniform."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from specbench.workloads.readers.errors import BadRow, Drop
from specbench.workloads.readers.record import Record, kind, shown

Message = dict[str, Any]

ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_SHAREGPT_ROLES: Final = {
    "human": "user",
    "user": "user",
    "prompter": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "model": "assistant",
    "assistant": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "tool",
    "function_response": "tool",
    "observation": "tool",
    "function_call": "assistant",
}
_TEXT_PARTS: Final = frozenset({"text", "input_text", "output_text"})
_SAMPLING: Final = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "stop",
    "n",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "response_format",
    "tool_choice",
    "logit_bias",
    "ignore_eos",
)


def plain_content(content: Any) -> str | None:
    """The text of a message's content: a string, null, or a list of text parts joined.

    Raises:
        Drop: ``non_text_content``, a part that is no text.
        BadRow: anything else.
    """
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise BadRow(f"content must be a string, a list of parts or null, got {kind(content)}")
    texts = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
            continue
        if not isinstance(part, Mapping):
            raise BadRow(f"a content part must be an object, got {kind(part)}")
        if part.get("type", "text") not in _TEXT_PARTS:
            raise Drop("non_text_content")
        text = part.get("text")
        if not isinstance(text, str):
            raise BadRow(f"a text part without text: {shown(dict(part))}")
        texts.append(text)
    return "".join(texts)


def messages(value: Any) -> list[Message]:
    """OpenAI messages with text parts joined; every other field is kept as it is.

    Raises:
        Drop: ``empty_messages`` or ``non_text_content``.
        BadRow: not a list of messages with known roles.
    """
    if value is None or value == []:
        raise Drop("empty_messages")
    if not isinstance(value, (list, tuple)):
        raise BadRow(f"messages must be a list, got {kind(value)}")
    made = []
    for place, message in enumerate(value, 1):
        if not isinstance(message, Mapping):
            raise BadRow(f"message {place} must be an object, got {kind(message)}")
        role = message.get("role")
        if role not in ROLES:
            raise BadRow(f"message {place} has the unknown role {shown(role)}")
        # Columns of a table hold every key for every message: what is null there was not sent.
        kept = {key: item for key, item in message.items() if item is not None or key == "content"}
        made.append({**kept, "content": plain_content(message.get("content"))})
    return made


def split_answer(history: list[Message]) -> tuple[tuple[Message, ...], str | None]:
    """(what is sent, the recorded answer): a closing assistant message is the answer.

    Raises:
        Drop: ``no_user_turn`` or ``empty_prompt``.
    """
    reference = None
    if history[-1]["role"] == "assistant":
        reference = history[-1]["content"] or None
        history = history[:-1]
    asking = [message for message in history if message["role"] in {"user", "tool", "function"}]
    if not asking:
        raise Drop("no_user_turn")
    if not any((message["content"] or "").strip() for message in asking):
        raise Drop("empty_prompt")
    return tuple(history), reference


def first_exchange(record: Record, turns: Any) -> tuple[tuple[Message, ...], str | None]:
    """The first user turns of a ShareGPT conversation and the answer to them.

    System turns before them are kept, answers before them are not; turns after the answer are
    left out and noted. Turns without any role alternate, the user first.

    Raises:
        Drop: ``empty_conversation``, ``no_user_turn``, ``empty_prompt`` or ``non_text_content``.
        BadRow: turns that are no turns.
    """
    if turns is None or (isinstance(turns, (list, tuple)) and not turns):
        raise Drop("empty_conversation")
    if not isinstance(turns, (list, tuple)):
        raise BadRow(f"a conversation must be a list of turns, got {kind(turns)}")
    if not all(isinstance(turn, Mapping) for turn in turns):
        raise BadRow("a turn of a conversation must be an object with its role and text")
    nameless = not any("from" in turn or "role" in turn for turn in turns)
    sent: list[Message] = []
    asked = False
    for place, turn in enumerate(turns):
        role = _sharegpt_role(turn, place, nameless)
        text = plain_content(turn.get("value", turn.get("content", turn.get("text"))))
        if role == "assistant" and not asked:
            if sent and sent[-1]["role"] != "system":
                raise BadRow("the model speaks between a tool and a user turn")
            continue
        if role == "assistant":
            if place + 1 < len(turns):
                record.notes.append("later_turns_left_out")
            return _checked(sent), text or None
        asked = asked or role == "user"
        sent.append({"role": role, "content": text})
    return _checked(sent), None


def _sharegpt_role(turn: Mapping[str, Any], place: int, nameless: bool) -> str:
    if nameless:
        return "assistant" if place % 2 else "user"
    name = turn.get("from") if turn.get("from") is not None else turn.get("role")
    role = _SHAREGPT_ROLES.get(name.lower()) if isinstance(name, str) else None
    if role is None:
        raise BadRow(f"turn {place + 1} has the unknown role {shown(name)}")
    return role


def _checked(sent: list[Message]) -> tuple[Message, ...]:
    users = [message for message in sent if message["role"] == "user"]
    if not users:
        raise Drop("no_user_turn")
    if not any((message["content"] or "").strip() for message in users):
        raise Drop("empty_prompt")
    return tuple(sent)


def output_cap(record: Record, body: Mapping[str, Any]) -> int | None:
    """The cap on the answer. ``max_completion_tokens`` replaced ``max_tokens``, so it wins over it.

    Raises:
        Drop: ``zero_output``, a request for nothing.
    """
    new = record.count("max_completion_tokens", data=body)
    old = record.count("max_tokens", "max_new_tokens", "max_output_tokens", data=body)
    if new is not None and old is not None:
        record.warnings.append("both_max_fields")
    cap = new if new is not None else old
    if cap == 0:
        raise Drop("zero_output")
    return cap


def sampling(body: Mapping[str, Any]) -> dict[str, Any] | None:
    """The sampling settings of a request body, as written."""
    found = {key: body[key] for key in _SAMPLING if body.get(key) is not None}
    return found or None


def tools(body: Mapping[str, Any]) -> tuple[dict[str, Any], ...] | None:
    """The tools of a request body.

    Raises:
        BadRow: not a list of objects.
    """
    value = body.get("tools")
    if value is None or value == []:
        return None
    if not isinstance(value, (list, tuple)) or not all(isinstance(tool, Mapping) for tool in value):
        raise BadRow("tools must be a list of objects")
    return tuple(dict(tool) for tool in value)


def embedded(value: Any) -> Any:
    """What a tracing store keeps: JSON, or JSON as a string. Other strings stay as they are."""
    if isinstance(value, str) and value.lstrip()[:1] in {"{", "["}:
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def answer_text(value: Any) -> str | None:
    """The text of a recorded answer: a string, a message, or a completion object; else None."""
    value = embedded(value)
    if isinstance(value, str):
        return value or None
    if isinstance(value, list) and value:
        return answer_text(value[0])
    if isinstance(value, Mapping):
        for key in ("choices", "message", "content", "text", "completion"):
            if isinstance(value.get(key), (str, list, dict)) and value[key]:
                return answer_text(value[key])
    return None
