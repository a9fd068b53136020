"""What SGLang would refuse or change in an arm's K, or in the numbers of a tree or a block in its place.

Rules are those of ``arg_groups/speculative_hook.py`` of SGLang 0.5.23.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from specbench.engines.base import Problem
from specbench.engines.sglang_speculation import NGRAM, TREE, drafts_chains, setting_name, tree_numbers

if TYPE_CHECKING:
    from specbench.config.grid import Arm
    from specbench.engines.capabilities.schema import Capabilities, Method

BLOCKS: Final = {"DFLASH": "dflash_block_size", "DSPARK": "dspark_block_size"}
"""Algorithms whose draft proposes a whole block, and the setting of its size."""

UNO_NODES: Final = 128
UNO_SLOTS: Final = 2048


def tree_problems(arm: Arm, method: Method, where: str, known: Capabilities) -> Iterator[Problem]:
    """K, and the numbers that may stand in its place."""
    own = {setting_name(name): v for name, v in arm.settings.items() if v is not None}
    given = [name for name in TREE if name in own]
    if arm.k is not None and arm.k < method.k.least:
        yield Problem(f"{where}.k", f"K is {arm.k}", f"use at least {method.k.least}")
    if drafts_chains(method, known):
        yield from _chain_problems(arm, own, given, where)
    elif arm.k is not None and "num_draft_tokens" in given:
        yield _k_unused(where, "num_draft_tokens")
    if method.engine_name == NGRAM and {"num_steps", "eagle_topk"} & set(given):
        yield Problem(
            f"{where}.settings.{next(n for n in given if n != 'num_draft_tokens')}",
            "ngram takes its breadth from ngram_max_bfs_breadth and ignores this",
            "remove it",
            fatal=False,
        )
    if method.engine_name in BLOCKS:
        yield from _block_problems(arm, method, own, where)
    if method.engine_name == "UNO":
        yield from _uno_problems(own, tree_numbers(arm, method, known), where)


def _chain_problems(arm: Arm, own: Mapping[str, Any], given: Sequence[str], where: str) -> Iterator[Problem]:
    whole = len(given) == len(TREE)
    if arm.k is not None and whole:
        yield _k_unused(where, "the three tree settings")
    elif arm.k is not None and given and not (given == ["eagle_topk"] and own["eagle_topk"] == 1):
        yield Problem(
            f"{where}.settings.{given[0]}",
            f"k is a chain of {arm.k}; a tree needs {', '.join(TREE)}",
            f"give all three, or remove {' and '.join(given)}",
        )
    elif arm.k is None and given and not whole:
        missing = ", ".join(name for name in TREE if name not in given)
        yield Problem(
            f"{where}.settings.{given[0]}",
            f"a tree needs its three numbers; {missing} is missing",
            "give num_steps, eagle_topk and num_draft_tokens together, or `k` for a chain",
        )
    elif arm.k is None and not given and not own.get("adaptive"):
        yield Problem(
            f"{where}.k",
            "there is no K: SGLang chooses steps, branches and draft tokens by the target's architecture",
            "add `k: 3`, for example, to know what is measured",
            fatal=False,
        )
    if whole:
        steps, topk, nodes = (own[name] for name in TREE)
        if all(isinstance(n, int) for n in (steps, topk, nodes)) and topk == 1 and nodes != steps + 1:
            yield Problem(
                f"{where}.settings.num_draft_tokens",
                f"with eagle_topk 1 SGLang changes {nodes} to num_steps + 1 = {steps + 1}",
                f"write {steps + 1}, or `k: {steps}`",
                fatal=False,
            )


def _k_unused(where: str, instead: str) -> Problem:
    return Problem(f"{where}.k", f"{instead} take the place of k", "remove k", fatal=False)


def _block_problems(arm: Arm, method: Method, own: Mapping[str, Any], where: str) -> Iterator[Problem]:
    """DFLASH verifies the tokens of a block; DSPARK those and the token before them."""
    setting = BLOCKS[method.engine_name]
    key = f"{where}.settings."
    for name in ("num_steps", "eagle_topk"):
        if own.get(name, 1) != 1:
            yield Problem(key + name, f"SGLang changes it to 1 for {arm.method}", "remove it", fatal=False)
    block, verified = own.get(setting), own.get("num_draft_tokens")
    if block is not None and arm.k is not None:
        yield Problem(key + setting, "k says the same", "give one of the two")
    elif isinstance(block, int):
        if block < 1:
            yield Problem(key + setting, f"{block} is no size of a block", "use 1 or more")
        fits = block + (method.engine_name == "DSPARK")
        if verified is not None and verified != fits:
            yield Problem(
                key + "num_draft_tokens",
                f"a block of {block} is {fits} draft tokens to SGLang, not {verified}",
                f"remove it, or write {fits}",
            )
    elif method.engine_name == "DSPARK" and isinstance(verified, int) and verified < 2:
        yield Problem(
            key + "num_draft_tokens", "dspark verifies a block and the token before it", "use 2 or more"
        )
    window = own.get("draft_window_size")
    size = block or (arm.k + 1 if arm.k is not None else verified)
    if method.engine_name == "DFLASH" and isinstance(window, int) and isinstance(size, int) and window < size:
        yield Problem(
            key + "draft_window_size",
            f"a window of {window} is smaller than the block of {size}",
            f"use {size} or more",
        )


def _uno_problems(own: Mapping[str, Any], numbers: Mapping[str, Any], where: str) -> Iterator[Problem]:
    """UNO drafts a line of num_draft_tokens, or with eagle_topk above 1 a tree of that many nodes."""
    nodes, topk, steps = numbers.get("num_draft_tokens"), own.get("eagle_topk", 1), own.get("num_steps")
    key = f"{where}.settings."
    if nodes is None:
        yield Problem(f"{where}.k", "uno needs the number of draft tokens", "add `k: 3`, for example")
    if not isinstance(topk, int) or topk == 1:
        if steps not in (None, 1):
            yield Problem(
                key + "num_steps", "SGLang changes it to 1 without a tree", "remove it", fatal=False
            )
        return
    if not isinstance(steps, int) or steps < 1:
        yield Problem(key + "eagle_topk", "a tree of uno needs its depth", "add num_steps, 1 or more")
        return
    if not isinstance(nodes, int):
        return
    capacity = sum(topk**depth for depth in range(min(steps, 12) + 1))
    least, most = steps + 1, min(UNO_NODES, UNO_SLOTS // topk, capacity, topk * max(steps - 1, 0) + 2)
    if not least <= nodes <= most:
        yield Problem(
            key + "num_draft_tokens" if "num_draft_tokens" in own else f"{where}.k",
            f"uno builds no tree of {nodes} nodes with num_steps {steps} and eagle_topk {topk}",
            f"use {least} to {most} draft tokens"
            if least <= most
            else "use fewer steps or branches: no number of draft tokens fits",
        )
    if any(own.get(name, 1.0) != 1.0 for name in ("accept_threshold_single", "accept_threshold_acc")):
        yield Problem(key + "eagle_topk", "a tree of uno takes no accept thresholds", "remove the thresholds")
