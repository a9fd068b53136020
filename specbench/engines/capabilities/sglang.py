"""SGLang's speculative methods, settings and flags, as of 0.5.23.

Paths are relative to ``sglang/srt`` of that version: ``hook`` is ``arg_groups/speculative_hook.py``,
``spec`` is ``arg_groups/fields/spec.py``, ``info`` is ``speculative/spec_info.py``. When each of them came is
in `sglang_history`.
"""

from __future__ import annotations

from typing import Final

from specbench.engines.capabilities.schema import (
    Alias,
    Draft,
    Flag,
    K,
    Kind,
    Limit,
    Method,
    Never,
    Setting,
    Span,
    Table,
)
from specbench.engines.capabilities.sglang_history import dated_methods, dated_settings

_AUTO: Final = K("steps, branches and draft tokens by the target's architecture", note="hook: auto_choose")
_TREE: Final = (
    Limit("num_steps, eagle_topk and num_draft_tokens are given together or not at all", "hook"),
    Limit("eagle_topk 1 makes num_draft_tokens num_steps + 1, whatever it was", "hook"),
    Limit("eagle_topk > 1 with page size > 1: flashinfer, fa3 or triton only", "hook"),
)
_ADMITS: Final = Limit("admits 48 requests unless --max-running-requests is given", "hook; #34290, #33199")
_NO_DP: Final = Limit("no data-parallel attention", "hook")

_METHODS: Final = (
    Method(
        name="eagle",
        engine_name="EAGLE",
        what="an EAGLE head on the target's hidden states, a chain or a tree",
        draft=Draft.BUNDLED,
        k=_AUTO,
        aliases=(
            Alias(name="nextn"),
            Alias(name="mtp"),
        ),
        dynamic_k=True,
        source="info:32-47; hook:1108-1145",
        limits=(
            Limit("a draft path, unless the target's checkpoint holds it", "hook:1108-1145"),
            *_TREE,
            _ADMITS,
        ),
    ),
    Method(
        name="eagle3",
        engine_name="EAGLE3",
        what="an EAGLE-3 head on three layers of the target, a chain or a tree",
        draft=Draft.REQUIRED,
        k=_AUTO,
        dynamic_k=True,
        source="info:32-47",
        limits=(*_TREE, _ADMITS, Limit("without a draft path the target becomes its own draft", "#36528")),
    ),
    Method(
        name="draft_model",
        engine_name="STANDALONE",
        what="a smaller model of the same vocabulary drafts",
        draft=Draft.REQUIRED,
        k=K("3 steps, 1 branch, 4 draft tokens", note="hook: auto_choose"),
        aliases=(Alias(name="standalone"),),
        source="speculative/standalone_worker_v2.py:185-216",
        limits=(
            Limit("same vocabulary size and the same ids", "speculative/standalone_worker_v2.py:185-216"),
            Limit("without a draft path the target becomes its own draft", "managers/tp_worker.py:473"),
            _NO_DP,
            *_TREE,
            _ADMITS,
        ),
    ),
    Method(
        name="ngram",
        engine_name="NGRAM",
        what="a trie of everything that the server read and wrote",
        draft=Draft.NONE,
        k=K("12 nodes", least=2, note="nodes of the tree with its root: at most K - 1 are accepted"),
        devices=("cuda", "cpu", "xpu"),
        learns=True,
        forgets=True,
        source="hook:1287-1370; speculative/ngram_worker.py: clear_cache_pool",
        limits=(_NO_DP, _ADMITS, Limit("page size > 1: flashinfer only", "hook")),
    ),
    Method(
        name="frozen_kv_mtp",
        engine_name="FROZEN_KV_MTP",
        what="a Gemma 4 assistant on the target's KV cache",
        draft=Draft.REQUIRED,
        k=_AUTO,
        source="hook:77-121",
        limits=(Limit("chosen by itself when an EAGLE draft is a Gemma 4 assistant", "hook:77-121"),),
    ),
    Method(
        name="dflash",
        engine_name="DFLASH",
        what="a block-diffusion draft that proposes a whole block",
        draft=Draft.REQUIRED,
        k=K("the draft's block size, else 15"),
        devices=("cuda", "npu", "xpu"),
        source="hook",
        limits=(Limit("no pipeline parallelism", "hook"),),
    ),
    Method(
        name="dspark",
        engine_name="DSPARK",
        what="a semi-autoregressive draft with confidence-sized verification",
        draft=Draft.BUNDLED,
        k=K("the draft's own"),
        devices=("cuda", "npu", "xpu"),
        source="hook",
    ),
    Method(
        name="uno",
        engine_name="UNO",
        what="LoRA weights that make the target its own draft",
        draft=Draft.NONE,
        devices=("cuda",),
        source="hook",
        limits=(
            Limit("FlashAttention 3 for prefill and decode; tensor and pipeline parallelism 1", "hook"),
            Limit("needs uno_lora_path and num_draft_tokens; no deterministic inference", "hook"),
        ),
    ),
)

