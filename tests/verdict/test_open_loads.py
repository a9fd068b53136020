"""Open and trace loads in the verdict: judged by latency, outside the mix by default, limits always kept."""

from __future__ import annotations

from pathlib import Path

import msgspec

from specbench.analysis.run import analyse
from specbench.runs.rundir import RunDir
from specbench.verdict.rule import judge
from tests.synthetic import SyntheticRun
from tests.verdict.test_rule import paces


def opened(run: RunDir) -> RunDir:
    """The run with its load c4 declared as an open one without a share of the traffic."""
    manifest = run.manifest()
    one, four = manifest.loads
    changed = msgspec.structs.replace(
        manifest,
        loads=(
            one,
            msgspec.structs.replace(four, kind="open", rate_per_s=4.0, title="4 requests/s (Poisson)"),
        ),
        traffic={"c1": 1.0, "c4": 0.0},
    )
    run.write_manifest(changed)
    return run


def test_an_open_load_is_judged_by_itself_and_stays_out_of_the_mix(tmp_path: Path) -> None:
    run = opened(SyntheticRun().write(tmp_path, paces({1: 1.3, 4: 0.9})))
    verdict = judge(analyse(run))
    assert verdict.decision == "GO"
    assert verdict.choice is not None
    assert (verdict.choice.concurrencies, verdict.choice.loads) == ((1,), ("c1",))
    there = verdict.at["ngram-k4", "c4"]
    assert there.decision == "NO-GO"
    assert "in mean latency" in there.reasons[0]


def test_where_both_win_both_are_named(tmp_path: Path) -> None:
    verdict = judge(analyse(opened(SyntheticRun().write(tmp_path, paces({1: 1.3, 4: 1.3})))))
    assert verdict.choice is not None
    assert (verdict.choice.concurrencies, verdict.choice.loads) == ((1,), ("c1", "c4"))


def test_a_limit_broken_at_an_open_load_counts_without_a_share(tmp_path: Path) -> None:
    fast_then_slow = paces({1: 2.0, 4: 1.2})  # 5 ms and 8.3 ms a token
    run = SyntheticRun(tpot_limit_ms=7.0).write(tmp_path, fast_then_slow)
    verdict = judge(analyse(opened(run)))
    assert verdict.decision == "NO-GO"
    assert any("at c4" in reason for reason in verdict.arms["ngram-k4"].reasons)
