"""A scorer is a stranger's program: everything that it may do wrong, and that nothing of it is left."""

from __future__ import annotations

import asyncio
import json
import sys
import types
from pathlib import Path

import psutil
import pytest

from specbench.sweep import scorer
from specbench.sweep.scorer import ScorerFailed, read_scores, run_scorer

ASKED = b'{"id": "a/0"}\n{"id": "a/1"}\n'
LONG_S = 60.0


def run(folder: Path, script: str, timeout_s: float = LONG_S) -> bytes:
    (folder / "score.py").write_text(script)
    return asyncio.run(
        run_scorer([sys.executable, "score.py"], folder, ASKED, timeout_s, folder / "parity" / "task.log")
    )


def failed(folder: Path, script: str, timeout_s: float = LONG_S) -> str:
    with pytest.raises(ScorerFailed) as error:
        run(folder, script, timeout_s)
    return str(error.value)


def descendants_of(folder: Path) -> list[psutil.Process]:
    """Processes whose working directory is the scorer's."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_it_reads_the_outputs_and_prints_scores(tmp_path: Path) -> None:
    script = (
        "import sys; data = sys.stdin.read(); print('hello', file=sys.stderr); print(data.upper(), end='')"
    )
    killed = tmp_path / "parity" / ".task-of-a-scoring-that-was-killed"
    killed.mkdir(parents=True)
    assert run(tmp_path, script) == ASKED.upper()
    assert (tmp_path / "parity" / "task.log").read_text() == "hello\n"
    assert [p.name for p in (tmp_path / "parity").iterdir()] == ["task.log"]


def test_one_that_reads_nothing_is_no_error(tmp_path: Path) -> None:
    assert run(tmp_path, "print('x')") == b"x\n"


def test_its_end_and_last_words_are_told(tmp_path: Path) -> None:
    text = failed(
        tmp_path, "import sys\nfor i in range(9): print('line', i, chr(27), file=sys.stderr)\nsys.exit(3)"
    )
    assert text == (
        'the scorer ended with code 3 (its last lines: "line 6 / line 7 / line 8"; all of them: parity/task.log); '
        "correct parity.task.command or the script"
    )
    assert "code 1 (it wrote nothing to standard error)" in failed(tmp_path, "raise SystemExit(1)")
    assert "was ended by signal 9" in failed(tmp_path, "import os; os.kill(os.getpid(), 9)")


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    for command in (["no-such-program-here"], [str(tmp_path / "absent")], [str(tmp_path)]):
        with pytest.raises(ScorerFailed, match=r"cannot be started: .*; set parity\.task\.command to"):
            asyncio.run(run_scorer(command, tmp_path, ASKED, LONG_S, tmp_path / "task.log"))


SLEEPER = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
own = subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE)
far = subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE, start_new_session=True)
own.stdout.readline(), far.stdout.readline()
print("ready", file=sys.stderr, flush=True)
"""


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scorer, "GRACE_S", 0.1)


@pytest.mark.usefixtures("hasty")
def test_too_slow_is_stopped_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "parity" / "task.log"

    def clock() -> float:
        """Time passes once the children, which ignore SIGTERM in a group and a session of their own, are there."""
        return 100.0 if log.exists() and "ready" in log.read_text() else 0.0

    monkeypatch.setattr(scorer, "time", types.SimpleNamespace(monotonic=clock))
    text = failed(tmp_path, f"{SLEEPER}\ntime.sleep(600)", timeout_s=60.0)
    assert text.startswith("the scorer did not end in 60 s and was stopped; raise parity.task.timeout")
    assert '(its last lines: "ready"' in text
    assert descendants_of(tmp_path) == []


@pytest.mark.usefixtures("hasty")
def test_what_it_leaves_behind_is_stopped_too(tmp_path: Path) -> None:
    assert run(tmp_path, f"{SLEEPER}\nprint('scores')") == b"scores\n"
    assert descendants_of(tmp_path) == []