_NGRAM: Final = ("ngram",)
_WINDOW: Final = "use ngram_max_trie_depth"
_EAGLES: Final = ("eagle", "eagle3")
_CHAINS: Final = (*_EAGLES, "draft_model", "frozen_kv_mtp")


def _setting(name: str, kind: Kind, what: str, methods: tuple[str, ...] = (), default: str = "") -> Setting:
    flag = f"speculative-{name}".replace("_", "-")
    return Setting(
        name=name, kind=kind, what=what, methods=methods, default=default, flag=flag, source="spec"
    )


def _bare(name: str, kind: Kind, what: str, source: str) -> Setting:
    return Setting(name=name, kind=kind, what=what, flag=name.replace("_", "-"), source=source)


_DISAGG: Final = "arg_groups/fields/disagg.py:25-52"

_SETTINGS: Final = (
    _setting("num_steps", Kind.INTEGER, "depth of the draft tree", _CHAINS, "auto"),
    _setting("eagle_topk", Kind.INTEGER, "branches per node", _CHAINS, "auto"),
    _setting(
        "num_draft_tokens",
        Kind.INTEGER,
        "nodes verified per step, the root included",
        (*_CHAINS, "ngram", "uno", "dflash", "dspark"),
    ),
    _setting("draft_model_revision", Kind.TEXT, "of the draft on the hub", default="main"),
    _setting("draft_load_format", Kind.TEXT, "of the draft's weights; dummy makes random ones"),
    _setting("draft_model_quantization", Kind.TEXT, "how the draft's weights are quantised"),
    *(
        Setting(
            name=name,
            kind=Kind.NUMBER,
            low=0,
            high=1,
            default="1.0",
            what=f"{what}; below 1 sampled output is no longer the target's",
            flag=f"speculative-{name}".replace("_", "-"),
            source="speculative/eagle_utils.py:764-783",
        )
        for name, what in (
            ("accept_threshold_single", "a draft more likely than this is accepted"),
            ("accept_threshold_acc", "a draft is accepted with probability p / this"),
        )
    ),
    _setting("use_rejection_sampling", Kind.FLAG, "classic rejection sampling", _EAGLES, "false"),
    _setting(
        "use_block_verification",
        Kind.FLAG,
        "verify a block jointly (CUDA, ROCm)",
        (*_EAGLES, "dflash", "dspark"),
        "false",
    ),
    _setting("token_map", Kind.TEXT, "file of the draft's reduced vocabulary", _EAGLES),
    Setting(
        name="attention_mode",
        kind=Kind.CHOICE,
        choices=("prefill", "decode"),
        default="prefill",
        what="attention kernels of the verify step",
        flag="speculative-attention-mode",
        source="spec",
    ),
    _setting("draft_attention_backend", Kind.TEXT, "attention of the draft", default="the target's"),
    _setting("draft_kv_cache_dtype", Kind.TEXT, "of the draft's KV cache", default="the target's"),
    Setting(
        name="draft_window_size",
        kind=Kind.INTEGER,
        low=1,
        methods=(*_EAGLES, "dflash"),
        what="tokens that the draft looks back",
        flag="speculative-draft-window-size",
        source="spec; hook",
    ),
    Setting(
        name="draft_sink_size",
        kind=Kind.INTEGER,
        low=0,
        methods=("eagle",),
        what="first tokens that the draft keeps; needs a window",
        flag="speculative-draft-sink-size",
        source="spec; hook",
    ),
    _setting("moe_runner_backend", Kind.TEXT, "of the draft"),
    _setting("moe_a2a_backend", Kind.TEXT, "of the draft"),
    _setting("dsa_topk_backend", Kind.TEXT, "sparse attention of the draft"),
    _setting("enable_w4a4_mxfp4_megamoe", Kind.FLAG, "of the draft", default="false"),
    _setting("adaptive", Kind.FLAG, "choose the number of steps by load and acceptance", _EAGLES, "false"),
    _setting("adaptive_config", Kind.TEXT, "JSON file of steps by batch size", _EAGLES),
    _setting("ngram_min_bfs_breadth", Kind.INTEGER, "least branches", _NGRAM, "1"),
    _setting("ngram_max_bfs_breadth", Kind.INTEGER, "most branches", _NGRAM, "10"),
    Setting(
        name="ngram_match_type",
        kind=Kind.CHOICE,
        choices=("BFS", "PROB"),
        methods=_NGRAM,
        default="BFS",
        what="how the tree is filled",
        flag="speculative-ngram-match-type",
        source="spec",
    ),
    _setting("ngram_max_trie_depth", Kind.INTEGER, "longest match", _NGRAM, "18"),
    _setting("ngram_capacity", Kind.INTEGER, "nodes remembered", _NGRAM, "10000000"),
    _setting("ngram_external_corpus_path", Kind.TEXT, "text to know beforehand", _NGRAM),
    _setting("ngram_external_sam_budget", Kind.INTEGER, "draft tokens from that text", _NGRAM, "0"),
    _setting("ngram_external_corpus_max_tokens", Kind.INTEGER, "tokens read of it", _NGRAM, "10000000"),
    _setting("dflash_block_size", Kind.INTEGER, "tokens per block", ("dflash",), "the draft's"),
    _setting("domino_candidate_pool_size", Kind.INTEGER, "candidates per position", ("dflash",)),
    _setting("dspark_block_size", Kind.INTEGER, "tokens per block", ("dspark",), "the draft's"),
    _setting("dspark_sps_table_path", Kind.TEXT, "measured step times", ("dspark",)),
    _setting("dspark_confidence_sts_path", Kind.TEXT, "calibration of the confidence", ("dspark",)),
    _setting("dspark_align_verify_tokens_to_graph_tier", Kind.FLAG, "round up to a graph size", ("dspark",)),
    _bare("enable_multi_layer_eagle", Kind.FLAG, "one MTP layer per step", "spec"),
    _bare("uno_lora_path", Kind.TEXT, "the LoRA of uno", "spec"),
    Setting(
        name="decoupled_spec_role",
        kind=Kind.CHOICE,
        choices=("null", "verifier", "drafter"),
        default="null",
        what="of decoupled drafting; 0.5.23 has the flags and nothing that uses them",
        flag="decoupled-spec-role",
        source=_DISAGG,
    ),
    _bare("decoupled_spec_bind_endpoint", Kind.TEXT, "where it listens for its peers", _DISAGG),
    _bare("decoupled_spec_connect_endpoints", Kind.LIST, "those of its peers, by their rank", _DISAGG),
    _bare("decoupled_spec_rank", Kind.INTEGER, "its own among those of its role", _DISAGG),
    _bare("spec_trace_dir", Kind.TEXT, "of decoupled drafting; not read by 0.5.23", "spec"),
    Setting(
        name="dflash_draft_window_size",
        kind=Kind.INTEGER,
        methods=("dflash",),
        span=Span("0.5.11", "0.5.20"),
        hint="use draft_window_size",
        flag="speculative-dflash-draft-window-size",
        source="server_args.py (0.5.11 to 0.5.19)",
    ),
    Setting(
        name="ngram_min_match_window_size",
        kind=Kind.INTEGER,
        methods=_NGRAM,
        span=Span("0.5.3", "0.5.10"),
        hint="remove it: every length up to ngram_max_trie_depth is matched",
        flag="speculative-ngram-min-match-window-size",
        source="server_args.py (0.5.3.post3 to 0.5.9); #21225",
    ),
    Setting(
        name="ngram_max_match_window_size",
        kind=Kind.INTEGER,
        methods=_NGRAM,
        span=Span("0.5.3", "0.5.10"),
        hint=_WINDOW,
        flag="speculative-ngram-max-match-window-size",
        source="server_args.py (0.5.3.post3 to 0.5.9); #21225",
    ),
    Setting(
        name="ngram_branch_length",
        kind=Kind.INTEGER,
        methods=_NGRAM,
        span=Span("0.5.3", "0.5.10"),
        hint=_WINDOW,
        flag="speculative-ngram-branch-length",
        source="server_args.py (0.5.3.post3 to 0.5.9)",
    ),
)

