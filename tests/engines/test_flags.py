"""Engine flags from config to command line."""

from __future__ import annotations

from typing import Any

import pytest

from specbench.engines.flags import merge_args, render_args
from specbench.engines.flatten import flatten


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (True, ["--flag-name"]),
        (False, []),
        (None, []),
        ([], []),
        (3, ["--flag-name", "3"]),
        (0, ["--flag-name", "0"]),
        (0.5, ["--flag-name", "0.5"]),
        ("a b", ["--flag-name", "a b"]),
        ("-x", ["--flag-name=-x"]),
        (["a", 2], ["--flag-name", "a", "2"]),
        ({"a": [1, None]}, ["--flag-name", '{"a":[1,null]}']),
    ],
)
def test_flags_are_rendered_by_type(value: Any, words: list[str]) -> None:
    assert render_args({"flag_name": value}) == words


def test_own_args_replace_shared_ones_in_any_spelling() -> None:
    base = {"max_num_seqs": 8, "no-enable-prefix-caching": True, "seed": 0}
    own = {"max-num-seqs": 4, "enable_prefix_caching": True}
    assert merge_args(base, own) == {"max-num-seqs": 4, "seed": 0, "enable-prefix-caching": True}


def test_an_own_false_does_not_undo_its_opposite() -> None:
    base = {"no-enable-prefix-caching": True}
    assert render_args(merge_args(base, {"enable-prefix-caching": False})) == ["--no-enable-prefix-caching"]


def test_nested_settings_become_one_level_and_lists_stay() -> None:
    nested = {"a": {"b": {"c": 1}, "d": [1, {"e": 2}]}, "f": {}}
    assert flatten(nested) == {"a.b.c": 1, "a.d": [1, {"e": 2}], "f": {}}
