"""What SGLang would refuse, or silently change, in an arm: found before a launch is paid for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from specbench.config.environment import names_a_secret
from specbench.engines.base import Problem
from specbench.engines.capabilities.schema import Capabilities, Draft, Method, near, plain
from specbench.engines.checkpoint import Checkpoint, read_checkpoint, same_token_ids
from specbench.engines.command import lacks_host_network
from specbench.engines.flags import normal_name
from specbench.engines.prefix import PORT, publishes_port
from specbench.engines.sglang_flag_conflicts import flag_conflicts
from specbench.engines.sglang_setting_problems import setting_problems
from specbench.engines.sglang_speculation import BUNDLED_ARCHITECTURES
from specbench.engines.sglang_tree_problems import tree_problems
from specbench.workloads.context import context_limit

if TYPE_CHECKING:
    from specbench.config.grid import Arm
    from specbench.config.model import ArgValue, EngineConfig, Target

LONGER_CONTEXT: Final = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"
"""Makes SGLang take contexts beyond what a config.json says."""

SIMULATED_ACCEPTANCE: Final = "SGLANG_SIMULATE_ACC_LEN"
"""Makes SGLang accept drafts whatever they say."""

OWNED_FLAGS: Final = {
    **dict.fromkeys(
        ("host", "port"), "remove it: specbench chooses a free port of 127.0.0.1 for every launch"
    ),
    **dict.fromkeys(("model-path", "model", "revision", "tokenizer-path"), "set it under `target`"),
    "served-model-name": "remove it: specbench gives every arm its own name, to know its servers apart",
    **dict.fromkeys(
        ("api-key", "admin-api-key"),
        "remove it: the server listens on 127.0.0.1 only, and requests are sent without a key",
    ),
    **dict.fromkeys(
        ("ssl-keyfile", "ssl-certfile", "ssl-ca-certs", "enable-ssl-refresh"),
        "remove it: requests are sent in plain HTTP",
    ),
    "config": "write its content under engine.args, where both arms and reports show it",
}
"""Flags that specbench sets, or that would make the server unusable for it."""

ASSISTANTS: Final = frozenset({"Gemma4AssistantForCausalLM", "Gemma4UnifiedAssistantForCausalLM"})

_FIELD_OF: Final = {
    "speculative-algorithm": "method",
    "speculative-algo": "method",
    "speculative-draft-model-path": "draft",
    "speculative-draft-model": "draft",
}


def is_speculative_flag(name: str, known: Capabilities) -> bool:
    """Whether an engine flag turns on, or shapes, speculation."""
    flag = normal_name(name)
    return flag.startswith("speculative-") or any(flag == setting.flag for setting in known.table.settings)


def simulates_acceptance(env: Mapping[str, str]) -> bool:
    """Whether an environment makes SGLang accept drafts whatever they say."""
    return env.get(SIMULATED_ACCEPTANCE, "").strip() not in ("", "-1", "0")


def sglang_problems(
    target: Target, engine: EngineConfig, arm: Arm, index: int | None, known: Capabilities
) -> list[Problem]:
    """Everything wrong with an arm; problems of the shared sections are reported with the baseline."""
    model = read_checkpoint(target.model)
    if not arm.speculates:
        return [*_flag_problems(engine.args, "engine.args", known), *_engine_problems(engine, model)]
    entry = arm.entry if index is None else index
    where = f"arms[{entry}]" if entry is not None else f"arm {arm.id}"
    found = [
        *_flag_problems(arm.args, f"{where}.args", known),
        *_length_problems(arm.args, f"{where}.args", engine, model),
        *_simulated(arm.env, f"{where}.env"),
    ]
    method = known.method(arm.method)
    if method is None:
        return [*found, _no_method(arm.method or "", where, known)]
    found += _draft_needs(arm, method, model, where)
    found += tree_problems(arm, method, where, known)
    found += setting_problems(arm, method, where, known)
    found += flag_conflicts(engine, arm, method, where, known)
    found += _short_draft(engine, arm, model, where)
    found += _assistant_problems(arm, method, where)
    if arm.draft is not None and method.engine_name == "STANDALONE":
        found += _vocabulary_problems(arm.draft, model, where)
    return found


def _no_method(name: str, where: str, known: Capabilities) -> Problem:
    key, usable = f"{where}.method", ", ".join(known.usable)
    never = next((row for row in known.table.never if row.name == plain(name)), None)
    if never is not None:
        return Problem(key, f"{name} does not exist in SGLang; it has {usable}", never.hint)
    spans = known.method_elsewhere(name)
    if spans:
        has = " and ".join(str(span) for span in spans)
        return Problem(
            key, f"SGLang {known.version_text} has no {name}; SGLang has it {has}", f"use one of: {usable}"
        )
    return Problem(key, f"SGLang has no method {name!r}", near(name, known.usable) or f"use one of: {usable}")


def _flag_problems(args: Mapping[str, ArgValue], where: str, known: Capabilities) -> Iterator[Problem]:
    for name, value in args.items():
        flag, key = normal_name(name), f"{where}.{name}"
        if flag == "enable-metrics" and value is False:
            yield Problem(
                key, "without its metrics page SGLang's token counts cannot be checked", "remove it"
            )
        if value is None or value is False:
            continue
        if is_speculative_flag(name, known):
            consequence = (
                "the baseline would speculate too"
                if where == "engine.args"
                else "speculation belongs in the arm's own fields"
            )
            field = _FIELD_OF.get(flag, "method, draft, k and settings")
            yield Problem(
                key, f"--{flag} is about speculation: {consequence}", f"describe it under `arms` ({field})"
            )
        elif flag in OWNED_FLAGS:
            yield Problem(key, f"--{flag} is not for the config to set", OWNED_FLAGS[flag])


def _engine_problems(engine: EngineConfig, model: Checkpoint | None) -> Iterator[Problem]:
    command = engine.command or []
    if command and command[-1].rpartition("/")[2] == "sglang":
        yield Problem("engine.command", "`sglang` alone starts no server", "add `serve`: [sglang, serve]")
    if lacks_host_network(command) and not publishes_port(command):
        yield Problem(
            "engine.command",
            "a container without the host's network cannot be reached on 127.0.0.1",
            f"add --network=host to the command, or publish the port: -p 127.0.0.1:{PORT}:{PORT}",
        )
    secrets = sorted(name for name in engine.env if names_a_secret(name))
    if secrets and any(word.rpartition("/")[2] == "ssh" for word in command):
        yield Problem(
            f"engine.env.{secrets[0]}",
            f"{' and '.join(secrets)} would be seen in the process list over ssh, and is not sent",
            "set it on the machine itself",
            fatal=False,
        )
    yield from _simulated({**os.environ, **engine.env}, "engine.env")
    if "SGLANG_ENABLE_SPEC_V2" in engine.env:
        yield Problem(
            "engine.env.SGLANG_ENABLE_SPEC_V2",
            "SGLang no longer reads it: the second speculative worker is the only one",
            "remove it",
            fatal=False,
        )
    given = {normal_name(name) for name, value in engine.args.items() if value is not None}
    if not given & {"mem-fraction-static", "max-total-tokens"}:
        yield Problem(
            "engine.args.mem-fraction-static",
            "it is not set, and SGLang's own choice differs between arms that need different buffers",
            "set one value for all arms, for example 0.8",
            fatal=False,
        )
    yield from _length_problems(engine.args, "engine.args", engine, model)


def _length_problems(
    args: Mapping[str, ArgValue], where: str, engine: EngineConfig, model: Checkpoint | None
) -> Iterator[Problem]:
    """A context that the target does not have; what overrides its config.json cannot be judged here."""
    length, longest = context_limit(args), model.max_positions if model else None
    if length and longest and length > longest and not _any_length(engine, args):
        name = next((name for name in args if normal_name(name) == "context-length"), "context-length")
        yield Problem(
            f"{where}.{name}",
            f"{length} is more than the target's {longest} positions",
            f"use at most {longest}",
        )


def _short_draft(engine: EngineConfig, arm: Arm, model: Checkpoint | None, where: str) -> Iterator[Problem]:
    """SGLang starts a draft with the target's context, and refuses one that reads less (model_config.py)."""
    draft = read_checkpoint(arm.draft or "")
    reads = draft.max_positions if draft else None
    args = {**engine.args, **arm.args}
    length = context_limit(args) or (model.max_positions if model else None)
    if reads and length and reads < length and not _any_length(engine, args, arm.env):
        yield Problem(
            f"{where}.draft",
            f"the draft reads {reads} tokens, the target {length}: SGLang does not start with it",
            f"set context-length: {reads} for all arms; or, for a head that reads further than its config.json "
            f"says, {LONGER_CONTEXT}: 1 in engine.env",
        )


