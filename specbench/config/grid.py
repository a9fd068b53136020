"""From the lists of a config to the arms and loads of a sweep."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Final

from specbench.config.model import ArgValue, ArmConfig, Config

BASELINE: Final = "baseline"

LIST_VALUED: Final = frozenset({"synthetic_acceptance_rates", "cudagraph_capture_sizes"})
"""Settings whose value is itself a list of scalars; they never expand."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of serving the target. The baseline has ``method is None``.

    ``entry`` is the index in the config's ``arms`` that it comes from; null for the baseline.
    """

    id: str
    method: str | None = None
    draft: str | None = None
    k: int | None = None
    settings: dict[str, ArgValue] = field(default_factory=dict)
    args: dict[str, ArgValue] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    entry: int | None = None

    @property
    def is_baseline(self) -> bool:
        """Whether this arm serves without speculation."""
        return self.method is None


@dataclass(frozen=True, slots=True)
class Load:
    """How requests arrive; for now a closed loop that keeps ``concurrency`` requests in flight."""

    id: str
    concurrency: int


class GridError(ValueError):
    """Two arms of the grid could not be told apart."""


def expand_arms(config: Config) -> tuple[Arm, ...]:
    """All arms of the sweep, the baseline first.

    Raises:
        GridError: two entries expand to the same arm.
    """
    arms = [Arm(id=BASELINE)]
    for index, entry in enumerate(config.arms):
        arms.extend(_expand(entry, index))
    seen: dict[str, Arm] = {}
    for arm in arms:
        if arm.id in seen:
            raise GridError(
                f"two arms are both called {arm.id!r}: remove the repeated entry or give one another `name`"
            )
        seen[arm.id] = arm
    return tuple(arms)


def expand_loads(config: Config) -> tuple[Load, ...]:
    """The loads of every launch, in the order of the config."""
    return tuple(Load(id=f"c{c}", concurrency=c) for c in config.loads.closed)


def _expand(entry: ArmConfig, index: int) -> list[Arm]:
    drafts = _as_list(entry.draft)
    ks = _as_list(entry.k)
    keys = list(entry.settings)
    choices = [_choices(key, entry.settings[key]) for key in keys]
    varied = [key for key, values in zip(keys, choices, strict=True) if len(values) > 1]
    arms = []
    for draft, k, *values in itertools.product(drafts, ks, *choices):
        settings = dict(zip(keys, values, strict=True))
        parts = [entry.name or entry.method]
        if draft is not None and (len(drafts) > 1 or entry.name is None):
            parts.append(PurePath(draft).name)
        if k is not None:
            parts.append(f"k{k}")
        parts += [f"{_short(key)}{settings[key]}" for key in varied]
        arms.append(
            Arm(
                id=_slug("-".join(parts)),
                method=entry.method,
                draft=draft,
                k=k,
                settings=settings,
                args=dict(entry.args),
                env=dict(entry.env),
                entry=index,
            )
        )
    return arms


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [value]


def _choices(key: str, value: ArgValue) -> list[Any]:
    """A list of scalars expands; a list that holds lists, or a list-valued setting, is one value."""
    if (
        isinstance(value, list)
        and key not in LIST_VALUED
        and value
        and not any(isinstance(v, list | dict) for v in value)
    ):
        return list(value)
    return [value]


def _short(key: str) -> str:
    return "".join(word[0] for word in re.split(r"[_-]+", key) if word)


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-")[:80]
