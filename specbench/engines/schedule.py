"""K by the number of running requests: which engines and versions can, and how it is written for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from specbench.engines.capabilities import capabilities
from specbench.engines.capabilities.vllm_settings import SETTINGS as VLLM_SETTINGS
from specbench.engines.vllm_dialect import speculation_flags
from specbench.engines.vllm_setting_problems import SCHEDULE
from specbench.engines.vllm_speculation import speculation_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specbench.config.grid import Arm

SIMULATED_METHODS: Final = ("draft_model", "ngram")
"""Of the simulated engine; its suffix decoding asserts K, as vLLM's does."""


def schedule_problem(kind: str, version: str, method: str | None) -> str | None:
    """Why an engine cannot draft another K at another load; null when it can."""
    if kind == "vllm":
        known = capabilities("vllm", version)
        if known.setting(SCHEDULE) is None:
            since = next(s.span.since for s in VLLM_SETTINGS if s.name == SCHEDULE)
            return f"vLLM {version} has no {SCHEDULE}: that came with {since}"
        found = known.method(method)
        if found is None or not found.dynamic_k:
            return f"vLLM's {method} always drafts K tokens and would crash with {SCHEDULE}"
        return None
    if kind == "simulated":
        return (
            None if method in SIMULATED_METHODS else f"the simulated engine's {method} always drafts K tokens"
        )
    if kind == "sglang":
        return (
            "SGLang has no K by load; only its --speculative-adaptive (EAGLE and EAGLE3 with topk 1) changes K, by "
            "acceptance and not by load"
        )
    return f"specbench does not know how servers of kind {kind} are told K by load"


def schedule_settings(settings: dict[str, Any], ranges: Sequence[tuple[int, int, int]]) -> dict[str, Any]:
    """An arm's settings with K by load: (first, last, K) of running requests; the last range goes on."""
    return {**settings, SCHEDULE: [list(x) for x in ranges]}


def speculation_of(kind: str, version: str, arm: Arm) -> tuple[str, ...]:
    """The words that deploy an arm, on an engine that `schedule_problem` has nothing against."""
    return (
        speculation_flags(arm) if kind == "simulated" else speculation_words(arm, capabilities(kind, version))
    )
