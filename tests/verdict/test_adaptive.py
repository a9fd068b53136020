"""Adaptive run directories made of arithmetic, judged and reported."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

import pytest

from specbench.analysis.run import analyse
from specbench.report.build import build
from specbench.runs import records as r
from specbench.runs.files import write_json
from specbench.runs.rundir import RunDir
from specbench.verdict.exit_codes import ExitCode
from specbench.verdict.registered import REGISTERED, rule_digest
from specbench.verdict.rule import judge
from tests.synthetic import Pace, SyntheticRun

BASE = 0.010
LOOKS = (3, 4, 5, 6, 8)
Stages = dict[int, Literal["explore", "confirm"]]


def rule(**changes: object) -> r.RuleRecord:
    values: dict[str, object] = {
        "strategy": "adaptive",
        "looks": LOOKS,
        "max_rounds": 10,
        "explore_rounds": 2,
        "order_seed": 1,
        **changes,
    }
    return r.RuleRecord(**values)  # type: ignore[arg-type]  # the values are those of the fields


def write(
    out: Path,
    explore: dict[str, list[float]],
    confirm: tuple[str, list[float]] | None,
    spread: tuple[float, ...] = (1.0, 1.004, 0.996, 1.002, 0.998),
    **changes: object,
) -> RunDir:
    """Arms explored at the given speed-ups, one of them confirmed at each load's speed-up."""
    first = max((len(x) for x in explore.values()), default=0)
    pace: dict[tuple[str, int, int], Pace | str | None] = {}
    stages: Stages = {}
    for n in range(1, first + 1):
        stages[n] = "explore"
        for c in (1, 4):
            pace["baseline", c, n] = Pace(BASE)
            for arm, gains in explore.items():
                if n <= len(gains):
                    pace[arm, c, n] = Pace(BASE / gains[n - 1])
    rounds = first
    if confirm is not None:
        arm, at_loads = confirm
        rounds = first + len(spread)
        for i, factor in enumerate(spread):
            stages[first + 1 + i] = "confirm"
            for c, gain in zip((1, 4), at_loads, strict=True):
                pace["baseline", c, first + 1 + i] = Pace(BASE)
                pace[arm, c, first + 1 + i] = Pace(BASE / (gain * factor))
    arms = tuple(explore) or ((confirm[0],) if confirm else ())
    run = SyntheticRun(
        rounds=rounds,
        arms=arms,
        stages=stages,
        rule=rule(explore_rounds=2 if explore else 0),
    )
    return dataclasses.replace(run, **changes).write(out, pace)  # type: ignore[arg-type]


def test_the_confirmed_arm_decides_and_the_explored_are_shown(tmp_path: Path) -> None:
    run = write(tmp_path, {"a": [1.2, 1.3], "b": [1.1, 1.1]}, ("a", [1.2, 1.2]))
    v = judge(analyse(run))
    assert (v.decision, v.exit_code) == ("GO", ExitCode.OK)
    assert v.arms["b"].decision == "INCONCLUSIVE"
    assert "explored only: 1.10x in 2 rounds" in v.arms["b"].reasons[0]
    assert any("winner's curse" in x and "while exploring it showed 1.25x" in x for x in v.reasons)
    assert v.choice is not None
    assert (v.choice.arm, v.choice.concurrencies) == ("a", (1, 4))

    result = build(run)
    assert (result.strategy, result.looks, result.complete) == ("adaptive", LOOKS, True)
    confirmed, explored = result.at("a", "c1"), result.at("b", "c1")
    assert confirmed is not None
    assert explored is not None
    assert (confirmed.stage, explored.stage) == ("confirm", "explore")
    # Exploring at 1.2 and 1.3 is not in the speed-up, nor in the throughput.
    assert confirmed.speedup.value == pytest.approx(1.2, rel=0.01)
    assert len(confirmed.speedup.per_round) == 5
    assert len(confirmed.per_launch_tokens_per_s) == 5
    assert len(explored.speedup.per_round) == 2


def test_the_interval_is_the_repeated_one(tmp_path: Path) -> None:
    run = write(tmp_path, {}, ("a", [1.2, 1.2]), spread=(1.0, 1.01, 0.99))
    x = analyse(run).at["a", "c1"].speedup
    low, high = x.interval(0.9) or (0.0, 0.0)
    plain = dataclasses.replace(x, design=None).interval(0.9) or (0.0, 0.0)
    # 3.85 standard errors where a single look has 2.92.
    assert high / low > (plain[1] / plain[0]) ** 1.25


def test_one_arm_is_not_explored(tmp_path: Path) -> None:
    v = judge(analyse(write(tmp_path, {}, ("a", [0.8, 0.8]))))
    assert (v.decision, v.exit_code) == ("NO-GO", ExitCode.NO_GO_SPEED)
    assert any("the verdict rests on 5 new pairs" in x for x in v.reasons)


def test_only_exploring_gives_no_verdict(tmp_path: Path) -> None:
    v = judge(analyse(write(tmp_path, {"a": [2.0, 2.1], "b": [1.9, 1.8]}, None)))
    assert v.decision == "INCONCLUSIVE"
    assert "only exploring rounds" in v.headline


def test_a_load_after_one_that_is_not_go_is_not_claimed(tmp_path: Path) -> None:
    run = write(tmp_path, {}, ("a", [0.9, 1.5]))
    v = judge(analyse(run))
    assert v.at["a", "c1"].decision == "NO-GO"
    assert v.at["a", "c4"].decision == "INCONCLUSIVE"
    assert "not tested: c1 comes before it" in v.at["a", "c4"].reasons[0]
    turned = write(tmp_path, {}, ("a", [0.9, 1.5]), rule=rule(explore_rounds=0, load_order=("c4", "c1")))
    v = judge(analyse(turned))
    assert v.at["a", "c4"].decision == "GO"
    assert v.choice is not None
    assert 4 in v.choice.concurrencies


