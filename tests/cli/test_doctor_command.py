"""`specbench doctor`: every finding has a level, and a mend when it is not fine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import typer
from typer.testing import CliRunner

from specbench.cli import doctor
from specbench.engines import ledger

CONFIG = """
name: t
target: org/target
engine:
  kind: simulated
  args: {max-model-len: 4096}
arms:
  - {method: ngram, k: 2}
loads: {closed: [1]}
workload: {source: ./requests.jsonl, requests_per_slot: 6, min_requests: 6}
"""
REQUEST = '{"id": "%d", "category": "chat", "messages": [{"role": "user", "content": "%s"}]}\n'


@pytest.fixture(autouse=True)
def quiet_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No engines of the user, no busy neighbours."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr("psutil.getloadavg", lambda: (0.0, 0.0, 0.0))


def run(*args: str) -> tuple[int, str]:
    app = typer.Typer()
    app.callback()(lambda: None)
    doctor.register(app)
    done = CliRunner().invoke(app, ["doctor", *args])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def checks(*args: str) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    code, text = run(*args, "--json")
    data = json.loads(text)
    assert data["schema"] == "specbench.doctor/1"
    assert data["ok"] is (code == 0)
    by_area: dict[str, list[dict[str, Any]]] = {}
    for check in data["checks"]:
        assert check["level"] == "ok" or check["mend"], check
        by_area.setdefault(check["area"], []).append(check)
    return code, by_area


def config(tmp_path: Path, text: str = CONFIG, words: int = 5) -> str:
    lines = "".join(REQUEST % (i, "word " * words) for i in range(12))
    (tmp_path / "requests.jsonl").write_text(lines)
    (tmp_path / "c.yaml").write_text(text)
    return str(tmp_path / "c.yaml")


def test_a_machine_alone() -> None:
    code, found = checks()
    assert code == 0
    assert {"specbench", "packages", "vllm", "gpu", "cpu", "memory", "files", "disk", "ports"} <= set(found)
    assert "psutil" in found["packages"][0]["message"]
    assert found["leftovers"][0]["level"] == "ok"


def test_it_reads_well_for_a_person() -> None:
    code, text = run()
    assert code == 0
    lines = text.splitlines()
    assert lines[0].startswith("ok   specbench")
    assert lines[-1].startswith("0 to mend, ")


def test_a_config_that_can_run(tmp_path: Path) -> None:
    code, found = checks(config(tmp_path))
    assert code == 0
    assert "2 arms, 1 loads" in found["config"][0]["message"]
    assert found["engine"][0]["message"].startswith("simulated simulated-")
    assert found["context"][0]["level"] == "ok"


def test_a_config_with_problems_names_line_key_and_mend(tmp_path: Path) -> None:
    code, found = checks(config(tmp_path, CONFIG.replace("k: 2", "q: 2")))
    assert code == 3
    (check,) = found["config"]
    assert check["level"] == "fail"
    assert "c.yaml:8" in check["message"]


def test_models_that_are_not_there_fail(tmp_path: Path) -> None:
    code, found = checks(config(tmp_path, CONFIG.replace("org/target", "./nowhere")))
    assert code == 3
    assert any("target" in check["message"] and check["level"] == "fail" for check in found["config"])


def test_an_unknown_engine_fails_with_a_hint(tmp_path: Path) -> None:
    code, found = checks(config(tmp_path, CONFIG.replace("simulated", "simulatd")))
    assert code == 3
    assert "did you mean 'simulated'" in " ".join(c["message"] + c["mend"] for c in found["config"])


def test_an_engine_that_is_missing_fails_with_its_mend(tmp_path: Path) -> None:
    code, found = checks(config(tmp_path, CONFIG.replace("simulated", "vllm")))
    assert code == 3
    assert "no program 'vllm'" in found["engine"][0]["message"]
    assert "engine.command" in found["engine"][0]["mend"]


def fake_vllm(tmp_path: Path, version: str) -> str:
    python = tmp_path / "python"
    answer = json.dumps(["vllm", version])
    python.write_text(f"#!{sys.executable}\nprint({answer!r})\n")
    python.chmod(0o755)
    command = "  kind: vllm\n  command: [./python, -m, vllm.entrypoints.openai.api_server]\n"
    return CONFIG.replace("  kind: simulated\n", command)


def test_the_engines_own_problems_fail_and_an_untried_version_warns(tmp_path: Path) -> None:
    text = fake_vllm(tmp_path, "0.99.0").replace("k: 2", "k: 200")
    code, found = checks(config(tmp_path, text))
    assert code == 3
    assert "at most 128" in found["config"][0]["message"]
    assert [check["level"] for check in found["vllm"]] == ["ok", "warn"]


def test_prompts_that_do_not_fit_warn(tmp_path: Path) -> None:
    text = CONFIG.replace("4096", "64")
    _, found = checks(config(tmp_path, text, words=200))
    assert found["context"][0]["level"] == "warn"


def test_memory_that_is_not_there_fails(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"vocab_size": 10}')
    text = fake_vllm(tmp_path, "0.32.0").replace("org/target", "./model")
    text = text.replace("max-model-len: 4096", "kv-cache-memory-bytes: 1000000000000000")
    code, found = checks(config(tmp_path, text))
    assert code == 3
    assert [check["level"] for check in found["memory"]][-1] == "fail"


def test_a_batch_smaller_than_the_load_warns(tmp_path: Path) -> None:
    text = CONFIG.replace("max-model-len: 4096", "max-num-seqs: 2").replace("[1]", "[1, 4]")
    _, found = checks(config(tmp_path, text))
    (check,) = [c for c in found["config"] if "max-num-seqs" in c["message"]]
    assert check["level"] == "warn"
    assert "max-num-seqs is 2, and loads.closed keeps 4 requests in flight" in check["message"]


def test_an_engine_that_was_left_fails_with_the_command_that_ends_it() -> None:
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"], start_new_session=True)
    try:
        created = psutil.Process(left.pid).create_time()
        no_guard = 2**22 + 1  # more than any pid
        ledger.record(ledger.Entry("arm-1", left.pid, created, no_guard, created, 8001, "engine.log"))
        code, found = checks()
    finally:
        left.kill()
        left.wait()
    assert code == 3
    (check,) = found["leftovers"]
    assert "arm arm-1 still runs" in check["message"]
    assert check["mend"] == f"end it: kill -9 {left.pid}"


def test_secrets_of_the_environment_are_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFT_TOKEN", "hunter2-hunter2")
    text = CONFIG.replace("{method: ngram, k: 2}", '{method: "${DRAFT_TOKEN}", k: 2}')
    _, shown = run(config(tmp_path, text))
    assert "hunter2" not in shown
