"""Flags, counters and descriptions in vLLM's dialect."""

from __future__ import annotations

import json

import pytest

from specbench.config.grid import BASELINE, Arm
from specbench.engines.vllm_dialect import (
    counters_from_vllm,
    describe_from_server_info,
    fact_lines,
    kv_capacity_tokens,
    speculation_flags,
    speculative_config,
)
from specbench.observe.prometheus import parse


def test_speculative_config_has_the_arms_fields_and_settings() -> None:
    arm = Arm(
        id="x",
        method="draft_model",
        draft="D",
        k=3,
        settings={"draft-sample-method": "probabilistic", "quantization": None},
    )
    config = {
        "method": "draft_model",
        "model": "D",
        "num_speculative_tokens": 3,
        "draft_sample_method": "probabilistic",
    }
    assert speculative_config(arm) == config
    flag, value = speculation_flags(arm)
    assert flag == "--speculative-config"
    assert json.loads(value) == config
    assert speculation_flags(Arm(id=BASELINE)) == ()


PAGE = """\
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{engine="0",model_name="m"} 100.0
vllm:generation_tokens_total{engine="1",model_name="m"} 20.0
# TYPE vllm:generation_tokens_created gauge
vllm:generation_tokens_created{engine="0",model_name="m"} 1.7e+09
# TYPE vllm:iteration_tokens_total histogram
vllm:iteration_tokens_total_bucket{engine="0",le="+Inf",model_name="m"} 53.0
vllm:iteration_tokens_total_count{engine="0",model_name="m"} 53.0
vllm:iteration_tokens_total_sum{engine="0",model_name="m"} 160.0
# TYPE vllm:inter_token_latency_seconds histogram
vllm:inter_token_latency_seconds_bucket{engine="0",le="+Inf",model_name="m"} 52.0
vllm:inter_token_latency_seconds_count{engine="0",model_name="m"} 52.0
vllm:inter_token_latency_seconds_sum{engine="0",model_name="m"} 1.0
# TYPE vllm:request_success counter
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 2.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 3.0
vllm:request_success_total{engine="0",finished_reason="abort",model_name="m"} 9.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.1
# TYPE vllm:prefix_cache_hits counter
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 7.0
# TYPE vllm:spec_decode_num_accepted_tokens_per_pos counter
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 2.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 5.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="0"} 4.0
"""


def test_counters_add_up_engines_and_keep_missing_ones_null() -> None:
    counters = counters_from_vllm(parse(PAGE))
    assert counters.generation_tokens == 120
    assert counters.engine_steps == 53
    assert counters.decode_outputs == 52
    assert counters.first_outputs is None
    assert counters.finished == 5
    assert counters.kv_usage == pytest.approx(0.3)
    assert counters.cached_prompt_tokens == 7
    assert list(counters.accepted_per_position) == [9, 2]
    assert counters.drafts is None


RUNNER = "Model Runner V2 requires Triton; using the V1 model runner instead"
SLOW = (
    "Speculative decoding on CPU without Intel OpenMP in LD_PRELOAD will cause significant performance loss"
)
LOG = f"""\
(APIServer pid=12) INFO 07-01 12:00:00 [vllm.py:725] {RUNNER}
(EngineCore pid=13) WARNING 07-01 12:00:01 [cpu_worker.py:129] {SLOW}
(EngineCore pid=13) INFO 07-01 12:00:02 [kv_cache_utils.py:2327] GPU KV cache size: 93,184 tokens
(APIServer pid=12) INFO 07-01 12:00:03 [vllm.py:725] {RUNNER}
"""


def test_log_lines_tell_memory_and_what_changes_the_reading() -> None:
    assert kv_capacity_tokens(LOG) == 93_184
    assert kv_capacity_tokens("nothing") is None
    assert fact_lines(LOG) == (RUNNER, SLOW)


def test_memory_comes_from_the_metrics_page_without_a_log() -> None:
    page = 'vllm:cache_config_info{engine="0",kv_cache_size_tokens="46592"} 1.0\n'
    assert kv_capacity_tokens("", parse(page)) == 46_592


def test_a_description_separates_speculation_from_settings() -> None:
    info = {
        "vllm_config": {
            "scheduler_config": {"max_num_seqs": 8},
            "cache_config": {"num_gpu_blocks": 5, "block_size": 16},
            "speculative_config": {"method": "ngram", "num_speculative_tokens": 2},
        }
    }
    models = {"data": [{"id": "m", "max_model_len": 4096}]}
    found = describe_from_server_info(version="0.32.0", models=models, server_info=info)
    assert found.settings == {"scheduler_config.max_num_seqs": 8, "cache_config.block_size": 16}
    assert found.speculation == {"method": "ngram", "num_speculative_tokens": 2}
    assert (found.speculating, found.max_model_len) == (True, 4096)


def test_without_a_settings_page_the_counters_tell_about_speculation() -> None:
    bare = describe_from_server_info(version="0.32.0", models={}, samples=parse(PAGE))
    assert bare.speculating is False
    assert describe_from_server_info(version="0.32.0", models={}).speculating is None
