"""Arms that differ in K alone: which run, and which a curve picks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specbench.config.grid import expand_arms
from specbench.config.ladders import explored, ladders, rungs
from specbench.config.model import Config


def arms(*entries: dict[str, object]) -> tuple[object, ...]:
    config = Config.model_validate(
        {
            "name": "x",
            "target": "t",
            "engine": {"kind": "simulated"},
            "arms": list(entries),
            "loads": {"closed": [1]},
        }
    )
    return expand_arms(config)


def test_a_ladder_is_four_arms_or_more_that_differ_in_k_alone() -> None:
    both = {"prompt_lookup_max": [2, 4]}
    found = ladders(
        arms(  # type: ignore[arg-type]
            {"method": "ngram", "k": [8, 1, 4, 2], "settings": both},
            {"method": "draft_model", "draft": "d", "k": [1, 2, 3]},
        )
    )
    assert found == (
        {"ngram-k1-plm2": 1, "ngram-k2-plm2": 2, "ngram-k4-plm2": 4, "ngram-k8-plm2": 8},
        {"ngram-k1-plm4": 1, "ngram-k2-plm4": 2, "ngram-k4-plm4": 4, "ngram-k8-plm4": 8},
    )


@given(st.sets(st.integers(1, 60), min_size=4, max_size=20))
def test_rungs_are_few_and_hold_both_ends(ks: set[int]) -> None:
    ladder = {f"k{k}": k for k in ks}
    chosen = [ladder[a] for a in rungs(ladder)]
    assert len(chosen) == 4
    assert chosen == sorted(set(chosen))
    assert (chosen[0], chosen[-1]) == (min(ks), max(ks))
    without = frozenset({f"k{max(ks)}"})
    assert not without & set(rungs(ladder, without))


def test_arms_on_no_ladder_all_run() -> None:
    ladder = {f"k{k}": k for k in range(1, 9)}
    assert explored(["ngram", *ladder], [ladder]) == ["ngram", "k1", "k3", "k6", "k8"]
