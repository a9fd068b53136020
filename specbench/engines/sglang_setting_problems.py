"""What SGLang would refuse, change or ignore among an arm's settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from specbench.engines.base import Problem
from specbench.engines.capabilities.schema import Capabilities, Kind, Method, Setting, near
from specbench.engines.sglang_mode_problems import adaptive_problems, decoupled_problems
from specbench.engines.sglang_speculation import TREE, setting_name, tree_numbers

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
    later = next((row.span for row in known.setting_history(raw) if row.span.since), None)
    if later is not None:
        return Problem(
            key, f"SGLang {known.version_text} does not have {raw} yet", f"{later}: upgrade, or remove it"
        )
    hint = near(setting_name(raw), [setting.name for setting in known.settings])
    return Problem(
        key,
        f"SGLang {known.version_text} has no speculative setting {raw!r}",
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
            least = f"{low:g}" if low is not None else "anything"
            allowed = f"{least} or more" if high is None else f"{least} to {high:g}"
            yield Problem(key, f"{value} is out of range", f"use {allowed}")


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
    for name in ("use_rejection_sampling", "use_block_verification"):
        if lossy and settings.get(name) is True:
            yield Problem(
                f"{where}.settings.{name}",
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
    branches = numbers.get("eagle_topk", 1)
    sampling = [n for n in ("use_rejection_sampling", "use_block_verification") if settings.get(n) is True]
    if method.engine_name in ("EAGLE", "EAGLE3") and sampling and branches != 1:
        yield Problem(key + sampling[0], "SGLang has it for chains only (eagle_topk 1)", "use `k`")
    if method.engine_name in ("EAGLE", "EAGLE3"):
        yield from adaptive_problems(arm, settings, numbers, where)
    yield from decoupled_problems(settings, where)
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
