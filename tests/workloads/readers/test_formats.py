"""Every format: found by content, its fields, units, drops and odd rows."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specbench.workloads.readers import FORMATS, ReadError, read, sniff
from specbench.workloads.source_request import SourceRequest
from tests.workloads.readers.conftest import WriteFile

USER = {"role": "user", "content": "Name a river."}
BOT = {"role": "assistant", "content": "The Volga."}


def last_user(request: SourceRequest) -> Any:
    assert request.messages is not None
    return [m["content"] for m in request.messages if m["role"] == "user"][-1]


EXAMPLES: dict[str, list[dict[str, Any]] | str] = {
    "specbench-requests": [
        {"schema": "specbench.requests/1"},
        {"id": "a", "source": {"file": "x.csv", "line": 2}, "prompt": "Hi"},
    ],
    "openai-batch": [{"custom_id": "a", "method": "POST", "url": "/v1/x", "body": {"messages": [USER]}}],
    "langfuse": [
        {
            "id": "o",
            "trace_id": "t",
            "type": "GENERATION",
            "start_time": "2026-01-05 13:46:21.5",
            "input": "Hi",
        }
    ],
    "litellm": [
        {"request_id": "r", "startTime": "2026-01-05T13:46:21Z", "prompt_tokens": 5, "completion_tokens": 2}
    ],
    "otel": [
        {
            "span_id": "s",
            "start_time": "2026-02-25T10:00:00.5",
            "attributes": {
                "gen_ai.operation.name": "chat",
                "gen_ai.input.messages": json.dumps([USER]),
                "gen_ai.request.max_tokens": 9,
            },
        }
    ],
    "bailian": [
        {
            "chat_id": 1,
            "parent_chat_id": -1,
            "timestamp": 0.5,
            "input_length": 9,
            "output_length": 3,
            "turn": 1,
        }
    ],
    "ragpulse": [
        {
            "timestamp": "82",
            "input_length": 9,
            "output_length": 3,
            "hash_ids": {"history": [1]},
            "session_id": "s",
        }
    ],
    "timed-trace": [
        {"timestamp": 1.5, "input_length": 100, "output_length": 3, "hash_ids": [1, 2, 3, 4, 5, 6, 7]}
    ],
    "mooncake": [{"timestamp": 1500, "input_length": 1000, "output_length": 3, "hash_ids": [1, 2]}],
    "azure": "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10",
    "burstgpt": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,G,4,2,6,API log\n",
    "lengths": "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n30,5,35,6.0\n",
    "aiperf-inputs": [{"session_id": "s", "payloads": [{"messages": [USER], "max_tokens": 5}]}],
    "turns": [{"question_id": 81, "category": "writing", "turns": ["Write.", "Rewrite."]}],
    "humaneval": [
        {"task_id": "T/0", "prompt": "def f():", "entry_point": "f", "canonical_solution": " pass"}
    ],
    "gsm8k": [{"question": "What is 1 + 1?", "answer": "1 + 1 = 2\n#### 2"}],
    "sharegpt": [
        {"id": "c", "conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yo"}]}
    ],
    "openai-messages": [{"messages": [USER, BOT], "max_tokens": 64}],
    "aiperf-single-turn": [{"text": "Hi", "timestamp": 1500, "output_length": 4}],
    "prompt-jsonl": [{"prompt": "Hi", "output_tokens": 4}],
    "prompt-csv": "prompt,output_len\nHi,4\n",
    "prompt-text": "Hi\n",
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_format_is_found_by_content(write_file: WriteFile, name: str) -> None:
    content = EXAMPLES[name]
    path = write_file(content, "misleading.bin" if name != "prompt-text" else "prompts.txt")
    assert sniff(path) == name
    for override in (None, name):
        requests, report = read(path, format=override)
        assert (len(requests), report.loaded, report.format) == (1, 1, name)
        assert requests[0].source.line >= 1


def test_every_registered_format_has_an_example() -> None:
    tested_elsewhere = {"conversation-parquet", "prompt-parquet"}
    assert {known.name for known in FORMATS} == set(EXAMPLES) | tested_elsewhere


def test_prompt_fields_and_aliases(write_file: WriteFile) -> None:
    rows = [
        {"id": 7, "question": "Which?", "answer": "That.", "category": "qa", "output_len": 5},
        {"instruction": "Sort this.", "input": "3 1 2", "output": "1 2 3"},
        {"prompt": "Hi", "system_prompt": "Be brief.", "max_tokens": 9, "temperature": 0.5},
        {"prompt": [USER, BOT, {"role": "user", "content": "And a lake?"}]},
        {"prompt-0": "First", "prompt-1": "Second", "input_tokens_count": 3, "session_id": "s"},
        {"prompt": [1, 2, 3]},
        {"prompt": "   "},
        {"prompt": None},
        {"prompt": "none", "output_tokens": 0},
    ]
    requests, report = read(write_file(rows))
    assert [r.id for r in requests] == ["7", "2", "3", "4", "5"]
    assert requests[0].reference == "That."
    assert (requests[1].prompt, requests[1].reference) == ("Sort this.\n\n3 1 2", "1 2 3")
    assert requests[2].messages is not None
    assert requests[2].messages[0] == {"role": "system", "content": "Be brief."}
    assert (requests[2].max_tokens, requests[2].output_tokens) == (9, None)
    assert requests[2].sampling == {"temperature": 0.5}
    assert last_user(requests[3]) == "And a lake?"
    assert (requests[4].prompt, requests[4].prompt_tokens, requests[4].session_id) == ("First", 3, "s")
    assert report.notes == {"later_turns_left_out": 1}
    assert report.dropped == {"token_ids_prompt": 1, "empty_prompt": 2, "zero_output": 1}


@pytest.mark.parametrize(
    ("first", "second", "note"),
    [
        (10, 11.5, "times_read_as_s"),
        (1767620781, 1767620782.5, "times_read_as_s"),
        (1767620781000, 1767620782500, "times_read_as_ms"),
        (1767620781000000, 1767620782500000, "times_read_as_us"),
        ("2026-01-05T13:46:21+02:00", "2026-01-05 11:46:22.500Z", None),
    ],
)
def test_times_of_prompts(write_file: WriteFile, first: Any, second: Any, note: str | None) -> None:
    rows = [{"prompt": "b", "timestamp": second}, {"prompt": "a", "timestamp": first}]
    requests, report = read(write_file(rows))
    assert [(r.prompt, r.arrival_s) for r in requests] == [("a", 0), ("b", 1.5)]
    assert report.warnings == {"out_of_order": 1}
    assert report.notes == ({note: 2} if note else {})


def test_numbers_in_quotes_are_repaired_and_counted(write_file: WriteFile) -> None:
    rows = [
        {"timestamp": "0", "input_length": "1024", "output_length": "64"},
        {"timestamp": "1500", "input_length": " 2048 ", "output_length": 32.0},
        {"timestamp": 2500.5, "input_length": "3e2", "output_length": "8"},
    ]
    requests, report = read(write_file(rows))
    assert [r.prompt_tokens for r in requests] == [1024, 2048, 300]
    assert [r.arrival_s for r in requests] == [0, 1.5, 2.5005]
    assert report.warnings == {"number_as_string": 7}


def test_repairs_of_bad_rows_do_not_count(write_file: WriteFile) -> None:
    rows = [
        {"timestamp": 1, "input_length": 5, "output_length": 5},
        {"timestamp": "0", "input_length": "5", "output_length": "x"},
    ]
    requests, report = read(write_file(rows), on_bad_row="skip")
    assert report.warnings == {}
    assert requests[0].arrival_s == 0, "a bad row's time is not the earliest"


def test_sharegpt_roles_decide_not_places(write_file: WriteFile) -> None:
    def turn(role: str, text: str | None) -> dict[str, str | None]:
        return {"from": role, "value": text}

    conversations: list[Any] = [
        [turn("human", "Q1"), turn("gpt", "A1"), turn("human", "Q2"), turn("gpt", "A2")],
        [turn("gpt", "A0"), turn("human", "Q"), turn("gpt", "A")],
        [turn("system", "S"), turn("human", "Q")],
        [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}],
        [turn("human", "part one,"), turn("human", "part two"), turn("gpt", "A")],
        [{"value": "Q"}, {"value": "A"}],
        [],
        None,
        [turn("gpt", "A")],
        [turn("human", None), turn("gpt", "A")],
        [turn("human", "  "), turn("gpt", "A")],
    ]
    rows = [{"id": f"c{i}", "conversations": c} for i, c in enumerate(conversations)] + [{"id": "none"}]
    requests, report = read(write_file(json.dumps(rows), "sg.json"))
    assert [r.id for r in requests] == ["c0", "c1", "c2", "c3", "c4", "c5"]
    assert [len(r.messages or ()) for r in requests] == [1, 1, 2, 1, 2, 1]
    assert [r.reference for r in requests] == ["A1", "A", None, "A", "A", "A"]
    assert report.dropped == {
        "empty_conversation": 2,
        "no_user_turn": 1,
        "empty_prompt": 2,
        "no_conversation_field": 1,
    }
    assert report.notes == {"later_turns_left_out": 1}


@pytest.mark.parametrize(
    "turns", [["just text"], [{"from": "narrator", "value": "x"}], "text", [{"from": "human", "value": 5}]]
)
def test_sharegpt_turns_that_are_none_are_bad(write_file: WriteFile, turns: Any) -> None:
    good = {"conversations": [{"from": "human", "value": "Q"}]}
    path = write_file([good, good, {"conversations": turns}])
    with pytest.raises(ReadError, match=":3: "):
        read(path)


def test_conversations_in_parquet(write_file: WriteFile) -> None:
    path = write_file(b"", "c.parquet")
    chats = [
        [USER, BOT],
        [{"role": "user", "content": "2 + 2?"}, BOT, {"role": "user", "content": "times 3?"}, BOT],
        [],
        None,
    ]
    start = dt.datetime(2026, 1, 5, 9, tzinfo=dt.UTC)
    seconds = (0.25, -2.0, 3.0, 4.0)
    table = pa.table(
        {
            "conversation_id": ["p1", "p2", "p3", "p4"],
            "conversation": chats,
            "timestamp": pa.array(
                [start + dt.timedelta(seconds=s) for s in seconds], pa.timestamp("ns", tz="UTC")
            ),
            "output_tokens": [3, 5, None, 7],
        }
    )
    pq.write_table(table, path)
    requests, report = read(path)
    assert [(r.id, r.arrival_s, last_user(r)) for r in requests] == [
        ("p2", 0, "2 + 2?"),
        ("p1", 2.25, "Name a river."),
    ]
    assert [r.output_tokens for r in requests] == [None, 3], "a count of two answers is not one of the first"
    assert report.format == "conversation-parquet"
    assert report.dropped == {"empty_conversation": 2}
    assert report.warnings == {"out_of_order": 1}


def test_openai_messages(write_file: WriteFile) -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]}
    tool = {"role": "tool", "tool_call_id": "c1", "content": "11"}
    parts = [{"type": "text", "text": "Sum up: "}, {"type": "text", "text": "this."}]
    image = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
    rows: list[Any] = [
        {"messages": [{"role": "user", "content": parts}], "max_tokens": 64},
        {"messages": [{"role": "user", "content": image}], "max_tokens": 16},
        {
            "messages": [{"role": "developer", "content": "Terse."}, USER, call, tool],
            "tools": [{"type": "function"}],
        },
        {"messages": [{"role": "system", "content": ""}, USER, BOT], "max_completion_tokens": 4},
        {"messages": []},
        {"messages": [{"role": "system", "content": "S"}]},
        {"messages": [{"role": "user", "content": None}]},
        {"messages": [USER], "max_tokens": 64, "max_completion_tokens": 96},
        {"messages": [USER], "max_tokens": 0},
        {
            "request": {"messages": [USER], "temperature": 1},
            "response": {
                "choices": [{"message": BOT}],
                "usage": {"prompt_tokens": 9, "completion_tokens": 4},
            },
        },
        [USER],
    ]
    requests, report = read(write_file(rows))
    assert [len(r.messages or ()) for r in requests] == [1, 4, 2, 1, 1, 1]
    assert last_user(requests[0]) == "Sum up: this."
    assert requests[1].messages is not None
    assert requests[1].messages[2]["tool_calls"] == [{"id": "c1"}]
    assert requests[1].tools == ({"type": "function"},)
    assert [r.max_tokens for r in requests] == [64, None, 4, 96, None, None]
    assert [r.output_tokens for r in requests] == [None, None, None, None, 4, None]
    assert requests[2].reference == requests[4].reference == "The Volga."
    assert requests[4].prompt_tokens == 9
    assert report.warnings == {"both_max_fields": 1}
    assert report.dropped == {
        "non_text_content": 1,
        "empty_messages": 1,
        "no_user_turn": 1,
        "empty_prompt": 1,
        "zero_output": 1,
    }


@pytest.mark.parametrize(
    "messages",
    [
        "text",
        ["text"],
        [{"content": "x"}],
        [{"role": "narrator", "content": "x"}],
        [{"role": "user", "content": 5}],
        [{"role": "user", "content": [{"type": "text"}]}],
    ],
)
def test_openai_messages_that_are_none_are_bad(write_file: WriteFile, messages: Any) -> None:
    path = write_file([{"messages": [USER]}, {"messages": messages}])
    with pytest.raises(ReadError, match=":2: "):
        read(path)


def test_openai_batch(write_file: WriteFile) -> None:
    def row(name: Any, **body: Any) -> dict[str, Any]:
        return {"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body}

    rows = [
        row("r1", messages=[USER], max_tokens="128"),
        row("r2", prompt="Complete me", max_tokens=128.0),
        row("r1", messages=[USER], max_tokens=None),
        row("r1", messages=[USER]),
        row("r1#2", messages=[USER]),
        row("e", input="x") | {"url": "/v1/embeddings"},
    ]
    requests, report = read(write_file(rows))
    assert [r.id for r in requests] == ["r1", "r2", "r1#2", "r1#3", "r1#2#2"]
    assert [r.source.id for r in requests] == ["r1", "r2", "r1", "r1", "r1#2"]
    assert [r.max_tokens for r in requests] == [128, 128, None, None, None]
    assert report.warnings == {"number_as_string": 1, "duplicate_id": 3}
    assert report.dropped == {"not_a_generation": 1}
    with pytest.raises(ReadError, match=":2: custom_id is missing"):
        read(write_file([rows[0], row(None, messages=[USER])]))


def test_turns(write_file: WriteFile) -> None:
    placeholder = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"
    rows: list[Any] = [
        {"question_id": 81, "category": "math", "turns": ["Q1", "Q2"], "reference": ["A1", "A2"]},
        {"question_id": 82, "turns": [placeholder]},
        {"question_id": 83, "turns": []},
        {"question_id": 84, "turns": [USER, BOT]},
        {"session_id": "s", "turns": [{"text": "Q"}, {"text": "Q2", "delay": 100}]},
        {"session_id": "t", "turns": [{"text": "Q", "image": "x.png"}]},
    ]
    requests, report = read(write_file(rows))
    assert (requests[0].prompt, requests[0].reference, requests[0].category) == ("Q1", "A1", "math")
    assert (last_user(requests[1]), requests[1].reference) == ("Name a river.", "The Volga.")
    assert last_user(requests[2]) == "Q"
    assert report.dropped == {"placeholder_text": 1, "empty_conversation": 1, "non_text_content": 1}
    assert report.notes == {"later_turns_left_out": 2}


def test_azure_times_and_order(write_file: WriteFile) -> None:
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
        "2023-11-16 18:17:04.5000000,900,12\r\n2023-11-16 18:17:03.9799600,1200,10\r\n"
        "2023-11-16 18:17:04.5000000,310,9\r\n2023-11-16 18:17:05,77,44\r\n2023-11-16 18:17:03.5,0,0"
    )
    requests, report = read(write_file(text, "a.csv"))
    assert [r.arrival_s for r in requests] == [0.47996, 1, 1, 1.5], "from the earliest row, dropped ones too"
    assert [r.prompt_tokens for r in requests] == [1200, 900, 310, 77]
    assert report.warnings == {"out_of_order": 2}
    assert report.dropped == {"zero_input": 1}
    assert requests[0].text_source == "none"
    head = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    week = head + "2024-05-10 00:00:00.009930+00:00,5,6\n2024-05-10 00:00:00+00:00,7,8\n"
    assert [r.arrival_s for r in read(write_file(week, "a.csv"))[0]] == [0, 0.00993]


@pytest.mark.parametrize(
    "row",
    [
        "2023-11-16 18:17:05,77,",
        "2023-11-16 18:17:05,,7",
        ",1,2",
        "16/11/2023 18:17,1,2",
        "2023-11-16 25:00:00,1,2",
    ],
)
def test_azure_rows_that_are_cut_are_bad(write_file: WriteFile, row: str) -> None:
    path = write_file(f"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:04,9,1\n{row}", "a.csv")
    with pytest.raises(ReadError, match=r"a\.csv:3: "):
        read(path)


def test_azure_multimodal_rows_with_images_are_dropped(write_file: WriteFile) -> None:
    head = "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n"
    text = head + "2024-10-15 00:00:00,0,5,6\n2024-10-15 00:00:01,2,5,6\n"
    assert read(write_file(text, "m.csv"))[1].dropped == {"non_text_content": 1}


def test_burstgpt_columns_go_by_name(write_file: WriteFile) -> None:
    one = (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,410,22,432,Conversation log\n"
        "9,GPT-4,980,0,980,API log\n9,ChatGPT,0,0,0,API log\n31,GPT-4,77,301,378,API log\n"
    )
    requests, report = read(write_file(one, "b.csv"))
    assert [(r.prompt_tokens, r.output_tokens, r.arrival_s, r.category) for r in requests] == [
        (410, 22, 0, "chat"),
        (77, 301, 26, "api"),
    ]
    assert report.dropped == {"zero_output": 1, "zero_input": 1}
    three = (
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "1000.0,s-1,12,GPT-4,300,120,420,Conversation log\n1003.5,,2,ChatGPT,55,8,63,API log\n"
    )
    requests, _ = read(write_file(three, "b.csv"))
    assert [(r.prompt_tokens, r.output_tokens, r.session_id) for r in requests] == [
        (300, 120, "s-1"),
        (55, 8, None),
    ]


def test_mooncake_blocks_and_milliseconds(write_file: WriteFile) -> None:
    rows = [
        {"timestamp": 3000, "input_length": 700, "output_length": 250, "hash_ids": [0, 4]},
        {"timestamp": 0, "input_length": 1100, "output_length": 40, "hash_ids": [0, 1, 2]},
        {"timestamp": 3000, "input_length": 700, "output_length": 5, "hash_ids": [7]},
        {"timestamp": 4000, "input_length": 0, "output_length": 5, "hash_ids": []},
    ]
    requests, report = read(write_file(rows))
    assert [r.arrival_s for r in requests] == [0, 3, 3]
    assert [r.output_tokens for r in requests] == [40, 250, 5], "ties keep file order"
    shape = requests[0].shape
    assert shape is not None
    assert shape.prefix is not None
    assert (shape.prefix.block_tokens, shape.prefix.ids, shape.prefix.scope) == (512, (0, 1, 2), "global")
    assert report.notes == {"blocks_do_not_fit_length": 1}
    assert report.dropped == {"zero_input": 1}
    with pytest.raises(ReadError, match=":2: hash_ids must be a list of integers"):
        read(write_file([rows[0], rows[1] | {"hash_ids": ["a"]}]))


def test_aiperf_sessions_follow_each_other(write_file: WriteFile) -> None:
    rows = [
        {"session_id": "s", "timestamp": 500, "text_input": "Q1", "output_length": 5},
        {"session_id": "s", "delay": 2000, "messages": [USER], "output_length": 6},
        {"session_id": "t", "timestamp": 100, "text_input": ""},
    ]
    requests, report = read(write_file(rows))
    assert report.format == "mooncake"
    assert [(r.id, r.after, r.delay_s, r.arrival_s) for r in requests] == [
        ("1", None, None, 0.4),
        ("2", "1", 2.0, None),
    ]
    assert report.dropped == {"empty_prompt": 1}
    singles = [
        {"session_id": "s", "timestamp": 500, "text": "Q1"},
        {"session_id": "s", "delay": 1500, "text": "Q2", "output_length": 6},
        {"session_id": "s", "text": "Q3", "images": ["x"]},
    ]
    requests, report = read(write_file(singles))
    assert [(r.after, r.delay_s, r.output_tokens) for r in requests] == [(None, None, None), ("1", 1.5, 6)]
    assert report.dropped == {"non_text_content": 1}


def test_bailian_chats_join_the_session_of_their_root(write_file: WriteFile) -> None:
    def row(chat: int, parent: int, time: float) -> dict[str, Any]:
        lengths = {"input_length": 40, "output_length": 20, "hash_ids": [0, 1, 2]}
        return {
            "chat_id": chat,
            "parent_chat_id": parent,
            "timestamp": time,
            "type": "text",
            "turn": 1,
            **lengths,
        }

    rows = [row(10, -1, 0.25), row(14, 12, 90.25), row(12, 10, 61.25), row(13, 99, 70.0)]
    requests, report = read(write_file(rows))
    assert [(r.id, r.session_id, r.after, r.arrival_s) for r in requests] == [
        ("10", "10", None, 0),
        ("12", "10", "10", 61),
        ("13", "13", None, 69.75),
        ("14", "10", "12", 90),
    ]
    assert report.warnings == {"out_of_order": 1, "parent_not_in_file": 1}


def test_bailian_chats_in_a_circle_end(write_file: WriteFile) -> None:
    common = {"timestamp": 1, "input_length": 4, "output_length": 2}
    rows = [{"chat_id": 1, "parent_chat_id": 2, **common}, {"chat_id": 2, "parent_chat_id": 1, **common}]
    assert len(read(write_file(rows))[0]) == 2


def test_langfuse(write_file: WriteFile) -> None:
    def row(name: str, second: float, **fields: Any) -> dict[str, Any]:
        start = f"2026-01-05 13:46:{second:09.6f}"
        return {
            "id": name,
            "trace_id": "t",
            "type": "GENERATION",
            "start_time": start,
            "input": None,
            **fields,
        }

    rows = [
        row(
            "o2",
            21.5,
            session_id="s",
            input=json.dumps({"messages": [USER], "temperature": 1}),
            output=json.dumps(BOT),
            usage_details={"input": 11, "output": 4, "total": 15},
        ),
        row("o0", 19.9, type="SPAN"),
        row("o1", 19.963, input=[USER], output="plain", model_parameters={"max_tokens": 7}),
        row("o3", 30, level="ERROR", input="text"),
        row("o4", 31, input="plain text"),
        row("o5", 32),
    ]
    requests, report = read(write_file(rows))
    assert [(r.id, r.arrival_s) for r in requests] == [("o1", 0.063), ("o2", 1.6), ("o4", 11.1)]
    assert [r.reference for r in requests] == ["plain", "The Volga.", None]
    assert (requests[1].prompt_tokens, requests[1].output_tokens, requests[1].session_id) == (11, 4, "s")
    assert requests[1].sampling == {"temperature": 1}
    assert (requests[0].max_tokens, requests[2].prompt) == (7, "plain text")
    assert report.dropped == {"not_a_generation": 1, "failed_request": 1, "empty_prompt": 1}


def test_langfuse_csv_with_json_in_its_cells(write_file: WriteFile) -> None:
    cell = json.dumps([USER]).replace('"', '""')
    text = "id,traceId,type,startTime,input,usageDetails\n"
    text += f'o,t,GENERATION,2026-01-05T13:46:21.000Z,"{cell}","{{""input"":3.0}}"\n'
    requests, report = read(write_file(text, "l.csv"))
    assert (report.format, last_user(requests[0]), requests[0].prompt_tokens) == (
        "langfuse",
        "Name a river.",
        3,
    )


def test_litellm(write_file: WriteFile) -> None:
    base = {
        "startTime": "2026-01-05T13:46:21.5Z",
        "prompt_tokens": 5,
        "completion_tokens": 2,
        "messages": "{}",
    }
    rows = [
        base | {"request_id": "a"},
        base | {"request_id": "b", "messages": [USER], "response": {"choices": [{"message": BOT}]}},
        base | {"request_id": "c", "status": "failure"},
        base | {"request_id": "d", "cache_hit": "True"},
        base | {"request_id": "e", "call_type": "aembedding"},
        base | {"request_id": "f", "completion_tokens": 0},
    ]
    requests, report = read(write_file(rows))
    assert requests[0].shape is not None
    assert (last_user(requests[1]), requests[1].reference) == ("Name a river.", "The Volga.")
    assert report.dropped == {"failed_request": 1, "cache_hit": 1, "not_a_generation": 1, "zero_output": 1}
    assert report.notes == {"text_not_stored": 1}


def test_otel_spans_of_a_trace(write_file: WriteFile) -> None:
    span = EXAMPLES["otel"][0]
    assert isinstance(span, dict)
    other = span | {"span_id": "t", "attributes": {"gen_ai.operation.name": "execute_tool"}}
    failed = span | {"span_id": "f", "status": {"code": 2}}
    path = write_file(json.dumps({"trace_id": "x", "spans": [span, other, failed]}, indent=1), "t.json")
    requests, report = read(path)
    assert (requests[0].max_tokens, last_user(requests[0])) == (9, "Name a river.")
    assert report.dropped == {"not_a_generation": 1, "failed_request": 1}


def test_own_requests_of_another_version_are_refused(write_file: WriteFile) -> None:
    request = {"id": "a", "source": {"file": "x", "line": 1}, "prompt": "Hi"}
    for head, reason in (
        ({"schema": "specbench.requests/9"}, ":1: this specbench reads specbench.requests/1"),
        ({"schema": "specbench.requests/1"}, ":3: not a request .* exactly one of"),
    ):
        path = write_file([head, request, request | {"id": "b", "messages": [USER]}])
        with pytest.raises(ReadError, match=reason):
            read(path)


def test_limit_stops_in_file_order(write_file: WriteFile) -> None:
    path = write_file([{"prompt": "a"}, {"prompt": ""}, {"prompt": "b"}, {"prompt": "c"}, "bad"])
    requests, report = read(path, limit=2)
    assert [r.prompt for r in requests] == ["a", "b"]
    assert (report.rows_read, report.loaded, report.dropped) == (3, 2, {"empty_prompt": 1})


def test_ids_of_the_file_never_clash_with_line_numbers(write_file: WriteFile) -> None:
    rows = [
        {"prompt": "a"},
        {"prompt": "b", "id": "0"},
        {"prompt": "c", "id": "1"},
        {"prompt": "d", "id": "5"},
        {"prompt": "e"},
    ]
    requests, report = read(write_file(rows))
    assert [r.id for r in requests] == ["1", "0", "1#2", "5", "5#2"]
    assert report.warnings == {"duplicate_id": 1}
