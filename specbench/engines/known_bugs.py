"""Builds that are known to write other text than the target's when they speculate.

Knowing is no substitute for testing: `specbench parity` found the first entry, and would find the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from specbench.engines.base import Problem

if TYPE_CHECKING:
    from specbench.config.grid import Arm
    from specbench.engines.base import Engine


@runtime_checkable
class KnowsBugs(Protocol):
    """An engine whose adapter knows of versions with a wrong verifier."""

    def wrong_output(self, arm: Arm, temperature: float) -> str:
        """Why this version writes wrong text with an arm at a sampling temperature; empty when not known to."""


def wrong_output(engine: Engine, arm: Arm, temperature: float) -> str:
    """Why an arm's text is known to be wrong at a sampling temperature; empty when it is not known to be."""
    if not arm.speculates or not isinstance(engine, KnowsBugs):
        return ""
    return engine.wrong_output(arm, temperature)


def known_bugs(engines: Mapping[str, Engine], arms: Iterable[Arm], temperature: float) -> Iterator[Problem]:
    """A warning for every arm that would write wrong text with the workload's sampling."""
    for arm in arms:
        why = wrong_output(engines[arm.engine], arm, temperature)
        if why:
            yield Problem(
                f"arms[{arm.entry}].method",
                f"its output will be wrong: {why}",
                "measure with workload.sampling.temperature 0, or on another build; `specbench parity` shows "
                "what it does to the text",
                fatal=False,
            )