def _any_length(
    engine: EngineConfig, args: Mapping[str, ArgValue], env: Mapping[str, str] | None = None
) -> bool:
    told = {**engine.env, **(env or {})}.get(LONGER_CONTEXT, "").lower()
    return told in ("1", "true") or any(
        normal_name(name) == "json-model-override-args" for name in (*engine.args, *args)
    )


def _simulated(env: Mapping[str, str], where: str) -> Iterator[Problem]:
    if simulates_acceptance(env):
        yield Problem(
            f"{where}.{SIMULATED_ACCEPTANCE}",
            "lossy by configuration: drafts are accepted whatever they say; the output is not the target's",
            "use it to find the break-even acceptance, not to decide",
            fatal=False,
        )


def _draft_needs(arm: Arm, method: Method, model: Checkpoint | None, where: str) -> Iterator[Problem]:
    key = f"{where}.draft"
    if method.draft is Draft.NONE and arm.draft is not None:
        yield Problem(key, f"{arm.method} takes no draft model", "remove `draft`")
    if arm.draft is not None:
        return
    if method.engine_name == "DSPARK" and not (model is not None and (model.path / "dspark").is_dir()):
        yield Problem(
            key,
            "there is no draft, which works only for targets that bring a DSpark draft",
            "add `draft:` unless the target is one of those",
            fatal=False,
        )
    if method.draft is Draft.REQUIRED:
        note = (
            ": SGLang would load the target a second time as its own draft"
            if method.engine_name in ("STANDALONE", "EAGLE3")
            else ""
        )
        yield Problem(key, f"{arm.method} needs a draft model{note}", "add `draft:` to this arm")
    elif method.engine_name == "EAGLE":
        if model is not None and not BUNDLED_ARCHITECTURES.intersection(model.architectures):
            what = ", ".join(model.architectures) or "this target"
            yield Problem(
                key,
                f"{arm.method} needs a draft model: {what} holds no draft layers that SGLang knows",
                "add `draft:` to this arm",
            )
        elif model is None:
            yield Problem(
                key,
                "there is no draft, which works only for targets that bring their draft layers, such as "
                "DeepSeek V3 and GLM 4.5",
                "add `draft:` unless the target is one of those",
                fatal=False,
            )


