"""A new run against a recorded one: what is GO, NO-GO, INCONCLUSIVE and INVALID, and how often by chance."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import numpy as np

from specbench.analysis.between import UnpairedRatio
from specbench.analysis.run import RunAnalysis, analyse
from specbench.runs import records as r
from specbench.runs.files import write_json
from specbench.runs.parity import ArmParity, ParityResult
from specbench.verdict.exit_codes import ExitCode
from specbench.verdict.regression import Regression, judge_regression
from tests.synthetic import Pace, SyntheticRun

BASE_S = 0.010
Paces = dict[tuple[str, int, int], Pace | str | None]


def _paces(speed: dict[str, float], spread: float = 0.004, first_s: float | None = None) -> Paces:
    """Three launches of each arm at its speed over the recorded baseline's."""
    return {
        (arm, 4, n): Pace(BASE_S / (x * (1 + spread * (n - 2))), first_s=first_s)
        for arm, x in speed.items()
        for n in (1, 2, 3)
    }


def _run(path: Path, pace: Paces, **more: object) -> RunAnalysis:
    return analyse(SyntheticRun(loads=(4,), **more).write(path, pace))  # type: ignore[arg-type]


def _judged(tmp_path: Path, new: Paces, recorded: Paces | None = None, **more: object) -> Regression:
    old = recorded if recorded is not None else _paces({"baseline": 1.0, "ngram-k4": 1.5})
    return judge_regression(_run(tmp_path / "old", old, **more), _run(tmp_path / "new", new, **more))


def test_an_equal_run_is_no_regression(tmp_path: Path) -> None:
    found = _judged(tmp_path, _paces({"baseline": 1.0, "ngram-k4": 1.5}))
    assert (found.decision, found.exit_code) == ("GO", ExitCode.OK)
    assert {a: d.decision for a, d in found.arms.items()} == {"baseline": "GO", "ngram-k4": "GO"}
    assert found.arms["ngram-k4"].reasons == (
        "1.00x [1.00, 1.00] of the recorded speed-up over the traffic (3 recorded and 3 new rounds): at least 0.97x",
        "1.00x [0.99, 1.01] of the recorded speed over the traffic (3 recorded and 3 new rounds): at least 0.90x",
    )
    assert (
        found.headline
        == "No regression over the traffic: at least 0.97x of the recorded speed-ups and 0.90x of the speeds."
    )


def test_a_smaller_speed_up_is_a_regression(tmp_path: Path) -> None:
    found = _judged(tmp_path, _paces({"baseline": 1.0, "ngram-k4": 1.40}))
    assert (found.decision, found.exit_code) == ("NO-GO", ExitCode.NO_GO_SPEED)
    assert found.headline == "Regression: ngram-k4."
    assert "0.93x [0.93, 0.93] of the recorded speed-up over the traffic (3 " in found.reasons[1]
    assert "below the required 0.97x" in found.reasons[1]
    assert found.at["ngram-k4", "c4"].decision == "NO-GO"
    assert found.arms["baseline"].decision == "GO"


def test_a_machine_that_is_slower_today_is_no_regression_but_told(tmp_path: Path) -> None:
    """Two runs of one build differed by 6 % because other work ran beside one of them."""
    found = _judged(tmp_path, _paces({"baseline": 0.94, "ngram-k4": 1.41}))
    assert found.decision == "GO"
    assert "The baseline itself ran at 0.94x [0.93, 0.95] of its recorded speed" in found.headline


def test_a_much_slower_engine_is_a_regression(tmp_path: Path) -> None:
    found = _judged(tmp_path, _paces({"baseline": 0.8, "ngram-k4": 1.2}))
    assert (found.decision, found.exit_code) == ("NO-GO", ExitCode.NO_GO_SPEED)
    assert found.headline.startswith("Regression: baseline and ngram-k4. The baseline itself ran at 0.80x")
    assert "below the required 0.90x" in found.reasons[1]


def test_a_wide_interval_is_inconclusive_and_says_how_many_launches(tmp_path: Path) -> None:
    pace = _paces({"baseline": 1.0}, spread=0.001)
    old = {**pace, **_paces({"ngram-k4": 1.5}, spread=0.03)}
    found = _judged(tmp_path, {**pace, **_paces({"ngram-k4": 1.47}, spread=0.03)}, old)
    assert (found.decision, found.exit_code) == ("INCONCLUSIVE", ExitCode.INCONCLUSIVE)
    assert "(3 recorded and 3 new rounds) does not settle 0.97x" in found.reasons[1]
    same = _judged(tmp_path / "b", old, old)
    assert "rounds in each run would" in same.reasons[1]


