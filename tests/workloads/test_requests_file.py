"""specbench's own request files: every bad line is told, with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specbench.workloads.requests_file import WorkloadError, read_requests

GOOD: dict[str, Any] = {"id": "r1", "category": "chat", "messages": [{"role": "user", "content": "Hi"}]}


def line(**changes: Any) -> bytes:
    row = {**GOOD, **changes}
    return json.dumps({k: v for k, v in row.items() if v != "-"}).encode()


def read(tmp_path: Path, *lines: bytes) -> Any:
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"\n".join(lines))
    return read_requests(path)


def test_good_file(tmp_path: Path) -> None:
    requests = read(
        tmp_path,
        b"\xef\xbb\xbf" + line() + b"\r",
        b"",
        # U+2028 ends a line for some readers, and does not here.
        line(id="r2", messages="-", prompt="Once SEP upon", max_tokens=5, lang="en").replace(
            b" SEP ", b"\xe2\x80\xa8"
        ),
        line(
            id="r3",
            text_source="filler:lorem",
            messages=[
                {"role": "system", "content": "S"},
                {"role": "user", "content": [{"type": "text", "text": "T"}]},
                {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
                {"role": "tool", "content": "42", "tool_call_id": "1"},
            ],
        ),
    )
    assert [(r.id, r.source.line, r.max_tokens) for r in requests] == [
        ("r1", 1, None),
        ("r2", 3, 5),
        ("r3", 4, None),
    ]
    assert requests[0].messages == ({"role": "user", "content": "Hi"},)
    assert requests[1].prompt == "Once\u2028upon"
    assert requests[2].text_source == "filler:lorem"


def user(content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b'{"id": "a"', "not JSON: Expecting ',' delimiter at column 11"),
        (b'[{"id": "a"}]', 'must be a JSON object {...}, found [{"id": "a"}]'),
        (b"[", "a JSON array: write one object per line, without [ ] and commas"),
        (b"3", "must be a JSON object {...}, found 3"),
        (b'{"id": "a\xff"}', "the byte 0xff at column 10 is not UTF-8"),
        (b'{"id": "a", "id": "b"}', "the key 'id' is given twice"),
        (line(max_tokens=float("nan")), "NaN is not JSON"),
        (
            line(output_tokens=3),
            "unknown key 'output_tokens': did you mean 'max_tokens'? (allowed: id, category, "
            "messages, prompt, max_tokens, text_source, lang)",
        ),
        (line(prompt="x"), "has both of 'messages' and 'prompt': give exactly one"),
        (line(messages="-"), "has neither of 'messages' and 'prompt': give exactly one"),
        (line(id="-"), "id is missing"),
        (line(id=7), "id must be text, found 7"),
        (line(id=" "), "id is empty"),
        (line(category=None), "category is missing"),
        (line(max_tokens=0), "max_tokens must be a whole number of at least 1, found 0"),
        (line(max_tokens=True), "max_tokens must be a whole number of at least 1, found true"),
        (line(max_tokens="5"), 'max_tokens must be a whole number of at least 1, found "5"'),
        (line(messages=[]), "messages must be a list of at least one message, found []"),
        (line(messages=["Hi"]), "messages[0] must be an object with 'role' and 'content', found \"Hi\""),
        (
            line(messages=[{"role": "human", "content": "x"}]),
            'messages[0].role must be one of system, developer, user, assistant, tool, found "human"',
        ),
        (
            line(messages=[{"role": [], "content": "x"}]),
            "messages[0].role must be one of system, developer, user, assistant, tool, found []",
        ),
        (
            line(messages=[{"role": "user", "value": "x"}]),
            "messages[0] has the unknown key 'value' (allowed: role, "
            "content, name, tool_calls, tool_call_id)",
        ),
        (line(messages=user("")), "messages[0].content is empty"),
        (line(messages=user(None)), "messages[0].content is missing"),
        (
            line(messages=user([{"type": "image_url"}])),
            "messages[0].content[0] must be a text part: only text is supported",
        ),
        (
            line(messages=[*user("x"), {"role": "assistant", "content": "y"}]),
            "the last message is the assistant's: end with what the model is to answer",
        ),
        (line(messages="-", prompt=""), "prompt is empty"),
        (
            line(messages="-", prompt="\ud800"),
            "prompt has half of a surrogate pair (\\ud800 to \\udfff), which is no text",
        ),
        (
            line(text_source="lorem"),
            'text_source must be recorded, matched:<corpus> or filler:<kind>, found "lorem"',
        ),
        (line(), "the id 'r1' was already used in line 1"),
        (b'{"a": ' + b"[" * 100_000, "nested too deeply"),
    ],
)
def test_bad_line(bad: bytes, reason: str, tmp_path: Path) -> None:
    with pytest.raises(WorkloadError) as caught:
        read(tmp_path, line(), b"", bad)
    assert caught.value.problems == (f"{tmp_path}/r.jsonl:3: {reason}",)


def test_bad_lines_come_together(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError) as caught:
        read(tmp_path, *[b"x"] * 30)
    assert len(caught.value.problems) == 21
    assert caught.value.problems[-1] == "... and 10 more"


def test_bad_files(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="has no request"):
        read(tmp_path, b"", b" ")
    with pytest.raises(WorkloadError, match="there is no such file"):
        read_requests(tmp_path / "none.jsonl")
    with pytest.raises(WorkloadError, match="this is a folder"):
        read_requests(tmp_path)
