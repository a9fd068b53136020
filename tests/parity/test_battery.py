"""From scored outputs to PASS, FAIL and INCONCLUSIVE. The full study is benchmarks/parity/power.py."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from benchmarks.parity.power import CASES, Job, run
from specbench.parity.battery import Outputs, holm, judge_arm
from specbench.parity.data import Role, Tokens
from specbench.parity.lengths import loops, p_length
from specbench.runs.parity import ArmParity, TestResult
from tests.parity.study import sampled
from tests.parity.test_data import output

CORRECT = tuple(c for c in CASES if c.correct and not c.noise)
SEEN_BY_SMOKE = tuple(
    c
    for c in CASES
    if not c.correct
    and c.name not in ("T off by 2%", "bonus at T = 0.9", "random token, 1e-3", "stale KV, 1% of rejections")
)
"""Bugs that 64 prompts show nearly always."""


def test_small_study_of_bugs() -> None:
    found = run(Job(seed=31, replicates=2, tier="smoke", cases=SEEN_BY_SMOKE))
    assert {name: t.decisions["FAIL"] for name, t in found.items()} == dict.fromkeys(found, 2)


def test_small_study_of_correct_engines() -> None:
    found = run(Job(seed=32, replicates=6, tier="smoke", cases=CORRECT))
    assert sum(t.decisions["FAIL"] for t in found.values()) == 0
    # 24 in all, of which about 8 in 10 pass on so few tokens: 12 or fewer has a chance of 0.002.
    assert sum(t.decisions["PASS"] for t in found.values()) > 12


def judged(arm: Tokens, base: Tokens, lossy: tuple[str, ...] = ()) -> ArmParity:
    one = Outputs("c1", sampled(41, temperature=0.0), arm)
    baseline = Outputs("baseline", sampled(42, drafting="none", temperature=0.0), base)
    return judge_arm("x", "smoke", [one], baseline, lossy)


def test_pass_says_how_close() -> None:
    found = judged(sampled(43, outputs=256), sampled(44, drafting="none", outputs=256))
    assert found.decision == "PASS"
    assert found.headline.startswith("equivalent within |dT/T| < 3% (est ")
    assert "90% CI" in found.headline
    assert "bug rate < 1.8e-04/token (95%)" in found.headline
    assert found.reasons == ()
    assert msgspec.json.decode(msgspec.json.encode(found), type=ArmParity) == found


def test_few_tokens_are_inconclusive_not_passed() -> None:
    found = judged(sampled(43, outputs=8), sampled(44, drafting="none", outputs=8))
    assert found.decision == "INCONCLUSIVE"
    assert any("temperature is not known" in r for r in found.reasons)
    assert not found.escalate


def test_what_was_not_collected_keeps_from_passing() -> None:
    base = Outputs("baseline", None, sampled(44, drafting="none", outputs=256))
    found = judge_arm("x", "smoke", [Outputs("c1", None, sampled(43, outputs=256))], base)
    assert found.decision == "INCONCLUSIVE"
    assert "c1: greedy outputs were not scored" in found.reasons
    assert judge_arm("x", "smoke", [], base).decision == "INCONCLUSIVE"


def test_lossy_by_configuration_is_said_whatever_the_tests_say() -> None:
    found = judged(
        sampled(43, outputs=256),
        sampled(44, drafting="none", outputs=256),
        lossy=("speculative_accept_threshold_acc=0.9: drafts ...",),
    )
    assert found.decision == "FAIL"
    assert found.headline.startswith("lossy by configuration: speculative_accept_threshold_acc=0.9")


def test_without_the_draft_the_result_says_so() -> None:
    arm, base = sampled(43, with_draft=False), sampled(44, drafting="none", with_draft=False)
    assert not judged(arm, base).loads[0].has_draft_direction


def test_holm() -> None:
    tests = [
        TestResult(load="c1", name=str(i), p=p, p_holm=p, words="")
        for i, p in enumerate([0.04, 0.001, 0.03, 1.0])
    ]
    assert [round(t.p_holm, 6) for t in holm(tests)] == [0.09, 0.004, 0.09, 1.0]
    assert holm([]) == []


def test_loops_and_lengths() -> None:
    def of(rows: list[Any]) -> Tokens:
        return Tokens.of(
            [output(len(r), 2, i, role=Role.A, output_ids=r.astype(np.int32)) for i, r in enumerate(rows)]
        )

    plain = of([np.arange(100)] * 20)
    stuck = of([np.append(np.arange(36), np.tile([5, 6, 7], 22))[:100]] * 20)
    short = of([np.arange(60)] * 20)
    assert (loops(plain), loops(stuck), loops(of([np.zeros(10)]))) == (0, 20, 0)
    assert p_length(plain, plain) == 1.0
    assert p_length(short, plain) < 1e-6


@pytest.mark.parametrize("top_p", [0.9])
def test_other_sampling_parameters_use_two_samples(top_p: float) -> None:
    def outputs(seed: int, verifier: str, drafting: str) -> Outputs:
        tokens = sampled(seed, verifier, drafting, outputs=256, top_p=top_p)  # type: ignore[arg-type]
        return Outputs("c1", sampled(41, temperature=0.0), tokens, 1.0, top_p)

    base = outputs(51, "standard", "none")
    right = judge_arm("x", "smoke", [outputs(52, "standard", "sampled")], base)
    wrong = judge_arm("x", "smoke", [outputs(53, "top_p_ignored", "sampled")], base)
    names = {t.name for t in right.loads[0].tests}
    assert {"sampled, S3, two samples", "sampled, nucleus"} <= names
    assert "sampled, S3" not in names
    assert right.decision != "FAIL"
    assert wrong.decision == "FAIL"


def test_what_is_wrong_only_as_served_is_found_there() -> None:
    def outputs(seed: int, verifier: str, drafting: str) -> Outputs:
        def at(seed: int, verifier: str, top_p: float) -> Tokens:
            return sampled(seed, verifier, drafting, outputs=256, top_p=top_p)  # type: ignore[arg-type]

        served = Outputs("c1 as served", None, at(seed, verifier, 0.9), 1.0, 0.9)
        exact = at(seed + 10, "standard", 1.0)
        return Outputs("c1", sampled(41, temperature=0.0), exact, 1.0, 1.0, as_served=served)

    base = outputs(61, "standard", "none")
    right = judge_arm("x", "gate", [outputs(62, "standard", "sampled")], base)
    wrong = judge_arm("x", "gate", [outputs(63, "top_p_ignored", "sampled")], base)
    assert [x.load for x in right.loads] == ["c1", "c1 as served"]
    assert right.loads[1].d_beta is None
    assert right.decision != "FAIL"
    assert wrong.decision == "FAIL"
    assert {t.load for t in wrong.loads[0].tests + wrong.loads[1].tests if t.p_holm < 0.001} == {
        "c1 as served"
    }


def test_outputs_are_sorted_by_how_they_were_sampled() -> None:
    laws = [(0.7, 0.9), (0.0, 1.0), (1.0, 1.0)]
    rows = [output(8, 20, i, temperature=t, top_p=p) for t, p in laws for i in range(3)]
    found = Outputs.of("c4", rows)
    assert (found.temperature, found.top_p, found.exact) == (1.0, 1.0, True)
    assert found.as_served is not None
    assert (found.as_served.load, found.as_served.temperature, found.as_served.top_p) == (
        "c4 as served",
        0.7,
        0.9,
    )
    assert found.as_served.greedy is None
    assert [len(x or ()) for x in (found.greedy, found.sampled, found.as_served.sampled)] == [24, 24, 24]
    alone = Outputs.of("c4", rows[:3])
    assert (alone.temperature, alone.as_served) == (0.7, None)
