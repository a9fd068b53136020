"""Reading specbench's own request files: one JSON object per line, nothing skipped without a word.

``{"id": "r1", "category": "code", "messages": [{"role": "user", "content": "..."}], "max_tokens": 200}``
or ``"prompt": "..."`` instead of ``messages``. ``max_tokens``, ``text_source`` and ``lang`` may be absent.
"""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any, Final

from specbench.workloads.source_request import Source, SourceRequest

MAX_PROBLEMS: Final = 20

KEYS: Final = ("id", "category", "messages", "prompt", "max_tokens", "text_source", "lang")
ROLES: Final = ("system", "developer", "user", "assistant", "tool")
MESSAGE_KEYS: Final = ("role", "content", "name", "tool_calls", "tool_call_id")


class WorkloadError(Exception):
    """The workload cannot be used; ``problems`` has one line of text each."""

    def __init__(self, problems: list[str]) -> None:
        shown = problems[:MAX_PROBLEMS]
        if len(problems) > MAX_PROBLEMS:
            shown.append(f"... and {len(problems) - MAX_PROBLEMS} more")
        super().__init__("\n".join(shown))
        self.problems = tuple(shown)


class _Bad(ValueError):
    """What is wrong with one line."""


def read_requests(path: Path) -> list[SourceRequest]:
    """Read a whole file.

    Raises:
        WorkloadError: the file cannot be read, has no request, or has bad lines: ``FILE:LINE: reason``.
    """
    lines = _lines(path)
    requests: list[SourceRequest] = []
    problems: list[str] = []
    first_line: dict[str, int] = {}
    for number, raw in enumerate(lines, 1):
        if not raw.strip():
            continue
        try:
            request = _request(raw, Source(file=str(path), line=number))
            if request.id in first_line:
                raise _Bad(f"the id {request.id!r} was already used in line {first_line[request.id]}")
        except _Bad as bad:
            problems.append(f"{path}:{number}: {bad}")
            continue
        first_line[request.id] = number
        requests.append(request)
    if problems:
        raise WorkloadError(problems)
    if not requests:
        raise WorkloadError([f"{path}: has no request: one JSON object per line is expected"])
    return requests


def _lines(path: Path) -> list[bytes]:
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise WorkloadError([f"{path}: there is no such file"]) from None
    except IsADirectoryError:
        raise WorkloadError([f"{path}: this is a folder: name a .jsonl file"]) from None
    except OSError as error:
        raise WorkloadError([f"{path}: cannot be read: {error.strerror or error}"]) from None
    # Only \n ends a line: text may hold U+2028 and the like.
    return raw.removeprefix(b"\xef\xbb\xbf").split(b"\n")


def _request(raw: bytes, source: Source) -> SourceRequest:
    row = _object(raw)
    unknown = [key for key in row if key not in KEYS]
    if unknown:
        near = difflib.get_close_matches(unknown[0], KEYS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "remove it"
        raise _Bad(f"unknown key {unknown[0]!r}: {hint} (allowed: {', '.join(KEYS)})")
    messages, prompt = row.get("messages"), row.get("prompt")
    if (messages is None) == (prompt is None):
        what = "neither" if messages is None else "both"
        raise _Bad(f"has {what} of 'messages' and 'prompt': give exactly one")
    if prompt is not None:
        _text(prompt, "prompt")
    max_tokens = row.get("max_tokens")
    if max_tokens is not None and (
        not isinstance(max_tokens, int) or isinstance(max_tokens, bool) or max_tokens < 1
    ):
        raise _Bad(f"max_tokens must be a whole number of at least 1, found {_shown(max_tokens)}")
    if row.get("lang") is not None:
        _text(row["lang"], "lang")
    return SourceRequest(
        source=source,
        id=_text(row.get("id"), "id"),
        category=_text(row.get("category"), "category"),
        messages=None if messages is None else _messages(messages),
        prompt=prompt,
        max_tokens=max_tokens,
        text_source=_text_source(row.get("text_source", "recorded")),
    )


def _object(raw: bytes) -> dict[str, Any]:
    try:
        text = raw.decode("utf-8")
        row = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise _Bad(f"the byte 0x{raw[error.start]:02x} at column {error.start + 1} is not UTF-8") from None
    except json.JSONDecodeError as error:
        if text.lstrip().startswith("["):
            raise _Bad("a JSON array: write one object per line, without [ ] and commas") from None
        raise _Bad(f"not JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise _Bad("nested too deeply") from None
    if not isinstance(row, dict):
        raise _Bad(f"must be a JSON object {{...}}, found {_shown(row)}")
    return row


def _messages(messages: Any) -> tuple[dict[str, Any], ...]:
    if not isinstance(messages, list) or not messages:
        raise _Bad(f"messages must be a list of at least one message, found {_shown(messages)}")
    for i, message in enumerate(messages):
        place = f"messages[{i}]"
        if not isinstance(message, dict):
            raise _Bad(f"{place} must be an object with 'role' and 'content', found {_shown(message)}")
        unknown = [key for key in message if key not in MESSAGE_KEYS]
        if unknown:
            raise _Bad(f"{place} has the unknown key {unknown[0]!r} (allowed: {', '.join(MESSAGE_KEYS)})")
        role = message.get("role")
        if role not in ROLES:
            raise _Bad(f"{place}.role must be one of {', '.join(ROLES)}, found {_shown(role)}")
        _content(message, place)
    if messages[-1]["role"] == "assistant":
        raise _Bad("the last message is the assistant's: end with what the model is to answer")
    return tuple(messages)


def _content(message: dict[str, Any], place: str) -> None:
    content = message.get("content")
    if content is None and message["role"] == "assistant" and message.get("tool_calls"):
        return
    if isinstance(content, list) and content:
        for j, part in enumerate(content):
            if not isinstance(part, dict) or part.get("type") != "text":
                raise _Bad(f"{place}.content[{j}] must be a text part: only text is supported")
            _text(part.get("text"), f"{place}.content[{j}].text")
        return
    _text(content, f"{place}.content")


def _text(value: Any, name: str) -> str:
    if value is None:
        raise _Bad(f"{name} is missing")
    if not isinstance(value, str):
        raise _Bad(f"{name} must be text, found {_shown(value)}")
    if not value.strip():
        raise _Bad(f"{name} is empty")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _Bad(f"{name} has half of a surrogate pair (\\ud800 to \\udfff), which is no text") from None
    return value


def _text_source(value: Any) -> str:
    text = _text(value, "text_source")
    kind, _, detail = text.partition(":")
    if text != "recorded" and not (kind in {"matched", "filler"} and detail):
        raise _Bad(f"text_source must be recorded, matched:<corpus> or filler:<kind>, found {_shown(text)}")
    return text


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise _Bad(f"the key {twice!r} is given twice")
    return row


def _no_constant(name: str) -> Any:
    raise _Bad(f"{name} is not JSON")


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 60 else text[:57] + "..."
