"""SGLang's pages and a stream, recorded from one NGRAM launch of SGLang 0.5.23."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specbench.engines.sglang_dialect import (
    counters_from_sglang,
    describe_from_server_info,
    fact_lines,
)
from specbench.load.progress import Progress
from specbench.load.receive import Receiver
from specbench.load.record import RequestAcceptance, RequestRecord
from specbench.observe.prometheus import parse

PAGES = Path(__file__).parent / "pages" / "sglang"
MODELS = {"data": [{"id": "specbench-arm", "max_model_len": 8192}]}


def page(name: str) -> str:
    return (PAGES / name).read_text(encoding="utf-8")


def info(**changes: Any) -> dict[str, Any]:
    return {**json.loads(page("ngram_server_info.json")), **changes}


def test_the_metrics_page_becomes_counters() -> None:
    counters = counters_from_sglang(parse(page("ngram_metrics.txt")))
    # Its own warm-up (8 tokens) and two requests of 24.
    assert counters.generation_tokens == 56
    assert counters.prompt_tokens == 57
    assert counters.first_outputs == 3
    assert counters.finished == 3
    assert counters.engine_steps == 4 + 45  # prefills and verify steps
    assert (counters.running, counters.waiting) == (0, 0)
    # Series that appear with their first increment are zero where their neighbours are.
    assert counters.cached_prompt_tokens == 0
    assert counters.preemptions == 0
    # What the page does not hold is null, not nought.
    assert counters.drafts is None
    assert counters.draft_tokens is None
    assert counters.accepted_tokens is None
    assert counters.decode_outputs is None
    assert counters.accepted_per_position == ()


def test_an_empty_page_knows_nothing() -> None:
    counters = counters_from_sglang({})
    assert counters.generation_tokens is None
    assert counters.cached_prompt_tokens is None
    assert counters.preemptions is None


def test_cached_tokens_of_all_sources_are_added() -> None:
    text = page("ngram_metrics.txt") + (
        '# TYPE sglang:cached_tokens counter\nsglang:cached_tokens_total{cache_source="device"} 5.0\n'
        'sglang:cached_tokens_total{cache_source="host"} 2.0\n'
    )
    assert counters_from_sglang(parse(text)).cached_prompt_tokens == 7


def test_what_runs_is_told_by_the_server() -> None:
    found = describe_from_server_info(info(), MODELS)
    assert found.version == "0.5.23"
    assert found.max_model_len == 8192
    assert found.kv_capacity_tokens == 8192
    assert found.speculating is True
    assert found.speculation["speculative_algorithm"] == "NGRAM"
    assert found.speculation["speculative_eagle_topk"] == 10  # resolved: nobody asked for it
    assert "at most K - 1 are accepted" in found.speculation["k_meaning"]
    assert found.settings["max_running_requests"] == 8
    assert found.settings["cuda_graph_config.decode.backend"] == "disabled"
    names = set(found.settings)
    assert not names & {"model_path", "port", "nccl_port", "served_model_name", "launch_command", "version"}
    assert not names & {"max_total_num_tokens", "download_dir", "ssl_keyfile_password"}
    assert not any(name.startswith(("speculative", "startup_time", "internal")) for name in names)
    assert found.facts == ()


def test_a_server_without_speculation_has_no_speculation_part() -> None:
    found = describe_from_server_info(info(speculative_algorithm=None), MODELS)
    assert found.speculating is False
    assert found.speculation == {}


def test_fewer_admitted_requests_than_asked_for_is_a_fact() -> None:
    states = [{"effective_max_running_requests_per_dp": 3}, {"effective_max_running_requests_per_dp": 3}]
    found = describe_from_server_info(info(internal_states=states), MODELS)
    assert found.facts == ("max_running_requests is 8, but the KV memory admits only 6 at once",)


def test_an_odd_answer_is_described_as_far_as_it_goes() -> None:
    found = describe_from_server_info({}, {})
    assert found.version == ""
    assert found.max_model_len is None
    assert found.kv_capacity_tokens is None


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        (
            "[2026-12-01 07:02:40] Overlap schedule is not implemented for speculative decoding on CPU.",
            "Overlap schedule is not implemented for speculative decoding on CPU.",
        ),
        (
            "\x1b[33m[2026-12-01 07:02:40 TP0] Max running requests is reset to 48 for speculative "
            "decoding. You can override this by explicitly setting --max-running-requests.\x1b[0m",
            "Max running requests is reset to 48 for speculative decoding. You can override this by "
            "explicitly setting --max-running-requests.",
        ),
        ("[2026-12-01 07:02:40] Load weight begin. avail mem=20.56 GB", None),
    ],
)
def test_lines_that_change_a_result_are_facts(line: str, fact: str | None) -> None:
    assert fact_lines(f"{line}\n{line}\n") == (() if fact is None else (fact,))


def test_a_stream_gives_token_counts_and_acceptance() -> None:
    record = RequestRecord(id="q", index=0, category="c", intended_s=0.0)
    receiver = Receiver(record, Progress())
    receiver.feed(page("ngram_chat.sse").encode(), 1.0)
    receiver.end(2.0)
    assert record.ok
    assert record.finish_reason == "length"
    assert record.output_tokens == 24
    assert sum(record.chunk_tokens) == 24
    assert record.acceptance == RequestAcceptance(19, 57, 4, (15, 4))
    # One chunk for the prefill and one for each verify step, none of them cut short here.
    assert len(record.chunk_tokens) == 20
    assert sorted(set(record.chunk_tokens)) == [1, 2]


@pytest.mark.parametrize(
    ("name", "ids"),
    [("stop_chat.sse", []), ("stop_completion.sse", [10539, 30, 2])],
)
def test_the_end_of_text_is_a_token_of_the_stream(name: str, ids: list[int]) -> None:
    """``Yes.`` and its end: in the last usage alone for chats, with its id for texts; vLLM sends its id."""
    record = RequestRecord("a", 0, "chat", 0.0)
    receiver = Receiver(record, Progress())
    receiver.feed(page(name).encode(), 1.0)
    receiver.end(2.0)
    assert (record.finish_reason, record.output_tokens) == ("stop", 3)
    assert record.chunk_tokens == [1, 1, 1]
    assert record.token_ids == ids