def test_one_launch_each_claims_nothing(tmp_path: Path) -> None:
    pace = {k: v for k, v in _paces({"baseline": 1.0, "ngram-k4": 1.5}).items() if k[2] == 1}
    found = _judged(tmp_path, pace, pace, rounds=1)
    assert found.decision == "INCONCLUSIVE"
    assert "from 1 recorded and 1 new rounds: without two of each" in found.reasons[0]


def test_the_required_ratios_and_the_arms_can_be_chosen(tmp_path: Path) -> None:
    old = _run(tmp_path / "old", _paces({"baseline": 1.0, "ngram-k4": 1.5}))
    new = _run(tmp_path / "new", _paces({"baseline": 1.0, "ngram-k4": 1.40}))
    assert judge_regression(old, new).decision == "NO-GO"
    assert judge_regression(old, new, required=0.9).decision == "GO"
    assert judge_regression(old, new, required=0.9, slowest=0.95).decision == "NO-GO"
    assert judge_regression(old, new, only=("baseline",)).decision == "GO"


def test_an_arm_that_does_not_run_any_more_is_not_comparable(tmp_path: Path) -> None:
    broken: Paces = {**_paces({"baseline": 1.0})}
    broken.update({("ngram-k4", 4, n): "out of memory" for n in (1, 2, 3)})
    found = _judged(tmp_path, broken)
    assert (found.decision, found.exit_code) == ("INVALID", ExitCode.INVALID)
    assert found.headline == "Not comparable: ngram-k4."
    assert "new run at c4" in found.reasons[1]
    assert "out of memory" in found.reasons[1]


def test_a_tail_that_got_worse_is_a_regression(tmp_path: Path) -> None:
    speed = {"baseline": 1.0, "ngram-k4": 1.5}
    rule = r.RuleRecord(margins={"ttft_p95": 0.15})
    old = _paces(speed, first_s=0.02)
    new = {**old, **_paces({"ngram-k4": 1.5}, first_s=0.03)}
    found = _judged(tmp_path, new, old, per_slot=60, rule=rule)
    assert (found.decision, found.exit_code) == ("NO-GO", ExitCode.NO_GO_GUARDRAIL)
    assert "TTFT p95 at c4, over the baseline's, is 1.50x the recorded one" in found.reasons[1]
    assert "more than the allowed 1.15x" in found.reasons[1]
    # The same in both arms is the machine's doing.
    everywhere = _judged(tmp_path / "both", _paces(speed, first_s=0.03), old, per_slot=60, rule=rule)
    assert "TTFT" not in " ".join(everywhere.reasons)
    free = _judged(tmp_path / "free", new, old, per_slot=60)
    assert "TTFT" not in " ".join(free.reasons)


def test_preemptions_that_were_not_there_are_a_regression(tmp_path: Path) -> None:
    speed = {"baseline": 1.0, "ngram-k4": 1.5}
    new = {k: Pace(p.step_s, preemptions=6.0) for k, p in _paces(speed).items() if isinstance(p, Pace)}
    found = _judged(tmp_path, {**new})
    assert (found.decision, found.exit_code) == ("NO-GO", ExitCode.NO_GO_GUARDRAIL)
    assert "preempted" in found.reasons[1]


def test_another_output_is_a_regression_whatever_the_speed(tmp_path: Path) -> None:
    pace = _paces({"baseline": 1.0, "ngram-k4": 1.5})
    old = _run(tmp_path / "old", pace)
    run = SyntheticRun(loads=(4,)).write(tmp_path / "new", pace)
    words = "T is off by 5%"
    arm = ArmParity(
        arm="ngram-k4", tier="gate", decision="FAIL", headline=words, reasons=(words,), lossy=(), escalate=False,
        tokens=9, bug_rate_upper95=None, loads=(),
    )  # fmt: skip
    run.parity_path.mkdir()
    write_json(run.parity_path / "result.json", ParityResult(tier="gate", arms=(arm,)))
    found = judge_regression(old, analyse(run))
    assert (found.decision, found.exit_code) == ("NO-GO", ExitCode.NO_GO_PARITY)
    assert words in found.reasons[1]


