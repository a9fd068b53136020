"""Tests on texts: they find what they are for, keep their level, and never say PASS."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from benchmarks.parity.power import Case
from benchmarks.parity.texts import Study, Tally
from specbench.parity import text_greedy, text_sampled
from specbench.parity.data import Role
from specbench.parity.text_data import Alternatives, TextOutput
from specbench.parity.texts import judge_texts
from specbench.runs.parity import ArmParity

BEST = 0.0


def spelt(words: str, prompt: str = "p", role: Role = Role.A, **changes: Any) -> TextOutput:
    """An output whose tokens are the words; at each place the alternatives are it and ``near`` and ``far``."""
    tokens = tuple(words.split())
    top: tuple[Alternatives, ...] = tuple(
        ((t, BEST), ("near", BEST - 0.125), ("far", BEST - 3.0)) for t in tokens
    )
    values: dict[str, Any] = {
        "role": role,
        "arm": "S" if role is Role.S else "baseline",
        "load": "c1",
        "concurrency": 1,
        "temperature": 0.0,
        "top_p": 1.0,
        "prompt_id": prompt,
        "text": " ".join(tokens),
        "finish_reason": "length",
        "tokens": tokens,
        "top": top,
        **changes,
    }
    return TextOutput(**values)


@pytest.mark.parametrize(
    ("other", "index", "margin"),
    [
        ("a b near d", 2, 0.125),
        ("far b c d", 0, 3.0),
        ("a b c other", 3, math.inf),
        ("a b", 2, None),  # it ended: the end is no token that every server lists
        ("a b c d e", 4, None),
    ],
)
def test_the_first_difference_is_judged_by_the_baselines_alternatives(
    other: str, index: int, margin: float | None
) -> None:
    pair = text_greedy.by_tokens(spelt(other, role=Role.S), spelt("a b c d"))
    assert pair.parting == text_greedy.Parting(index, margin)
    assert text_greedy.by_tokens(spelt("a b c d"), spelt("a b c d")) == text_greedy.Pair(4, None)


def test_words_are_compared_where_there_are_no_tokens() -> None:
    pair = text_greedy.by_words(spelt("The cat sat."), spelt("The cat ran."))
    assert (pair.seen, pair.parting) == (3, text_greedy.Parting(2, None))
    # Signs of a script without spaces are places of their own, not one long word.
    assert text_greedy.by_words(
        spelt("\u4f60\u597d\u5417"), spelt("\u4f60\u597d\u5440")
    ).parting == text_greedy.Parting(2, None)


def test_tokens_that_another_server_spells_otherwise_are_not_compared() -> None:
    def respelt(x: TextOutput) -> TextOutput:
        return dataclasses.replace(x, tokens=tuple(f"_{t}" for t in x.tokens or ()))

    base = both("one two three four five")
    found = judge_texts("S", "gate", [respelt(x) for x in arm("one two three four five")], base, "why")
    assert {t.p for t in found.loads[0].tests} == {1.0}
    assert found.loads[0].divergences == 0
    assert "c1: its server spells tokens in another way" in found.reasons[0]
    # Texts that do differ are no matter of spelling.
    other = judge_texts("S", "gate", arm("one two near far near"), base, "why")
    assert other.loads[0].divergences == 8
    assert other.loads[0].tests[0].name == "greedy, first difference"


def test_causes_are_counted_and_only_the_unexplained_ones_tested() -> None:
    prompts = [f"p{i}" for i in range(40)]
    base = {p: spelt("a b c d", p) for p in prompts}
    near = {p: spelt("a near c d", p) for p in prompts}
    mixed = {p: spelt("a far c d" if i < 12 else "a near c d", p) for i, p in enumerate(prompts)}
    again = text_greedy.pairs(near, base, prompts, tokens=True)
    fine = text_greedy.explain(again, again, base.values())
    assert fine.arm == {"tie": 40, "rounding": 0, "unexplained": 0, "untold": 0}  # gaps all of 1/8: the grid
    assert fine.p == 1.0
    bad = text_greedy.explain(text_greedy.pairs(mixed, base, prompts, tokens=True), again, base.values())
    assert (bad.arm["unexplained"], bad.hard, bad.again["unexplained"]) == (12, 12, 0)
    table = np.array([[12, 28], [0, 40]])
    assert bad.p == pytest.approx(stats.fisher_exact(table, alternative="greater").pvalue)
    assert text_greedy.fewest_seen(0, 40, bad.p * 1.01) == 12
    assert text_greedy.fewest_seen(0, 5, 1e-6) is None


def test_a_wide_margin_between_the_baselines_own_texts_explains_as_much_of_the_arms() -> None:
    prompts = [f"p{i}" for i in range(40)]

    def wide(p: str, word: str = "b") -> TextOutput:
        tokens = ("a", word)
        return spelt("a b", p, tokens=tokens, top=((("a", 0.0),), (("b", 0.0), ("x", -0.9), ("y", -1.0))))

    base = {p: wide(p) for p in prompts}
    arm = text_greedy.pairs({p: wide(p, "x") for p in prompts}, base, prompts, tokens=True)
    again = text_greedy.pairs(
        {p: wide(p, "y" if p == "p0" else "b") for p in prompts}, base, prompts, tokens=True
    )
    assert text_greedy.explain(arm, again, base.values()).arm["rounding"] == 40
    quiet = text_greedy.pairs(base, base, prompts, tokens=True)
    assert text_greedy.explain(arm, quiet, base.values()).arm["unexplained"] == 40


def parted(rate: float, seed: int, length: int = 200, n: int = 128) -> list[text_greedy.Pair]:
    """Texts that part at a rate per word."""
    at = np.random.default_rng(seed).geometric(rate, n) - 1
    return [
        text_greedy.Pair(int(i) + 1, text_greedy.Parting(int(i), None))
        if i < length
        else text_greedy.Pair(length, None)
        for i in at
    ]


def test_without_logprobs_only_more_than_ties_can_do_convicts() -> None:
    quiet = [text_greedy.Pair(200, None)] * 128
    rounding = text_greedy.earliness(parted(0.02, 1), quiet)
    assert rounding.p_earlier < 1e-20  # of a batch-invariant server: earlier, and yet no proof
    assert rounding.p > 0.5
    broken = text_greedy.earliness(parted(0.2, 2), parted(0.02, 3))
    assert broken.p < 1e-6
    assert broken.per_word == pytest.approx(0.2, abs=0.04)


def sample(rng: np.random.Generator, law: np.ndarray[Any, Any], prompt: str, role: Role) -> TextOutput:
    words = " ".join(f"w{i}" for i in rng.choice(len(law), 40, p=law))
    return spelt(words, prompt, role, temperature=1.0)


def groups(seed: int, tilt: float, n: int = 60) -> list[tuple[TextOutput, ...]]:
    """S, A, A' of prompts whose own laws differ widely; S leans towards some words."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(n):
        logits = rng.normal(0, 1.5, 30)
        base, arm = (np.exp(x) / np.exp(x).sum() for x in (logits, logits + tilt * np.linspace(-1, 1, 30)))
        laws = ((arm, Role.S), (base, Role.A), (base, Role.A2))
        found.append(tuple(sample(rng, law, f"p{i}", role) for law, role in laws))
    return found


