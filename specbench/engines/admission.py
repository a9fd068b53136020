"""Whether an engine lets as many requests run at once as a load keeps in flight.

Where it does not, the rest wait in its queue, and what is measured above the limit is the queue: in both arms
if they have the same limit, in one of them if they do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol, runtime_checkable

from specbench.engines.base import Problem
from specbench.engines.flags import normal_name

if TYPE_CHECKING:
    from specbench.config.grid import Arm, Load
    from specbench.config.model import ArgValue
    from specbench.engines.base import Engine


@dataclass(frozen=True, slots=True)
class Admission:
    """Requests that an engine runs at once.

    Attributes:
        most: the limit.
        flag: the engine flag that sets it, without dashes.
        by: who chose it: the config, specbench (a flag that every arm gets), or the engine's own default.
    """

    most: int
    flag: str
    by: Literal["config", "specbench", "engine"]


@runtime_checkable
class Admitting(Protocol):
    """An engine whose limit can be told before it starts."""

    def admission(self, arm: Arm) -> Admission | None:
        """The limit of an arm; null when it cannot be told."""


_SAID: Final = {
    "config": "is",
    "specbench": "is not set, which makes it",
    "engine": "is not set, and may come out as",
}


def whole_arg(args: Mapping[str, ArgValue], flag: str) -> int | None:
    """The whole number that args give a flag, however it is spelled; null without one."""
    for name, value in args.items():
        if normal_name(name) == flag and isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def admission_problems(
    engines: Mapping[str, Engine], arms: Iterable[Arm], loads: Iterable[Load]
) -> Iterator[Problem]:
    """Closed loads that are more than an arm's engine lets run.

    Fatal where the limit is specbench's own: nobody asked for it.
    """
    most = max((load.concurrency for load in loads if load.kind == "closed"), default=0)
    for arm in arms:
        engine = engines[arm.engine]
        found = engine.admission(arm) if isinstance(engine, Admitting) else None
        if found is None or found.most >= most:
            continue
        own = arm.entry is not None and whole_arg(arm.args, found.flag) is not None
        yield Problem(
            f"arms[{arm.entry}].args.{found.flag}" if own else f"engine.args.{found.flag}",
            f"{found.flag} {_SAID[found.by]} {found.most}, and loads.closed keeps {most} requests in flight: "
            "above the limit requests wait, and the queue is measured",
            f"set {found.flag} to {most} or more in engine.args, for all arms, or leave out that load",
            fatal=found.by == "specbench",
        )
