"""The failure catalogue against recorded logs of SGLang 0.5.23, each provoked for real on the CPU server."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench.engines.base import FailureClass as F
from specbench.engines.sglang_failures import explain_sglang

LOGS = Path(__file__).parent / "logs" / "sglang"

CASES = [
    # log, exit code, class, part of the summary, part of the mend, part of the root cause
    (
        "unknown_method",
        1,
        F.UNSUPPORTED_METHOD,
        "MEDUSA does not exist",
        "eagle, eagle3",
        "Unknown speculative",
    ),
    ("uno_cpu", 1, F.UNSUPPORTED_METHOD, "UNO runs on CUDA only", "another method", "ValueError: UNO"),
    ("unknown_flag", 2, F.BAD_ARGUMENT, "--speculative-ngram-branch-length", "trie_depth", "unrecognized"),
    ("bad_value", 2, F.BAD_SPECULATION, "invalid int value: 'many'", "this setting", "error: argument"),
    ("missing_model", 1, F.MODEL_NOT_FOUND, "./missing-model is neither", "Correct the path", "OSError"),
    ("missing_model_hub", 1, F.MODEL_NOT_FOUND, "hub's cache", "HF_HUB_OFFLINE", "couldn't connect"),
    ("missing_draft", 1, F.MODEL_NOT_FOUND, "./missing-draft is neither", "Correct the path", "OSError"),
    ("missing_draft_hub", 1, F.MODEL_NOT_FOUND, "hub's cache", "Download it first", "couldn't connect"),
    ("dflash_no_draft", 1, F.BAD_SPECULATION, "DFLASH needs a draft", "`draft:`", "requires setting"),
    ("partial_tree", 1, F.BAD_SPECULATION, "must be given together", "all three", "AssertionError"),
    ("context_too_long", 1, F.CONTEXT_TOO_LONG, "100000 is more than the model's 8192", "Lower", "derived"),
    ("draft_context", -9, F.CONTEXT_TOO_LONG, "draft reads 64 tokens", "at most 64", "Target model's"),
    ("memory_small", -9, F.KV_TOO_SMALL, "mem-fraction-static 0.01", "above 0.181 in", "Loaded weights"),
    ("adaptive_steps", 1, F.BAD_SPECULATION, "cannot start from 4 steps", "1, 3, 5, 7", "candidate_steps"),
    ("attention_backend", 1, F.MISSING_PACKAGE, "flashinfer_python 0.7.2", "attention-backend", "minimum"),
    ("no_draft_eagle", -9, F.BAD_SPECULATION, "do not fit this method", "made for this", "AttributeError"),
    ("eagle3_plain", -9, F.BAD_SPECULATION, "do not fit this method", "no draft model", "hot_token_id"),
    (
        "vocabulary",
        -9,
        F.VOCABULARY,
        "32000 tokens in its vocabulary, the target 49152",
        "family",
        "STANDALONE",
    ),
    ("port_in_use", -9, F.PORT_IN_USE, "has the engine's port", "Run again", "address already in use"),
    ("scheduler_killed", -9, F.KILLED, "A process of the engine", "out of memory", "exit code -9"),
]


def recorded(name: str) -> str:
    return (LOGS / f"{name}.log").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "code", "kind", "summary", "mend", "line"), CASES, ids=lambda v: str(v)[:20]
)
def test_a_recorded_failure_is_explained(
    name: str, code: int, kind: F, summary: str, mend: str, line: str
) -> None:
    found = explain_sglang(recorded(name), code)
    assert found.kind is kind
    assert summary in found.summary
    assert mend in found.mend
    assert line in " ".join(found.log_lines)
    assert all(len(x) <= 400 for x in found.log_lines)


def test_every_recorded_log_has_a_case() -> None:
    assert {name for name, *_ in CASES} == {path.stem for path in LOGS.glob("*.log")}


def test_a_stop_is_not_a_failure_of_its_own() -> None:
    """A scheduler that dies of the stop is not the cause of anything."""
    log = recorded("scheduler_killed")
    crash = log.index("Subprocess scheduler_0")
    stopped = log[:crash] + "[2026-12-01 07:03:08] SIGTERM received. signum=15\n" + log[crash:]
    found = explain_sglang(stopped, None)
    assert found.kind is F.ENGINE_DIED
    assert "unknown exit code" in found.summary


@pytest.mark.parametrize(
    ("text", "code", "kind", "summary"),
    [
        (
            "/usr/bin/python: Error while finding module specification for 'sglang.launch_server' "
            "(ModuleNotFoundError: No module named 'sglang')",
            1,
            F.ENGINE_MISSING,
            "has no SGLang",
        ),
        (
            "[2026-12-01 07:03:08 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
            "[2026-12-01 07:03:08] Received sigquit from a child process. It usually means the child failed.",
            -9,
            F.OUT_OF_MEMORY,
            "ran out of memory",
        ),
        (
            "[2026-12-01 07:03:08 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
            "RuntimeError: Decode out of memory. Try to lower your batch size.\n"
            "[2026-12-01 07:03:08] SIGQUIT received. signum=None, frame=None.",
            -9,
            F.KV_TOO_SMALL,
            "while serving",
        ),
        (
            "[2026-12-01 07:03:08 TP0] Scheduler watchdog timeout (self.watchdog_timeout=300, "
            "self.soft=False)\n[2026-12-01 07:03:13] SIGQUIT received. signum=None, frame=None.",
            -9,
            F.ENGINE_DIED,
            "hung for 300 s",
        ),
        (
            "[2026-12-01 07:03:08] Subprocess scheduler_0 (pid=7) crashed with exit code -11. Triggering "
            "SIGQUIT for cleanup...",
            -9,
            F.ENGINE_DIED,
            "crashed with a memory fault",
        ),
        (
            "Traceback (most recent call last):\nRuntimeError: something new",
            1,
            F.UNKNOWN,
            "RuntimeError: something new",
        ),
        ("", 3, F.UNKNOWN, "exit code 3"),
        ("", -signal.SIGILL, F.ENGINE_DIED, "illegal instruction"),
        ("", -9, F.KILLED, "The engine was killed"),
    ],
)
def test_what_a_cpu_cannot_provoke(text: str, code: int, kind: F, summary: str) -> None:
    """Messages from SGLang's source and its issues."""
    found = explain_sglang(text, code)
    assert found.kind is kind
    assert summary in found.summary
    assert found.mend


@given(st.text(), st.one_of(st.none(), st.integers(-64, 255)))
def test_any_log_gets_an_answer(log: str, code: int | None) -> None:
    found = explain_sglang(log, code)
    assert found.summary
    assert found.mend
