"""vLLM's speculative methods, settings and flags, from its first version with any of them to 0.32.

Spans were read from the packages 0.7.3, 0.8.5, 0.9.2, 0.10.0, 0.10.2 and the last patch of every minor
version from 0.11 to 0.32: what came between two of them is dated to the later minor version.
``speculative.py`` is ``vllm/config/speculative.py`` of 0.32.0, or of the version in brackets; it was part of
``vllm/config.py`` before 0.11.
"""

from __future__ import annotations

from typing import Final

from specbench.engines.capabilities.schema import (
    Alias,
    Draft,
    Flag,
    K,
    Limit,
    Method,
    Never,
    Span,
    Table,
)
from specbench.engines.capabilities.vllm_settings import JSON_SINCE, METHOD_KEY, SETTINGS

MAX_K: Final = 128
"""The rejection sampler asserts that no request has more draft tokens in a step."""

PER_REQUEST_METRICS: Final = "per-request-spec-decode-metrics"
"""Flag of speculative servers; one without speculation does not start with it."""

_K: Final = K(most=MAX_K, note="v1/sample/rejection_sampler.py:42,131")
_OLD: Final = Span(None, "0.10.0")
_BOTH: Final = ("V1", "V2")

_MTP_FAMILIES: Final = {
    "deepseek_mtp": "0.9.0",
    "ernie_mtp": "0.10.2",
    "qwen3_next_mtp": "0.10.2",
    "longcat_flash_mtp": "0.11.0",
    "mimo_mtp": "0.11.0",
    "glm4_moe_mtp": "0.11.1",
    "pangu_ultra_moe_mtp": "0.11.1",
    "exaone_moe_mtp": "0.14.0",
    "glm4_moe_lite_mtp": "0.15.0",
    "glm_ocr_mtp": "0.16.0",
    "step3p5_mtp": "0.16.0",
    "nemotron_h_mtp": "0.17.0",
    "qwen3_5_mtp": "0.17.0",
    "exaone4_5_mtp": "0.20.0",
    "hy_v3_mtp": "0.20.0",
    "gemma4_mtp": "0.21.0",
    "mimo_v2_mtp": "0.21.0",
    "minimax_m3_mtp": "0.24.0",
    "bailing_hybrid_mtp": "0.25.0",
    "inkling_mtp": "0.26.0",
    "kimi_k3_mtp": "0.27.0",
    "bailing_hybrid_v3_mtp": "0.28.0",
    "dots3_note_mtp": "0.28.0",
    "hy_v4_mtp": "0.29.0",
    "qwen4_exp_mtp": "0.29.0",
    "glm5_next_mtp": "0.30.0",
}
"""Names of one model family each and the version that brought them; since 0.11.0 all mean ``mtp``."""

_DIVISIBLE: Final = Limit(
    "K above the checkpoint's number of MTP layers must be a multiple of it", "speculative.py:1493-1502"
)
_TARGET_CLASS: Final = Limit("the target's model class must expose its hidden states", "speculative.py:1393")

