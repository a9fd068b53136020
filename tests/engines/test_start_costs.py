"""What start-up logs and pages of the engines tell of weights and of the largest batch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specbench.engines import sglang_dialect, vllm_dialect
from specbench.engines.sglang_dialect import LoadedWeights, loaded_weights
from specbench.observe.prometheus import parse

LOGS = Path(__file__).parent / "logs"
PAGES = Path(__file__).parent / "pages"
GIB = 1 << 30


@pytest.mark.parametrize(
    ("line", "gib"),
    [
        ("(Worker pid=7) INFO 12-01 06:11:43 [gpu_model_runner.py:5150] Model loading took 15.27 GiB memory and "
         "3.123456 seconds", 15.27),
        ("INFO 05-01 10:00:00 [gpu_model_runner.py:1347] Model loading took 15.2683 GiB and 3.1 seconds", 15.2683),
        ("INFO 01-01 10:00:00 model_runner.py:1115] Loading model weights took 14.9888 GB", 14.9888),
        ("(Worker_TP0 pid=7) INFO Model loading took 7.6 GiB memory and 3.1 seconds\n"
         "(Worker_TP1 pid=8) INFO Model loading took 7.7 GiB memory and 3.0 seconds", 7.7),
    ],
)  # fmt: skip
def test_vllm_says_what_weights_take_on_a_device(line: str, gib: float) -> None:
    assert vllm_dialect.weights_bytes(f"before\n{line}\nafter\n") == round(gib * GIB)


def test_a_cpu_build_of_vllm_says_only_how_long_loading_took() -> None:
    log = (LOGS / "bad_schedule.log").read_text(encoding="utf-8")
    assert vllm_dialect.weights_bytes(log) is None
    assert vllm_dialect.weights_load_s(log) == 1.04
    assert vllm_dialect.max_concurrency(log) == 22.75
    assert vllm_dialect.weights_load_s("") is None
    assert vllm_dialect.max_concurrency("") is None


def test_load_times_of_one_worker_are_added_and_workers_run_side_by_side() -> None:
    line = "({} pid=1) INFO 12-01 06:11:43 [default_loader.py:501] Loading weights took {} seconds"
    log = "\n".join(line.format(*x) for x in (("Worker_TP0", 2.0), ("Worker_TP1", 2.5), ("Worker_TP0", 0.75)))
    assert vllm_dialect.weights_load_s(log) == 2.75


def test_vllm_pages_tell_the_rest() -> None:
    info = {"vllm_config": {"scheduler_config": {"max_num_seqs": 256}}}
    page = 'vllm:cache_config_info{engine="0",kv_cache_max_concurrency="11.5"} 1.0\n'
    found = vllm_dialect.describe_from_server_info(
        version="0.32.0", models={}, server_info=info, samples=parse(page)
    )
    assert found.max_running_requests == 256
    assert found.max_concurrency == 11.5
    assert (found.weights_bytes, found.draft_weights_bytes) == (None, None)


@pytest.mark.parametrize(
    ("name", "target", "draft", "seconds"),
    [
        ("scheduler_killed", 0.46, None, 0.27),
        ("eagle3_plain", 0.57, 0.03, 0.47 + 0.04),
        ("no_draft_eagle", 0.48, 0.53, 0.35 + 0.89),  # the target, loaded twice
    ],
)
def test_sglang_tells_target_and_draft_apart(
    name: str, target: float, draft: float | None, seconds: float
) -> None:
    found = loaded_weights((LOGS / "sglang" / f"{name}.log").read_text(encoding="utf-8"))
    assert found.bytes == pytest.approx((target + (draft or 0)) * GIB, abs=2)
    assert found.draft_bytes == (None if draft is None else pytest.approx(draft * GIB, abs=2))
    assert found.seconds == pytest.approx(seconds)


def test_sglang_ranks_load_side_by_side() -> None:
    log = """\
[2026-02-26 05:24:09 TP0] Load weight end. elapsed=228.09 s, type=A, dtype=x, avail mem=194.04 GB, mem usage=89.58 GB.
\x1b[32m[2026-02-26 05:24:09 DP1 TP1 EP1] Load weight end. elapsed=230.00 s, type=A, avail mem=1 GB, mem usage=90.00 GB.\x1b[0m
[2026-02-26 05:25:09 TP0] Load weight end. elapsed=9.00 s, type=Draft, avail mem=190.04 GB, mem usage=4.00 GB.
"""  # noqa: E501 - as printed
    found = loaded_weights(log)
    assert (found.bytes, found.draft_bytes) == (round(93.58 * GIB), 4 * GIB)
    assert found.seconds == pytest.approx(237.09)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("", LoadedWeights()),
        (
            "[2024-12-13 01:44:59 TP0] Load weight end. type=A, dtype=torch.bfloat16, avail mem=9.69 GB",
            LoadedWeights(),
        ),
        (
            "[2025-11-04 05:27:13 DP0 TP0 EP0] Load weight end. type=A, avail mem=75.11 GB, mem usage=8.00 GB.",
            LoadedWeights(8 * GIB),
        ),
        (
            "[2026-11-04 05:27:13] Load weight end. Committed real weights after CUDA graph capture in 3.00 s",
            LoadedWeights(),
        ),
    ],
)
def test_other_versions_of_sglang_say_less(line: str, found: LoadedWeights) -> None:
    assert loaded_weights(line) == found


def test_sglang_pages_tell_the_largest_batch() -> None:
    info = json.loads((PAGES / "sglang" / "ngram_server_info.json").read_text(encoding="utf-8"))
    assert sglang_dialect.describe_from_server_info(info, {}).max_running_requests == 8
    info["internal_states"] = [{"effective_max_running_requests_per_dp": 3}] * 2
    found = sglang_dialect.describe_from_server_info(info, {})
    assert found.max_running_requests == 6
    assert found.weights_bytes is None
