"""Columns, sampling and conversion: the ways of reading that do not hold the file."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest

from specbench.workloads.inspect import inspect_file
from specbench.workloads.readers import ReadError, azure_columns, read, sampling
from specbench.workloads.readers.azure_columns import AzureColumns, Unfit
from specbench.workloads.readers.converting import convert_file
from specbench.workloads.readers.sampling import allocate, joint_cells, sample_file
from specbench.workloads.source_request import SourceRequest
from tests.workloads.readers.conftest import WriteFile

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def azure_text(rows: int, *, zone: str = "", seed: int = 1) -> str:
    rng = np.random.default_rng(seed)
    at = np.datetime64("2024-05-10T00:00:00", "us") + np.cumsum(rng.integers(0, 900_000, rows)).astype(
        "m8[us]"
    )
    at[rows // 2] -= np.timedelta64(3, "s")
    prompt = 1 + rng.lognormal(6, 1.5, rows).astype(int)
    output = 1 + rng.lognormal(3, 1, rows).astype(int)
    output[5] = prompt[7] = 0
    return HEADER + "".join(
        f"{str(t).replace('T', ' ')}{zone},{p},{o}\n" for t, p, o in zip(at, prompt, output, strict=True)
    )


@pytest.mark.parametrize("zone", ["", "+00:00", "Z"])
@pytest.mark.parametrize("ends", ["\n", "\r\n", "gzip"])
def test_columns_say_what_rows_say(
    write_file: WriteFile, monkeypatch: pytest.MonkeyPatch, zone: str, ends: str
) -> None:
    text = azure_text(3000, zone=zone)
    content = gzip.compress(text.encode()) if ends == "gzip" else text.replace("\n", ends).encode()
    path = write_file(content, "a.csv")
    monkeypatch.setattr(azure_columns, "_BLOCK_BYTES", 9000)
    by_row = inspect_file(path)
    monkeypatch.setattr(azure_columns, "MIN_BYTES", 0)
    blocks = AzureColumns(path, min_bytes=0)
    assert len(list(blocks)) > 5
    assert blocks.report == by_row.report
    monkeypatch.setattr(
        "specbench.workloads.inspect.AzureColumns", lambda p, encoding: AzureColumns(p, min_bytes=0)
    )
    assert inspect_file(path) == by_row


@pytest.mark.parametrize(
    "row",
    [
        "2024-05-10 09:00:00,-5,3",
        "2024-05-10 09:00:00,5,",
        ",5,3",
        "2024-05-10 09:00:00,5,3.5",
        "2024-05-10 09:00:00,5",
        "noon,5,3",
        '"2024-05-10 09:00:00",5,3',
        "2024-05-10 09:00:00,999999999,3",
        "",
    ],
)
def test_columns_refuse_what_rows_must_judge(write_file: WriteFile, row: str) -> None:
    path = write_file(azure_text(50) + row + "\n2024-05-10 09:00:01,6,4\n", "a.csv")
    with pytest.raises(Unfit):
        list(AzureColumns(path, min_bytes=0))


def test_a_bad_row_deep_in_a_large_file_is_named(write_file: WriteFile) -> None:
    text = azure_text(130_000) + "2024-05-10 09:00:00,5,many\n"
    path = write_file(text, "a.csv")
    assert path.stat().st_size > azure_columns.MIN_BYTES
    with pytest.raises(ReadError, match=r"a\.csv:130002: generatedtokens must be a number, got 'many'"):
        inspect_file(path)
    assert inspect_file(path, on_bad_row="skip").report.bad == 1


def test_samples_are_the_same_by_columns_and_by_rows(
    write_file: WriteFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_file(azure_text(4000), "a.csv")
    by_row = sample_file(path, 300, seed=5)
    monkeypatch.setattr(azure_columns, "_BLOCK_BYTES", 7000)
    monkeypatch.setattr(sampling, "AzureColumns", lambda p, encoding: AzureColumns(p, min_bytes=0))
    assert sample_file(path, 300, seed=5) == by_row


def test_samples_are_stratified_seeded_and_in_order(write_file: WriteFile) -> None:
    path = write_file(azure_text(4000), "a.csv")
    everything, _ = read(path)
    requests, report = sample_file(path, 400, seed=5)
    assert len(requests) == 400
    assert report.loaded == len(everything) == 3998
    assert requests == sample_file(path, 400, seed=5)[0]
    assert [r.id for r in requests] != [r.id for r in sample_file(path, 400, seed=6)[0]]
    arrivals = [r.arrival_s or 0.0 for r in requests]
    assert arrivals == sorted(arrivals)
    by_id = {r.id: r for r in everything}
    for r in requests:
        assert msgspec.structs.replace(r, weight=1.0) == by_id[r.id]

    def cells(of: list[SourceRequest]) -> Counter[int]:
        prompt = np.array([r.prompt_tokens for r in of])
        return Counter(joint_cells(prompt, np.array([r.output_tokens for r in of])).tolist())

    whole, part = cells(everything), cells(requests)
    assert all(abs(part[cell] - whole[cell] * 400 / 3998) < 1 for cell in whole)
    covered = sum(n for cell, n in whole.items() if part[cell])
    assert sum(r.weight for r in requests) == pytest.approx(covered)
    assert len(sample_file(path, 10_000, seed=1)[0]) == 3998


def test_every_request_of_a_cell_is_as_likely(write_file: WriteFile) -> None:
    path = write_file([{"id": i, "prompt": f"prompt {i:02}"} for i in range(20)])
    chosen = Counter(r.id for seed in range(400) for r in sample_file(path, 5, seed=seed)[0])
    assert len(chosen) == 20
    # 400 draws of 5 of 20: 100 each on average, standard deviation 8.7.
    assert all(60 < n < 140 for n in chosen.values())


def test_allocation_is_proportional() -> None:
    assert allocate({1: 50, 2: 30, 3: 20}, 10) == {1: 5, 2: 3, 3: 2}
    assert allocate({1: 1, 2: 1, 3: 98}, 10) == {3: 10}
    assert allocate({1: 5, 2: 5}, 3) == {1: 2, 2: 1}
    assert allocate({1: 2, 2: 1}, 99) == {1: 2, 2: 1}
    assert allocate({}, 5) == {}


def test_sampling_drops_pointers_to_what_was_left_out(write_file: WriteFile) -> None:
    lengths = {"input_length": 40, "output_length": 20}
    rows = [
        {"chat_id": i, "parent_chat_id": i - 1 if i % 4 else -1, "timestamp": i, "turn": 1, **lengths}
        for i in range(40)
    ]
    requests, report = sample_file(write_file(rows), 10, seed=3)
    ids = {r.id for r in requests}
    assert all(r.after is None or r.after in ids for r in requests)
    assert report.notes["after_left_out"] >= 1
    assert all(r.session_id == str(int(r.id) // 4 * 4) for r in requests), "sessions are those of the file"


def test_conversion_round_trips(write_file: WriteFile, tmp_path: Path) -> None:
    rows = [
        {
            "custom_id": "b",
            "body": {"messages": [{"role": "user", "content": "Z\u00fcrich \u2028?"}], "max_tokens": 5},
        },
        {"custom_id": "a", "body": {"prompt": "x", "temperature": 0.5}},
        {"custom_id": "c", "body": {"messages": []}},
    ]
    path, out, again = write_file(rows), tmp_path / "out.jsonl", tmp_path / "again.jsonl"
    report = convert_file(path, out)
    head = json.loads(out.read_text().splitlines()[0])
    assert head["schema"] == "specbench.requests/1"
    assert head["counts"] == {"rows_read": 3, "loaded": 2, "dropped": {"empty_messages": 1}, "bad": 0}
    assert head["source"]["format"] == report.format == "openai-batch"
    assert len(head["source"]["sha256"]) == 64
    requests, second = read(out)
    assert requests == read(path)[0]
    assert (second.format, second.rows_read) == ("specbench-requests", 2)
    convert_file(out, again)
    assert again.read_text().splitlines()[1:] == out.read_text().splitlines()[1:]


@pytest.mark.parametrize("in_order", [True, False])
def test_conversion_of_large_files_writes_the_same(
    write_file: WriteFile, tmp_path: Path, in_order: bool
) -> None:
    lines = azure_text(500).splitlines()
    if in_order:
        lines[1:] = sorted(lines[1:])
    path = write_file("\n".join(lines), "a.csv")
    held, streamed = tmp_path / "held.jsonl", tmp_path / "streamed.jsonl"
    assert convert_file(path, held) == convert_file(path, streamed, stream_above_bytes=0)
    assert held.read_bytes() == streamed.read_bytes()


def test_nothing_is_written_from_a_refused_or_useless_file(write_file: WriteFile, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    for rows in ([{"prompt": "a"}, {"prompt": 5}], [{"prompt": ""}, {"prompt": None}]):
        path = write_file(rows)
        with pytest.raises(ReadError, match=r":2: |none of the 2 rows is usable: 2 dropped as empty_prompt"):
            convert_file(path, out)
        with pytest.raises(ReadError):
            sample_file(path, 1, seed=1)
        assert [p.name for p in tmp_path.iterdir()] == [path.name]
