"""What files are made of: compression, encodings, line ends, arrays, tables, and damage to them."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specbench.workloads.readers import ReadError, read, sniff
from tests.workloads.readers.conftest import WriteFile

ROWS = [{"prompt": f"Name {n} rivers.", "output_tokens": 8 * n} for n in (1, 2, 3)]
JSONL = "".join(json.dumps(row) + "\n" for row in ROWS)
PROMPTS = [row["prompt"] for row in ROWS]


def _gz(content: bytes) -> bytes:
    """Without the time of day: these bytes name test cases, which must be the same in every worker."""
    return gzip.compress(content, mtime=0)


@pytest.mark.parametrize(
    ("name", "content", "warnings"),
    [
        ("plain.jsonl", JSONL.encode(), {}),
        ("no_final_newline.jsonl", JSONL.rstrip("\n").encode(), {}),
        ("crlf.jsonl", JSONL.replace("\n", "\r\n").encode(), {}),
        ("old_mac.jsonl", JSONL.replace("\n", "\r").encode(), {}),
        ("bom.jsonl", b"\xef\xbb\xbf" + JSONL.encode(), {"bom_removed": 1}),
        ("two_boms.jsonl", JSONL.replace("{", "\ufeff{", 2).encode(), {"bom_removed": 2}),
        ("blank.jsonl", ("\n  \n\t\n" + JSONL.replace("\n", "\n\n \r\n")).encode(), {}),
        ("utf16.jsonl", JSONL.encode("utf-16"), {"decoded_utf16": 1}),
        ("utf16be.jsonl", b"\xfe\xff" + JSONL.encode("utf-16-be"), {"decoded_utf16": 1}),
        ("utf16_no_bom.jsonl", JSONL.encode("utf-16-le"), {"decoded_utf16": 1}),
        ("utf32.jsonl", JSONL.encode("utf-32"), {"decoded_utf32": 1}),
        ("gz.jsonl.gz", _gz(JSONL.encode()), {}),
        ("gz_without_suffix.json", _gz(JSONL.encode()), {}),
        ("members.gz", b"".join(_gz(json.dumps(row).encode() + b"\n") for row in ROWS), {}),
        ("array.jsonl", json.dumps(ROWS, indent=1).encode(), {}),
        ("one_line_array.json", json.dumps(ROWS).encode(), {}),
        ("array_row_per_line.json", ("[" + ",\n".join(map(json.dumps, ROWS)) + "]").encode(), {}),
        ("wrapped.json", json.dumps({"version": 1, "data": ROWS, "more": [1]}, indent=1).encode(), {}),
        ("wrapped_one_line.json", json.dumps({"version": 1, "data": ROWS}).encode(), {}),
        ("wrapped_rows.json", ('{"data": [\n' + ",\n".join(map(json.dumps, ROWS)) + "\n]}").encode(), {}),
        ("printed_objects.json", "\n".join(json.dumps(row, indent=2) for row in ROWS).encode(), {}),
    ],
)
def test_reads_the_same_rows_from_any_container(
    write_file: WriteFile, name: str, content: bytes, warnings: dict[str, int]
) -> None:
    requests, report = read(write_file(content, name))
    assert [r.prompt for r in requests] == PROMPTS
    assert [r.output_tokens for r in requests] == [8, 16, 24]
    assert report.format == "prompt-jsonl"
    assert report.warnings == warnings
    assert (report.rows_read, report.loaded) == (3, 3)


@pytest.mark.parametrize(
    ("name", "content", "line", "reason"),
    [
        ("empty.jsonl", b"", None, "empty"),
        ("empty.gz", _gz(b""), None, "empty"),
        ("blank.jsonl", b"\xef\xbb\xbf\n \n\t\r\n", None, "no rows"),
        ("empty_array.json", b"[ ]", None, "no rows"),
        ("empty_wrapper.json", b'{\n"data": []}', None, "no rows"),
        ("header_only.csv", b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n", None, "no rows"),
        ("cut.gz", _gz(JSONL.encode())[:-12], None, "damaged gzip"),
        ("garbage_after.gz", _gz(JSONL.encode()) + b"garbage", None, "damaged gzip"),
        ("flipped.gz", _gz(JSONL.encode())[:-8] + b"\0" * 8, None, "damaged gzip"),
        ("twice.gz", _gz(_gz(JSONL.encode())), None, "compressed twice"),
        ("zstd.jsonl", b"\x28\xb5\x2f\xfd\x00\x00", None, "zstd"),
        ("sheet.csv", b"PK\x03\x04rest", None, "zip"),
        ("lfs.jsonl", b"version https://git-lfs.github.com/spec/v1\noid 1\n", None, "Git LFS"),
        ("binary.jsonl", bytes(range(32)) * 20, None, "binary"),
        ("cut.parquet", b"PAR1" + b"\x15\x04" * 20, None, "Parquet"),
        ("open_array.json", json.dumps(ROWS)[:-1].encode(), 4, "not closed"),
        ("cut_array.json", json.dumps(ROWS)[:-10].encode(), 3, "truncated"),
        ("cut_wrapper.json", json.dumps({"data": ROWS}, indent=1)[:-2].encode(), 4, "truncated"),
        ("after_array.json", json.dumps(ROWS).encode() + b" {}", 4, "more data"),
        ("deep.json", b"[" * 200_000, 1, "nested too deep"),
        ("utf16_cut.jsonl", JSONL.encode("utf-16")[:-1], 3, "not UTF-16"),
        ("quote.csv", b'prompt,output_len\nok,1\n"never closed,2\nmore,3\n', 3, "quote is not closed"),
        ("quoting.csv", b'prompt,output_len\nok,1\n"closed"early,2\n', 3, "damaged quoting"),
        ("nul.csv", b"prompt,output_len\nok,1\nb\0d,2\n", 3, "NUL"),
        ("twice.csv", b"prompt,output_len,prompt\na,1,b\n", 1, "two columns"),
        ("cp1252.csv", "prompt;output_len\nCaf\u00e9;1\n".encode("cp1252"), 2, "UTF-8"),
    ],
)
@pytest.mark.parametrize("on_bad_row", ["error", "skip"])
def test_damage_to_the_container_is_always_an_error(
    write_file: WriteFile, name: str, content: bytes, line: int | None, reason: str, on_bad_row: str
) -> None:
    path = write_file(content, name)
    with pytest.raises(ReadError, match=reason) as caught:
        read(path, on_bad_row="skip" if on_bad_row == "skip" else "error")
    assert caught.value.line == line
    assert str(caught.value).startswith(str(path))


def test_missing_files_and_folders_are_named(write_file: WriteFile) -> None:
    path = write_file(JSONL)
    with pytest.raises(ReadError, match="no such file"):
        read(path.with_name("other.jsonl"))
    with pytest.raises(ReadError, match="not a regular file"):
        read(path.parent)


@pytest.mark.parametrize(
    ("bad_line", "reason"),
    [
        ('{"prompt": "cut', "truncated JSON"),
        ('{"prompt": "cut", "output_tokens": tr', "truncated JSON"),
        ("WARN exporter: buffer full", "not JSON"),
        ("\0\0\0\0", "not JSON"),
        ("{'prompt': 'x'}", "Python literal"),
        ('{"prompt": "a"}{"prompt": "b"}', "more than one JSON value"),
        ('{"prompt": "a"},', "a comma after the row"),
        ('{"prompt": NaN}', "NaN is not a JSON value"),
        ('{"prompt": "tab\there"}', "invalid JSON"),
        ("[1, 2]", "expected an object, got a list"),
        ("17", "expected an object, got a number"),
        ('{"text_of_prompt": "x"}', "no prompt"),
        ('{"prompt": 5}', "must be a string, got a number"),
        ('{"prompt": "x", "output_tokens": "many"}', "output_tokens must be a number"),
        ('{"prompt": "x", "output_tokens": -1}', "negative"),
        ('{"prompt": "x", "output_tokens": 1.5}', "whole number"),
        ('{"prompt": "x", "output_tokens": true}', "true or false"),
        ('{"prompt": "x", "output_tokens": "1,024"}', "must be a number"),
        ('{"prompt": "x", "output_tokens": 1e999}', "finite|out of range"),
        ('{"prompt": "x", "output_tokens": 1' + "0" * 400 + "}", "beyond any context length"),
        ('{"prompt": "x", "timestamp": "soon"}', "timestamp"),
        ('{"prompt": "x", "timestamp": 1e300}', "no time"),
        ('{"prompt": "x", "timestamp": "2026-02-30 00:00:00"}', "no date"),
        ('{"prompt": ' + "[" * 100_000, "truncated|nested too deep"),
    ],
)
def test_a_malformed_row_stops_at_its_line_or_is_listed(
    write_file: WriteFile, bad_line: str, reason: str
) -> None:
    lines = JSONL.splitlines()
    path = write_file("\n".join([lines[0], "", bad_line, *lines[1:]]) + "\n")
    with pytest.raises(ReadError, match=f"{path.name}:3: .*({reason})"):
        read(path)
    requests, report = read(path, on_bad_row="skip")
    assert [r.prompt for r in requests] == PROMPTS
    assert (report.rows_read, report.loaded, report.bad) == (4, 3, 1)
    assert [line for line, _ in report.bad_lines] == [3]


def test_a_row_of_another_encoding_is_bad_alone_in_jsonl(write_file: WriteFile) -> None:
    path = write_file(JSONL.encode() + b'{"prompt": "caf\xe9"}\n')
    with pytest.raises(ReadError, match=r":4: not UTF-8 \(byte 0xe9\).*--encoding"):
        read(path)
    assert read(path, on_bad_row="skip")[1].bad_lines[0][0] == 4
    assert read(path, encoding="cp1252")[0][3].prompt == "caf\u00e9"
    with pytest.raises(ReadError, match="unknown encoding"):
        read(path, encoding="utf-99")


def test_a_bad_first_or_last_row_does_not_change_the_format(write_file: WriteFile) -> None:
    for content in ("noise\n" + JSONL, JSONL + '{"prompt": "cut', '{"prompt": "cu\n' + JSONL):
        requests, report = read(write_file(content), on_bad_row="skip")
        assert (report.format, len(requests), report.bad) == ("prompt-jsonl", 3, 1)


def test_records_of_arrays_are_numbered(write_file: WriteFile) -> None:
    path = write_file(json.dumps([ROWS[0], 7, ROWS[1]]), "rows.json")
    with pytest.raises(ReadError, match=r"rows\.json#2: expected an object"):
        read(path)
    assert read(path, on_bad_row="skip")[1].bad_lines == [(2, "expected an object, got a number")]


def test_arrays_are_read_in_windows_of_any_length(write_file: WriteFile) -> None:
    rows = [{"prompt": "x" * length} for length in (10, 300_000, 262_143, 5)]
    requests, _ = read(write_file(json.dumps(rows), "long.json"))
    assert [len(r.prompt or "") for r in requests] == [10, 300_000, 262_143, 5]


@pytest.mark.parametrize("as_array", [False, True])
def test_lone_surrogates_become_replacement_characters(write_file: WriteFile, as_array: bool) -> None:
    rows = [
        '{"prompt": "pair \\ud83d\\ude00"}',
        '{"prompt": "cut \\ud83d and \\udc00", "\\ud800": {"a": ["\\ud801"]}}',
    ]
    text = "[" + ",".join(rows) + "]" if as_array else "\n".join(rows)
    requests, report = read(write_file(text))
    assert [r.prompt for r in requests] == ["pair \U0001f600", "cut \ufffd and \ufffd"]
    assert report.warnings == {"lone_surrogate_replaced": 4}


def test_unicode_line_separators_do_not_end_a_row(write_file: WriteFile) -> None:
    prompt = "a\u2028b\u2029c\x85d\x0be"
    requests, _ = read(write_file(json.dumps({"prompt": prompt}, ensure_ascii=False) + "\n" + JSONL))
    assert requests[0].prompt == prompt


def test_csv_keeps_what_is_inside_quotes(write_file: WriteFile) -> None:
    text = (
        '\ufeff Prompt ,Output_Len,category\r\n"Say ""hi"".",12,chat\r\n"a,b\r\n1,2\n\tx",80,code\r\n'
        "\r\n,10,empty\r\nlast,,\r\n"
    )
    requests, report = read(write_file(text, "t.csv"))
    assert [r.prompt for r in requests] == ['Say "hi".', "a,b\r\n1,2\n\tx", "last"]
    assert [r.output_tokens for r in requests] == [12, 80, None]
    assert [r.source.line for r in requests] == [2, 3, 8]
    assert report.dropped == {"empty_prompt": 1}
    assert report.warnings == {"bom_removed": 1}


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_csv_delimiters_are_found(write_file: WriteFile, delimiter: str) -> None:
    text = delimiter.join(["prompt", "output_len"]) + "\n" + delimiter.join(["a, b", "5"]) + "\n"
    for head in ("", f"sep={delimiter}\n"):
        requests, report = read(write_file(head + text, "t.csv"))
        assert (requests[0].prompt, requests[0].output_tokens) == ("a, b", 5)
        assert report.format == "prompt-csv"


def test_csv_rows_of_the_wrong_width_are_bad(write_file: WriteFile) -> None:
    path = write_file("prompt,output_len\na,1\nb\nc,3,4\n", "t.csv")
    with pytest.raises(ReadError, match=r"t\.csv:3: expected 2 columns, got 1"):
        read(path)
    assert [line for line, _ in read(path, on_bad_row="skip")[1].bad_lines] == [3, 4]


def test_csv_fields_may_be_longer_than_the_default_limit(write_file: WriteFile) -> None:
    requests, _ = read(write_file("prompt,output_len\n" + "x" * 400_000 + ",1\n", "t.csv"))
    assert len(requests[0].prompt or "") == 400_000


def test_utf16_tables_of_spreadsheets_are_read(write_file: WriteFile) -> None:
    requests, report = read(write_file("prompt\toutput_len\r\nna\u00efve\t5\r\n".encode("utf-16"), "t.txt"))
    assert requests[0].prompt == "na\u00efve"
    assert report.warnings == {"decoded_utf16": 1}


def test_parquet_nulls_nans_and_zero_rows(write_file: WriteFile) -> None:
    path = write_file(b"", "t.parquet")
    table = pa.table({"Prompt": ["a", None, "b"], "output_tokens": [4.0, 5.0, float("nan")]})
    pq.write_table(table, path)
    requests, report = read(path)
    assert [(r.prompt, r.output_tokens) for r in requests] == [("a", 4), ("b", None)]
    assert (report.format, report.dropped) == ("prompt-parquet", {"empty_prompt": 1})
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert len(read(path)[0]) == 2
    pq.write_table(table.slice(0, 0), path)
    with pytest.raises(ReadError, match="no rows"):
        read(path)


def test_plain_text_only_where_the_name_promises_nothing_else(write_file: WriteFile) -> None:
    text = "Name a river.\n\nName a lake.  \n"
    requests, report = read(write_file(text, "prompts.txt"))
    assert [r.prompt for r in requests] == ["Name a river.", "Name a lake.  "]
    assert [r.source.line for r in requests] == [1, 3]
    assert report.format == "prompt-text"
    path = write_file(text, "prompts.jsonl")
    with pytest.raises(ReadError, match=r":1: not JSON: .*--format prompt-text"):
        read(path)
    assert len(read(path, format="prompt-text")[0]) == 2


@pytest.mark.parametrize(
    "first",
    [
        "INFO 01-05 13:46:19 [request_logger.py:65] Received request a: params: SamplingParams(n=1).",
        "\x1b[36m(APIServer pid=7)\x1b[0;0m INFO 01-05 13:46:19 [api_server.py:65] vLLM API server version 9",
        'INFO:     10.0.0.7:51522 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
        "[2026-01-05 13:46:19 TP0] Prefill batch, #new-seq: 1, #new-token: 7",
    ],
)
def test_server_logs_are_refused(write_file: WriteFile, first: str) -> None:
    path = write_file(first + "\nmore\n", "server.log")
    for on_bad_row in ("error", "skip"):
        with pytest.raises(ReadError, match=r":1: a (vLLM|SGLang) server log holds no prompts"):
            read(path, on_bad_row="skip" if on_bad_row == "skip" else "error")


def test_server_log_lines_among_rows_are_bad_rows(write_file: WriteFile) -> None:
    path = write_file(JSONL + "INFO 01-05 13:46:19 [loggers.py:1] Engine 000: Running: 1 reqs\n")
    with pytest.raises(ReadError, match=":4: not JSON"):
        read(path)


def test_unknown_fields_columns_and_formats_are_named(write_file: WriteFile) -> None:
    with pytest.raises(ReadError, match="no known format has these fields: colour, size"):
        sniff(write_file([{"colour": "red", "size": 3}]))
    with pytest.raises(ReadError, match="a table without a known column"):
        sniff(write_file("0,1.5,3\n600,2.5,4\n1200,3,5\n", "t.csv"))
    path = write_file(JSONL)
    with pytest.raises(ReadError, match="unknown format 'mooncak': did you mean mooncake"):
        read(path, format="mooncak")
    with pytest.raises(ReadError, match="the file is jsonl, format azure is csv or parquet"):
        read(path, format="azure")
