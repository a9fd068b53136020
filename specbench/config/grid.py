"""From the lists of a config to the arms and loads of a sweep."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Final, Literal

from specbench.config.matched import MATCHED, NoSideEffects, matched_args
from specbench.config.model import TRACE_ID, ArgValue, ArmConfig, Config, OpenLoad, TraceLoad, closed_id

BASELINE: Final = "baseline"

LIST_VALUED: Final = frozenset(
    {"synthetic_acceptance_rates", "cudagraph_capture_sizes", "decoupled_spec_connect_endpoints"}
)
"""Settings whose value is itself a list of scalars; they never expand."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of serving the target. The baseline has ``method is None``.

    ``entry`` is the index in the config's ``arms`` that it comes from; null for the baseline.
    ``url`` and ``served_model`` are of a server that already runs. ``engine`` is a name in
    ``other_engines``; empty for the main engine. ``matched`` is of a matched baseline (`config.matched`).
    """

    id: str
    method: str | None = None
    draft: str | None = None
    k: int | None = None
    settings: dict[str, ArgValue] = field(default_factory=dict)
    args: dict[str, ArgValue] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    entry: int | None = None
    url: str | None = None
    served_model: str | None = None
    engine: str = ""
    matched: bool = False

    @property
    def is_baseline(self) -> bool:
        """Whether the arms of its engine are compared with this one."""
        return not self.speculates and not self.matched

    @property
    def speculates(self) -> bool:
        """Whether it drafts; neither the baseline nor the matched one does."""
        return self.method is not None


MAX_OPEN_CONCURRENCY: Final = 256
TRACE_CONCURRENCY: Final = 8


@dataclass(frozen=True, slots=True)
class Load:
    """How requests arrive: a closed loop of ``concurrency`` in flight, unless ``open`` or ``trace`` is set.

    For those two ``concurrency`` is that of the warm-up only: one second's worth of arrivals, or 8.
    """

    id: str
    concurrency: int
    open: OpenLoad | None = None
    trace: TraceLoad | None = None

    @property
    def kind(self) -> Literal["closed", "open", "trace"]:
        """Which of the three it is."""
        return "open" if self.open is not None else "trace" if self.trace is not None else "closed"

    @property
    def order(self) -> tuple[int, float, str]:
        """Sorting key: closed loops by concurrency, rates, then the trace."""
        if self.open is not None:
            return 1, self.open.rate, self.id
        return (2, 0.0, self.id) if self.trace is not None else (0, float(self.concurrency), self.id)


def baseline_id(engine: str) -> str:
    """Id of the baseline that arms of an engine are compared with; an empty name is the main engine."""
    return f"{BASELINE}@{engine}" if engine else BASELINE


class GridError(ValueError):
    """Two arms of the grid could not be told apart."""


def expand_arms(config: Config) -> tuple[Arm, ...]:
    """All arms of the sweep, the baseline first.

    Raises:
        GridError: two entries expand to the same arm.
    """
    arms = [Arm(id=BASELINE, url=config.engine.url, served_model=config.engine.model)]
    for name, engine in config.other_engines.items():
        arms.append(Arm(id=baseline_id(name), url=engine.url, served_model=engine.model, engine=name))
    for name in ("", *config.other_engines):
        try:
            args = matched_args(config.engine_named(name))
        except NoSideEffects as error:
            raise GridError(str(error)) from None
        if args is not None:
            own = f"{MATCHED}@{name}" if name else MATCHED
            arms.append(Arm(id=own, args=args, engine=name, matched=True))
    for index, entry in enumerate(config.arms):
        for named in _as_list(entry.engine):
            name = "" if named in (None, config.engine.kind) else named
            arms.extend(_expand(entry, index, config.engine_named(name).model, name))
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
    loads = [Load(id=closed_id(c), concurrency=c) for c in config.loads.closed]
    loads += [
        Load(x.id, max(1, min(MAX_OPEN_CONCURRENCY, math.ceil(x.rate))), open=x) for x in config.loads.open
    ]
    if config.loads.trace is not None:
        loads.append(Load(TRACE_ID, TRACE_CONCURRENCY, trace=config.loads.trace))
    return tuple(loads)


def _expand(entry: ArmConfig, index: int, served_model: str | None, engine: str) -> list[Arm]:
    drafts = _as_list(entry.draft)
    ks = _as_list(entry.k)
    keys = list(entry.settings)
    choices = [_choices(key, entry.settings[key]) for key in keys]
    varied = [key for key, values in zip(keys, choices, strict=True) if len(values) > 1]
    varied += dict.fromkeys(key for variant in entry.variants for key in variant)
    arms = []
    for draft, k, variant, *values in itertools.product(drafts, ks, entry.variants or [{}], *choices):
        settings = {**dict(zip(keys, values, strict=True)), **variant}
        parts = [entry.name or entry.method]
        if draft is not None and (len(drafts) > 1 or entry.name is None):
            parts.append(PurePath(draft).name)
        if k is not None:
            parts.append(f"k{k}")
        parts += [f"{_short(key)}{settings[key]}" for key in varied if key in settings]
        arms.append(
            Arm(
                id=_slug("-".join(parts)) + (f"@{engine}" if engine else ""),
                method=entry.method,
                draft=draft,
                k=k,
                settings=settings,
                args=dict(entry.args),
                env=dict(entry.env),
                entry=index,
                url=entry.url,
                served_model=entry.model or served_model,
                engine=engine,
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
