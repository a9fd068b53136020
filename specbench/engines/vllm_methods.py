"""What vLLM 0.32 accepts as speculation: methods and the keys of ``--speculative-config``."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Method:
    """One speculative method.

    Attributes:
        draft: whether a draft model is ``required``, ``optional`` or ``none``.
        needs_k: whether K must be given; the others have their own default.
        flexible_k: whether a step may draft fewer than K tokens on request (schedules need that).
        refused: why a sweep cannot use it; empty when it can.
    """

    draft: str = "required"
    needs_k: bool = True
    flexible_k: bool = True
    refused: str = ""


_MTP: Final = Method(draft="optional")

METHODS: Final[dict[str, Method]] = {
    "draft_model": Method(),
    "ngram": Method(draft="none"),
    "ngram_gpu": Method(draft="none", flexible_k=False),
    "suffix": Method(draft="none", needs_k=False, flexible_k=False),
    "eagle": Method(),
    "eagle3": Method(),
    "medusa": Method(flexible_k=False),
    "mtp": _MTP,
    "dflash": Method(),
    "dspark": Method(draft="optional", needs_k=False),
    "custom_class": Method(),
    "mlp_speculator": Method(refused="vLLM still knows the name but cannot run it any more"),
    "extract_hidden_states": Method(refused="it writes hidden states out and makes nothing faster"),
}

OLD_MTP_NAMES: Final = frozenset(
    f"{family}_mtp"
    for family in (
        *("deepseek", "dots3_note", "mimo", "mimo_v2", "glm4_moe", "glm4_moe_lite", "glm_ocr", "ernie"),
        *("nemotron_h", "exaone_moe", "exaone4_5", "qwen3_next", "qwen4_exp", "qwen3_5", "longcat_flash"),
        *("bailing_hybrid_v3", "minimax_m3", "bailing_hybrid", "kimi_k3", "pangu_ultra_moe", "step3p5"),
        *("hy_v3", "hy_v4", "gemma4", "inkling", "glm5_next"),
    )
)
"""Names of one model family each; vLLM reads all of them as ``mtp``."""

SHARED_SETTINGS: Final = frozenset(
    {
        *("draft_tensor_parallel_size", "quantization", "revision", "code_revision", "max_model_len"),
        *("attention_backend", "moe_backend", "kv_cache_dtype", "draft_load_config", "enforce_eager"),
        *("disable_padded_drafter_batch", "disable_eagle_block_drop", "use_local_argmax_reduction"),
        *("use_heterogeneous_vocab", "parallel_drafting", "num_speculative_tokens_per_batch_size"),
        *("rejection_sample_method", "draft_sample_method", "enable_adaptive_verification"),
        *("synthetic_acceptance_rates", "synthetic_acceptance_length", "index_share_for_mtp_iteration"),
    }
)

METHOD_SETTINGS: Final[dict[str, frozenset[str]]] = {
    "prompt_lookup_min": frozenset({"ngram", "ngram_gpu"}),
    "prompt_lookup_max": frozenset({"ngram", "ngram_gpu"}),
    "suffix_decoding_max_tree_depth": frozenset({"suffix"}),
    "suffix_decoding_max_cached_requests": frozenset({"suffix"}),
    "suffix_decoding_max_spec_factor": frozenset({"suffix"}),
    "suffix_decoding_min_token_prob": frozenset({"suffix"}),
    "dspark_draft_topk": frozenset({"dspark"}),
}
"""Settings that only some methods read; the others accept and ignore them."""

SETTINGS: Final = SHARED_SETTINGS | METHOD_SETTINGS.keys()

OWN_KEYS: Final = {
    "method": "write it as the arm's `method`",
    "model": "write it as the arm's `draft`",
    "num_speculative_tokens": "write it as the arm's `k`",
}
"""Keys of the JSON that specbench writes itself."""

REMOVED: Final = {
    "disable_by_batch_size": "use num_speculative_tokens_per_batch_size with K = 0, "
    "such as [[1, 8, 4], [9, 512, 0]]",
    "acceptance_method": "use rejection_sample_method (standard, block or synthetic)",
    "spec_decoding_acceptance_method": "use rejection_sample_method (standard, block or synthetic)",
    "posterior_threshold": "remove it: typical acceptance no longer exists",
    "posterior_alpha": "remove it: typical acceptance no longer exists",
    "disable_mqa_scorer": "remove it: there is only one scorer",
    "disable_logprobs": "remove it: logprobs cost nothing unless a request asks for them",
    "adaptive_verification": "use enable_adaptive_verification",
    "synthetic_acceptance_rate": "use synthetic_acceptance_rates (a list) or synthetic_acceptance_length",
    "tensor_parallel_size": "use draft_tensor_parallel_size",
    "ngram_prompt_lookup_min": "use prompt_lookup_min",
    "ngram_prompt_lookup_max": "use prompt_lookup_max",
    "draft_model": "write it as the arm's `draft`",
    "num_spec_tokens": "write it as the arm's `k`",
}
"""Keys of earlier versions, and what to do instead."""

MAX_K: Final = 128
"""vLLM's rejection sampler asserts that no request has more draft tokens in a step."""


def near(word: str, known: Iterable[str]) -> str:
    """A ``did you mean`` hint, or nothing."""
    found = difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return f"did you mean {found[0]!r}?" if found else ""
