"""Open and trace loads end to end on the simulated engine, and any request file as the source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.sweep.conftest import Bench, measure


def result_of(bench: Bench) -> dict[str, Any]:
    return dict(json.loads((bench.the_run().path / "result.json").read_text()))


def trace_file(path: Path, n: int = 60) -> Path:
    """Bursty arrivals of real text with recorded lengths, in specbench's own words of a chat log."""
    rows = [
        {
            "id": f"log-{i}",
            "timestamp": 1_700_000_000 + 0.08 * i + (0.3 if i % 10 < 5 else 0.0),
            "messages": [{"role": "user", "content": f"Tell me about topic {i} " + "and more " * (i % 7)}],
            "output_tokens": 6 + i % 9,
            "category": "chat" if i % 2 else "code",
        }
        for i in range(n)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + "{broken\n")
    return path


def mean_latency_s(bench: Bench, cell: str) -> float:
    """Intended send to end, over the requests due after a tenth of the span, from the file alone."""
    table = bench.the_run().requests(cell)
    assert table is not None
    due, end = (np.asarray(table[name].to_pylist(), np.float64) for name in ("intended_s", "end_s"))
    start = due.min() + 0.1 * (due.max() - due.min())
    return float((end - due)[due > start].mean())


def test_an_open_and_a_trace_load_from_a_file_of_ones_own(bench: Bench) -> None:
    trace_file(bench.folder / "log.jsonl")
    bench.write(
        loads={"closed": [2], "open": [{"rate": 25.0}], "trace": {"seconds": 4, "jitter_s": 0.02}},
        workload={
            "source": "./log.jsonl",
            "on_bad_row": "skip",
            "requests_per_slot": 6,
            "min_requests": 40,
            "max_output_tokens": 24,
            "seconds": 2,
        },
        measure=measure(rounds=1),
    )
    done = bench.sweep()
    assert done.returncode == 0, done.stdout + done.stderr
    run = bench.the_run()
    manifest = run.manifest()
    assert [load.id for load in manifest.loads] == ["c2", "r25.0", "trace"]
    assert [load.kind for load in manifest.loads] == ["closed", "open", "trace"]
    assert manifest.traffic == {"c2": 1.0, "r25.0": 0.0, "trace": 0.0}
    assert manifest.source is not None
    assert (manifest.source.format, manifest.source.loaded, manifest.source.bad) == ("openai-messages", 60, 1)
    result = result_of(bench)
    assert any(
        n["code"] == "workload" and "malformed rows were skipped" in n["message"] for n in result["warnings"]
    )
    cells = run.cells()
    assert [c.status for c in cells] == ["ok"] * 6
    for load in ("r25.0", "trace"):
        ids = set()
        for cell in (c for c in cells if c.load == load):
            table = run.requests(cell.id)
            assert table is not None
            rows = sorted(zip(table["index"].to_pylist(), table["id"].to_pylist(), strict=True))
            due = sorted(zip(table["index"].to_pylist(), table["intended_s"].to_pylist(), strict=True))
            ids.add((tuple(rows), tuple(due)))
            assert cell.offered_per_s is not None
            assert cell.delivered_per_s is not None
        # Every arm and round sent the same requests at the same times.
        assert len(ids) == 1
    at = {(x["arm"], x["load"]): x for x in result["results"]}
    mine = at["draft-k3", "r25.0"]
    assert (mine["kind"], mine["title"]) == ("open", "25 requests/s (Poisson)")
    assert mine["offered_per_s"] == pytest.approx(25.0)
    ratio = mine["speedup"]
    assert len(ratio["per_round"]) == 1
    mean = {(c.arm, c.round): mean_latency_s(bench, c.id) for c in cells if c.load == "r25.0"}
    by_hand = [mean["baseline", n] / mean["draft-k3", n] for n in (1,)]
    assert ratio["per_round"] == pytest.approx(by_hand)
    assert sum(b["requests"] for b in mine["load_bins"]) == mine["latency_ms"]["n"]
    assert at["draft-k3", "c2"]["load_bins"] == []
    markdown = (run.path / "report.md").read_text()
    assert "Speedups at this load are of mean end-to-end latency" in markdown
    assert "offered 25/s" in markdown.replace("25.0/s", "25/s")
    html = (run.path / "report.html").read_text()
    assert "recorded arrivals" in html
    again = bench.sweep("--resume")
    assert again.returncode == 0, again.stderr
    assert len(run.cells()) == 6


def test_only_open_loads_with_lengths_and_filler_measure_and_refuse_a_verdict(bench: Bench) -> None:
    bench.write(
        loads={"open": [{"rate": 20, "arrivals": "gamma", "cv": 2}]},
        workload={
            "lengths": {"source": "azure-llm-2023-conv", "text": "filler"},
            "source": "chat",
            "max_output_tokens": 8,
            "min_requests": 40,
            "seconds": 3,
        },
        measure=measure(rounds=1),
    )
    done = bench.sweep()
    run = bench.the_run()
    assert [c.status for c in run.cells()] == ["ok"] * 2, done.stdout + done.stderr
    assert run.manifest().text_sources == ("filler:words",)
    assert run.manifest().traffic == {"r20.0-gamma2.0": 1.0}
    result = result_of(bench)
    assert result["verdict"] == "INVALID"
    assert any("filler text" in reason for reason in result["reasons"])
    text = "\n".join(n["message"] for n in result["warnings"])
    assert "CC-BY-4.0" in text


def test_a_resume_refuses_another_rate(bench: Bench) -> None:
    shared: dict[str, Any] = {
        "workload": {"source": "chat", "max_output_tokens": 8, "seconds": 2},
        "measure": measure(rounds=1),
    }
    bench.write(loads={"open": [{"rate": 20}]}, **shared)
    assert bench.sweep().returncode == 0
    bench.write(loads={"open": [{"rate": 21}]}, **shared)
    again = bench.sweep("--resume")
    assert again.returncode == 2
    assert "loads.open[0].rate: 20.0 -> 21.0" in again.stderr


def test_plan_and_errors_name_place_and_mend(bench: Bench) -> None:
    trace_file(bench.folder / "log.jsonl", 40)
    bench.write(loads={"trace": {}}, workload={"source": "./log.jsonl"})
    refused = bench.run("plan", str(bench.config))
    assert refused.returncode == 2
    assert "log.jsonl:41:" in refused.stderr
    assert "on_bad_row: skip" in refused.stderr
    bench.write(loads={"trace": {}}, workload={"source": "./log.jsonl", "on_bad_row": "skip"})
    shown = bench.run("plan", str(bench.config))
    assert shown.returncode == 0, shown.stderr
    assert "recorded arrivals" in shown.stdout
    assert "malformed rows were skipped" in shown.stdout
    assert "40 prompts" in shown.stdout
    bench.write(loads={"trace": {}}, workload={"source": "chat"})
    assert "records no arrival times" in bench.run("plan", str(bench.config)).stderr
    bench.write(loads={"closed": []})
    assert "names no load" in bench.run("plan", str(bench.config)).stderr
    bench.write(loads={"open": [{"rate": 2, "cv": 3}]})
    assert "arrivals: gamma" in bench.run("plan", str(bench.config)).stderr
