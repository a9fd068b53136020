"""What vLLM would refuse, or silently change, in an arm: found before a launch is paid for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from specbench.config.environment import names_a_secret
from specbench.engines.base import Problem
from specbench.engines.capabilities.schema import Capabilities, Draft, Method, near
from specbench.engines.checkpoint import Checkpoint, read_checkpoint
from specbench.engines.command import lacks_host_network
from specbench.engines.flags import normal_name
from specbench.engines.prefix import PORT, publishes_port
from specbench.engines.vllm_draft_problems import draft_problems, k_problems
from specbench.engines.vllm_setting_problems import setting_problems
from specbench.workloads.context import context_limit

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

_FIELD_OF: Final = {
    "spec-method": "method",
    "spec-model": "draft",
    "spec-tokens": "k",
    "speculative-model": "method and draft",
    "num-speculative-tokens": "k",
}
_UNUSABLE_WITH_DRAFTS: Final = ("min_p", "logit_bias")
"""Sampling parameters that a speculative server refuses with HTTP 400 (sampling_params.py:1182-1194)."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where the engine would run, as far as that is known before it does.

    Attributes:
        known: what its version can do.
        cpu: whether it is a build for CPUs; false when that is not known.
        has: whether a package is installed beside it; None when that cannot be told.
        asked: whether the command was there to be asked for its version.
    """

    known: Capabilities
    cpu: bool = False
    has: Callable[[str], bool | None] = lambda _: None
    asked: bool = False


def is_speculative_flag(name: str, known: Capabilities) -> bool:
    """Whether an engine flag turns on, or shapes, speculation, in this version or another."""
    flag = normal_name(name).partition(".")[0]
    return flag.startswith(("speculative-", "spec-")) or any(
        flag == row.name and row.hint for row in known.table.flags if row.name != "generation-config"
    )


def vllm_problems(
    target: Target, engine: EngineConfig, arm: Arm, index: int | None, site: Site
) -> list[Problem]:
    """Everything wrong with an arm; problems of the shared sections are reported with the baseline."""
    model = read_checkpoint(target.model)
    if not arm.speculates:
        return [*_flag_problems(engine.args, "engine.args", site), *_engine_problems(engine, model, site)]
    entry = arm.entry if index is None else index
    where = f"arms[{entry}]" if entry is not None else f"arm {arm.id}"
    found = [
        *_flag_problems(arm.args, f"{where}.args", site),
        *_length_problems(arm.args, f"{where}.args", engine, model),
    ]
    method = site.known.method(arm.method)
    if method is None:
        return [*found, _no_method(arm.method or "", where, site.known)]
    if method.dead:
        return [*found, Problem(f"{where}.method", f"{arm.method}: {method.dead}", "remove this arm")]
    alias = site.known.alias(method, arm.method or "")
    if alias is not None and alias.mend:
        found.append(Problem(f"{where}.method", f"{arm.method} is an old name", alias.mend, fatal=False))
    v1 = site.cpu or engine.env.get("VLLM_USE_V2_MODEL_RUNNER") == "0" or method.runners == ("V1",)
    found += _method_problems(engine, arm, method, where, site)
    found += k_problems(arm, method, model, where, site.known)
    found += setting_problems(arm, method, where, site.known, v1=v1, cpu=site.cpu)
    found += _request_problems(engine, arm, model, where)
    if arm.draft is not None and method.draft is not Draft.CLASS:
        found += draft_problems(engine, arm, method, model, where, v1=v1)
    return found


def _no_method(name: str, where: str, known: Capabilities) -> Problem:
    key = f"{where}.method"
    families = [n for n in known.usable if n.endswith("_mtp")]
    if name == "mtp" and families:
        mend = f"write the name of the target's family: {', '.join(families)}"
        return Problem(key, "this vLLM has no method 'mtp' yet", mend)
    spans = known.method_elsewhere(name)
    mend = f"use one of: {', '.join(known.usable)}"
    if spans:
        has = " and ".join(str(span) for span in spans)
        return Problem(key, f"this vLLM has no method {name!r}; vLLM has it {has}", mend)
    never = next((n for n in known.table.never if n.name == name), None)
    hint = never.hint if never else near(name, known.usable)
    return Problem(key, f"vLLM has no method {name!r}", hint or mend)


def _flag_problems(args: Mapping[str, ArgValue], where: str, site: Site) -> Iterator[Problem]:
    never = {row.name.replace("_", "-"): row.hint for row in site.known.table.never}
    for name, value in args.items():
        if value is None or value is False:
            continue
        flag = normal_name(name)
        key = f"{where}.{name}"
        if flag == "report-speculative-metrics":
            yield Problem(key, f"no vLLM ever had --{flag}", never[flag])
        elif is_speculative_flag(name, site.known):
            row = site.known.flag(flag)
            gone = not row and any(f.name == flag and f.span.until for f in site.known.table.flags)
            consequence = (
                "it was removed in vLLM 0.8.3"
                if gone
                else "the baseline would speculate too"
                if where == "engine.args"
                else "it would be given twice"
            )
            field = _FIELD_OF.get(flag, "method, draft, k and settings")
            yield Problem(
                key,
                f"--{flag} is about speculation: {consequence}",
                f"describe the arm under `arms` ({field})",
            )
        elif flag in OWNED_FLAGS:
            yield Problem(key, f"--{flag} is not for the config to set", OWNED_FLAGS[flag])


def _engine_problems(engine: EngineConfig, model: Checkpoint | None, site: Site) -> Iterator[Problem]:
    command = engine.command or []
    if command and command[-1].rpartition("/")[2] == "vllm":
        yield Problem("engine.command", "`vllm` alone starts no server", "add `serve`: [vllm, serve]")
    if lacks_host_network(command) and not publishes_port(command):
        yield Problem(
            "engine.command",
            "a container without the host's network cannot be reached on 127.0.0.1",
            f"add --network=host to the command, or publish the port: -p 127.0.0.1:{PORT}:{PORT}",
        )
    if site.asked and site.known.assumed:
        yield Problem(
            "engine.command",
            f"which vLLM this starts cannot be told beforehand: {site.known.table.newest} is assumed",
            "nothing, if it is not older; the report names the version that ran",
            fatal=False,
        )
    secrets = sorted(name for name in engine.env if names_a_secret(name))
    if secrets and any(word.rpartition("/")[2] == "ssh" for word in command):
        yield Problem(
            f"engine.env.{secrets[0]}",
            f"{' and '.join(secrets)} would be seen in the process list over ssh, and is not sent",
            "set it on the machine itself",
            fatal=False,
        )
    if "VLLM_API_KEY" in engine.env:
        yield Problem("engine.env.VLLM_API_KEY", "requests are sent without a key", OWNED_FLAGS["api-key"])
    if model is not None and model.is_speculator:
        itself = f"the target itself ({model.verifier})" if model.verifier else "the target itself"
        yield Problem(
            "target.model",
            "this folder is a draft packed with its target's address: vLLM would serve it with speculation, "
            "in the baseline too",
            f"name {itself} here and this folder as the `draft` of an arm",
        )
    yield from _length_problems(engine.args, "engine.args", engine, model)


def _length_problems(
    args: Mapping[str, ArgValue], where: str, engine: EngineConfig, model: Checkpoint | None
) -> Iterator[Problem]:
    """A context that the target does not have; what overrides its config.json cannot be judged here."""
    length, longest = context_limit(args), model.max_positions if model else None
    free = engine.env.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") == "1" or any(
        normal_name(name).partition(".")[0] == "hf-overrides" for name in (*engine.args, *args)
    )
    if length and longest and length > longest and not free:
        name = next((name for name in args if normal_name(name) == "max-model-len"), "max-model-len")
        yield Problem(
            f"{where}.{name}",
            f"{length} is more than the target's {longest} positions",
            f"use at most {longest}",
        )


def _method_problems(
    engine: EngineConfig, arm: Arm, method: Method, where: str, site: Site
) -> Iterator[Problem]:
    key = f"{where}.method"
    for need in method.needs:
        if site.has(need.partition("==")[0]) is False:
            yield Problem(
                key,
                f"{arm.method} needs the package {need} in the engine's environment, which has none",
                f"install it there: pip install {need}",
            )
    if site.cpu and method.devices and "cpu" not in method.devices:
        yield Problem(key, f"{arm.method} does not run on CPUs", "use another method, or a GPU")
    elif method.runners == ("V2",) and engine.env.get("VLLM_USE_V2_MODEL_RUNNER") == "0":
        yield Problem(
            key, f"{arm.method} needs model runner V2", "remove VLLM_USE_V2_MODEL_RUNNER from engine.env"
        )
    if method.learns and not method.forgets and arm.settings.get("suffix_decoding_max_cached_requests") != 0:
        yield Problem(
            key,
            f"{arm.method} learns from every answer and cannot be made to forget: replaying prompts, "
            "across the cells of a launch too, inflates its acceptance",
            "give it many different prompts, or set suffix_decoding_max_cached_requests: 0 to judge it "
            "without what it learns from other requests",
            fatal=False,
        )
    args = {normal_name(name): value for name, value in {**engine.args, **arm.args}.items()}
    stages = args.get("pipeline-parallel-size")
    if isinstance(stages, int) and stages > 1 and args.get("no-async-scheduling"):
        yield Problem(
            key,
            "speculation with pipeline parallelism and no-async-scheduling can give wrong output (vLLM issue "
            "52071)",
            "leave no-async-scheduling out",
            fatal=False,
        )


def _request_problems(
    engine: EngineConfig, arm: Arm, model: Checkpoint | None, where: str
) -> Iterator[Problem]:
    """Shared flags with which a plain server starts, and a speculative one not or with refusals."""
    for name, value in {**engine.args, **arm.args}.items():
        flag = normal_name(name)
        place = f"{where}.args.{name}" if name in arm.args else f"engine.args.{name}"
        if flag == "logits-processors" and value:
            yield Problem(
                place, "vLLM does not start with custom logits processors and speculation", "remove them"
            )
        if flag == "override-generation-config" and isinstance(value, dict):
            yield from _refused_sampling(value, place)
        if flag == "generation-config" and value == "auto" and model is not None:
            yield from _refused_sampling(model.generation, place)


def _refused_sampling(defaults: Mapping[str, object], place: str) -> Iterator[Problem]:
    for name in _UNUSABLE_WITH_DRAFTS:
        if defaults.get(name):
            yield Problem(
                place,
                f"{name} {defaults[name]!r} would be a default: speculative servers answer it with HTTP 400",
                f"leave {name} out",
            )