@pytest.mark.usefixtures("hasty")
def test_an_interruption_stops_it(tmp_path: Path) -> None:
    (tmp_path / "score.py").write_text(f"{SLEEPER}\ntime.sleep(600)")
    log = tmp_path / "task.log"

    async def main() -> None:
        task = asyncio.create_task(run_scorer([sys.executable, "score.py"], tmp_path, ASKED, LONG_S, log))
        async with asyncio.timeout(30):
            while not (log.exists() and "ready" in log.read_text()):  # noqa: ASYNC110 - a file has no event
                await asyncio.sleep(0.02)
        assert len(descendants_of(tmp_path)) >= 3
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert descendants_of(tmp_path) == []


def test_endless_output_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scorer, "MAX_BYTES", 1 << 20)
    text = failed(tmp_path, "while True: print('x' * 10_000)")
    assert "printed more than 1 MiB" in text
    assert descendants_of(tmp_path) == []


def lines(*rows: object) -> bytes:
    return b"".join(json.dumps(r).encode() + b"\n" for r in rows)


IDS = ("a/0", "a/1")
FIRST = {"id": "a/0", "score": 1}


def test_scores_are_read() -> None:
    printed = lines({"id": "a/1", "score": 0.25, "why": "half"}, {"id": "a/0", "score": True})
    assert read_scores(printed + b"\n  \n", IDS) == {"a/0": 1.0, "a/1": 0.25}


@pytest.mark.parametrize(
    ("printed", "why"),
    [
        (lines(FIRST) + b"Loading...\n", r"line 2 of the scorer's output is not JSON: Loading\.\.\.; print"),
        (lines(FIRST) + b"\xff\xfe\n", "line 2 .* is not JSON"),
        (lines(FIRST, [1]), r"line 2 .* has no id and score: \[1\]"),
        (lines(FIRST, {"id": 1, "score": 1}), "line 2 .* has no id and score"),
        (lines(FIRST, {"id": "a/1"}), "line 2 .* has no id and score"),
        (lines(FIRST, {"id": "b/7", "score": 1}), "line 2 .* scores b/7, which was not asked; copy the id"),
        (lines(FIRST, FIRST), "line 2 .* scores a/0 again, after line 1; print one line per id"),
        (lines(FIRST, {"id": "a/1", "score": 1.5}), "line 2 .*the score of a/1 is 1.5; give a number from 0 to 1"),
        (lines({"id": "a/1", "score": -0.1}), "line 1 .* is -0.1; give"),
        (lines({"id": "a/1", "score": float("nan")}), "line 1 .* is NaN; give"),
        (lines({"id": "a/1", "score": None}), "line 1 .* is null; give"),
        (lines({"id": "a/1", "score": "1"}), 'line 1 .* is "1"; give a number'),
        (lines(FIRST), "1 of 2 outputs have no score, the first is a/1; print a line for every id"),
        (b"", "2 of 2 outputs have no score, the first is a/0"),
    ],
)  # fmt: skip
def test_wrong_answers_name_the_line_and_the_mend(printed: bytes, why: str) -> None:
    with pytest.raises(ScorerFailed, match=why):
        read_scores(printed, IDS)


def test_the_documented_scorer_answers(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "parity.md").read_text()
    script = text[text.index("```python\nimport json\nimport sys") :].split("```")[1].removeprefix("python\n")
    rows: list[dict[str, str | None]] = [
        {"id": "a/0", "prompt_id": "q", "reference": "so it is #### 42", "text": "I think #### 42."},
        {"id": "a/1", "prompt_id": "q", "reference": "so it is #### 42", "text": "I think #### 43"},
        {"id": "b/0", "prompt_id": "r", "reference": None, "text": ""},
    ]
    (tmp_path / "score.py").write_text(script)
    command = [sys.executable, "score.py"]
    printed = asyncio.run(run_scorer(command, tmp_path, lines(*rows), LONG_S, tmp_path / "task.log"))
    assert read_scores(printed, [str(r["id"]) for r in rows]) == {"a/0": 1.0, "a/1": 0.0, "b/0": 0.0}
    assert (tmp_path / "task.log").read_text() == "r has no reference\n"