_FLAGS: Final = (
    Flag(
        name="sampling-defaults",
        span=Span("0.5.3"),
        hint="older versions take no defaults from the model",
        source="server_args.py (0.5.3.post3; not in 0.5.2)",
    ),
    Flag(
        name="enable-beta-spec",
        span=Span("0.5.3", "0.5.4"),
        hint="remove it: there is one speculative worker; disable-overlap-schedule makes it synchronous",
        source="#12113, #27964",
    ),
    Flag(
        name="disable-cuda-graph",
        hint="deprecated: cuda-graph-backend-decode and cuda-graph-backend-prefill: disabled",
        source="0.5.23 server arguments",
    ),
    Flag(
        name="cuda-graph-max-bs",
        span=Span(None, "0.5.20"),
        hint="use cuda-graph-max-bs-decode and cuda-graph-max-bs-prefill",
        source="0.5.23 server arguments",
    ),
)

_ELSEWHERE: Final = "use one that SGLang has; vLLM has this one"

_NEVER: Final = (
    Never("medusa", _ELSEWHERE, "info:32-47: no trace of it"),
    Never("hydra", "use one that SGLang has", "info:32-47: no trace of it"),
    Never("suffix", _ELSEWHERE, "info:32-47"),
    Never("lookahead", "use ngram", "info:32-47"),
)

TABLE: Final = Table(
    engine="sglang",
    newest="0.5.23",
    methods=dated_methods(_METHODS),
    settings=dated_settings(_SETTINGS),
    flags=_FLAGS,
    never=_NEVER,
    owned={
        "algorithm": "write it as the arm's `method`",
        "draft_model_path": "write it as the arm's `draft`",
        "draft_model": "write it as the arm's `draft`",
    },
    prefix="speculative_",
)