def test_no_correction_for_arms_that_were_not_tested(tmp_path: Path) -> None:
    explore = {f"a{i}": [1.1 + i / 1000, 1.1 + i / 1000] for i in range(8)}
    run = write(tmp_path, explore, ("a7", [1.12, 1.12]), spread=(1.0, 1.015, 0.985, 1.01, 0.99))
    assert judge(analyse(run)).decision == "GO"


def test_before_the_first_look_it_says_how_many_pairs_are_missing(tmp_path: Path) -> None:
    v = judge(analyse(write(tmp_path, {}, ("a", [1.5, 1.5]), spread=(1.0, 1.01))))
    assert v.decision == "INCONCLUSIVE"
    assert "2 of 3 pairs for the first look" in v.arms["a"].reasons[0]


def test_memory_stays_a_guardrail(tmp_path: Path) -> None:
    pace: dict[tuple[str, int, int], Pace | str | None] = {}
    for n in (1, 2, 3):
        for c in (1, 4):
            pace["baseline", c, n] = Pace(BASE)
            pace["a", c, n] = Pace(BASE / (1.3 + 0.001 * n), preemptions=4)
    stages: Stages = {1: "confirm", 2: "confirm", 3: "confirm"}
    run = SyntheticRun(arms=("a",), rule=rule(explore_rounds=0), stages=stages).write(tmp_path, pace)
    assert judge(analyse(run)).exit_code == ExitCode.NO_GO_GUARDRAIL


def slow_first_tokens(tmp_path: Path, ttft: float, margins: dict[str, float]) -> RunDir:
    """Cells of 300 requests in which the arm is 1.3 times as fast and its TTFT so many times the baseline's."""
    pace: dict[tuple[str, int, int], Pace | str | None] = {}
    stages: Stages = {}
    for n in range(1, 4):
        stages[n] = "confirm"
        pace["baseline", 1, n] = Pace(BASE)
        step = BASE / (1.3 + 0.002 * n)
        pace["a", 1, n] = Pace(step, first_s=2 * BASE * (ttft + 0.002 * n))
    run = SyntheticRun(
        loads=(1,), arms=("a",), per_slot=300, rule=rule(explore_rounds=0, margins=margins), stages=stages
    )
    return run.write(tmp_path, pace)


def test_a_worse_first_token_is_a_guardrail_when_it_can_be_told(tmp_path: Path) -> None:
    run = slow_first_tokens(tmp_path, 1.5, {"ttft_p95": 0.15, "tpot_p99": 0.10})
    v = judge(analyse(run))
    assert (v.decision, v.exit_code) == ("NO-GO", ExitCode.NO_GO_GUARDRAIL)
    assert "TTFT p95" in v.arms["a"].reasons[0]
    tails = {t.metric: t for t in build(run).at("a", "c1").tails}  # type: ignore[union-attr]
    assert tails["ttft_p95"].state == "fail"
    assert tails["ttft_p95"].ratio.value == pytest.approx(1.5, rel=0.01)
    # 300 requests are too few for a 99th percentile, which is said and does not decide.
    assert tails["tpot_p99"].state is None
    assert "not estimable: 1000 values per cell are needed" in (tails["tpot_p99"].ratio.why_null or "")


def test_within_the_margin_it_passes_and_without_one_it_is_only_shown(tmp_path: Path) -> None:
    assert judge(analyse(slow_first_tokens(tmp_path, 1.05, {"ttft_p95": 0.15}))).decision == "GO"
    run = slow_first_tokens(tmp_path, 1.5, {})
    assert judge(analyse(run)).decision == "GO"
    assert build(run).at("a", "c1").tails[0].ratio.value == pytest.approx(1.5, rel=0.01)  # type: ignore[union-attr]


def test_a_rule_that_is_not_the_registered_one_is_flagged(tmp_path: Path) -> None:
    run = write(tmp_path, {}, ("a", [1.2, 1.2]))
    manifest = run.manifest()
    run.journal.append(REGISTERED, digest=rule_digest(manifest))
    assert not [n for n in build(run).warnings if n.code == "rule_changed"]
    fields = {name: getattr(manifest, name) for name in manifest.__struct_fields__}
    write_json(run.path / "manifest.json", r.Manifest(**{**fields, "min_speedup": 1.01}))
    (note,) = [n for n in build(run).warnings if n.code == "rule_changed"]
    assert "edited after the first launch" in note.message
    config = {"verdict": {"min_speedup": 1.2, "confidence": 0.9}, "measure": {"looks": [3, 8]}}
    write_json(run.path / "manifest.json", r.Manifest(**{**fields, "config": config}))
    told = [n.message for n in build(run).warnings if n.code == "rule_changed"]
    assert any("verdict.min_speedup is 1.2, registered was 1.05" in x for x in told)
    assert any("measure.looks is [3, 8], registered was [3, 4, 5, 6, 8]" in x for x in told)


def test_a_sweep_that_its_rule_did_not_end_is_not_complete(tmp_path: Path) -> None:
    run = write(tmp_path, {}, ("a", [1.2, 1.2]))
    journal = run.path / "journal.jsonl"
    lines = [x for x in journal.read_text().splitlines() if "campaign_stopped" not in x]
    journal.write_text("\n".join(lines) + "\n")
    result = build(run)
    assert not result.complete
    assert any(n.code == "incomplete" for n in result.warnings)
