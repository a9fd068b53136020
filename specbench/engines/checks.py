"""Everything that the engines would refuse, or silently change, in a sweep: found before anything starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from specbench.engines.admission import admission_problems
from specbench.engines.known_bugs import known_bugs

if TYPE_CHECKING:
    from specbench.config.grid import Arm, Load
    from specbench.engines.base import Engine, Problem


def sweep_problems(
    engines: Mapping[str, Engine], arms: Sequence[Arm], loads: Sequence[Load], temperature: float
) -> tuple[Problem, ...]:
    """Each problem once, in the order of the arms.

    Args:
        engines: by the name that arms use.
        temperature: of the workload's sampling.
    """
    found = [p for arm in arms for p in engines[arm.engine].problems(arm, arm.entry)]
    found += admission_problems(engines, arms, loads)
    found += known_bugs(engines, arms, temperature)
    return tuple({(p.key, p.message): p for p in found}.values())
