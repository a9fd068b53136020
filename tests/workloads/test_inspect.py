"""What `inspect` says: bounds by hand, shares, and the same through every door."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specbench.workloads.inspect import Speeds, decode_bound, inspect_file, inspect_requests
from specbench.workloads.readers import read


def write(tmp_path: Path, rows: list[dict[str, object]]) -> Path:
    path = tmp_path / "f.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_bound_by_hand() -> None:
    speeds = Speeds(prefill_tokens_per_s=1000, decode_tokens_per_s=10, decode_speedup_cap=2)
    # 1 s of prefill, 40 tokens of which 10 come out of the prefill: 3 s of decoding.
    bound = decode_bound(1000, 40, 10, speeds, prefix_hit_ratio=0.5)
    assert bound is not None
    assert bound.decode_share == pytest.approx(0.75)
    assert bound.max_speedup == pytest.approx(4)
    assert bound.capped_speedup == pytest.approx(4 / 2.5)
    assert bound.capped_speedup_ideal_prefix_cache == pytest.approx(3.5 / 2)


def test_bound_at_the_edges() -> None:
    one_token = decode_bound(1000, 10, 10, Speeds())
    assert one_token is not None
    assert (one_token.decode_share, one_token.max_speedup, one_token.capped_speedup) == (0, 1, 1)
    no_prefill = decode_bound(0, 100, 1, Speeds(decode_speedup_cap=2.5))
    assert no_prefill is not None
    assert no_prefill.max_speedup is None
    assert no_prefill.capped_speedup == pytest.approx(2.5)
    assert decode_bound(0, 0, 0, Speeds()) is None


def test_trace(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"timestamp": 1000 * i, "input_length": 1024, "output_length": 11, "hash_ids": [0, i + 1]}
        for i in range(100)
    ]
    found = inspect_file(
        write(tmp_path, rows), speeds=Speeds(prefill_tokens_per_s=1024, decode_tokens_per_s=10)
    )
    assert found.bound is not None
    assert (found.bound.requests, found.bound.prefill_tokens, found.bound.decode_tokens) == (
        100,
        102_400,
        1000,
    )
    assert found.bound.decode_share == pytest.approx(0.5)
    assert found.prefix is not None
    assert found.prefix.hit_ratio == pytest.approx(99 / 200)
    assert found.arrivals is not None
    assert found.arrivals.rate_per_s == pytest.approx(1)
    assert found.arrivals.gap_cv == pytest.approx(0, abs=1e-6)
    assert found.copying is None


def test_text_has_no_bound_unless_lengths_are_estimated(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"prompt": "one two three four five six", "answer": "two three four five!", "category": "edit"},
        {"prompt": "unlike", "answer": "a b c d e", "category": "chat"},
    ]
    path = write(tmp_path, rows)
    plain = inspect_file(path)
    assert plain.bound is None
    assert "--chars-per-token" in (plain.why_no_bound or "")
    assert plain.copying is not None
    assert (plain.copying.answer_4grams, plain.copying.copied_share) == (4, 0.25)
    assert plain.categories == {"edit": 1, "chat": 1}
    assert (plain.prompt_tokens, plain.output_tokens, plain.arrivals) == (None, None, None)
    estimated = inspect_file(path, speeds=Speeds(chars_per_token=3))
    assert estimated.bound is not None
    assert estimated.bound.estimated
    assert estimated.bound.prefill_tokens == 9 + 2
    assert estimated.bound.decode_tokens == (7 - 1) + (3 - 1)
    assert estimated.prompt_tokens is None, "an estimate is never shown as recorded"


def test_held_and_streamed_requests_give_the_same(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {
            "prompt": f"p {i}",
            "timestamp": i * 1.5,
            "input_tokens": i + 1,
            "output_tokens": 7,
            "session_id": i % 3,
        }
        for i in range(50)
    ]
    path = write(tmp_path, rows)
    streamed = inspect_file(path)
    assert streamed == inspect_requests(*read(path))
    assert streamed.sessions == 3
