"""The server speaks vLLM's dialect, and its counters agree with what a client counts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from specbench.engines.simulated.tokenizer import decode
from specbench.observe.counters import difference
from specbench.observe.prometheus import parse
from tests.engines.simulated.servers import DRAFT_MODEL, NGRAM, Running, launched, read_completion

PROMPT = 'Please fix "the quick brown fox jumps over one lazy dog" and say why'


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with launched(tmp_path_factory.mktemp("base"), "--max-model-len", "512") as server:
        yield server


@pytest.fixture(scope="module")
def drafted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    flags = ("--per-request-spec-decode-metrics", "detailed", "--enable-per-request-metrics")
    with launched(tmp_path_factory.mktemp("spec"), *flags, speculation=DRAFT_MODEL) as server:
        yield server


@pytest.fixture(scope="module")
def looked_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with launched(tmp_path_factory.mktemp("ngram"), speculation=NGRAM) as server:
        yield server


def test_a_completion_stream_is_vllms(drafted: Running) -> None:
    events = drafted.stream({"model": "target", "prompt": [5, 6, 7], "max_tokens": 20, "temperature": 0})
    *chunks, usage, done = events
    assert done == "[DONE]"
    assert usage["choices"] == []
    assert usage["usage"] == {"prompt_tokens": 3, "total_tokens": 23, "completion_tokens": 20}
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}
    choices = [chunk["choices"][0] for chunk in chunks]
    assert choices[0]["prompt_token_ids"] == [5, 6, 7]
    assert len(choices[0]["token_ids"]) == 1
    assert max(len(choice["token_ids"]) for choice in choices) > 1
    assert [c["finish_reason"] for c in choices] == [None] * (len(choices) - 1) + ["length"]
    running = 0
    for chunk, choice in zip(chunks, choices, strict=True):
        running += len(choice["token_ids"])
        assert choice["text"] == decode(choice["token_ids"])
        assert chunk["usage"]["completion_tokens"] == running
    spec = usage["metrics"]["speculative_decoding"]
    assert spec["num_spec_steps"] == len(chunks) - 1
    assert sum(spec["acceptance_histogram"]) == spec["num_spec_steps"]
    assert spec["mean_acceptance_length"] == 1 + spec["num_accepted_draft_tokens"] / spec["num_spec_steps"]


def test_a_chat_stream_begins_with_the_role_and_no_token(drafted: Running) -> None:
    messages = [{"role": "user", "content": "hello"}]
    body = {"model": "target", "messages": messages, "max_tokens": 9, "temperature": 0}
    events = drafted.stream(body, "/v1/chat/completions")
    role = events[0]["choices"][0]
    assert role["delta"] == {"role": "assistant", "content": ""}
    assert "token_ids" not in role
    assert events[0]["usage"]["completion_tokens"] == 0
    assert events[1]["choices"][0]["delta"].keys() == {"content"}
    stream = read_completion(events)
    assert len(stream.ids) == stream.completion_tokens == 9
    status, whole = drafted.post("/v1/chat/completions", {**body, "return_token_ids": True})
    assert status == 200
    assert whole["choices"][0]["token_ids"] == stream.ids
    assert whole["choices"][0]["message"]["content"] == decode(stream.ids)


def test_usage_is_left_out_unless_asked_for(baseline: Running) -> None:
    raw = baseline.raw({"model": "target", "prompt": "hi", "max_tokens": 4, "stream": True})
    events = [json.loads(line[6:]) for line in raw.decode().split("\n") if line.startswith("data: {")]
    assert all(event["choices"] and event["usage"] is None for event in events)
    assert events[0]["choices"][0]["token_ids"] is None


@pytest.mark.parametrize("arm", ["drafted", "looked_up"])
def test_greedy_streams_equal_the_baselines_whatever_the_load(
    arm: str, baseline: Running, request: pytest.FixtureRequest
) -> None:
    bodies = [
        {"model": "target", "prompt": f"{PROMPT} {i}", "max_tokens": 60, "temperature": 0} for i in range(8)
    ]
    expected = [read_completion(baseline.stream(body)).ids for body in bodies]
    with ThreadPoolExecutor(8) as pool:
        events = list(pool.map(request.getfixturevalue(arm).stream, bodies))
    assert [read_completion(e).ids for e in events] == expected


@pytest.mark.parametrize("arm", ["baseline", "drafted", "looked_up"])
def test_counters_agree_with_the_client(arm: str, request: pytest.FixtureRequest) -> None:
    server: Running = request.getfixturevalue(arm)
    before = server.counters()
    bodies = [{"model": "target", "prompt": f"{PROMPT} {i}", "max_tokens": 50, "seed": i} for i in range(6)]
    with ThreadPoolExecutor(3) as pool:
        streams = [read_completion(events) for events in pool.map(server.stream, bodies)]
    delta = difference(before, server.counters())
    tokens = sum(len(stream.ids) for stream in streams)
    chunks = sum(len(stream.chunk_tokens) for stream in streams)
    assert delta.generation_tokens == tokens == sum(stream.completion_tokens for stream in streams)
    assert delta.first_outputs == delta.finished == 6
    assert delta.decode_outputs == chunks - 6
    assert delta.engine_steps is not None
    assert max(len(s.chunk_tokens) for s in streams) <= delta.engine_steps <= chunks
    tokens_per_step = (tokens - 6) / (chunks - 6)
    if arm == "baseline":
        assert tokens_per_step == 1.0
        assert delta.drafts is None
        assert delta.accepted_per_position == ()
        return
    assert delta.drafts is not None
    assert delta.draft_tokens is not None
    assert delta.accepted_tokens is not None
    assert tokens_per_step > 1.0
    assert sum(delta.accepted_per_position) == delta.accepted_tokens
    assert list(delta.accepted_per_position) == sorted(delta.accepted_per_position, reverse=True)
    coverage = delta.drafts / (chunks - 6)
    assert coverage == 1.0 if arm == "drafted" else coverage < 1.0
    # Accepted tokens past a stop are counted, not given: at most K per request.
    assert 0 <= chunks + delta.accepted_tokens - tokens <= 4 * 6


def test_the_metrics_page_is_vllms(baseline: Running, drafted: Running) -> None:
    page = baseline.get("/metrics").decode()
    assert "vllm:generation_tokens_created" in page
    samples = parse(page)
    assert samples["vllm:kv_cache_usage_perc"][0][0] == {"engine": "0", "model_name": "target"}
    assert "vllm:iteration_tokens_total_count" in samples
    assert not any(name.startswith("vllm:spec_decode") for name in samples)
    labels = [
        labels
        for labels, _ in parse(drafted.get("/metrics").decode())[
            "vllm:spec_decode_num_accepted_tokens_per_pos_total"
        ]
    ]
    assert [label["position"] for label in labels] == ["0", "1", "2", "3"]


def test_prompt_logprobs_score_what_decoding_reported(baseline: Running) -> None:
    ask = {"model": "target", "prompt": PROMPT, "max_tokens": 8, "temperature": 0, "return_token_ids": True}
    _, answer = baseline.post("/v1/completions", {**ask, "logprobs": 3})
    choice = answer["choices"][0]
    text = choice["prompt_token_ids"] + choice["token_ids"]
    score = {"model": "target", "prompt": text, "max_tokens": 1, "prompt_logprobs": 3}
    _, scored = baseline.post("/v1/completions", score)
    rows = scored["choices"][0]["prompt_logprobs"]
    assert rows[0] is None
    assert len(rows) == len(text)
    own = [row[str(token)]["logprob"] for row, token in zip(rows[-8:], choice["token_ids"], strict=True)]
    assert own == pytest.approx(choice["logprobs"]["token_logprobs"])
    assert all(
        row[str(token)]["rank"] == 1 for row, token in zip(rows[-8:], choice["token_ids"], strict=True)
    )
    assert all(len(top) == 3 for top in choice["logprobs"]["top_logprobs"])


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"prompt": "hi", "max_tokens": 600}, 400, "This model's maximum context length is 512 tokens"),
        ({"prompt": [2] * 512, "max_tokens": 1}, 400, "your prompt contains at least 512 input tokens"),
        ({"prompt": ""}, 400, "cannot be empty"),
        ({"prompt": [999]}, 400, "out of vocabulary"),
        ({"prompt": "hi", "logprobs": 21}, 400, "greater than max allowed: 20"),
        ({"prompt": "hi", "stream": True, "prompt_logprobs": 1}, 400, "not available when `stream=True`"),
        ({"prompt": "hi", "max_tokens": "many"}, 400, "max_tokens"),
        ({"prompt": "hi", "model": "other"}, 404, "The model `other` does not exist."),
    ],
)
def test_bad_requests_are_refused_as_vllm_does(
    body: dict[str, object], status: int, text: str, baseline: Running
) -> None:
    got, answer = baseline.post("/v1/completions", {"model": "target", **body})
    assert got == status
    assert text in answer["error"]["message"]
    assert answer["error"]["code"] == status


def test_min_p_is_refused_with_speculation_only(baseline: Running, drafted: Running) -> None:
    body = {"model": "target", "prompt": "hi", "min_p": 0.1, "max_tokens": 2}
    assert baseline.post("/v1/completions", body)[0] == 200
    assert drafted.post("/v1/completions", body)[0] == 400


def test_cached_prompt_tokens_are_told_when_asked_for(tmp_path: Path) -> None:
    with launched(tmp_path, "--enable-prompt-tokens-details") as server:
        body = {"model": "target", "prompt": "one two three four " * 10, "max_tokens": 2}
        cached = [
            server.post("/v1/completions", body)[1]["usage"]["prompt_tokens_details"]["cached_tokens"]
            for _ in range(2)
        ]
        assert cached == [0, 32]
        assert server.post("/reset_prefix_cache", {}) == (200, {"success": True})
        assert server.counters().cached_prompt_tokens == 32
