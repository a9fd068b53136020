"""``verdict.traffic_from``: weights from production end up in the manifest, with what lies outside of them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from specbench.config.source import ConfigError, load_config
from specbench.report.policy import traffic_notes
from specbench.runs.rundir import RunDir
from specbench.sweep.prepare import RefusedError, check_resume, manifest, prepare
from tests.sweep.conftest import Bench

LINE = "vllm:num_requests_running {} {}\n"


def dump(bench: Bench, *running: int) -> Path:
    path = bench.folder / "production.prom"
    path.write_text("".join(LINE.format(n, 1000 * i) for i, n in enumerate(running)))
    return path


def written(bench: Bench, name: str = "./production.prom") -> None:
    bench.write(loads={"closed": [2, 8]}, verdict={"traffic_from": name})


def test_weights_digest_and_shares_are_in_the_manifest(bench: Bench, tmp_path: Path) -> None:
    path = dump(bench, 0, 1, 2, 3, 6, 9, 40, 2)
    written(bench)
    prepared = prepare(load_config(bench.config))
    run = RunDir.create(tmp_path / "runs", "tiny")
    made = manifest(prepared, run)
    assert made.traffic == {"c2": pytest.approx(4 / 7), "c8": pytest.approx(3 / 7)}
    found = made.production
    assert found is not None
    assert (found.file, found.sha256) == (path.name, hashlib.sha256(path.read_bytes()).hexdigest())
    assert (found.seconds, found.servers, found.samples) == (8.0, 1, 8)
    assert found.idle == pytest.approx(1 / 8)
    assert found.below == pytest.approx(1 / 7)
    assert found.above == pytest.approx(2 / 7)
    source, outside = traffic_notes(made)
    assert "production.prom" in source.message
    assert "14.3% of its busy time lies below and 28.6% of its busy time lies above" in outside.message
    assert "(2 to 8)" in outside.message
    run.write_manifest(made)
    check_resume(prepared, run)
    dump(bench, 2, 2, 2)
    with pytest.raises(RefusedError, match=r"the content of production\.prom"):
        check_resume(prepare(load_config(bench.config)), run)


def test_inside_the_measured_loads_nothing_is_warned_of(bench: Bench, tmp_path: Path) -> None:
    dump(bench, 2, 5, 8)
    written(bench)
    notes = traffic_notes(
        manifest(prepare(load_config(bench.config)), RunDir.create(tmp_path / "runs", "tiny"))
    )
    assert [n.code for n in notes] == ["traffic_from"]


def test_the_plan_says_what_no_load_covers_and_what_is_wrong(bench: Bench) -> None:
    dump(bench, 1, 2, 2, 40)
    written(bench)
    shown = bench.run("plan", str(bench.config))
    assert shown.returncode == 0, shown.stderr
    assert "25.0% below and 25.0% above the measured concurrencies" in shown.stdout
    (bench.folder / "production.prom").write_text("up 1\n")
    refused = bench.run("plan", str(bench.config))
    assert refused.returncode == 2
    assert "holds no sample of vllm:num_requests_running" in refused.stdout


def test_problems_name_config_line_file_line_and_mend(bench: Bench) -> None:
    (bench.folder / "production.prom").write_text("up 1\nvllm:num_requests_running x\n")
    written(bench)
    with pytest.raises(RefusedError) as error:
        prepare(load_config(bench.config))
    said = str(error.value)
    assert said.startswith(f"{bench.config}:")
    assert "verdict.traffic_from" in said
    assert "production.prom:2: not a metrics line" in said
    dump(bench, 0, 0)
    with pytest.raises(RefusedError, match="nothing ran in all that time"):
        prepare(load_config(bench.config))
    written(bench, "./elsewhere.prom")
    with pytest.raises(ConfigError, match=r"elsewhere\.prom does not exist"):
        load_config(bench.config, check_paths=False)
    bench.write(verdict={"traffic_from": "./production.prom", "traffic": {1: 1.0}})
    with pytest.raises(ConfigError, match="keep one of them"):
        load_config(bench.config)
    bench.write(loads={"open": [{"rate": 1.0}]}, verdict={"traffic_from": "./production.prom"})
    with pytest.raises(ConfigError, match="needs closed loads"):
        load_config(bench.config)
