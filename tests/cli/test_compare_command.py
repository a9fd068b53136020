"""``specbench compare``: what it prints and ends with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from specbench.cli.main import main
from tests.synthetic import SyntheticRun, paces_of


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    """A recorded run, and one whose speculative arm became slower at 4 in flight."""
    old = SyntheticRun().write(tmp_path / "old", paces_of({"ngram-k4": {1: 2.0, 4: 1.5}}, 0.010, 0.004))
    new = SyntheticRun().write(tmp_path / "new", paces_of({"ngram-k4": {1: 2.0, 4: 1.2}}, 0.010, 0.004))
    return old.path, new.path


def _ends(*argv: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(x) for x in argv])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_a_regression_ends_with_10_and_is_shown(
    runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    assert _ends("compare", *runs) == 10
    out = capsys.readouterr().out
    assert out.startswith("NO-GO: Regression: ngram-k4.\n")
    row = next(line for line in out.split("c4")[-1].splitlines() if line.startswith("ngram-k4"))
    assert "0.80x [0.80, 0.81]" in row
    assert "1.50x -> 1.20x" in row
    assert row.rstrip().endswith("NO-GO")


def test_an_equal_run_ends_with_0(runs: tuple[Path, Path], tmp_path: Path) -> None:
    again = SyntheticRun().write(tmp_path / "again", paces_of({"ngram-k4": {1: 2.0, 4: 1.5}}, 0.010, 0.004))
    assert _ends("compare", runs[0], again.path) == 0


def test_arm_and_ratio_are_taken(runs: tuple[Path, Path]) -> None:
    assert _ends("compare", *runs, "--arm", "baseline") == 0
    assert _ends("compare", *runs, "--min-ratio", "0.7") == 10
    assert _ends("compare", *runs, "--min-ratio", "0.7", "--min-speed", "0.7") == 0


def test_inconclusive_can_pass(tmp_path: Path) -> None:
    one = paces_of({"ngram-k4": {1: 2.0, 4: 1.5}}, 0.010, 0.2)
    old = SyntheticRun().write(tmp_path / "old", one)
    new = SyntheticRun().write(tmp_path / "new", one)
    assert _ends("compare", old.path, new.path) == 20
    assert _ends("compare", old.path, new.path, "--inconclusive", "pass") == 0


def test_the_other_formats(runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    _ends("compare", *runs, "--format", "json")
    data = json.loads(capsys.readouterr().out)
    assert data["schema"] == "specbench.comparison/1"
    lost = next(x for x in data["arms"] if (x["arm"], x["load"]) == ("ngram-k4", "c4"))
    assert lost["decision"] == "NO-GO"
    assert lost["speed"]["ratio"] == pytest.approx(0.802, abs=0.001)
    assert lost["speed"]["launches"] == [3, 3]
    _ends("compare", *runs, "--format", "junit")
    suite = ET.fromstring(capsys.readouterr().out).find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures")) == ("6", "2")
    _ends("compare", *runs, "--format", "markdown")
    text = capsys.readouterr().out
    assert text.startswith("## ❌ NO-GO: Regression: ngram-k4.")
    assert "### c4" in text


def test_runs_that_cannot_be_compared_end_with_30(
    runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert _ends("compare", runs[0], runs[0]) == 30
    assert "name a recorded run and a new one" in capsys.readouterr().out
    _ends("compare", runs[0], runs[0], "--format", "junit")
    assert 'errors="1"' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--arm", "eagle"], "has no such arm; it has baseline, ngram-k4"),
        (["--format", "pdf"], "choose one of json, markdown, junit"),
    ],
)
def test_bad_options_are_told(
    runs: tuple[Path, Path], argv: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _ends("compare", *runs, *argv) == 2
    assert words in capsys.readouterr().err


def test_a_folder_that_is_no_run_is_told(runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert _ends("compare", runs[0], runs[0].parent / "nowhere") == 2
    assert "nowhere" in capsys.readouterr().err


def test_a_console_of_another_encoding_and_a_narrow_one_show_it(
    runs: tuple[Path, Path],
) -> None:
    for encoding in ("ascii", "latin-1"):
        done = subprocess.run(
            [sys.executable, "-m", "specbench.cli", "compare", *map(str, runs)],
            env={**os.environ, "PYTHONIOENCODING": encoding, "COLUMNS": "80"},
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (10, b"")
        lines = done.stdout.decode(encoding).splitlines()
        row = next(x for x in lines if x.startswith("ngram-k4") and "NO-GO" in x)
        assert "x -> " in row
        assert row.rstrip().endswith("NO-GO")


def test_a_full_disk_is_told_in_a_line(runs: tuple[Path, Path]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "specbench.cli", "compare", *map(str, runs)],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 3
    assert done.stderr == b"error: cannot write the output: No space left on device\n"
