"""The matched baseline: a further arm without speculation, but with what speculation does to the engine besides.

Some drafters make an engine give up other things that cost speed: scheduling that overlaps with the GPU's work,
or room for requests. Such a cost is part of what speculation costs, and stays in every speed-up. The matched
baseline only tells how much of it there is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from specbench.config.model import ArgValue, EngineConfig

MATCHED: Final = "matched-baseline"

SIDE_EFFECTS: Final[Mapping[str, Mapping[str, ArgValue]]] = {
    # vllm/config/vllm.py: ngram, suffix, medusa and custom_class switch asynchronous scheduling off.
    "vllm": {"no-async-scheduling": True},
    # srt/server_args.py: synchronous scheduling, and 48 running requests unless the config says how many.
    "sglang": {"disable-overlap-schedule": True, "max-running-requests": 48},
}
"""Flags that give a server without speculation the usual side effects of it, by engine kind."""


class NoSideEffects(ValueError):
    """The engine's side effects are not known, so they must be given as flags."""


def matched_args(engine: EngineConfig) -> dict[str, ArgValue] | None:
    """Flags of the matched baseline; null when the config asks for none.

    Raises:
        NoSideEffects: ``matched_baseline: true`` on an engine whose side effects are not known.
    """
    if engine.matched_baseline is False:
        return None
    if engine.kind == "endpoint":
        raise NoSideEffects("matched_baseline: servers of kind endpoint run already: remove it")
    if isinstance(engine.matched_baseline, dict):
        return dict(engine.matched_baseline)
    if engine.kind not in SIDE_EFFECTS:
        raise NoSideEffects(
            f"matched_baseline: what speculation does to {engine.kind} besides is not known: give the flags, "
            "matched_baseline: {flag: value}"
        )
    given = {name.replace("_", "-") for name in engine.args}
    # What the config sets is the same in every arm already.
    return {name: value for name, value in SIDE_EFFECTS[engine.kind].items() if name not in given}