@pytest.mark.parametrize("tokens", [True, False])
def test_frequencies_find_a_shift_that_prompts_would_hide(tokens: bool) -> None:
    assert text_sampled.p_frequencies(groups(1, 0.5), tokens=tokens) == 1 / (1 + text_sampled.PERMUTATIONS)
    assert text_sampled.p_frequencies(groups(1, 0.0), tokens=tokens) > 0.01
    assert text_sampled.p_frequencies(groups(1, 0.15), tokens=tokens) == text_sampled.p_frequencies(
        groups(1, 0.15), tokens=tokens
    )


def test_frequencies_keep_their_level() -> None:
    found = np.array(
        [text_sampled.p_frequencies(groups(seed, 0.0, n=12), tokens=True) for seed in range(200)]
    )
    # 200 correct arms: binomial, 4 sigma.
    for level in (0.05, 0.2, 0.5):
        assert abs((found <= level).mean() - level) < 4 * math.sqrt(level * (1 - level) / len(found))


def test_an_end_of_text_that_only_some_servers_list_counts_nowhere() -> None:
    listed = spelt("a b </s>", text="a b", finish_reason="stop")
    silent = spelt("a b", finish_reason="stop")
    assert list(text_sampled.sizes([listed, silent], tokens=True)) == [2, 2]
    assert text_sampled.units(listed, tokens=True) == text_sampled.units(silent, tokens=True)
    cut = spelt("a b </s>", text="a b", finish_reason="length")  # an end nobody told: a token like any other
    assert list(text_sampled.sizes([cut], tokens=True)) == [3]


def test_loops_are_seen_in_texts() -> None:
    rng = np.random.default_rng(3)
    words = "".join(rng.choice(list("abcdefgh "), 400))
    assert text_sampled.loops(words + "so it goes, " * 30)
    assert not text_sampled.loops(words)
    assert not text_sampled.loops("no. " * 10)  # too short to tell


class _Kept(Tally):
    def __init__(self) -> None:
        super().__init__()
        self.results: list[tuple[ArmParity, ArmParity]] = []

    def add(self, found: ArmParity, blind: ArmParity) -> None:
        self.results.append((found, blind))


CASES = (
    Case("standard", correct=True, greedy=True),
    Case("argmax", "argmax_at_temperature", "greedy"),
    Case("position", "position_off_by_one", greedy=True),
    Case("stale KV", "stale_kv_5", greedy=True),
)


