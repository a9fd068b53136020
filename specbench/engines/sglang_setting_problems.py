"""What SGLang would refuse, change or ignore among an arm's K and settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from specbench.engines.base import Problem
from specbench.engines.capabilities.schema import Capabilities, Kind, Method, Setting, near
from specbench.engines.sglang_speculation import (
    ADAPTIVE_STEPS,
    NGRAM,
    TREE,
    drafts_chains,
    setting_name,
    tree_numbers,
)

if TYPE_CHECKING:
    from specbench.config.grid import Arm
    from specbench.config.model import ArgValue

THRESHOLDS: Final = ("accept_threshold_single", "accept_threshold_acc")
"""Settings that make sampled output another one than the target's when they are below 1."""

_TYPES: Final[dict[Kind, tuple[type, ...]]] = {
    Kind.INTEGER: (int,),
    Kind.NUMBER: (int, float),
    Kind.FLAG: (bool,),
    Kind.CHOICE: (str,),
}


def tree_problems(arm: Arm, method: Method, where: str, known: Capabilities) -> Iterator[Problem]:
    """K, and the three numbers that may stand in its place."""
    own = {setting_name(name): v for name, v in arm.settings.items() if v is not None}
    given = [name for name in TREE if name in own]
    if arm.k is not None and arm.k < method.k.least:
        yield Problem(f"{where}.k", f"K is {arm.k}", f"use at least {method.k.least}")
    if drafts_chains(method, known):
        yield from _chain_problems(arm, own, given, where)
    elif arm.k is not None and "num_draft_tokens" in given:
        yield _k_unused(where, "num_draft_tokens")
    if method.engine_name == "UNO" and "num_draft_tokens" not in tree_numbers(arm, method, known):
        yield Problem(f"{where}.k", "uno needs the number of draft tokens", "add `k: 3`, for example")
    if method.engine_name == NGRAM and {"num_steps", "eagle_topk"} & set(given):
        yield Problem(
            f"{where}.settings.{next(n for n in given if n != 'num_draft_tokens')}",
            "ngram takes its breadth from ngram_max_bfs_breadth and ignores this",
            "remove it",
            fatal=False,
        )
    for name, block in (("dflash_block_size", "DFLASH"), ("dspark_block_size", "DSPARK")):
        if method.engine_name == block and name in own and arm.k is not None:
            yield Problem(f"{where}.settings.{name}", "k says the same", "give one of the two")


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


def setting_problems(arm: Arm, method: Method, where: str, known: Capabilities) -> Iterator[Problem]:
    """Names, values and combinations of an arm's settings."""
    settings: dict[str, Any] = {}
    for raw, value in arm.settings.items():
        if value is not None:
            settings[setting_name(raw)] = value
            yield from _setting(raw, value, arm, method, f"{where}.settings.{raw}", known)
    yield from _threshold_problems(settings, where)
    yield from _combination_problems(arm, method, settings, where, known)


def _setting(
    raw: str, value: ArgValue, arm: Arm, method: Method, key: str, known: Capabilities
) -> Iterator[Problem]:
    name = setting_name(raw)
    if name in known.table.owned:
        yield Problem(key, f"{raw} is a field of the arm itself", known.table.owned[name])
        return
    setting = known.setting(name)
    if setting is None:
        yield _unknown(raw, key, known)
    elif setting.methods and method.name not in setting.methods and name not in TREE:
        yield Problem(key, f"{arm.method} ignores {raw}", "remove it", fatal=False)
    else:
        yield from _value(setting, value, key)


def _unknown(raw: str, key: str, known: Capabilities) -> Problem:
    """A typing error is fatal; a name like no other may be of a version that is not known here."""
    gone = known.hint(raw)
    if gone:
        return Problem(key, f"SGLang no longer has {raw}", gone)
    hint = near(setting_name(raw), [setting.name for setting in known.settings])
    return Problem(
        key,
        f"SGLang {known.table.newest} has no speculative setting {raw!r}",
        hint or "check it against `python -m sglang.launch_server --help` of your version",
        fatal=bool(hint),
    )


