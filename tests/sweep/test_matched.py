"""The matched baseline: an arm without speculation that takes speed-ups apart and is never judged."""

from __future__ import annotations

import json
import math

import pytest

from specbench.config.grid import expand_arms
from specbench.config.model import Config
from specbench.config.source import ConfigError, load_config
from specbench.runs.rundir import RunDir
from specbench.sweep.calibrate import calibration_of
from specbench.sweep.prepare import manifest, prepare
from tests.sweep.conftest import Bench, measure

SIM = {"time_scale": 0.05}


def engine(matched: object, **args: object) -> dict[str, object]:
    return {
        "kind": "simulated",
        "args": {"max-model-len": 2048, "max-num-seqs": 8, "sim": SIM, **args},
        "matched_baseline": matched,
        "stop_timeout": 2,
    }


def test_a_slower_scheduler_is_told_apart_from_speculation(bench: Bench) -> None:
    """The side effect doubles the fixed cost of a step, in the arm and in the matched baseline."""
    slow = {"sim": {"costs": {"base_ms": 40.0}}}
    bench.write(
        engine=engine(slow),
        arms=[{"method": "draft_model", "draft": "sim-draft", "k": 3, "name": "draft", "args": slow}],
        loads={"closed": [2]},
        measure=measure(rounds=2),
    )
    done = bench.sweep()
    assert done.returncode == 0, done.stdout + done.stderr
    run = bench.the_run()
    assert [(a.id, a.matched) for a in run.manifest().arms] == [
        ("baseline", False),
        ("matched-baseline", True),
        ("draft-k3", False),
    ]
    assert len(run.cells()) == 6
    result = json.loads((run.path / "result.json").read_text())
    (parts,) = result["matched"]
    total = next(x["speedup"]["value"] for x in result["results"] if x["arm"] == "draft-k3")
    side, own = parts["side_effects"]["value"], parts["speculation"]["value"]
    assert side < 0.8
    assert own > 1.2
    assert side * own == pytest.approx(total)
    assert result["recommended"] is None or result["recommended"]["arm"] == "draft-k3"
    assert not any("matched-baseline" in reason for reason in result["reasons"])
    for page in ("report.md", "report.html"):
        assert "Matched baseline" in (run.path / page).read_text()
    assert "side effects" in done.stdout


@pytest.mark.parametrize(
    ("kind", "args", "flags"),
    [
        ("vllm", {}, {"no-async-scheduling": True}),
        ("sglang", {}, {"disable-overlap-schedule": True, "max-running-requests": 48}),
        ("sglang", {"max-running-requests": 16}, {"disable-overlap-schedule": True}),
    ],
)
def test_the_flags_of_an_engine(kind: str, args: dict[str, object], flags: dict[str, object]) -> None:
    config = Config.model_validate(
        {
            "name": "x",
            "target": "t",
            "engine": {"kind": kind, "args": args, "matched_baseline": True},
            "arms": [{"method": "ngram", "k": 2}],
            "loads": {"closed": [1]},
        }
    )
    _, matched, _ = expand_arms(config)
    assert (matched.id, matched.args, matched.method) == ("matched-baseline", flags, None)


def test_unknown_side_effects_must_be_given(bench: Bench) -> None:
    bench.write(engine=engine(True))
    with pytest.raises(ConfigError, match="give the flags"):
        load_config(bench.config)


def test_it_adds_a_launch_per_round_and_keeps_out_of_calibration(bench: Bench) -> None:
    bench.write(
        engine=engine({"max-num-batched-tokens": 1024}),
        measure=measure(strategy="adaptive", looks=[2, 3]),
    )
    prepared = prepare(load_config(bench.config))
    first = prepared.plan.rounds[0].launches
    assert sorted(x.arm.id for x in first) == ["baseline", "draft-k3", "matched-baseline"]
    rule = prepared.plan.adaptive
    assert rule is not None
    assert math.isclose(rule.least_s, 2 * sum(x.estimate_s for x in first))
    record = manifest(prepared, RunDir.create(bench.folder / "runs", "tiny"))
    assert [a.baseline for a in record.arms] == ["baseline"] * 3
    assert {x.arm.id for x in calibration_of(prepared, 2).plan.launches} == {"baseline"}