@pytest.fixture(scope="module")
def judged() -> dict[str, tuple[ArmParity, ArmParity]]:
    kept = {case.name: _Kept() for case in CASES}
    Study(64, 5).replicate(0, CASES, kept)  # type: ignore[arg-type]
    return {name: tally.results[0] for name, tally in kept.items()}


def test_a_correct_arm_is_inconclusive_with_what_would_not_be_seen(
    judged: dict[str, tuple[ArmParity, ArmParity]],
) -> None:
    found, blind = judged["standard"]
    assert (found.decision, blind.decision) == ("INCONCLUSIVE", "INCONCLUSIVE")
    assert found.headline.startswith(
        "texts only: nothing found in 64 prompts; a bug that changes fewer than about 19% of greedy texts, or "
        "sampled ones only a little"
    )
    assert "fewer than about 5% of the words of greedy texts" in blind.headline
    assert "tells no token ids or no scores (a study)" in found.reasons[-1]
    assert found.loads[0].greedy_tokens > 64 * 200
    assert (blind.tokens, found.bug_rate_upper95) == (0, None)
    (load,) = found.loads
    words = next(t.words for t in load.tests if t.name == "greedy, first difference")
    assert words.startswith(
        f"of 64 texts {load.divergences} part from the baseline's: {load.divergences_tied} at a"
    )
    assert 0 < load.divergences_tied < load.divergences


@pytest.mark.parametrize(
    ("case", "test", "blind_test"),
    [
        ("argmax", "sampled, likeness to greedy", "sampled, likeness to greedy"),
        ("position", "greedy, first difference", "greedy, first difference of texts"),
        ("stale KV", "greedy, first difference", None),
    ],
)
def test_gross_bugs_fail(
    judged: dict[str, tuple[ArmParity, ArmParity]], case: str, test: str, blind_test: str | None
) -> None:
    found, blind = judged[case]
    assert found.decision == "FAIL"
    assert any(r.startswith(f"{test} at c1: ") for r in found.reasons)
    assert blind.decision == ("FAIL" if blind_test else "INCONCLUSIVE")
    assert blind_test is None or any(r.startswith(f"{blind_test} at c1: ") for r in blind.reasons)


def both(words: str, change: Callable[[TextOutput], TextOutput] = lambda x: x) -> list[TextOutput]:
    roles = (Role.A, Role.A2)
    return [
        change(spelt(words, f"p{i}", role, temperature=t))
        for role in roles
        for t in (0.0, 1.0)
        for i in range(8)
    ]


def arm(words: str) -> list[TextOutput]:
    return [spelt(words, f"p{i}", Role.S, temperature=t) for t in (0.0, 1.0) for i in range(8)]


def test_what_is_missing_is_said() -> None:
    first_only = [x for x in both("a b c") if x.role is Role.A]
    found = judge_texts("S", "gate", arm("a b c"), first_only, "why")
    assert found.decision == "INCONCLUSIVE"
    assert found.headline.startswith("c1: no greedy output of the baseline's second launch was collected")
    none = judge_texts("S", "gate", [], both("a b c"), "why")
    assert (none.decision, none.headline) == ("INCONCLUSIVE", "texts only, and none of this arm")
    assert none.loads == ()


@pytest.mark.parametrize(("silent", "prompts"), [(1, 19), (3, 20)])
def test_a_few_outputs_without_tokens_are_left_out(silent: int, prompts: int) -> None:
    def rows(role: Role) -> list[TextOutput]:
        return [spelt("a b c", f"p{i}", role) for i in range(20)]

    own = [
        dataclasses.replace(x, tokens=None, top=None) if i < silent else x for i, x in enumerate(rows(Role.S))
    ]
    found = judge_texts("S", "gate", own, rows(Role.A) + rows(Role.A2), "why")
    first = found.loads[0].tests[0]
    assert f"of {prompts} texts" in first.words
    assert (first.name == "greedy, first difference") is (silent == 1)


def test_lossy_by_configuration_fails_without_a_test() -> None:
    found = judge_texts("S", "gate", arm("a b c"), both("a b c"), "why", ["typical acceptance"])
    assert (found.decision, found.headline) == ("FAIL", "lossy by configuration: typical acceptance")


def test_outputs_as_served_are_tested_too() -> None:
    def served(rows: list[TextOutput]) -> list[TextOutput]:
        return [dataclasses.replace(x, temperature=0.7, top_p=0.9) for x in rows if not x.greedy]

    own, base = arm("a b c"), both("a b c")
    found = judge_texts("S", "gate", own + served(arm("x y z")), base + served(base), "why")
    assert [x.load for x in found.loads] == ["c1", "c1 as served"]
    p = {t.name: t.p for t in found.loads[1].tests}
    # Eight prompts: the chance that the arm's is the odd one of three in each is 3**-8.
    assert p["sampled, frequencies"] == pytest.approx(3**-8, abs=2e-4)
    assert {t.p for t in found.loads[0].tests} == {1.0}
