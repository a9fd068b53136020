"""How an arm is written on SGLang's command line, and what K means there.

K is the number of draft tokens that a verify step can accept for every method that drafts a chain:
``k: 3`` is ``num_steps`` 3, ``eagle_topk`` 1 and ``num_draft_tokens`` 4, because SGLang counts the token that
the step starts from as well. NGRAM drafts a tree whose size alone is given: there K is ``num_draft_tokens``
itself, the nodes of the tree with its root, so that a step accepts at most K - 1 of them.
A tree of an EAGLE head has three numbers; they are settings and take the place of K.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from specbench.engines.capabilities.schema import Draft, plain
from specbench.engines.flags import render_args

if TYPE_CHECKING:
    from specbench.config.grid import Arm
    from specbench.config.model import ArgValue
    from specbench.engines.capabilities.schema import Capabilities, Method

TREE: Final[tuple[str, ...]] = ("num_steps", "eagle_topk", "num_draft_tokens")
"""The three numbers of a tree: depth, branches per node, nodes verified per step (the root included)."""

NGRAM: Final = "NGRAM"

_K_OF_CHAINS: Final = "K draft tokens per step; SGLang is told K + 1, because it counts the last known token"
_K_OF_NGRAM: Final = "K nodes of the n-gram tree per step, its root included: at most K - 1 are accepted"

BUNDLED_ARCHITECTURES: Final = frozenset(
    {
        *("DeepseekV32ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV4ForCausalLM"),
        *("Glm4MoeForCausalLM", "Glm4MoeLiteForCausalLM", "GlmMoeDsaForCausalLM"),
        *("BailingMoeForCausalLM", "BailingMoeV2ForCausalLM", "BailingMoeV2_5ForCausalLM"),
        *("MistralLarge3ForCausalLM", "PixtralForConditionalGeneration"),
        *("HYV3ForCausalLM", "HYV4ForCausalLM", "Qwen4ExpForConditionalGeneration"),
    }
)
"""Targets whose checkpoint holds draft layers that SGLang's EAGLE finds by itself."""

ADAPTIVE_STEPS: Final = (0, 1, 3, 5, 7)
"""Numbers of steps that adaptive speculation chooses from without a file of its own."""


def k_meaning(algorithm: str) -> str:
    """What K is to one of SGLang's algorithms, for people."""
    return _K_OF_NGRAM if algorithm == NGRAM else _K_OF_CHAINS


def speculation_words(arm: Arm, known: Capabilities) -> tuple[str, ...]:
    """The words that turn speculation on; none for the baseline.

    A method that SGLang does not have is passed on as it stands, for `problems` to refuse.
    """
    if not arm.speculates:
        return ()
    method = known.method(arm.method)
    args: dict[str, ArgValue] = {
        "speculative-algorithm": method.engine_name if method else (arm.method or "").upper()
    }
    if arm.draft is not None and (method is None or method.draft is not Draft.NONE):
        args["speculative-draft-model-path"] = arm.draft
    numbers = tree_numbers(arm, method, known) if method else {}
    args |= {flag_of(name, known): numbers[name] for name in TREE if name in numbers}
    for raw, value in arm.settings.items():
        name = setting_name(raw)
        if name not in TREE:
            # SGLang reads a list as one word of JSON.
            args[flag_of(name, known)] = json.dumps(value) if isinstance(value, list) else value
    return tuple(render_args(args))


def setting_name(name: str) -> str:
    """A setting's name as the tables spell it: underscores, without ``speculative_``."""
    return plain(name).removeprefix("speculative_")


def flag_of(setting: str, known: Capabilities) -> str:
    """The flag of a setting, without its leading dashes."""
    row = known.setting(setting)
    return row.flag if row is not None and row.flag else f"speculative-{setting}".replace("_", "-")


def drafts_chains(method: Method, known: Capabilities) -> bool:
    """Whether all three numbers of a tree are the method's, so that a chain of K is one of its trees."""
    depth = known.setting("num_steps")
    return depth is not None and method.name in depth.methods


def tree_numbers(arm: Arm, method: Method, known: Capabilities) -> dict[str, ArgValue]:
    """The tree flags of an arm, by setting name: its own settings, else what its K stands for."""
    named = {setting_name(name): value for name, value in arm.settings.items() if value is not None}
    own: dict[str, ArgValue] = {name: named[name] for name in TREE if name in named}
    if arm.k is None or "num_draft_tokens" in own:
        return own
    if method.engine_name == NGRAM:
        return {**own, "num_draft_tokens": arm.k}
    if drafts_chains(method, known):
        return {"num_steps": arm.k, "eagle_topk": 1, "num_draft_tokens": arm.k + 1}
    return {**own, "num_draft_tokens": arm.k + 1}
