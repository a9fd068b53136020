"""From the lists of an arm's entry to the arms of a sweep."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from specbench.config.grid import GridError, expand_arms
from specbench.config.model import Config

TREES = [
    {"num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4},
    {"num_steps": 5, "eagle_topk": 4, "num_draft_tokens": 8},
]


def grid(*entries: dict[str, Any]) -> list[tuple[str, int | None, dict[str, Any]]]:
    config = Config.model_validate(
        {
            "name": "demo",
            "target": "org/model",
            "engine": {"kind": "sglang"},
            "arms": list(entries),
            "loads": {"closed": [1]},
        }
    )
    baseline, *arms = expand_arms(config)
    assert baseline.is_baseline
    return [(arm.id, arm.k, arm.settings) for arm in arms]


def test_lists_expand_and_are_named_by_what_varies() -> None:
    found = grid(
        {"method": "ngram", "k": [4, 8], "settings": {"ngram_capacity": [10, 20], "ngram_match_type": "BFS"}}
    )
    assert [(name, k) for name, k, _ in found] == [
        *(("ngram-k4-nc10", 4), ("ngram-k4-nc20", 4)),
        *(("ngram-k8-nc10", 8), ("ngram-k8-nc20", 8)),
    ]
    assert found[1][2] == {"ngram_capacity": 20, "ngram_match_type": "BFS"}


def test_settings_that_belong_together_vary_together() -> None:
    found = grid({"method": "eagle3", "draft": "org/head", "name": "tree", "variants": TREES})
    assert found == [("tree-ns3-et1-ndt4", None, TREES[0]), ("tree-ns5-et4-ndt8", None, TREES[1])]


def test_variants_multiply_with_every_other_list_and_may_differ_in_their_keys() -> None:
    found = grid(
        {
            "method": "eagle3",
            "draft": ["org/a", "org/b"],
            "variants": [TREES[1], {"adaptive": True}],
            "settings": {"draft_window_size": [256, 512]},
        }
    )
    assert len(found) == 2 * 2 * 2
    assert ("eagle3-b-dws512-aTrue", None, {"draft_window_size": 512, "adaptive": True}) in found
    assert ("eagle3-a-dws256-ns5-et4-ndt8", None, {"draft_window_size": 256, **TREES[1]}) in found


def test_a_list_inside_a_variant_is_its_value() -> None:
    (one,) = grid({"method": "ngram", "variants": [{"a": [1, 2]}]})
    assert one[2] == {"a": [1, 2]}


def test_the_same_variant_twice_is_an_error() -> None:
    with pytest.raises(GridError, match="two arms are both called 'tree-ns3"):
        grid({"method": "eagle3", "name": "tree", "variants": [TREES[0], dict(TREES[0])]})


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"variants": [{"a": 1}, {"b": 1}], "settings": {"b": 2}}, r"variants\[1\] gives 'b'"),
        ({"variants": [{}]}, "at least 1"),
        ({"variants": [[3, 1, 4]]}, "dictionary"),
    ],
)
def test_variants_that_mean_nothing_are_refused(entry: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        grid({"method": "eagle3", **entry})
