"""How an arm is written on vLLM's command line: JSON since 0.8.3, a flag per setting before."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from specbench.engines.capabilities.schema import Kind, parse_version
from specbench.engines.capabilities.vllm import PER_REQUEST_METRICS
from specbench.engines.capabilities.vllm_settings import JSON_SINCE
from specbench.engines.flags import render_args
from specbench.engines.vllm_dialect import speculative_config

if TYPE_CHECKING:
    from specbench.config.grid import Arm
    from specbench.config.model import ArgValue
    from specbench.engines.capabilities.schema import Capabilities


def takes_json(known: Capabilities) -> bool:
    """Whether the version is told about speculation in JSON; an unknown one is taken for a new one."""
    since = parse_version(JSON_SINCE)
    return known.version is None or since is None or known.version >= since


def speculation_words(arm: Arm, known: Capabilities) -> tuple[str, ...]:
    """The words that turn speculation on in this version; none for the baseline."""
    if not arm.speculates:
        return ()
    if not takes_json(known):
        return tuple(render_args(_legacy_args(arm, known)))
    config = speculative_config(arm)
    method = known.method(arm.method)
    if method is not None and method.unnamed:
        del config["method"]
    return ("--speculative-config", json.dumps(config, separators=(",", ":")))


def observation_words(arm: Arm, known: Capabilities) -> tuple[str, ...]:
    """Words that make a speculating server tell more; one without speculation would not start with them."""
    if not arm.speculates or known.flag(PER_REQUEST_METRICS) is None:
        return ()
    return (f"--{PER_REQUEST_METRICS}", "summary")


def _legacy_args(arm: Arm, known: Capabilities) -> dict[str, ArgValue]:
    """Flags of versions before 0.8.3. The method is not named: vLLM told it from the draft's checkpoint."""
    args: dict[str, ArgValue] = {}
    if arm.method in ("ngram", "[ngram]"):
        args["speculative-model"] = "[ngram]"
    elif arm.draft is not None:
        args["speculative-model"] = arm.draft
    if arm.k is not None:
        args["num-speculative-tokens"] = arm.k
    for name, value in arm.settings.items():
        setting = known.setting(name)
        if setting is None or not setting.flag:
            args[name] = value  # vLLM will refuse it by its name
        elif setting.kind is Kind.FLAG and setting.default == "true":
            args[setting.flag] = "false" if value is False else value
        else:
            args[setting.flag] = value
    return args