def _value(setting: Setting, value: ArgValue, key: str) -> Iterator[Problem]:
    types = _TYPES.get(setting.kind)
    if types and (not isinstance(value, types) or (isinstance(value, bool) and bool not in types)):
        yield Problem(key, f"{value!r} is not of the kind that SGLang takes", f"write a {setting.kind}")
    elif setting.choices and value not in setting.choices:
        yield Problem(key, f"SGLang has no {value!r} here", f"use one of {', '.join(setting.choices)}")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        low, high = setting.low, setting.high
        if (low is not None and value < low) or (high is not None and value > high):
            yield Problem(key, f"{value} is out of range", f"use {low:g} to {high:g}")


def _threshold_problems(settings: Mapping[str, Any], where: str) -> Iterator[Problem]:
    lossy = False
    for name in THRESHOLDS:
        value = settings.get(name)
        if not isinstance(value, int | float) or value >= 1:
            continue
        lossy = True
        yield Problem(
            f"{where}.settings.{name}",
            "lossy by configuration: below 1 drafts are accepted that the target would not have drawn "
            "(greedy requests are not affected)",
            "use 1.0 for an output that is the target's",
            fatal=False,
        )
    if lossy and settings.get("use_rejection_sampling") is True:
        yield Problem(
            f"{where}.settings.use_rejection_sampling",
            "SGLang refuses it together with accept thresholds below 1",
            "remove one of the two",
        )


def _combination_problems(
    arm: Arm, method: Method, settings: Mapping[str, Any], where: str, known: Capabilities
) -> Iterator[Problem]:
    key = f"{where}.settings."
    if settings.get("use_rejection_sampling") is True and method.engine_name not in ("EAGLE", "EAGLE3"):
        yield Problem(
            key + "use_rejection_sampling",
            f"SGLang has it for eagle and eagle3, not {arm.method}",
            "remove it",
        )
    if settings.get("use_block_verification") is True and method.engine_name not in (
        *("EAGLE", "EAGLE3"),
        *("DFLASH", "DSPARK"),
    ):
        yield Problem(
            key + "use_block_verification", f"SGLang does not have it for {arm.method}", "remove it"
        )
    if "draft_sink_size" in settings and "draft_window_size" not in settings:
        yield Problem(key + "draft_sink_size", "a sink needs a window", "add draft_window_size")
    if method.engine_name == "UNO" and "uno_lora_path" not in settings:
        yield Problem(f"{where}.settings", "uno needs its LoRA checkpoint", "add uno_lora_path")
    numbers = tree_numbers(arm, method, known)
    if settings.get("adaptive") is True and method.engine_name in ("EAGLE", "EAGLE3"):
        if numbers.get("eagle_topk", 1) != 1:
            yield Problem(
                key + "adaptive",
                "SGLang switches it off for trees (eagle_topk above 1)",
                "use `k`",
                fatal=False,
            )
        steps = numbers.get("num_steps")
        if steps is not None and steps not in ADAPTIVE_STEPS and "adaptive_config" not in settings:
            yield Problem(
                f"{where}.k" if arm.k is not None else key + "num_steps",
                f"adaptive speculation starts from one of its own numbers of steps, not from {steps}",
                f"use one of {', '.join(map(str, ADAPTIVE_STEPS[1:]))}, or add adaptive_config",
            )
    budget, nodes = settings.get("ngram_external_sam_budget"), numbers.get("num_draft_tokens", 12)
    if "ngram_external_corpus_path" in settings and not budget:
        yield Problem(
            key + "ngram_external_corpus_path", "a corpus needs a budget", "add ngram_external_sam_budget"
        )
    if isinstance(budget, int) and isinstance(nodes, int) and budget > nodes - 1:
        yield Problem(
            key + "ngram_external_sam_budget",
            f"{budget} does not fit a tree of {nodes} nodes with its root",
            f"use at most {nodes - 1}",
        )
