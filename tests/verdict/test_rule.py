"""From run directories made of arithmetic to verdicts, exit codes and grades."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest

from specbench.analysis.run import analyse
from specbench.report.build import build
from specbench.runs.files import write_json
from specbench.runs.rundir import RunDir
from specbench.verdict.exit_codes import ExitCode
from specbench.verdict.rule import Verdict, judge
from tests.synthetic import Pace, SyntheticRun

BASE = 0.010


def paces(
    speedups: dict[int, float], rounds: int = 3, arm: str = "ngram-k4", spread: float = 0.002
) -> dict[tuple[str, int, int], Pace | str | None]:
    """Baseline at 10 ms a token; the arm faster by the given factor at each load, with a little spread."""
    out: dict[tuple[str, int, int], Pace | str | None] = {}
    for c, s in speedups.items():
        for n in range(1, rounds + 1):
            out["baseline", c, n] = Pace(BASE)
            out[arm, c, n] = Pace(BASE / (s * (1 + spread * (n - (rounds + 1) / 2))))
    return out


def verdict(
    tmp_path: Path, run: SyntheticRun, pace: dict[tuple[str, int, int], Pace | str | None]
) -> Verdict:
    return judge(analyse(run.write(tmp_path, pace)))


def test_go(tmp_path: Path) -> None:
    v = verdict(tmp_path, SyntheticRun(), paces({1: 1.3, 4: 1.2}))
    assert (v.decision, v.exit_code) == ("GO", ExitCode.OK)
    assert v.choice is not None
    assert v.choice.concurrencies == (1, 4)
    assert "ngram-k4" in v.headline


def test_no_go_on_speed(tmp_path: Path) -> None:
    v = verdict(tmp_path, SyntheticRun(), paces({1: 0.9, 4: 0.8}))
    assert (v.decision, v.exit_code) == ("NO-GO", ExitCode.NO_GO_SPEED)
    assert v.choice is None


def test_a_loss_over_the_mix_still_names_the_load_where_it_pays(tmp_path: Path) -> None:
    v = verdict(tmp_path, SyntheticRun(), paces({1: 1.3, 4: 0.7}))
    assert v.decision == "NO-GO"
    assert "ngram-k4 does pay at concurrency 1 (1.3" in v.headline
    assert v.choice is not None
    assert v.choice.concurrencies == (1,)


def test_only_an_unbroken_range_from_the_lowest_load_is_recommended(tmp_path: Path) -> None:
    v = verdict(tmp_path, SyntheticRun(), paces({1: 0.7, 4: 1.2}))
    assert v.decision == "NO-GO"
    assert v.choice is None


def test_traffic_weights_decide(tmp_path: Path) -> None:
    at_one = SyntheticRun(traffic={"c1": 1.0, "c4": 0.0})
    assert verdict(tmp_path, at_one, paces({1: 1.3, 4: 0.7})).decision == "GO"


def test_noise_is_inconclusive_and_says_how_many_rounds(tmp_path: Path) -> None:
    v = verdict(tmp_path, SyntheticRun(), paces({1: 1.1, 4: 1.1}, spread=0.08))
    assert (v.decision, v.exit_code) == ("INCONCLUSIVE", ExitCode.INCONCLUSIVE)
    assert "rounds in all" in v.reasons[0]


def test_what_more_rounds_would_take_is_told(tmp_path: Path) -> None:
    run = analyse(SyntheticRun().write(tmp_path, paces({1: 1.1, 4: 1.1}, spread=0.08)))
    told = judge(dataclasses.replace(run, seconds_per_round=120.0)).arms["ngram-k4"].reasons[0]
    more = int(told.split("about ")[1].split(" rounds")[0])
    hours = f"{more * 120 / 3600:.1f} h" if more >= 45 else f"{more * 2} min"
    assert f"about {more} rounds in all would, about {hours}" in told
    assert judge(run).arms["ngram-k4"].reasons[0].endswith(" rounds in all would")


def test_one_round_never_decides(tmp_path: Path) -> None:
    v = verdict(tmp_path, SyntheticRun(rounds=1), paces({1: 2.0, 4: 2.0}, rounds=1))
    assert v.decision == "INCONCLUSIVE"
    assert v.grade == "C"


def test_trying_many_arms_raises_the_bar_for_go(tmp_path: Path) -> None:
    arms = tuple(f"a{i}" for i in range(8))
    many = {k: p for a in arms for k, p in paces({1: 1.15, 4: 1.15}, arm=a, spread=0.025).items()}
    one = verdict(tmp_path, SyntheticRun(arms=("a0",)), paces({1: 1.15, 4: 1.15}, arm="a0", spread=0.025))
    eight = verdict(tmp_path, SyntheticRun(arms=arms), many)
    assert one.decision == "GO"
    assert eight.decision == "INCONCLUSIVE"
    assert "8 arms were tried" in eight.reasons[0]


def test_of_several_that_pay_the_surest_is_deployed(tmp_path: Path) -> None:
    wide = paces({1: 1.41, 4: 1.41}, arm="wide", spread=0.06)
    pace = {**wide, **paces({1: 1.39, 4: 1.39}, arm="sure", spread=0.002)}
    v = verdict(tmp_path, SyntheticRun(arms=("wide", "sure")), pace)
    assert {d.decision for d in v.arms.values()} == {"GO"}
    assert v.headline.startswith("Deploy sure: 1.39x")
    assert v.choice is not None
    assert v.choice.arm == "sure"


def test_a_failed_baseline_cell_loses_the_pair_not_the_run(tmp_path: Path) -> None:
    pace = paces({1: 1.3, 4: 1.3})
    pace["baseline", 4, 2] = "the engine died"
    run = analyse(SyntheticRun().write(tmp_path, pace))
    assert len(run.at["ngram-k4", "c4"].speedup.per_round) == 2
    assert len(run.at["ngram-k4", "c1"].speedup.per_round) == 3


def test_nothing_valid_is_invalid(tmp_path: Path) -> None:
    pace: dict[tuple[str, int, int], Pace | str | None] = dict.fromkeys(paces({1: 1.3, 4: 1.3}), "died")
    v = verdict(tmp_path, SyntheticRun(), pace)
    assert v.decision == "INVALID"
    assert v.exit_code == ExitCode.INVALID


def test_client_bound_cells_give_exit_30(tmp_path: Path) -> None:
    pace = {k: Pace(BASE, client_bound=True) for k in paces({1: 1.0, 4: 1.0})}
    v = verdict(tmp_path, SyntheticRun(), {**pace})
    assert v.exit_code == ExitCode.INVALID
    assert any("client-bound" in r for r in v.reasons)
    # Three rounds at two loads are one reason for each arm, not six.
    assert all(r.count("client-bound") <= 1 for r in v.reasons)
    assert any("rounds 1, 2, 3: client-bound" in r for r in v.reasons), v.reasons
    (folder,) = tmp_path.iterdir()
    told = {n.action for n in build(RunDir.open(folder)).warnings if n.code == "invalid_cell"}
    assert all("Stop other work" in action for action in told)
    assert told


def test_an_arm_whose_output_is_known_to_be_wrong_is_not_judged(tmp_path: Path) -> None:
    v = verdict(
        tmp_path, SyntheticRun(arm_facts={"wrong_output": "its dice are loaded"}), paces({1: 1.3, 4: 1.2})
    )
    assert (v.decision, v.choice) == ("INVALID", None)
    assert any("its dice are loaded" in reason for reason in v.reasons)


def test_an_arm_that_is_lossy_on_purpose_is_judged_and_told(tmp_path: Path) -> None:
    run = SyntheticRun(arm_facts={"lossy": "it accepts more"}).write(tmp_path, paces({1: 1.3, 4: 1.2}))
    result = build(run)
    assert result.verdict == "GO"
    (note,) = [n for n in result.warnings if n.code == "lossy"]
    assert "ngram-k4 does not write the target's text: it accepts more" in note.message


@pytest.mark.parametrize(
    ("memory", "reset", "said"),
    [
        ("none", True, None),
        ("always", None, "each of its cells had a launch of its own"),
        ("until_reset", True, "it was made to forget before every cell"),
        ("until_reset", False, "would not reset its cache"),
    ],
)
def test_what_was_done_about_a_drafter_that_remembers_is_told(
    tmp_path: Path, memory: str, reset: bool | None, said: str | None
) -> None:
    run = SyntheticRun(arm_facts={"memory": memory}).write(tmp_path, paces({1: 1.3, 4: 1.2}))
    for record in run.cells():
        write_json(
            run.cell_path(record.id) / "cell.json", msgspec.structs.replace(record, prefix_cache_reset=reset)
        )
    told = [n for n in build(run).warnings if n.code == "learning_drafter"]
    assert [said is not None and said in n.message for n in told] == ([True] if said else [])
    assert all(bool(n.action) == (reset is False) for n in told)


def test_failed_requests_invalidate_a_cell(tmp_path: Path) -> None:
    pace = paces({1: 1.3, 4: 1.3})
    pace["ngram-k4", 4, 1] = Pace(BASE, fail=1)
    run = analyse(SyntheticRun().write(tmp_path, pace))
    cell = next(c for c in run.at["ngram-k4", "c4"].cells if c.record.round == 1)
    assert not cell.valid
    assert "connection_reset" in cell.invalid[0]


def test_preemptions_are_a_guardrail(tmp_path: Path) -> None:
    pace = paces({1: 1.3, 4: 1.3})
    for n in (1, 2, 3):
        pace["ngram-k4", 4, n] = Pace(BASE / (1.3 + 0.001 * n), preemptions=4)
    v = verdict(tmp_path, SyntheticRun(), pace)
    assert (v.decision, v.exit_code) == ("NO-GO", ExitCode.NO_GO_GUARDRAIL)
    assert v.choice is not None
    assert v.choice.concurrencies == (1,)


def test_a_tpot_limit_is_a_guardrail(tmp_path: Path) -> None:
    v = verdict(tmp_path, SyntheticRun(tpot_limit_ms=5.0), paces({1: 1.3, 4: 1.3}))
    assert v.exit_code == ExitCode.NO_GO_GUARDRAIL
    assert "TPOT p95" in v.reasons[0]


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (SyntheticRun(output_mode="forced"), "forced"),
        (SyntheticRun(text_sources=("filler:random",)), "filler"),
        (SyntheticRun(settings={"baseline": {"dtype": "bf16"}, "ngram-k4": {"dtype": "fp16"}}), "dtype"),
    ],
)
def test_no_verdict_without_honest_evidence(tmp_path: Path, run: SyntheticRun, why: str) -> None:
    v = verdict(tmp_path, run, paces({1: 1.3, 4: 1.3}))
    assert (v.decision, v.exit_code, v.grade) == ("INVALID", ExitCode.INVALID, "D")
    assert why in v.reasons[0]


def test_known_side_effects_of_speculation_do_not_block(tmp_path: Path) -> None:
    run = SyntheticRun(
        settings={
            "baseline": {"scheduler_config.async_scheduling": True},
            "ngram-k4": {"scheduler_config.async_scheduling": False},
        }
    )
    assert verdict(tmp_path, run, paces({1: 1.3, 4: 1.3})).decision == "GO"


def test_grade_is_c_until_parity_runs(tmp_path: Path) -> None:
    v = verdict(tmp_path, SyntheticRun(), paces({1: 1.3, 4: 1.3}))
    assert v.grade == "C"
    assert any("parity" in r for r in v.grade_reasons)


def test_a_round_that_another_arm_lost_does_not_weaken_a_go(tmp_path: Path) -> None:
    pace = {**paces({1: 1.4, 4: 1.4}, arm="good"), **paces({1: 0.9, 4: 0.9}, arm="bad")}
    pace["bad", 4, 2] = "it fell over"
    run = SyntheticRun(arms=("good", "bad"))
    lost = verdict(tmp_path / "a", run, pace)
    assert lost.decision == "GO"
    assert not any("valid round" in reason for reason in lost.grade_reasons)
    pace["good", 1, 2] = "it fell over"
    own = verdict(tmp_path / "b", SyntheticRun(arms=("good", "bad")), pace)
    assert any("has only 2 valid rounds" in reason for reason in own.grade_reasons)


def test_the_result_is_the_same_every_time(tmp_path: Path) -> None:
    run = SyntheticRun().write(tmp_path, paces({1: 1.3, 4: 1.2}))
    first, second = build(run), build(run)
    assert first == second
    x = first.at("ngram-k4", "c1")
    assert x is not None
    assert x.speedup.value == pytest.approx(1.3, rel=0.02)
    assert x.acceptance.tokens_per_step == pytest.approx(1.0, rel=0.05)
    assert [c.category for c in x.categories] == ["a", "b"]
    assert first.complete
