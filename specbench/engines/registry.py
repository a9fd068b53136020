"""The engines there are. A new one is one file and one line here."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Final

from specbench.config.model import EngineConfig, Target
from specbench.engines.base import Engine


class UnknownEngine(ValueError):
    """``engine.kind`` names no engine; the message lists those there are."""


def _vllm(target: Target, config: EngineConfig) -> Engine:
    from specbench.engines.vllm import VllmEngine

    return VllmEngine(target, config)


def _sglang(target: Target, config: EngineConfig) -> Engine:
    from specbench.engines.sglang import SglangEngine

    return SglangEngine(target, config)


def _simulated(target: Target, config: EngineConfig) -> Engine:
    from specbench.engines.simulated.engine import SimulatedEngine

    return SimulatedEngine(target, config)


def _endpoint(target: Target, config: EngineConfig) -> Engine:
    from specbench.engines.endpoint import EndpointEngine

    return EndpointEngine(target, config)


ENGINES: Final[dict[str, Callable[[Target, EngineConfig], Engine]]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "simulated": _simulated,
    "endpoint": _endpoint,
}
"""Name in ``engine.kind`` to a function that imports and builds the engine."""


def engine_kinds() -> tuple[str, ...]:
    """Every value that ``engine.kind`` may have."""
    return tuple(ENGINES)


def make_engine(target: Target, config: EngineConfig) -> Engine:
    """The engine of a config.

    Raises:
        UnknownEngine: there is no such kind.
    """
    build = ENGINES.get(config.kind)
    if build is None:
        near = difflib.get_close_matches(config.kind.lower(), ENGINES, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UnknownEngine(
            f"engine.kind: {config.kind!r} is not an engine: {hint}Use one of {', '.join(ENGINES)}"
        )
    return build(target, config)
