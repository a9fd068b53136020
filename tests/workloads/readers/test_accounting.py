"""Every row is loaded, dropped or bad, whatever the rows are."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench.workloads.readers import ReadError, read, scan

TEXT = st.text(max_size=12)
NUMBERS = st.one_of(
    st.integers(-3, 5000),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["7", " 8 ", "x", "", "1e2"]),
)
PROMPT_ROWS = st.fixed_dictionaries(
    {"prompt": st.one_of(TEXT, st.none(), st.integers(), st.lists(st.integers(0, 9), max_size=2))},
    optional={"output_tokens": st.one_of(NUMBERS, st.none()), "id": st.one_of(TEXT, st.integers(0, 3))},
)
TRACE_ROWS = st.fixed_dictionaries(
    {"timestamp": NUMBERS, "input_length": NUMBERS, "output_length": NUMBERS},
    optional={"hash_ids": st.one_of(st.none(), st.lists(st.one_of(st.integers(), TEXT), max_size=3))},
)
MESSAGES = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {"role": st.sampled_from(["user", "assistant", "system", "tool", "poet"])},
            optional={"content": st.one_of(TEXT, st.none(), st.integers())},
        ),
        TEXT,
    ),
    max_size=4,
)
CHAT_ROWS = st.fixed_dictionaries(
    {"messages": MESSAGES}, optional={"max_tokens": st.one_of(NUMBERS, st.none())}
)
TURN = st.fixed_dictionaries(
    {"from": st.sampled_from(["human", "gpt", "system", "bird"]), "value": TEXT | st.none()}
)
SHAREGPT_ROWS = st.fixed_dictionaries({}, optional={"conversations": st.lists(TURN, max_size=4) | st.none()})
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
GOOD: dict[str, Any] = {
    "prompt": {"prompt": "ok"},
    "mooncake": {"timestamp": 0, "input_length": 5, "output_length": 5},
    "openai": {"messages": [{"role": "user", "content": "ok"}]},
    "sharegpt": {"conversations": [{"from": "human", "value": "ok"}]},
}
ROWS = {"prompt": PROMPT_ROWS, "mooncake": TRACE_ROWS, "openai": CHAT_ROWS, "sharegpt": SHAREGPT_ROWS}


@st.composite
def jsonl_files(draw: st.DrawFn) -> tuple[bytes, int]:
    """(a file that starts with a good row, its rows): rows of one format, odd JSON, noise, blank lines."""
    kind = draw(st.sampled_from(sorted(GOOD)))
    lines = [json.dumps(GOOD[kind]).encode()] * 3
    n_rows = 3
    noise = st.binary(max_size=8).map(lambda b: b"#" + b.replace(b"\n", b"").replace(b"\r", b""))
    row = st.one_of(ROWS[kind], JSON_VALUES).map(lambda value: json.dumps(value).encode())
    for line in draw(st.lists(st.one_of(row, noise, st.just(b" ")), max_size=12)):
        lines.append(line)
        n_rows += line != b" "
    ending = draw(st.sampled_from([b"\n", b"\r\n", b"\n\n"]))
    content = ending.join(lines) + draw(st.sampled_from([b"", ending]))
    return (gzip.compress(content, mtime=0) if draw(st.booleans()) else content), n_rows


@settings(max_examples=150, deadline=None, derandomize=True)
@given(jsonl_files())
def test_rows_read_are_loaded_dropped_or_bad(file: tuple[bytes, int]) -> None:
    content, n_rows = file
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "f.jsonl"
        path.write_bytes(content)
        requests, report = read(path, on_bad_row="skip")
        assert report.rows_read == n_rows
        assert report.rows_read == report.loaded + sum(report.dropped.values()) + report.bad
        assert len(requests) == report.loaded
        assert len({r.id for r in requests}) == len(requests)
        assert len(report.bad_lines) == report.bad
        arrivals = [r.arrival_s for r in requests if r.arrival_s is not None]
        assert arrivals == sorted(arrivals)
        assert all(arrival >= 0 for arrival in arrivals)
        # Strict reading agrees: it fails at the first bad row, or reads the same.
        if report.bad:
            with pytest.raises(ReadError) as caught:
                read(path)
            assert report.bad_lines[0] == (caught.value.line, caught.value.reason)
        else:
            assert read(path) == (requests, report)
        # So does one pass in constant memory.
        one_pass = scan(path, on_bad_row="skip")
        assert {r.id for _, r in one_pass} == {r.id for r in requests}
        assert (one_pass.report.loaded, one_pass.report.warnings) == (report.loaded, report.warnings)


CELLS = st.sampled_from(["0", "5", "1200", "", "-1", "x", "3.0", "2.5"])
TIMES = st.sampled_from(
    ["2023-11-16 18:17:03.9799600", "2023-11-16 18:17:04", "2023-11-16T18:17:05Z", "", "noon"]
)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.lists(st.one_of(CELLS, TIMES), min_size=1, max_size=4), min_size=1, max_size=10))
def test_rows_of_tables_are_loaded_dropped_or_bad(rows: list[list[str]]) -> None:
    rows = [row for row in rows if row != [""]] or [["0"]]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "f.csv"
        path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(map(",".join, rows)) + "\n")
        requests, report = read(path, on_bad_row="skip", format="azure")
        assert report.rows_read == len(rows)
        assert report.rows_read == report.loaded + sum(report.dropped.values()) + report.bad
        assert len(requests) == report.loaded
