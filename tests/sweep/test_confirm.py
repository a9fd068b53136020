"""``--confirm-policy``: what a run suggests is measured as an arm of its own, also beside its switches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from specbench.config.source import LoadedConfig, load_config
from specbench.runs import records as r
from specbench.runs.files import write_json
from specbench.runs.rundir import RunDir
from specbench.sweep.confirm import confirming
from specbench.sweep.prepare import RefusedError
from tests.sweep.conftest import Bench
from tests.synthetic import SyntheticRun, paces_of

BASE = 0.010
KEY = "num_speculative_tokens_per_batch_size"
VARYING = {"draft-k1": {1: 1.2, 4: 1.1, 8: 0.9}, "draft-k3": {1: 1.6, 4: 0.9, 8: 0.6}}

ARMS = [{"method": "draft_model", "draft": "sim-draft", "k": [1, 3], "name": "draft"}]


def suggesting(
    folder: Path,
    gains: dict[str, dict[int, float]],
    method: str = "draft_model",
    engine: tuple[str, str] = ("simulated", "simulated-0.1.0"),
) -> RunDir:
    """A finished run of arms draft-k1, draft-k3 with these speed-ups, named as `Bench`'s."""
    loads = tuple(next(iter(gains.values())))
    run = SyntheticRun(loads=loads, arms=tuple(gains)).write(folder, paces_of(gains, BASE, 0.004))
    manifest = run.manifest()
    arms = tuple(
        a
        if a.method is None
        else r.ArmRecord(
            id=a.id, method=method, draft="sim-draft" if method == "draft_model" else None, k=int(a.id[-1])
        )
        for a in manifest.arms
    )
    fields = {name: getattr(manifest, name) for name in manifest.__struct_fields__}
    changes = {"arms": arms, "engine_kind": engine[0], "engine_version": engine[1]}
    write_json(run.path / "manifest.json", r.Manifest(**{**fields, **changes}))
    return run


def loaded(bench: Bench, **changes: Any) -> LoadedConfig:
    bench.write(**{"arms": ARMS, "loads": {"closed": [1, 4, 8]}, **changes})
    return load_config(bench.config, check_paths=False)


def test_the_arm_the_loads_beside_each_switch_and_the_weights(bench: Bench, tmp_path: Path) -> None:
    found = confirming(loaded(bench), suggesting(tmp_path, VARYING))
    config = found.loaded.config
    (arm,) = config.arms
    assert (arm.k, arm.draft) == (3, "sim-draft")
    assert arm.settings == {KEY: [[1, 1, 3], [2, 4, 1], [5, 8, 0]]}
    assert config.loads.closed == [1, 2, 4, 5, 8]
    assert config.verdict.traffic == pytest.approx({1: 1 / 3, 4: 1 / 3, 8: 1 / 3})
    assert config.name == "tiny-policy"
    assert found.confirms.edges == (1, 2, 4, 5)
    assert found.confirms.arm == "draft-by-load-k3"
    assert "--confirm-policy of" in found.loaded.text


def test_a_single_k_that_pays_at_low_load_only_is_switched_off_above(bench: Bench, tmp_path: Path) -> None:
    arms = [{**ARMS[0], "k": 3}]
    run = suggesting(tmp_path, {"draft-k3": {1: 1.6, 4: 1.3, 8: 0.8}})
    found = confirming(loaded(bench, arms=arms), run)
    assert found.loaded.config.arms[0].settings == {KEY: [[1, 4, 3], [5, 8, 0]]}
    assert found.confirms.edges == (4, 5)


def test_nothing_to_confirm_and_engines_that_cannot(bench: Bench, tmp_path: Path) -> None:
    always = {"draft-k1": {1: 1.2, 4: 1.2}, "draft-k3": {1: 1.6, 4: 1.5}}
    with pytest.raises(RefusedError, match="suggests no K by load"):
        confirming(loaded(bench), suggesting(tmp_path / "a", always))
    with pytest.raises(RefusedError, match="has no arm draft-k3 like that"):
        confirming(loaded(bench, arms=[{**ARMS[0], "draft": "other"}]), suggesting(tmp_path / "b", VARYING))
    suffix = loaded(bench, arms=[{"method": "suffix", "k": [1, 3], "name": "draft"}])
    with pytest.raises(RefusedError, match="always drafts K tokens"):
        confirming(suffix, suggesting(tmp_path / "c", VARYING, "suffix"))


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ({"kind": "vllm", "version": "0.20.0"}, "came with 0.24.0"),
        ({"kind": "sglang", "version": "0.5.6"}, "SGLang has no K by load"),
    ],
)
def test_versions_without_a_schedule_are_named(
    bench: Bench, tmp_path: Path, engine: dict[str, str], said: str
) -> None:
    run = suggesting(tmp_path, VARYING, engine=(engine["kind"], engine["version"]))
    with pytest.raises(RefusedError, match=said):
        confirming(loaded(bench, engine={"kind": engine["kind"]}), run)


def test_a_suggestion_becomes_a_run_that_names_it(bench: Bench) -> None:
    """The whole way: the arm runs, the report says what became of the suggestion."""
    arms = [{**ARMS[0], "k": 3}]
    bench.write(arms=arms, loads={"closed": [1, 4]})
    first = suggesting(bench.folder / "runs", {"draft-k3": {1: 1.6, 4: 0.8}})
    done = bench.sweep("--confirm-policy", "--run", str(first.path))
    assert done.returncode == 0, done.stdout + done.stderr
    run = RunDir.latest(bench.folder / "runs", "tiny-policy")
    assert run is not None
    manifest = run.manifest()
    assert manifest.confirms is not None
    assert (manifest.confirms.run_id, manifest.confirms.edges) == (first.id, (1, 2))
    assert [x.id for x in manifest.loads] == ["c1", "c2", "c4"]
    assert manifest.traffic == {"c1": 0.5, "c2": 0.0, "c4": 0.5}
    cells = run.cells()
    assert len(cells) == 2 * 2 * 3
    assert all(c.status == "ok" for c in cells)
    result = json.loads((run.path / "result.json").read_text())
    (schedule,) = result["policy"]["schedules"]
    assert schedule["confirms"] == first.id
    assert schedule["status"] in {"recommended", "rejected", "open"}
    at = {(x["arm"], x["load"]): x for x in result["results"]}
    assert at["draft-by-load-k3", "c1"]["acceptance"]["coverage"] == pytest.approx(1.0, abs=0.05)
    assert at["draft-by-load-k3", "c4"]["acceptance"]["coverage"] < 0.3
    argv = next(x for x in run.launches() if x.arm == "draft-by-load-k3").speculation_flags
    assert json.loads(argv[1])[KEY] == [[1, 1, 3], [2, 4, 0]]
    assert yaml.safe_load(manifest.config_text)["name"] == "tiny"
    refused = bench.sweep("--resume", "--run", str(run.path))
    assert refused.returncode == 2
    assert "add --confirm-policy" in refused.stderr
    again = bench.sweep("--confirm-policy", "--resume")
    assert again.returncode == 0, again.stdout + again.stderr
    assert len(run.cells()) == 12


def test_there_must_be_a_run(bench: Bench) -> None:
    bench.write()
    assert "there is no policy to confirm" in bench.sweep("--confirm-policy").stderr
    assert "no run of --confirm-policy to resume" in bench.sweep("--confirm-policy", "--resume").stderr
