"""What vLLM would refuse, or silently change, in an arm: found before a launch is paid for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from specbench.engines.base import Problem
from specbench.engines.checkpoint import Checkpoint, read_checkpoint
from specbench.engines.vllm_dialect import normal_name
from specbench.engines.vllm_methods import (
    MAX_K,
    METHOD_SETTINGS,
    METHODS,
    OLD_MTP_NAMES,
    OWN_KEYS,
    REMOVED,
    SETTINGS,
    Method,
    near,
)

if TYPE_CHECKING:
    from specbench.config.grid import Arm
    from specbench.config.model import ArgValue, EngineConfig, Target

OWNED_FLAGS: Final = {
    **dict.fromkeys(
        ("host", "port", "uds"), "remove it: specbench chooses a free port of 127.0.0.1 for every launch"
    ),
    **dict.fromkeys(("model", "model-tag", "revision", "tokenizer"), "set it under `target`"),
    "served-model-name": "remove it: specbench gives every arm its own name, to know its servers apart",
    "api-key": "remove it: the server listens on 127.0.0.1 only, and requests are sent without a key",
    "disable-log-stats": "remove it: acceptance is read from the engine's counters",
    **dict.fromkeys(
        ("ssl-keyfile", "ssl-certfile", "ssl-ca-certs", "ssl-cert-reqs"),
        "remove it: requests are sent in plain HTTP",
    ),
}
"""Flags that specbench sets, or that would make the server unusable for it."""

_OLD_SPECULATIVE: Final = frozenset(
    {"num-speculative-tokens", "ngram-prompt-lookup-max", "ngram-prompt-lookup-min", "sc"}
)
_FIELD_OF: Final = {"spec-method": "method", "spec-model": "draft", "spec-tokens": "k"}


def is_speculative_flag(name: str) -> bool:
    """Whether an engine flag turns on, or shapes, speculation."""
    flag = normal_name(name).partition(".")[0]
    return flag in _OLD_SPECULATIVE or flag.startswith(("speculative-", "spec-"))


def vllm_problems(target: Target, engine: EngineConfig, arm: Arm, index: int | None) -> list[Problem]:
    """Everything wrong with an arm; problems of the shared sections are reported with the baseline."""
    model = read_checkpoint(target.model)
    if arm.is_baseline:
        return [*_flag_problems(engine.args, "engine.args"), *_engine_problems(engine, model)]
    entry = arm.entry if index is None else index
    where = f"arms[{entry}]" if entry is not None else f"arm {arm.id}"
    found = [*_flag_problems(arm.args, f"{where}.args")]
    method = METHODS.get(arm.method or "") or (METHODS["mtp"] if arm.method in OLD_MTP_NAMES else None)
    if method is None:
        hint = near(arm.method or "", METHODS)
        mend = hint or f"use one of: {', '.join(name for name, m in METHODS.items() if not m.refused)}"
        return [*found, Problem(f"{where}.method", f"vLLM has no method {arm.method!r}", mend)]
    if method.refused:
        return [*found, Problem(f"{where}.method", f"{arm.method}: {method.refused}", "remove this arm")]
    if arm.method in OLD_MTP_NAMES:
        found.append(
            Problem(f"{where}.method", f"{arm.method} is an old name", "write mtp", fatal=False),
        )
    found += _needs(arm, method, where)
    found += _settings_problems(arm, method, where)
    if arm.draft is not None and arm.method != "custom_class":
        found += _draft_problems(engine, arm, model, where)
    return found


def _flag_problems(args: Mapping[str, ArgValue], where: str) -> Iterator[Problem]:
    for name, value in args.items():
        if value is None or value is False:
            continue
        flag = normal_name(name)
        key = f"{where}.{name}"
        if is_speculative_flag(name):
            field = _FIELD_OF.get(flag, "method, draft, k and settings")
            consequence = (
                "the baseline would speculate too" if where == "engine.args" else "it would be given twice"
            )
            yield Problem(
                key,
                f"--{flag} is about speculation: {consequence}",
                f"describe the arm under `arms` ({field})",
            )
        elif flag in OWNED_FLAGS:
            yield Problem(key, f"--{flag} is not for the config to set", OWNED_FLAGS[flag])


def _engine_problems(engine: EngineConfig, model: Checkpoint | None) -> Iterator[Problem]:
    command = engine.command or []
    if command and command[-1].rpartition("/")[2] == "vllm":
        yield Problem("engine.command", "`vllm` alone starts no server", "add `serve`: [vllm, serve]")
    program = command[0].rpartition("/")[2] if command else ""
    network = any(word in ("--network=host", "--net=host") for word in command) or any(
        pair in (("--network", "host"), ("--net", "host")) for pair in itertools.pairwise(command)
    )
    if program in ("docker", "podman") and not network:
        yield Problem(
            "engine.command",
            "a container without the host's network cannot be reached on 127.0.0.1",
            "add --network=host to the command",
        )
    if "VLLM_API_KEY" in engine.env:
        yield Problem("engine.env.VLLM_API_KEY", "requests are sent without a key", OWNED_FLAGS["api-key"])
    if model is not None and model.is_speculator:
        yield Problem(
            "target.model",
            "this folder is a draft packed with its target's address: vLLM would serve it with speculation, "
            "in the baseline too",
            "name the plain target here and this folder as the `draft` of an arm",
        )
    length = max_model_len(engine.args)
    longest = model.max_positions if model else None
    if length and longest and length > longest and engine.env.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") != "1":
        yield Problem(
            "engine.args.max-model-len",
            f"{length} is more than the target's {longest} positions",
            f"use at most {longest}",
        )


def max_model_len(args: Mapping[str, ArgValue]) -> int | None:
    """The configured context length, when it is given as a plain number."""
    for name, value in args.items():
        if normal_name(name) == "max-model-len" and isinstance(value, int) and not isinstance(value, bool):
            return value if value > 0 else None
    return None


def _needs(arm: Arm, method: Method, where: str) -> Iterator[Problem]:
    if method.draft == "required" and arm.draft is None:
        what = (
            "a class path such as package.module.Class" if arm.method == "custom_class" else "a draft model"
        )
        yield Problem(f"{where}.draft", f"{arm.method} needs {what}", "add `draft:` to this arm")
    if method.draft == "none" and arm.draft is not None:
        yield Problem(f"{where}.draft", f"{arm.method} takes no draft model", "remove `draft`")
    if arm.k is None:
        if method.needs_k:
            yield Problem(
                f"{where}.k", f"{arm.method} needs the number of draft tokens", "add `k: 3`, for example"
            )
    elif arm.k < 1:
        yield Problem(
            f"{where}.k", "K must be at least 1; K = 0 is the baseline, which is always run", "remove it"
        )
    elif arm.k > MAX_K:
        yield Problem(f"{where}.k", f"vLLM drafts at most {MAX_K} tokens per step", f"use at most {MAX_K}")


def _settings_problems(arm: Arm, method: Method, where: str) -> Iterator[Problem]:
    settings = {name.replace("-", "_"): value for name, value in arm.settings.items() if value is not None}
    for name in settings:
        key = f"{where}.settings.{name}"
        if name in OWN_KEYS:
            yield Problem(key, f"{name} is a field of the arm itself", OWN_KEYS[name])
        elif name in REMOVED:
            yield Problem(key, f"vLLM no longer has {name}", REMOVED[name])
        elif name not in SETTINGS:
            mend = near(name, SETTINGS) or "remove it, or correct its name"
            yield Problem(key, f"vLLM has no speculative setting {name!r}", mend)
        elif arm.method not in METHOD_SETTINGS.get(name, (arm.method,)):
            yield Problem(key, f"{arm.method} ignores {name}", "remove it", fatal=False)
    yield from _lookup_problems(settings, where)
    yield from _synthetic_problems(arm, settings, where)
    schedule = settings.get("num_speculative_tokens_per_batch_size")
    if schedule is not None:
        yield from _schedule_problems(schedule, arm, method, where)


def _lookup_problems(settings: Mapping[str, ArgValue], where: str) -> Iterator[Problem]:
    low, high = settings.get("prompt_lookup_min"), settings.get("prompt_lookup_max")
    for name, value in (("prompt_lookup_min", low), ("prompt_lookup_max", high)):
        if isinstance(value, int) and value < 1:
            yield Problem(f"{where}.settings.{name}", f"{value} is too small", "use at least 1")
    if isinstance(low, int) and isinstance(high, int) and low > high:
        yield Problem(
            f"{where}.settings.prompt_lookup_min",
            f"the shortest match ({low}) is longer than the longest ({high})",
            "make prompt_lookup_min at most prompt_lookup_max",
        )


def _synthetic_problems(arm: Arm, settings: Mapping[str, ArgValue], where: str) -> Iterator[Problem]:
    key = f"{where}.settings.rejection_sample_method"
    rates, length = settings.get("synthetic_acceptance_rates"), settings.get("synthetic_acceptance_length")
    synthetic = settings.get("rejection_sample_method") == "synthetic"
    given = (rates is not None) + (length is not None)
    if synthetic and given != 1:
        yield Problem(
            key,
            "synthetic acceptance needs exactly one of synthetic_acceptance_rates and "
            "synthetic_acceptance_length",
            "give one of the two",
        )
    if given and not synthetic:
        yield Problem(
            key,
            "synthetic acceptance values need the synthetic method",
            "set rejection_sample_method: synthetic",
        )
    if synthetic:
        yield Problem(
            key,
            "synthetic acceptance accepts drafts whatever they say: the output is not the target's",
            "use it to find the break-even acceptance, not to decide",
            fatal=False,
        )
    if isinstance(rates, list) and arm.k is not None and len(rates) != arm.k:
        yield Problem(
            f"{where}.settings.synthetic_acceptance_rates",
            f"{len(rates)} rates for K = {arm.k}",
            "give K rates",
        )


def _schedule_problems(schedule: ArgValue, arm: Arm, method: Method, where: str) -> Iterator[Problem]:
    key = f"{where}.settings.num_speculative_tokens_per_batch_size"
    if not method.flexible_k:
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
        end = last


def _draft_problems(
    engine: EngineConfig, arm: Arm, model: Checkpoint | None, where: str
) -> Iterator[Problem]:
    draft = read_checkpoint(arm.draft or "")
    if draft is None:
        return
    if arm.method == "draft_model" and model is not None:
        mixed = arm.settings.get("use_heterogeneous_vocab") is True
        if draft.vocab_size and model.vocab_size and draft.vocab_size != model.vocab_size and not mixed:
            yield Problem(
                f"{where}.draft",
                f"the draft has {draft.vocab_size} tokens in its vocabulary, the target {model.vocab_size}",
                "use a draft of the target's family, or set use_heterogeneous_vocab: true",
            )
        elif (
            draft.tokenizer_sha256
            and model.tokenizer_sha256
            and draft.tokenizer_sha256 != model.tokenizer_sha256
            and not mixed
        ):
            yield Problem(
                f"{where}.draft",
                "tokenizer.json of draft and target differ: vLLM compares sizes only, and a draft "
                "that means other words is never accepted",
                "check that both tokenizers give the same ids",
                fatal=False,
            )
    length = max_model_len(engine.args) or (model.max_positions if model else None)
    if arm.method == "draft_model" and draft.max_positions and length and draft.max_positions < length:
        yield Problem(
            f"{where}.draft",
            f"the draft reads {draft.max_positions} tokens, the target {length}: longer requests stop the "
            "drafting of the whole batch",
            f"keep prompt + output + K below {draft.max_positions}, or set max-model-len to it",
            fatal=False,
        )
    own = arm.settings.get("draft_tensor_parallel_size")
    shared = next((v for n, v in engine.args.items() if normal_name(n) == "tensor-parallel-size"), 1)
    if arm.method == "draft_model" and own is not None and own != shared:
        yield Problem(
            f"{where}.settings.draft_tensor_parallel_size",
            f"{own} differs from the target's tensor-parallel-size {shared}, which vLLM's V1 runner refuses",
            "make them equal",
            fatal=False,
        )