def test_traffic_that_the_runs_do_not_share_is_not_guessed(tmp_path: Path) -> None:
    old = _run(tmp_path / "old", _paces({"baseline": 1.0, "ngram-k4": 1.5}))
    new = _run(tmp_path / "new", _paces({"baseline": 1.0, "ngram-k4": 1.5}))
    mixed = msgspec.structs.replace(new.manifest, traffic={"c4": 0.5, "c8": 0.5})
    found = judge_regression(old, dataclasses.replace(new, manifest=mixed))
    assert found.decision == "INVALID"
    assert "c8 is part of the traffic (verdict.traffic) and not in both runs" in found.reasons[0]
    nothing = msgspec.structs.replace(new.manifest, traffic={})
    assert (
        "set verdict.traffic" in judge_regression(old, dataclasses.replace(new, manifest=nothing)).reasons[0]
    )


def test_one_limit_that_was_broken_before_hides_no_other(tmp_path: Path) -> None:
    old = _run(tmp_path / "old", _paces({"baseline": 1.0, "ngram-k4": 1.5}), tpot_limit_ms=1.0)
    worse: Paces = {
        k: Pace(p.step_s, preemptions=6.0)
        for k, p in _paces({"baseline": 1.0, "ngram-k4": 1.5}).items()
        if isinstance(p, Pace)
    }
    found = judge_regression(old, _run(tmp_path / "new", worse, tpot_limit_ms=1.0))
    assert (found.decision, found.exit_code) == ("NO-GO", ExitCode.NO_GO_GUARDRAIL)
    assert "preempted for lack of KV memory; not in the recorded run" in found.reasons[1]
    assert "TPOT" not in found.reasons[1]


def test_a_limit_that_is_new_is_no_loss(tmp_path: Path) -> None:
    pace = _paces({"baseline": 1.0, "ngram-k4": 1.5})
    old = _run(tmp_path / "old", pace)
    assert judge_regression(old, _run(tmp_path / "new", pace, tpot_limit_ms=1.0)).decision == "GO"


def test_limits_count_at_a_rate_without_a_share(tmp_path: Path) -> None:
    pace = {
        (arm, c, n): Pace(BASE_S / x)
        for arm, x in (("baseline", 1.0), ("ngram-k4", 1.5))
        for c in (4, 8)
        for n in (1, 2, 3)
    }
    worse: Paces = {**pace}
    worse.update({k: Pace(p.step_s, preemptions=6.0) for k, p in pace.items() if k[1] == 8})
    runs = []
    for name, own in (("old", pace), ("new", worse)):
        run = analyse(
            SyntheticRun(loads=(4, 8), traffic={"c4": 1.0, "c8": 0.0}).write(tmp_path / name, {**own})
        )
        runs.append(run)
    assert judge_regression(*runs).decision == "GO"  # a closed load without a share is only shown
    assert "By load alone baseline at c8, ngram-k4 at c8 did lose." in judge_regression(*runs).headline
    loads = tuple(
        msgspec.structs.replace(x, kind="open") if x.id == "c8" else x for x in runs[1].manifest.loads
    )
    rates = dataclasses.replace(runs[1], manifest=msgspec.structs.replace(runs[1].manifest, loads=loads))
    assert judge_regression(runs[0], rates).exit_code == ExitCode.NO_GO_GUARDRAIL


def test_an_unfinished_run_is_told_and_the_baseline_alone_is_no_answer(tmp_path: Path) -> None:
    pace = _paces({"baseline": 1.0, "ngram-k4": 1.5})
    old, new = _run(tmp_path / "old", pace), _run(tmp_path / "new", pace)
    cut = judge_regression(old, dataclasses.replace(new, planned_cells=10))
    assert cut.headline.endswith("Not complete: the new run; `specbench sweep CONFIG --resume` finishes it.")
    other = {**_paces({"baseline": 1.0}), **_paces({"ngram-k2": 1.5})}
    renamed = judge_regression(old, _run(tmp_path / "k2", other, arms=("ngram-k2",)))
    assert (renamed.decision, renamed.exit_code) == ("INVALID", ExitCode.INVALID)
    assert renamed.reasons[0].startswith("no speculative arm is in both runs")
    assert "the new run has baseline, ngram-k2" in renamed.reasons[2]


def test_error_rates_at_the_threshold() -> None:
    """The rule over one arm and five launches a run, whose speeds differ by 2 %; 4,000 pairs of runs."""
    rng = np.random.default_rng(11)
    before = np.exp(rng.normal(0, 0.02, (4000, 5)))
    after = 0.97 * np.exp(rng.normal(0, 0.02, (4000, 5)))
    go = no_go = 0
    for x, y in zip(before, after, strict=True):
        low, high = UnpairedRatio(tuple(x), tuple(y)).interval(0.9) or (0.0, 9.0)
        go += low > 0.97
        no_go += high < 0.97
    assert 0.04 <= go / 4000 <= 0.06
    assert 0.04 <= no_go / 4000 <= 0.06
