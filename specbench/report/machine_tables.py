"""The section "Machine during the measurement" as tables. What was not measured has no column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from specbench.report import formatting as fmt
from specbench.report.model import MachineAtLoad, Ratio, Result
from specbench.report.tables import NOT_APPLICABLE, Cell, baseline_ids, ratio_cell

TITLE: Final = "Machine during the measurement"


@dataclass(frozen=True, slots=True)
class MachineTable:
    """One load: rows in the order of the arms."""

    load: str
    rows: list[tuple[str, tuple[Cell, ...]]]


@dataclass(frozen=True, slots=True)
class MachineSection:
    """Tables of all loads with the same columns; ``missing`` says in sentences what has none, and why."""

    columns: tuple[str, ...]
    tables: list[MachineTable]
    missing: tuple[str, ...]
    gpus: bool
    """Whether any figure of a GPU is shown."""


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    value: Callable[[MachineAtLoad], float | None]
    text: Callable[[MachineAtLoad], str]
    why: Callable[[MachineAtLoad], str | None]
    gpu: bool = True
    note: Callable[[MachineAtLoad], str | None] = lambda _: None
    """What to keep in mind of a value."""


def machine_section(result: Result, loads: tuple[str, ...]) -> MachineSection | None:
    """The section; null when nothing was measured."""
    measured = [r.machine for r in result.results if r.machine is not None]
    shown = [c for c in _COLUMNS if any(fmt.known(c.value(x)) for x in measured)]
    if not shown:
        return None
    ratios = any(fmt.known(x.tokens_per_joule_ratio.value) for x in measured)
    baselines = baseline_ids(result)
    tables = []
    for load in loads:
        rows = []
        for arm in result.arms:
            item = result.at(arm.arm, load)
            if item is None or item.machine is None:
                continue
            cells = [_cell(c, item.machine) for c in shown]
            if ratios:
                cells.append(_ratio(item.machine.tokens_per_joule_ratio, is_baseline=arm.arm in baselines))
            rows.append((fmt.one_line(arm.arm), tuple(cells)))
        if rows:
            tables.append(MachineTable(load, rows))
    titles = [c.title for c in shown] + ([_RATIO_TITLE] if ratios else [])
    return MachineSection(tuple(titles), tables, _missing(measured), any(c.gpu for c in shown))


def _cell(column: _Column, x: MachineAtLoad) -> Cell:
    if fmt.known(column.value(x)):
        return Cell(column.text(x), column.note(x))
    return Cell(fmt.DASH, fmt.one_line(column.why(x) or "no sample has it"))


def _ratio(ratio: Ratio, *, is_baseline: bool) -> Cell:
    return NOT_APPLICABLE if is_baseline else ratio_cell(ratio)


def _missing(measured: list[MachineAtLoad]) -> tuple[str, ...]:
    """Reasons that hold for all arms and loads: their columns are not shown at all."""
    sentences = []
    for title, why, value in (
        ("GPUs", [x.gpu_why_null for x in measured], [x.gpus for x in measured]),
        (
            "Tokens per joule",
            [x.energy_why_null if x.gpus else None for x in measured],
            [x.tokens_per_joule for x in measured],
        ),
        ("The host", [x.host_why_null for x in measured], [x.cpu_share for x in measured]),
    ):
        reasons = dict.fromkeys(fmt.one_line(w) for w in why if w)
        if reasons and all(v is None for v in value):
            sentences.append(f"{title}: not measured ({'; '.join(reasons)})")
    return tuple(sentences)


def _power(x: MachineAtLoad) -> str:
    text = f"{fmt.number(x.gpu_power_w)} W"
    if x.gpu_power_w is not None and x.gpu_power_limit_w:
        text += f" ({x.gpu_power_w / x.gpu_power_limit_w:.0%} of limit)"
    return text


def _reasons(x: MachineAtLoad) -> str | None:
    """What held the clocks down."""
    reasons = ", ".join(fmt.one_line(name) for name in x.gpu_throttle_reasons)
    return f"held down by: {reasons}" if reasons else None


def _gpu_why(x: MachineAtLoad) -> str | None:
    return x.gpu_why_null


_RATIO_TITLE: Final = "Over the baseline's"
_COLUMNS: Final = (
    _Column("GPU busy", lambda x: x.gpu_utilization, lambda x: fmt.percent(x.gpu_utilization), _gpu_why),
    _Column(
        "GPU memory, peak",
        lambda x: x.gpu_memory_peak_bytes,
        lambda x: fmt.gibibytes(x.gpu_memory_peak_bytes),
        _gpu_why,
    ),
    _Column("GPU power", lambda x: x.gpu_power_w, _power, _gpu_why),
    _Column(
        "SM clock",
        lambda x: x.gpu_sm_clock_mhz,
        lambda x: f"{fmt.count(x.gpu_sm_clock_mhz)} MHz",
        _gpu_why,
    ),
    _Column(
        "Throttled", lambda x: x.gpu_throttled, lambda x: fmt.share(x.gpu_throttled), _gpu_why, note=_reasons
    ),
    _Column(
        "CPU busy",
        lambda x: x.cpu_share,
        lambda x: fmt.percent(x.cpu_share),
        lambda x: x.host_why_null,
        gpu=False,
    ),
    _Column(
        "Engine's cores",
        lambda x: x.engine_cores,
        lambda x: fmt.number(x.engine_cores),
        lambda x: x.host_why_null or "its processes cannot be seen",
        gpu=False,
    ),
    _Column(
        "Engine's memory, peak",
        lambda x: x.engine_memory_peak_bytes,
        lambda x: fmt.gibibytes(x.engine_memory_peak_bytes),
        lambda x: x.host_why_null or "its processes cannot be seen",
        gpu=False,
    ),
    _Column(
        "Machine's memory, peak",
        lambda x: x.memory_peak_bytes,
        lambda x: fmt.gibibytes(x.memory_peak_bytes),
        lambda x: x.host_why_null,
        gpu=False,
    ),
    _Column(
        "Tokens per joule",
        lambda x: x.tokens_per_joule,
        lambda x: fmt.number(x.tokens_per_joule),
        lambda x: x.energy_why_null,
    ),
)
