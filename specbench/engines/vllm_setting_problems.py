"""What vLLM would refuse, or silently ignore, among the settings of an arm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from specbench.engines.base import Problem
from specbench.engines.capabilities.schema import Capabilities, Kind, Method, Setting, near
from specbench.engines.vllm_speculation import takes_json

if TYPE_CHECKING:
    from specbench.config.grid import Arm
    from specbench.config.model import ArgValue

SCHEDULE: Final = "num_speculative_tokens_per_batch_size"
_TYPES: Final[dict[Kind, tuple[type, ...]]] = {
    Kind.INTEGER: (int,),
    Kind.NUMBER: (int, float),
    Kind.FLAG: (bool,),
    Kind.TEXT: (str,),
    Kind.CHOICE: (str,),
    Kind.NUMBERS: (list,),
    Kind.MAPPING: (dict,),
}


def setting_problems(
    arm: Arm, method: Method, where: str, known: Capabilities, *, v1: bool, cpu: bool
) -> Iterator[Problem]:
    """Names, values and combinations of an arm's settings; ``v1`` when model runner V1 is certain."""
    settings = {name.replace("-", "_"): value for name, value in arm.settings.items() if value is not None}
    for name, value in settings.items():
        yield from _setting(name, value, arm, method, f"{where}.settings.{name}", known)
    yield from _combinations(settings, method, where, known)
    yield from _verification(settings, arm, method, where, known, v1=v1, cpu=cpu)
    schedule = settings.get(SCHEDULE)
    if schedule is not None and known.setting(SCHEDULE) is not None:
        yield from _schedule(schedule, arm, method, f"{where}.settings.{SCHEDULE}")


def _setting(
    name: str, value: ArgValue, arm: Arm, method: Method, key: str, known: Capabilities
) -> Iterator[Problem]:
    if name in known.table.owned:
        yield Problem(key, f"{name} is a field of the arm itself", known.table.owned[name])
        return
    setting = known.setting(name)
    if setting is None:
        yield _unknown(name, key, known)
        return
    if setting.ignored:
        yield Problem(key, f"{name}: {setting.ignored}", setting.hint, fatal=False)
        return
    if setting.methods and method.name not in setting.methods:
        does = "vLLM refuses" if setting.strict else f"{arm.method} ignores"
        only = f", which is for {' and '.join(setting.methods)}" if setting.strict else ""
        yield Problem(key, f"{does} {name}{only}", "remove it", fatal=setting.strict)
    yield from _value(setting, value, key, known)


def _unknown(name: str, key: str, known: Capabilities) -> Problem:
    hint = known.hint(name)
    rows = known.setting_history(name)
    if hint:
        return Problem(key, f"vLLM {'no longer has' if rows else 'has no setting'} {name}", hint)
    if rows:
        return Problem(
            key, f"this vLLM has no {name} yet; vLLM has it {rows[-1].span}", "remove it, or upgrade"
        )
    names = [setting.name for setting in known.settings]
    mend = near(name, names) or "remove it, or correct its name"
    return Problem(key, f"vLLM has no speculative setting {name!r}", mend)


def _value(setting: Setting, value: ArgValue, key: str, known: Capabilities) -> Iterator[Problem]:
    types = _TYPES.get(setting.kind)
    if types and (not isinstance(value, types) or (isinstance(value, bool) and bool not in types)):
        yield Problem(key, f"{value!r} is not of the kind that vLLM takes", f"write a {setting.kind}")
        return
    if setting.choices and value not in setting.choices:
        once = any(value in row.choices for row in known.setting_history(setting.name))
        use = f"use one of {', '.join(setting.choices)}"
        older = any(
            value in row.choices and row.span.before(known.version)
            for row in known.setting_history(setting.name)
        )
        has = "no longer has" if older else "does not have" if not once else "does not have yet"
        yield Problem(key, f"this vLLM {has} {value!r}", f"{setting.hint}: {use}" if older else use)
    if isinstance(value, int | float) and not isinstance(value, bool):
        if setting.low is not None and value < setting.low:
            yield Problem(key, f"{value} is too small", f"use at least {setting.low:g}")
        if setting.high is not None and value > setting.high:
            yield Problem(key, f"{value} is too large", f"use at most {setting.high:g}")


def _combinations(
    settings: Mapping[str, ArgValue], method: Method, where: str, known: Capabilities
) -> Iterator[Problem]:
    low, high = settings.get("prompt_lookup_min"), settings.get("prompt_lookup_max")
    if isinstance(low, int) and isinstance(high, int) and low > high:
        yield Problem(
            f"{where}.settings.prompt_lookup_min",
            f"the shortest match ({low}) is longer than the longest ({high})",
            "make prompt_lookup_min at most prompt_lookup_max",
        )
    if method.name == "ngram" and high is None and not takes_json(known):
        yield Problem(
            f"{where}.settings.prompt_lookup_max",
            "vLLM before 0.8.3 has no default for the longest match",
            "add prompt_lookup_max: 4, for example",
        )
    if (
        settings.get("use_heterogeneous_vocab") is True
        and settings.get("draft_sample_method") == "probabilistic"
    ):
        yield Problem(
            f"{where}.settings.draft_sample_method",
            "a draft with another vocabulary can only be sampled greedily",
            "remove draft_sample_method",
        )
    if method.name == "draft_model" and settings.get("disable_padded_drafter_batch") is True:
        yield Problem(
            f"{where}.settings.disable_padded_drafter_batch", "draft_model cannot draft unpadded", "remove it"
        )


