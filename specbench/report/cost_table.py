"""What speculation costs before the first token: one row per arm, with its difference to the baseline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from specbench.report import formatting as fmt
from specbench.report.model import ArmSummary, Result
from specbench.report.tables import NOT_APPLICABLE, Cell

TITLE: Final = "What speculation costs before the first token"
NOT_STARTED: Final = "no launch came up"
NOT_SAID: Final = "the engine does not report it"


@dataclass(frozen=True, slots=True)
class CostTable:
    """Columns and rows, ready to print; ``left_out`` names columns in which no arm has a value."""

    columns: tuple[str, ...]
    rows: list[tuple[str, tuple[Cell, ...]]]
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Column:
    """``difference`` is in the column's own unit or in percent; ``optional`` ones need an engine that tells."""

    title: str
    value: Callable[[ArmSummary], float | None]
    text: Callable[[float | None], str]
    difference: Literal["unit", "percent"]
    why: Callable[[ArmSummary], str]
    optional: bool = False
    of_draft: bool = False

    def cell(self, arm: ArmSummary, base: ArmSummary | None) -> Cell:
        """One arm's, beside its baseline's; null for the baseline itself."""
        value = self.value(arm)
        if value is None or not fmt.known(value):
            return NOT_APPLICABLE if self.of_draft and arm.method is None else Cell(fmt.DASH, self.why(arm))
        other = self.value(base) if base is not None else None
        return Cell(self.text(value) + self._more(value, other))

    def _more(self, value: float, base: float | None) -> str:
        """`` (+0.9 GiB)`` or `` (-5%)``; nothing when there is no difference or nothing to compare with."""
        if not base or not fmt.known(base) or value == base:
            return ""
        if self.difference == "unit":
            return f" ({'+' if value > base else '-'}{self.text(abs(value - base))})"
        change = round((value / base - 1) * 100)
        return f" ({change:+d}%)" if change else ""


def cost_table(result: Result) -> CostTable:
    """The table of a result. Columns that only some engines can fill are left out where none does."""
    baselines = {arm.engine: arm for arm in result.arms if arm.method is None and not arm.matched}
    shown = [c for c in _COLUMNS if not c.optional or any(fmt.known(c.value(a)) for a in result.arms)]
    rows = []
    for arm in result.arms:
        base = baselines.get(arm.engine) if arm.method is not None or arm.matched else None
        cells = (*(c.cell(arm, base) for c in shown), _launches(arm))
        rows.append((fmt.one_line(arm.arm), cells))
    return CostTable(
        columns=(*(c.title for c in shown), "Launches"),
        rows=rows,
        left_out=tuple(c.title for c in _COLUMNS if c not in shown),
    )


def _launches(arm: ArmSummary) -> Cell:
    """How many, and how far their start-up times lie apart."""
    failed = f" ({arm.failed_launches} failed)" if arm.failed_launches else ""
    spread = None
    if arm.startup_s and (low := fmt.duration(min(arm.startup_s))) != (
        high := fmt.duration(max(arm.startup_s))
    ):
        spread = f"started up in {low} to {high}"
    return Cell(f"{arm.launches}{failed}", spread, footnote=False)


def _startup_s(arm: ArmSummary) -> float | None:
    found = fmt.mean_and_range(arm.startup_s)
    return found[0] if found is not None else None


def _silent(arm: ArmSummary) -> str:
    return NOT_SAID if arm.startup_s else NOT_STARTED


def _draft_silent(arm: ArmSummary) -> str:
    if arm.weights_bytes is not None and arm.draft is not None:
        return "the engine measures target and draft together: see the difference of the weights"
    return _silent(arm)


def _not_observed(arm: ArmSummary) -> str:
    return "memory was not observed" if arm.startup_s else NOT_STARTED


_COLUMNS: Final = (
    _Column("Start-up", _startup_s, fmt.duration, "unit", _silent),
    _Column("Weights", lambda a: a.weights_bytes, fmt.gibibytes, "unit", _silent, optional=True),
    _Column(
        "Draft's weights",
        lambda a: a.draft_weights_bytes,
        fmt.gibibytes,
        "unit",
        _draft_silent,
        optional=True,
        of_draft=True,
    ),
    _Column("Weights loaded in", lambda a: a.weights_load_s, fmt.duration, "unit", _silent, optional=True),
    _Column("KV capacity, tokens", lambda a: a.kv_capacity_tokens, fmt.count, "percent", _silent),
    _Column("Full-length requests that fit", lambda a: a.max_concurrency, fmt.number, "percent", _silent),
    _Column(
        "Requests run at once, at most",
        lambda a: a.max_running_requests,
        fmt.count,
        "percent",
        _silent,
        optional=True,
    ),
    _Column(
        "Memory of its processes, peak", lambda a: a.memory_peak_bytes, fmt.gibibytes, "unit", _not_observed
    ),
)