_METHODS: Final = (
    Method(
        name="draft_model",
        what="a smaller model of the same vocabulary drafts",
        draft=Draft.REQUIRED,
        k=_K,
        span=_OLD,
        runners=("V0",),
        source="config.py (0.7.3, 0.8.5)",
    ),
    Method(
        name="draft_model",
        what="a smaller model of the same vocabulary drafts",
        draft=Draft.REQUIRED,
        span=Span("0.10.0", "0.15.0"),
        dead="these versions say NotImplementedError: draft model speculative decoding is not supported yet",
        source="engine/arg_utils.py (0.10.0 to 0.14.1); #28384; back with #24322",
    ),
    Method(
        name="draft_model",
        what="a smaller model of the same vocabulary drafts",
        draft=Draft.REQUIRED,
        k=_K,
        span=Span("0.15.0"),
        runners=_BOTH,
        dynamic_k=True,
        source="v1/spec_decode/draft_model.py",
        limits=(
            Limit(
                "vocabularies of equal size, unless use_heterogeneous_vocab (V1 runner, greedy drafts)",
                "speculative.py:1870-1885",
            ),
            Limit(
                "draft tensor parallelism = the target's (V1 runner)", "v1/spec_decode/draft_model.py:66-80"
            ),
            Limit("no disable_padded_drafter_batch", "v1/spec_decode/draft_model.py"),
        ),
    ),
    Method(
        name="ngram",
        what="copies what followed the last tokens earlier in the same request",
        draft=Draft.NONE,
        k=_K,
        runners=_BOTH,
        dynamic_k=True,
        aliases=(Alias(name="[ngram]", mend="write ngram"),),
        source="speculative.py:1193-1224",
        limits=(Limit("turns asynchronous scheduling off", "config/vllm.py:1597-1610"),),
    ),
    Method(
        name="ngram_gpu",
        what="ngram with its search on the GPU",
        draft=Draft.NONE,
        k=_K,
        span=Span("0.18.0"),
        devices=("cuda", "rocm"),
        runners=_BOTH,
        source="v1/spec_decode/ngram_proposer_gpu.py:340",
        limits=(Limit("pinned memory, which a CPU build has not", "v1/worker/gpu_model_runner.py:629-632"),),
    ),
    Method(
        name="suffix",
        what="copies from suffix trees of the prompt and of all earlier answers",
        draft=Draft.NONE,
        k=K(
            "suffix_decoding_max_tree_depth", most=MAX_K, note="an upper limit; each step drafts as it likes"
        ),
        span=Span("0.11.1"),
        needs=("arctic-inference==0.1.1",),
        runners=("V1",),
        learns=True,
        source="speculative.py:1596-1626",
        limits=(Limit("no schedule: K must be the configured one", "v1/spec_decode/suffix_decoding.py:43"),),
    ),
    Method(
        name="eagle",
        what="an EAGLE head on the target's hidden states",
        draft=Draft.REQUIRED,
        k=_K,
        runners=_BOTH,
        dynamic_k=True,
        source="v1/spec_decode/eagle.py",
        limits=(_TARGET_CLASS,),
    ),
    Method(
        name="eagle3",
        what="an EAGLE-3 head on three layers of the target",
        draft=Draft.REQUIRED,
        k=_K,
        span=Span("0.8.5"),
        runners=_BOTH,
        dynamic_k=True,
        source="v1/spec_decode/llm_base_proposer.py:536-549",
        limits=(_TARGET_CLASS,),
    ),
    Method(
        name="mtp",
        what="the target's own multi-token-prediction layers draft (DeepSeek V3 only)",
        draft=Draft.BUNDLED,
        k=K("the checkpoint's number of MTP layers", most=MAX_K),
        span=Span("0.7.3", "0.9.0"),
        aliases=(Alias(name="deepseek_mtp"),),
        unnamed=True,
        source="config.py (0.7.3: hf_config_override)",
        limits=(Limit("before 0.8.3: K at most the number of MTP layers", "config.py (0.7.3)"), _DIVISIBLE),
    ),
    *(
        Method(
            name=family,
            what="the target's own multi-token-prediction layers draft",
            draft=Draft.BUNDLED,
            k=K("the checkpoint's number of MTP layers", most=MAX_K),
            span=Span(since, "0.11.0"),
            source="config.py, config/__init__.py (0.9.2, 0.10.2)",
            limits=(_DIVISIBLE,),
        )
        for family, since in _MTP_FAMILIES.items()
        if since in ("0.9.0", "0.10.2")
    ),
    Method(
        name="mtp",
        what="the target's own multi-token-prediction layers draft",
        draft=Draft.BUNDLED,
        k=K("the checkpoint's number of MTP layers", most=MAX_K),
        span=Span("0.11.0"),
        aliases=tuple(
            Alias(name=family, span=Span(since), mend="write mtp") for family, since in _MTP_FAMILIES.items()
        ),
        runners=_BOTH,
        dynamic_k=True,
        source="speculative.py:38-67,1141-1145",
        limits=(_DIVISIBLE,),
    ),
    Method(
        name="medusa",
        what="Medusa heads on the target's last hidden state, one per position",
        draft=Draft.REQUIRED,
        k=_K,
        runners=("V1",),
        source="v1/spec_decode/medusa.py",
        limits=(
            Limit("K at most the checkpoint's number of heads", "transformers_utils/configs/medusa.py"),
            Limit("no schedule: K must be the configured one", "v1/spec_decode/medusa.py:47"),
        ),
    ),
    Method(
        name="dflash",
        what="a block-diffusion draft that proposes all K tokens at once",
        draft=Draft.REQUIRED,
        k=_K,
        span=Span("0.20.0"),
        runners=_BOTH,
        dynamic_k=True,
        source="speculative.py:1468",
        limits=(
            Limit("needs an attention backend without causal mask", "speculative.py: attention_backend"),
        ),
    ),
    Method(
        name="dspark",
        what="a semi-autoregressive draft with confidence-sized verification",
        draft=Draft.BUNDLED,
        k=K("the head's block size", most=MAX_K),
        span=Span("0.25.0"),
        devices=("cuda", "rocm", "xpu"),
        runners=("V2",),
        dynamic_k=True,
        source="config/vllm.py:3202",
        limits=(Limit("model runner V2 only, which needs Triton", "config/vllm.py:703-739,3202"),),
    ),
    Method(
        name="custom_class",
        what="a proposer class of your own, package.module.Class",
        draft=Draft.CLASS,
        k=_K,
        span=Span("0.22.0"),
        runners=("V1",),
        dynamic_k=True,
        source="v1/spec_decode/custom_class_proposer.py",
        limits=(
            Limit("on a CPU the class needs a load_model method", "v1/worker/cpu_model_runner.py:74-76"),
            Limit("the class is not told K", "v1/worker/gpu_model_runner.py:4778-4786"),
        ),
    ),
    Method(
        name="mlp_speculator",
        what="an MLP on the target's hidden states",
        draft=Draft.REQUIRED,
        k=_K,
        span=_OLD,
        runners=("V0",),
        source="config.py (0.7.3, 0.8.5)",
        limits=(Limit("draft tensor parallelism 1", "config.py (0.7.3)"),),
    ),
    Method(
        name="mlp_speculator",
        what="an MLP on the target's hidden states",
        draft=Draft.REQUIRED,
        span=Span("0.10.0"),
        dead="vLLM still knows the name but cannot run it any more",
        source="model_executor/models/registry.py:706; v1/worker/gpu_model_runner.py:603-662",
    ),
    Method(
        name="extract_hidden_states",
        what="writes hidden states out",
        draft=Draft.NONE,
        k=K(most=1),
        span=Span("0.17.0"),
        runners=_BOTH,
        dead="it writes hidden states out and makes nothing faster",
        source="v1/spec_decode/extract_hidden_states.py:32-41",
    ),
)