def _assistant_problems(arm: Arm, method: Method, where: str) -> Iterator[Problem]:
    """A Gemma 4 assistant drafts on the target's KV cache, under whatever name SGLang takes it."""
    draft = read_checkpoint(arm.draft or "")
    if draft is None or not ASSISTANTS.intersection(draft.architectures):
        return
    if method.engine_name == "EAGLE3":
        yield Problem(f"{where}.method", "the draft is a Gemma 4 assistant", "write `method: frozen_kv_mtp`")
    elif method.engine_name == "EAGLE":
        yield Problem(
            f"{where}.method",
            "the draft is a Gemma 4 assistant: SGLang runs it as frozen_kv_mtp",
            "write `method: frozen_kv_mtp`",
            fatal=False,
        )


def _vocabulary_problems(draft_path: str, model: Checkpoint | None, where: str) -> Iterator[Problem]:
    draft = read_checkpoint(draft_path)
    if draft is None or model is None:
        return
    if draft.vocab_size and model.vocab_size and draft.vocab_size != model.vocab_size:
        yield Problem(
            f"{where}.draft",
            f"the draft has {draft.vocab_size} tokens in its vocabulary, the target {model.vocab_size}",
            "use a draft of the target's family",
        )
    elif same_token_ids(draft, model) is False:
        yield Problem(
            f"{where}.draft",
            "the tokenizers of draft and target give different ids to the same tokens",
            "use a draft of the target's family",
        )
