"""`specbench workload`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from specbench.cli import workload
from specbench.cli.errors import CliError
from specbench.verdict.exit_codes import ExitCode
from specbench.workloads.public import PublicSet
from tests.synthetic import Pace, SyntheticRun

TRACE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:04,900,12\n2023-11-16 18:17:05,1200,10\n"
    "2023-11-16 18:17:07,300,8\n2023-11-16 18:17:09,0,0\n"
)


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


def run(*arguments: str) -> Result:
    app = typer.Typer()
    app.callback()(lambda: None)
    workload.register(app)
    return CliRunner().invoke(app, ["workload", *arguments])


def refused(result: Result) -> str:
    """The message of a foreseen failure, which ends with the exit code of bad usage."""
    assert isinstance(result.exception, CliError), result.output
    assert result.exception.exit_code == ExitCode.USAGE
    return str(result.exception)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


def test_json_has_stable_keys_and_requests_only_when_asked(trace: Path) -> None:
    data = json.loads(run("inspect", str(trace), "--json").stdout)
    assert list(data) == [
        "format",
        "rows_read",
        "loaded",
        "dropped",
        "bad",
        "bad_lines",
        "bad_rows",
        "warnings",
        "notes",
        "statistics",
    ]
    assert (data["format"], data["rows_read"], data["loaded"], data["dropped"]) == (
        "azure",
        4,
        3,
        {"zero_input": 1},
    )
    assert data["statistics"]["prompt_tokens"]["quantiles"]["p50"] == 900
    with_requests = json.loads(run("inspect", str(trace), "--json", "--requests").stdout)
    requests = with_requests.pop("requests")
    assert with_requests == data
    assert [(r["id"], r["arrival_s"], r["prompt_tokens"], r["output_tokens"]) for r in requests] == [
        ("2", 0.0, 900, 12),
        ("3", 1.0, 1200, 10),
        ("4", 3.0, 300, 8),
    ]
    expected: dict[str, Any] = {
        "max_tokens": None,
        "messages": None,
        "source": {"file": "trace.csv", "line": 2, "id": None},
    }
    assert requests[0].items() >= expected.items()


def test_terminal_output(trace: Path) -> None:
    output = run("inspect", str(trace)).stdout
    for words in (
        "azure: 4 rows read, 3 loaded, 1 dropped (zero_input)",
        "prompt tokens",
        "█",
        "requests/s",
        "if decoding were free",
    ):
        assert words in output
    assert '"arrival_s":3.0' in run("inspect", str(trace), "--requests").stdout


def test_bound_follows_the_given_speeds(trace: Path) -> None:
    options = ("--prefill-tps", "2400", "--decode-tps", "27", "--decode-cap", "2")
    bound = json.loads(run("inspect", str(trace), "--json", *options).stdout)["statistics"]["bound"]
    assert bound["decode_share"] == pytest.approx(0.5)
    assert bound["max_speedup"] == pytest.approx(2)
    assert bound["capped_speedup"] == pytest.approx(4 / 3)


def test_strict_stop_names_file_and_line_and_skip_lists_it(trace: Path) -> None:
    trace.write_text(TRACE + "2023-11-16 18:17:10,5,many\n")
    assert refused(run("inspect", str(trace), "--json")).startswith(
        f"{trace}:6: generatedtokens must be a number"
    )
    skipped = run("inspect", str(trace), "--json", "--on-bad-row", "skip")
    assert skipped.exit_code == 0
    data = json.loads(skipped.stdout)
    assert (data["bad"], data["bad_lines"]) == (1, [6])
    assert data["bad_rows"][0]["reason"].startswith("generatedtokens")
    assert "bad row 6" in run("inspect", str(trace), "--on-bad-row", "skip").stdout


def test_format_and_encoding_are_passed_on(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_bytes("prompt;output_len\nCaf\u00e9;4\n".encode("cp1252"))
    assert "p.csv:2: not UTF-8" in refused(run("inspect", str(path)))
    data = json.loads(run("inspect", str(path), "--json", "--requests", "--encoding", "cp1252").stdout)
    assert data["requests"][0]["prompt"] == "Caf\u00e9"
    assert "format mooncake is json or jsonl" in refused(run("inspect", str(path), "--format", "mooncake"))
    assert "no such file" in refused(run("inspect", str(tmp_path / "none")))


def test_convert_and_sample_write_request_files(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    result = run("convert", str(trace), str(out))
    assert "wrote 3 requests" in result.stdout
    assert len(out.read_text().splitlines()) == 4
    result = run("sample", str(trace), str(out), "-n", "2", "--seed", "3")
    assert "wrote 2 requests" in result.stdout
    assert "the rate is that of the sample" in result.stdout
    head, *rows = map(json.loads, out.read_text().splitlines())
    assert head["sample"] == {"requests": 2, "seed": 3}
    assert sum(row.get("weight", 1) for row in rows) > 1
    assert json.loads(run("inspect", str(out), "--json").stdout)["format"] == "specbench-requests"


def test_output_is_never_the_input_or_nowhere(trace: Path, tmp_path: Path) -> None:
    assert "this is the file that is read" in refused(run("convert", str(trace), str(trace)))
    assert trace.read_text() == TRACE
    assert "folder that exists" in refused(run("sample", str(trace), str(tmp_path / "no" / "x"), "-n", "1"))
    assert run("sample", str(trace), str(tmp_path / "x"), "-n", "0").exit_code == 2


def test_plot_is_written(trace: Path, tmp_path: Path) -> None:
    plot = tmp_path / "p.png"
    run("inspect", str(trace), "--plot", str(plot))
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_list_names_formats_and_datasets() -> None:
    output = run("list").stdout
    assert "mooncake" in output
    assert "quickstart" in output
    data = json.loads(run("list", "--json").stdout)
    assert {"name", "title", "kinds"} == set(data["formats"][0])
    assert "quickstart" in [dataset["name"] for dataset in data["datasets"]]


def test_list_names_traces_and_public_sets() -> None:
    text = run("list").stdout
    assert "azure-llm-2023-conv" in text
    assert "workload fetch NAME" in text
    data = json.loads(run("list", "--json").stdout)
    assert {"ragpulse", "weka-coding-agent"} <= {t["name"] for t in data["traces"]}
    assert all(t["source"]["licence"] for t in data["traces"])
    assert all(s["licence"] for s in data["public"])


def test_fetch_asks_for_the_licence_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[Path] = []

    def pretend(entry: PublicSet, out: Path) -> str:
        fetched.append(out)
        out.write_text("x")
        return entry.sha256 or "abc"

    monkeypatch.setattr(workload, "fetch", pretend)
    first = run("fetch", "gsm8k", "--out", str(tmp_path))
    assert "add --accept-licence" in refused(first)
    assert "licence: MIT" in first.stdout
    assert fetched == []
    done = run("fetch", "gsm8k", "--out", str(tmp_path), "--accept-licence")
    assert done.exit_code == 0, done.output
    assert "checksum right" in done.stdout
    assert fetched == [tmp_path / "test.jsonl"]
    unchecked = run("fetch", "burstgpt-1", "--out", str(tmp_path / "b.csv"), "--accept-licence")
    assert "checksum unknown to specbench: sha256 abc" in unchecked.stdout
    assert "note: Copies under the same file name" in unchecked.stdout


def test_fetch_knows_what_it_does_not_know() -> None:
    result = run("fetch", "gsm9k", "--accept-licence")
    assert isinstance(result.exception, CliError)
    assert result.exception.exit_code == ExitCode.ENVIRONMENT
    assert "did you mean 'gsm8k'" in str(result.exception)


def test_inspect_takes_the_speeds_of_a_run(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(TRACE)
    step_s = 0.02
    pace = {(arm, c, n): Pace(step_s) for arm in ("baseline", "ngram-k4") for c in (1, 4) for n in (1, 2, 3)}
    measured = SyntheticRun().write(tmp_path / "runs", pace)  # type: ignore[arg-type]  # dict is invariant
    speeds = json.loads(run("inspect", str(file), "--json", "--run", str(measured.path)).stdout)[
        "statistics"
    ]["bound"]["speeds"]
    assert speeds["decode_tokens_per_s"] == pytest.approx(1 / step_s)
    # Ten prompt tokens, and the first token two steps later.
    assert speeds["prefill_tokens_per_s"] == pytest.approx(10 / (2 * step_s))
    text = run("inspect", str(file), "--run", str(measured.path)).stdout
    assert "at c1" in text
    given = run("inspect", str(file), "--json", "--run", str(measured.path), "--decode-tps", "7").stdout
    assert json.loads(given)["statistics"]["bound"]["speeds"]["decode_tokens_per_s"] == 7
    nowhere = run("inspect", str(file), "--run", str(tmp_path))
    assert "is not a run directory" in str(nowhere.exception)
    empty = SyntheticRun(loads=(1,)).write(tmp_path / "runs2", {("baseline", 1, 1): "it died"})
    assert "no valid cell of the baseline" in refused(run("inspect", str(file), "--run", str(empty.path)))
