"""When SGLang's speculative methods, settings and flags came.

Read from ``sglang/srt/server_args.py``, ``arg_groups`` and ``speculative/spec_info.py`` of the packages
0.4.6.post5, 0.4.10.post2, 0.5.1.post3 and the last patch of every version from 0.5.2 to 0.5.23; what came
between two of them is dated to the later one without its patch. What is not named was there in 0.4.6 already.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from specbench.engines.capabilities.schema import Method, Setting, Span

METHODS: Final = {
    "draft_model": "0.5.2",
    "ngram": "0.5.3",
    "dflash": "0.5.11",
    "frozen_kv_mtp": "0.5.12",
    "dspark": "0.5.16",
    "uno": "0.5.20",
}

SETTINGS: Final = {
    **dict.fromkeys(("attention_mode", "draft_model_revision"), "0.5.2"),
    **dict.fromkeys(
        (
            "draft_load_format",
            "ngram_capacity",
            "ngram_match_type",
            "ngram_min_bfs_breadth",
            "ngram_max_bfs_breadth",
        ),
        "0.5.3",
    ),
    "moe_runner_backend": "0.5.4",
    "moe_a2a_backend": "0.5.6",
    **dict.fromkeys(
        ("draft_attention_backend", "draft_model_quantization", "enable_multi_layer_eagle"), "0.5.7"
    ),
    "ngram_max_trie_depth": "0.5.10",
    **dict.fromkeys(
        (
            "adaptive",
            "adaptive_config",
            "dflash_block_size",
            "ngram_external_corpus_path",
            "ngram_external_sam_budget",
            "ngram_external_corpus_max_tokens",
        ),
        "0.5.11",
    ),
    "draft_window_size": "0.5.12",
    "use_rejection_sampling": "0.5.14",
    **dict.fromkeys(
        (
            "decoupled_spec_role",
            "decoupled_spec_bind_endpoint",
            "decoupled_spec_connect_endpoints",
            "decoupled_spec_rank",
            "spec_trace_dir",
        ),
        "0.5.15",
    ),
    **dict.fromkeys(
        (
            "dspark_block_size",
            "dspark_sps_table_path",
            "dspark_confidence_sts_path",
            "dspark_align_verify_tokens_to_graph_tier",
        ),
        "0.5.16",
    ),
    "draft_kv_cache_dtype": "0.5.18",
    "dsa_topk_backend": "0.5.19",
    **dict.fromkeys(("domino_candidate_pool_size", "uno_lora_path"), "0.5.20"),
    "draft_sink_size": "0.5.21",
    **dict.fromkeys(("use_block_verification", "enable_w4a4_mxfp4_megamoe"), "0.5.22"),
}


def dated_methods(rows: tuple[Method, ...]) -> tuple[Method, ...]:
    """The rows, each with the version that it came with."""
    return tuple(replace(row, span=Span(METHODS.get(row.name), row.span.until)) for row in rows)


def dated_settings(rows: tuple[Setting, ...]) -> tuple[Setting, ...]:
    """The rows, each with the version that it came with, unless it says so itself."""
    return tuple(
        row if row.span.since else replace(row, span=Span(SETTINGS.get(row.name), row.span.until))
        for row in rows
    )