_LEGACY: Final = Span(None, JSON_SINCE)
_UNDER_ARMS: Final = "describe the arm under `arms`; specbench writes the flags of your version"

_FLAGS: Final = (
    Flag(name="speculative-config", span=Span("0.8.2"), hint=_UNDER_ARMS, source="#14434"),
    *(
        Flag(
            name=name, span=_LEGACY, hint=_UNDER_ARMS, source="engine/arg_utils.py (0.7.3); removed by #15466"
        )
        for name in (
            "speculative-model",
            "num-speculative-tokens",
            *(setting.flag for setting in SETTINGS if setting.flag),
        )
    ),
    Flag(name="sc", span=Span("0.19.0"), hint=_UNDER_ARMS, source="engine/arg_utils.py (0.19.1)"),
    *(
        Flag(name=name, span=Span("0.22.0"), hint=_UNDER_ARMS, source="engine/arg_utils.py:1826-1835; #46426")
        for name in ("spec-method", "spec-model", "spec-tokens")
    ),
    Flag(
        name=PER_REQUEST_METRICS,
        span=Span("0.29.0"),
        hint="remove it: specbench passes it to the speculative arms of versions that have it",
        source="engine/arg_utils.py (0.29.0; not in 0.28.0); config/vllm.py:1659-1666; #48915",
    ),
    Flag(
        name="generation-config",
        span=Span("0.8.0"),
        hint="older versions have no model defaults unless asked for them",
        source="engine/arg_utils.py:991 (0.7.3: a folder only)",
    ),
)

_NEVER: Final = (
    Never(
        "report_speculative_metrics",
        "remove it: acceptance is always counted, on the metrics page",
        "in no version of vLLM's source",
    ),
    Never(
        "adaptive_verification",
        "use enable_adaptive_verification",
        "in no release (vllm-metal#463); speculative.py (0.28.0) has the longer name",
    ),
    Never("spec_decoding_acceptance_method", METHOD_KEY, "a flag until 0.8.3, never a key"),
    Never(
        "tensor_parallel_size", "use draft_tensor_parallel_size", "speculative.py:410,1813: always an error"
    ),
    Never("ngram_prompt_lookup_min", "use prompt_lookup_min", "a flag until 0.8.3, never a key"),
    Never("ngram_prompt_lookup_max", "use prompt_lookup_max", "a flag until 0.8.3, never a key"),
    Never("draft_model", "write it as the arm's `draft`", "the key is model"),
    Never("num_spec_tokens", "write it as the arm's `k`", "the key is num_speculative_tokens"),
)

TABLE: Final = Table(
    engine="vllm",
    newest="0.32.0",
    methods=_METHODS,
    settings=SETTINGS,
    flags=_FLAGS,
    never=_NEVER,
    owned={
        "method": "write it as the arm's `method`",
        "model": "write it as the arm's `draft`",
        "num_speculative_tokens": "write it as the arm's `k`",
    },
)
