"""The shipped prompts: well formed, varied, and no prompt twice."""

from __future__ import annotations

import itertools
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from specbench.workloads.shipped import dataset_files, dataset_names, datasets_folder, shipped_datasets

CATEGORIES = ("agent", "chat", "code", "edit", "extract", "math", "rag", "summarise", "translate")
KEYS = {"id", "category", "lang", "messages"}
SHINGLE = 8
NEAR_DUPLICATE = 0.4


@cache
def rows(file: Path) -> tuple[dict[str, Any], ...]:
    return tuple(json.loads(line) for line in file.read_text("utf-8").splitlines())


def all_rows() -> list[dict[str, Any]]:
    return [row for file in dataset_files("all") for row in rows(file)]


def own_text(row: dict[str, Any]) -> str:
    """What is particular to a request: the shared system prompts of the agents repeat by design."""
    return "\n".join(m["content"] for m in row["messages"] if m["role"] != "system")


def shingles(text: str, size: int = SHINGLE) -> set[tuple[str, ...]]:
    """Word n-grams; character n-grams where the script puts no spaces between words."""
    words = re.findall(r"\w+", text.lower())
    if sum(map(len, words)) > 12 * len(words):
        words = [c for c in text if c.isalnum()]
    if len(words) < size:
        return {tuple(words)}
    return {tuple(words[i : i + size]) for i in range(len(words) - size + 1)}


def test_every_file_is_in_the_index_and_every_name_has_files() -> None:
    named = {file for name in dataset_names() for file in dataset_files(name)}
    assert named == set(datasets_folder().glob("*.jsonl"))
    assert set(CATEGORIES) | {"quickstart", "all"} == set(dataset_names())
    assert all(entry.description for entry in shipped_datasets().values())


def test_all_holds_every_category_once() -> None:
    files = dataset_files("all")
    assert len(files) == len(set(files)) == len(CATEGORIES)


@pytest.mark.parametrize("category", CATEGORIES)
def test_rows_are_well_formed(category: str) -> None:
    (file,) = dataset_files(category)
    for number, row in enumerate(rows(file), start=1):
        where = f"{file.name}:{number}"
        assert set(row) == KEYS, where
        assert row["id"] == f"{category}-{number:03d}", where
        assert row["category"] == category, where
        assert re.fullmatch(r"[a-z]{2}", row["lang"]), where
        roles = [message["role"] for message in row["messages"]]
        turns = roles[1:] if roles[0] == "system" else roles
        assert turns == [("user", "assistant")[i % 2] for i in range(len(turns))], where
        assert turns[-1] == "user", where
        for message in row["messages"]:
            assert set(message) == {"role", "content"}, where
            assert message["content"] == message["content"].strip() != "", where


@pytest.mark.parametrize("category", CATEGORIES)
def test_there_are_enough_prompts_of_varied_length(category: str) -> None:
    (file,) = dataset_files(category)
    assert len(rows(file)) >= 45
    lengths = sorted(len(own_text(row)) for row in rows(file))
    p10, p90 = lengths[len(lengths) // 10], lengths[len(lengths) * 9 // 10]
    assert p90 >= 2 * p10


def test_ids_are_unique() -> None:
    ids = [row["id"] for row in all_rows()]
    assert len(ids) == len(set(ids))


def test_no_two_prompts_are_nearly_the_same() -> None:
    sets = [(row["id"], shingles(own_text(row))) for row in all_rows()]
    near = [
        (a, b)
        for (a, x), (b, y) in itertools.combinations(sets, 2)
        if not x.isdisjoint(y) and len(x & y) / len(x | y) > NEAR_DUPLICATE
    ]
    assert near == []


def test_the_duplicate_check_finds_duplicates() -> None:
    text = "The ferry to the island leaves at twenty to eight and takes fifty minutes in all weathers."
    x, y = shingles(text), shingles(text.replace("fifty", "sixty"))
    assert len(x & y) / len(x | y) > 0
    assert shingles(text) == shingles(text.upper())
    assert len(shingles("社区图书馆将于六月八日下午两点举办旧书交换活动,地点在一楼阅览室")) > SHINGLE


def test_chat_speaks_many_languages() -> None:
    (file,) = dataset_files("chat")
    languages = [row["lang"] for row in rows(file)]
    assert {"en", "es", "fr", "de", "zh", "ja", "hi"} <= set(languages)
    assert 0.4 <= languages.count("en") / len(languages) <= 0.7


def test_agents_share_their_system_prompts() -> None:
    (file,) = dataset_files("agent")
    prompts = [row["messages"][0] for row in rows(file)]
    assert all(prompt["role"] == "system" and len(prompt["content"]) > 1500 for prompt in prompts)
    assert len({prompt["content"] for prompt in prompts}) == 3


def test_the_readme_counts_right() -> None:
    text = (datasets_folder() / "README.md").read_text()
    for category in CATEGORIES:
        (file,) = dataset_files(category)
        assert f"| `{file.name}` | {len(rows(file))} |" in text
