"""The requests of a cell: the same everywhere, in proportion at every point."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench.config.grid import Load
from specbench.config.model import Workload
from specbench.workloads.loading import load_source
from specbench.workloads.mix import MAX_SEED, build_cell_mix, interleave
from specbench.workloads.request import CellMix
from specbench.workloads.request import digest as requests_digest
from specbench.workloads.requests_file import WorkloadError
from specbench.workloads.shipped import dataset_names
from specbench.workloads.source_request import Shape, Source, SourceRequest


def workload(**changes: Any) -> Workload:
    return Workload.model_validate(changes)


def source(**sizes: int) -> list[SourceRequest]:
    return [
        SourceRequest(
            id=f"{category}-{i}",
            category=category,
            prompt=f"{category} {i}",
            source=Source(file="x.jsonl", line=i + 1),
        )
        for category, size in sizes.items()
        for i in range(size)
    ]


def mix(concurrency: int = 4, seed: int = 1, warmup: int = 2, rows: Any = None, **changes: Any) -> CellMix:
    rows = source(a=300, b=100) if rows is None else rows
    return build_cell_mix(workload(**changes), rows, Load(f"c{concurrency}", concurrency), warmup, seed)


SHARES = st.dictionaries(st.sampled_from("abcdefghij"), st.floats(0.01, 10), min_size=1).map(
    lambda weights: {k: w / sum(weights.values()) for k, w in weights.items()}
)


@given(SHARES, st.integers(1, 150))
def test_every_prefix_and_window_is_in_proportion(shares: dict[str, float], count: int) -> None:
    sequence = interleave(shares, count)
    assert len(sequence) == count
    for start in range(0, count, 7):
        window = sequence[start:]
        for category, share in shares.items():
            assert abs(window.count(category) - share * len(window)) < 2
            assert abs(sequence[:start].count(category) - share * start) < 1 + 1e-6


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 12), st.integers(1, 4), st.integers(0, 99))
def test_ids_repeats_and_warmup(a: int, b: int, concurrency: int, warmup: int, seed: int) -> None:
    rows = source(a=a, b=b)
    made = mix(concurrency, seed, warmup, rows, categories={"a": 2, "b": 1}, min_requests=8)
    measured, warm = ([r.id.split("#")[0] for r in part] for part in (made.measured, made.warmup))
    assert len(warm) == warmup * concurrency
    ids = [r.id for r in made.warmup + made.measured]
    assert len(set(ids)) == len(ids)
    assert made.repeats == (len(set(measured)) < len(measured))
    for category, size in (("a", a), ("b", b)):
        uses = Counter(r.id.split("#")[0] for r in made.measured if r.category == category)
        # A pool is used up before anything comes again.
        if uses:
            assert max(uses.values()) - (min(uses.values()) if len(uses) == size else 0) <= 1
        needed = sum(r.category == category for r in made.warmup + made.measured)
        if needed <= size:
            assert not {i for i in measured if i[0] == category} & {i for i in warm if i[0] == category}


def test_repeated_requests_are_numbered() -> None:
    made = mix(1, rows=source(a=4), min_requests=10)
    assert made.repeats
    ids = [r.id for r in made.measured]
    assert [i.split("#")[0] for i in ids[:4]] == [i.split("#")[0] for i in ids[4:8]]
    assert [i.partition("#")[2] for i in ids] == ["", "", "", "", "2", "2", "2", "2", "3", "3"]


def test_same_in_another_process() -> None:
    code = (
        "from tests.workloads.test_mix import mix;"
        "print(mix(seed=5, sampling={'temperature': 1}).digest, mix(concurrency=9).digest)"
    )
    here = f"{mix(seed=5, sampling={'temperature': 1}).digest} {mix(concurrency=9).digest}"
    for hash_seed in ("0", "77"):
        out = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert out.stdout.strip() == here


def test_digest_is_pinned() -> None:
    """Another value here means that stored runs and new ones no longer send the same requests."""
    assert mix().digest[:16] == "8a2419b5194ea40e"


def test_order_of_the_source_does_not_matter() -> None:
    rows = source(a=300, b=100)
    assert mix(rows=rows[::-1]) == mix(rows=rows)


def test_digest_covers_warmup_and_measured() -> None:
    made = mix()
    assert made.digest == requests_digest(made.warmup + made.measured)
    assert len({mix().digest, mix(seed=2).digest, mix(warmup=3).digest, mix(max_output_tokens=9).digest}) == 4


def test_a_timed_cell_takes_what_the_source_has() -> None:
    made = mix(4, seconds=1000)
    assert (len(made.measured), made.repeats) == (400 - 8, False)
    assert not {r.id for r in made.measured} & {r.id for r in made.warmup}
    assert len(mix(4, seconds=10).measured) == 160
    assert len(mix(4, seconds=1000, rows=source(a=9)).measured) == 24


def test_loads_take_different_permutations() -> None:
    one, other = ([r.id for r in mix(c, min_requests=40).measured][:20] for c in (4, 5))
    assert one != other
    assert [i[0] for i in one] == [i[0] for i in other]


def test_weights_are_shares_of_requests() -> None:
    made = mix(10, requests_per_slot=10, categories={"b": 3, "a": 1})
    assert Counter(r.category for r in made.measured) == {"b": 75, "a": 25}


def test_without_weights_the_source_decides() -> None:
    for categories in (None, ["a", "b"]):
        made = mix(10, requests_per_slot=10, categories=categories)
        assert Counter(r.category for r in made.measured) == {"a": 75, "b": 25}


def test_settings_of_requests() -> None:
    rows = [
        SourceRequest(
            id="x",
            category="a",
            messages=({"role": "user", "content": "hi"},),
            max_tokens=50,
            text_source="filler:lorem",
            source=Source(file="x.jsonl", line=1),
        )
    ]
    (first, *_) = mix(
        1,
        rows=rows,
        max_output_tokens=80,
        output_mode="forced",
        source="/data/private/x.jsonl",
        sampling={"temperature": 0.5, "top_p": 0.9, "top_k": 7},
    ).measured
    assert (first.max_tokens, first.output_mode, first.text_source) == (50, "forced", "filler:lorem")
    assert (first.temperature, first.top_p, first.top_k) == (0.5, 0.9, 7)
    assert first.source == "x.jsonl"
    assert mix(1, rows=rows, max_output_tokens=20).measured[0].max_tokens == 20


def test_seeds() -> None:
    assert {r.seed for r in mix().measured} == {None}
    sampled = mix(sampling={"temperature": 1})
    seeds = [r.seed for r in sampled.warmup + sampled.measured]
    assert all(seed is not None and 0 <= seed <= MAX_SEED for seed in seeds)
    assert len(set(seeds)) == len(seeds)
    again = {r.id: r.seed for r in mix(5, sampling={"temperature": 1}).measured}
    assert all(again[r.id] == r.seed for r in sampled.measured if r.id in again)


def test_a_shape_without_text_is_refused() -> None:
    rows = [SourceRequest(id="x", shape=Shape(prompt_tokens=9), source=Source(file="t.jsonl", line=3))]
    with pytest.raises(WorkloadError, match=r"t\.jsonl:3: 'x' has a length but no text to send"):
        mix(rows=rows)


def write(path: Path, *rows: dict[str, Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_load_source_from_a_path(tmp_path: Path) -> None:
    write(tmp_path / "r.jsonl", *({"id": f"r{i}", "category": "ab"[i % 2], "prompt": "x"} for i in range(6)))
    assert [r.id for r in load_source(workload(source="./r.jsonl"), tmp_path).requests] == [
        f"r{i}" for i in range(6)
    ]
    chosen = load_source(workload(source=str(tmp_path / "r.jsonl"), categories=["b"]), Path("/")).requests
    assert [r.id for r in chosen] == ["r1", "r3", "r5"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": "quickstrat"}, "no shipped dataset is called 'quickstrat'; did you mean 'quickstart'?"),
        ({"source": "data/mine.jsonl"}, "for a file write ./data/mine.jsonl"),
        ({"source": "./none.jsonl"}, "none.jsonl: no such file"),
        (
            {"categories": ["chatt"]},
            "quickstart has no category 'chatt'; did you mean 'chat'?; it has: chat, ",
        ),
        ({"categories": {"nonsense": 1}}, "quickstart has no category 'nonsense'; it has: chat, "),
        ({"categories": []}, "is empty: name a category or remove the key"),
    ],
)
def test_load_source_errors(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(WorkloadError) as caught:
        load_source(workload(**changes), tmp_path)
    assert message in str(caught.value)


@pytest.mark.parametrize("name", dataset_names())
def test_shipped_datasets_make_a_mix(name: str, tmp_path: Path) -> None:
    rows = load_source(workload(source=name), tmp_path).requests
    made = mix(2, rows=rows, source=name)
    assert {r.source for r in made.measured} == {name}
    assert not made.repeats
