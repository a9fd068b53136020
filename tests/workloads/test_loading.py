"""Any request file as the source of a workload: read strictly, accounted for, told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specbench.config.grid import Load
from specbench.config.model import Workload
from specbench.workloads.loading import load_source
from specbench.workloads.mix import build_cell_mix
from specbench.workloads.requests_file import WorkloadError


def workload(**changes: Any) -> Workload:
    return Workload.model_validate(changes)


def lines(path: Path, *rows: object) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


CHAT = {"messages": [{"role": "user", "content": "Say hello"}], "max_tokens": 50}


@pytest.mark.parametrize(
    ("name", "rows", "format_name"),
    [
        ("chat.jsonl", [{"id": f"q{i}", **CHAT} for i in range(3)], "openai-messages"),
        ("p.csv", ["prompt,category", "Hello there,chat", "Write code,code"], "prompt-csv"),
        ("p.txt", ["Hello there", "Second prompt"], "prompt-text"),
        (
            "batch.jsonl",
            [{"custom_id": "b1", "method": "POST", "url": "/v1/chat/completions", "body": CHAT}],
            "openai-batch",
        ),
        ("q.jsonl", [{"question_id": 1, "category": "math", "turns": ["1+1?", "and 2+2?"]}], "turns"),
    ],
)
def test_formats_are_found_by_content(name: str, rows: list[Any], format_name: str, tmp_path: Path) -> None:
    lines(tmp_path / name, *rows)
    loaded = load_source(workload(source=f"./{name}"), tmp_path)
    assert loaded.account.format == format_name
    assert loaded.account.source == name
    assert loaded.account.loaded == loaded.account.used == len(loaded.requests) > 0
    assert build_cell_mix(workload(), loaded.requests, Load("c1", 1), 1, 1).measured


def test_a_bad_row_stops_with_its_place_and_the_mend(tmp_path: Path) -> None:
    lines(tmp_path / "x.jsonl", {"prompt": "a"}, "{broken", {"prompt": "b"})
    with pytest.raises(WorkloadError, match=r"x\.jsonl:2: .*on_bad_row: skip"):
        load_source(workload(source="./x.jsonl"), tmp_path)


def test_a_bad_row_may_be_skipped_and_is_told(tmp_path: Path) -> None:
    lines(tmp_path / "x.jsonl", {"prompt": "a"}, "{broken", {"prompt": "  "}, {"prompt": "b"})
    loaded = load_source(workload(source="./x.jsonl", on_bad_row="skip"), tmp_path)
    account = loaded.account
    assert (account.rows_read, account.loaded, account.bad, account.dropped) == (4, 2, 1, {"empty_prompt": 1})
    assert account.rows_read == account.loaded + account.bad + sum(account.dropped.values())
    text = "\n".join(account.sentences())
    assert "1 of 4 rows were left out: 1 empty_prompt" in text
    assert "1 malformed rows were skipped" in text
    assert account.bad_lines[0][0] == 2


def test_format_and_encoding_are_passed_on(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes("prompt\nGrüße aus Köln\n".encode("cp1252"))
    with pytest.raises(WorkloadError, match=r"x\.csv"):
        load_source(workload(source="./x.csv", encoding="utf-8"), tmp_path)
    loaded = load_source(workload(source="./x.csv", encoding="cp1252"), tmp_path)
    assert loaded.requests[0].prompt == "Grüße aus Köln"
    with pytest.raises(WorkloadError, match="unknown format 'prompt-cvs': did you mean prompt-csv"):
        load_source(workload(source="./x.csv", encoding="cp1252", format="prompt-cvs"), tmp_path)
    with pytest.raises(WorkloadError, match=r"workload\.format: only a file has a format"):
        load_source(workload(source="chat", format="prompt-csv"), tmp_path)


def test_nothing_usable_is_an_error(tmp_path: Path) -> None:
    lines(tmp_path / "x.jsonl", {"prompt": ""}, {"prompt": " "})
    with pytest.raises(WorkloadError, match="none of its 2 rows is usable: 2 empty_prompt"):
        load_source(workload(source="./x.jsonl"), tmp_path)


def test_filler_stays_filler_whatever_reads_it(tmp_path: Path) -> None:
    lines(
        tmp_path / "x.jsonl",
        {"id": "a", "category": "c", "prompt": "x", "text_source": "filler:lorem"},
        {"id": "b", "category": "c", **CHAT, "text_source": "matched:mine"},
    )
    loaded = load_source(workload(source="./x.jsonl"), tmp_path)
    assert {r.text_source for r in loaded.requests} >= {"filler:lorem"}
    lines(tmp_path / "y.jsonl", {"prompt": "x", "text_source": "real, I promise"})
    with pytest.raises(WorkloadError, match=r"y\.jsonl:1: text_source must be recorded"):
        load_source(workload(source="./y.jsonl"), tmp_path)


def test_caps_are_the_least_of_config_and_record(tmp_path: Path) -> None:
    lines(
        tmp_path / "x.jsonl",
        {"prompt": "a", "max_tokens": 20},
        {"prompt": "b", "output_tokens": 7, "max_tokens": 20},
        {"prompt": "c", "output_tokens": 900},
    )
    loaded = load_source(workload(source="./x.jsonl"), tmp_path)
    made = build_cell_mix(
        workload(max_output_tokens=100, min_requests=6), loaded.requests, Load("c1", 1), 1, 1
    )
    assert {r.prompt: r.max_tokens for r in made.measured} == {"a": 20, "b": 7, "c": 100}


def test_repeats_of_a_file_with_doubled_ids_have_ids_of_their_own(tmp_path: Path) -> None:
    lines(
        tmp_path / "x.jsonl",
        {"id": "a", "prompt": "1"},
        {"id": "a", "prompt": "2"},
        {"id": "b", "prompt": "3"},
    )
    loaded = load_source(workload(source="./x.jsonl"), tmp_path)
    assert loaded.account.warnings == {"duplicate_id": 1}
    made = build_cell_mix(workload(min_requests=10), loaded.requests, Load("c1", 1), 2, 1)
    ids = [r.id for r in made.measured + made.warmup]
    assert len(set(ids)) == len(ids)


def test_tools_are_sent_and_recorded_sampling_is_not(tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    lines(tmp_path / "x.jsonl", {**CHAT, "tools": [tool], "temperature": 0.9})
    loaded = load_source(workload(source="./x.jsonl"), tmp_path)
    request = build_cell_mix(workload(), loaded.requests, Load("c1", 1), 1, 1).measured[0]
    assert request.tools == (tool,)
    assert request.temperature == 0.0