def _verification(
    settings: Mapping[str, ArgValue],
    arm: Arm,
    method: Method,
    where: str,
    known: Capabilities,
    *,
    v1: bool,
    cpu: bool,
) -> Iterator[Problem]:
    key = f"{where}.settings.rejection_sample_method"
    chosen = settings.get("rejection_sample_method")
    if chosen == "block" and v1:
        yield Problem(key, "model runner V1, which is used here, ignores block", "use standard", fatal=False)
    yield from _synthetic(settings, arm, method, where, known, cpu=cpu)
    for name, value in settings.items():
        setting = known.setting(name)
        if setting is not None and isinstance(value, str) and value in setting.lossy:
            yield Problem(
                f"{where}.settings.{name}",
                f"lossy by configuration: {value} accepts drafts that the target would not have written, so "
                "parity is not checked and the output is not the target's",
                "use it to find the break-even acceptance, not to decide",
                fatal=False,
            )


def _synthetic(
    settings: Mapping[str, ArgValue], arm: Arm, method: Method, where: str, known: Capabilities, *, cpu: bool
) -> Iterator[Problem]:
    key = f"{where}.settings.rejection_sample_method"
    given = [n for n in settings if n.startswith("synthetic_acceptance_") and known.setting(n) is not None]
    if settings.get("rejection_sample_method") != "synthetic":
        if given:
            yield Problem(
                key,
                "synthetic acceptance values need the synthetic method",
                "set rejection_sample_method: synthetic",
            )
        return
    ways = [s.name for s in known.settings if s.name.startswith("synthetic_acceptance_")]
    if len(given) != 1:
        yield Problem(
            key, f"synthetic acceptance needs exactly one of {' and '.join(ways)}", "give one of them"
        )
    if cpu:
        yield Problem(key, "synthetic acceptance does not work on CPUs", "use standard, or a GPU")
    if method.name in ("ngram", "ngram_gpu", "suffix"):
        yield Problem(
            key,
            f"{arm.method} drafts in some steps only: the others yield one token, whatever is asked for",
            "use a method with a draft for a break-even curve",
            fatal=False,
        )
    yield from _acceptance_values(settings, arm, where)


def _acceptance_values(settings: Mapping[str, ArgValue], arm: Arm, where: str) -> Iterator[Problem]:
    rates, length = settings.get("synthetic_acceptance_rates"), settings.get("synthetic_acceptance_length")
    key = f"{where}.settings.synthetic_acceptance_rates"
    if isinstance(rates, list):
        if arm.k is not None and len(rates) != arm.k:
            yield Problem(key, f"{len(rates)} rates for K = {arm.k}", "give K rates")
        numbers = [rate for rate in rates if isinstance(rate, int | float)]
        if len(numbers) != len(rates) or not all(0 <= rate <= 1 for rate in numbers):
            yield Problem(key, "a rate is a number from 0 to 1", "correct the list")
        elif sorted(numbers, reverse=True) != numbers:
            yield Problem(
                key,
                "rate i is the chance that the first i drafts are all accepted: it cannot rise",
                "order them",
            )
    if isinstance(length, int | float) and arm.k is not None and length > arm.k + 1:
        yield Problem(
            f"{where}.settings.synthetic_acceptance_length",
            f"{length:g} tokens per step are more than K + 1 = {arm.k + 1}",
            f"use 1 to {arm.k + 1}",
        )


def _schedule(schedule: ArgValue, arm: Arm, method: Method, key: str) -> Iterator[Problem]:
    if not method.dynamic_k:
        yield Problem(key, f"{arm.method} always drafts K tokens and would crash", "remove it")
    rows = schedule if isinstance(schedule, list) else []
    if not rows or not all(
        isinstance(row, list) and len(row) == 3 and all(type(number) is int for number in row) for row in rows
    ):
        yield Problem(
            key, "the schedule is a list of [from, to, K]", "write for example [[1, 8, 4], [9, 512, 0]]"
        )
        return
    end = 0
    for number, (first, last, k) in enumerate(rows):
        if number == 0 and first != 1:
            yield Problem(key, f"the first range starts at {first}", "start it at 1")
        elif first <= end:
            yield Problem(
                key, f"range {number + 1} starts at {first}, inside the one before", "order the ranges"
            )
        if last < first or k < 0:
            yield Problem(key, f"range [{first}, {last}, {k}] is not valid", "use from <= to and K >= 0")
        if arm.k is not None and k > arm.k:
            yield Problem(
                key, f"K = {k} in range {number + 1} is cut to {arm.k}", "raise the arm's k", fatal=False
            )
        end = last
