"""One self-contained HTML page: opens offline, asks the network for nothing, escapes all foreign text."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import jinja2
from markupsafe import Markup, escape

from specbench.report import formatting as fmt
from specbench.report import palette, plots, policy_text, tables
from specbench.report.cost_table import TITLE as COST_TITLE
from specbench.report.cost_table import cost_table
from specbench.report.machine import CAVEAT
from specbench.report.machine_tables import TITLE as MACHINE_TITLE
from specbench.report.machine_tables import MachineSection, machine_section
from specbench.report.model import ArmSummary, Quantiles, Result
from specbench.report.tables import Cell

OPEN_LOADS: Final = 6
"""Loads whose charts are open when the page loads; with more, all but the first are folded."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells with the reasons of their nulls below: each reason has a letter."""

    rows: Sequence[tuple[str, tuple[Cell, ...]]]
    notes: list[str]


@dataclass(frozen=True, slots=True)
class LoadView:
    """Everything the page says about one load."""

    id: str
    title: str
    share: float | None
    lines: list[str]
    rows: list[tables.LoadRow]
    notes: list[str]
    details: Table
    acceptance: Markup | None
    latency: list[tuple[str, Markup | None]]
    category_arms: tuple[str, ...]
    categories: list[tables.CategoryRow]
    category_notes: list[str]


@dataclass(frozen=True, slots=True)
class Headline:
    """The arm that the summary speaks of: the recommended one, else the best over the traffic mix."""

    arm: str
    recommended: bool
    speedup: Cell
    value: str
    interval: str


def to_html(result: Result) -> str:
    """The report as one HTML document; the same result gives the same text."""
    environment = _environment()
    script = _source(environment, "report.js")
    styles = palette.arm_styles(result)
    cost = cost_table(result)
    machine = machine_section(result, tables.ordered_loads(result))
    return environment.get_template("report.html.j2").render(
        result=result,
        headline=_headline(result),
        styles=styles,
        keys={fmt.one_line(arm): plots.legend_mark(style) for arm, style in styles.items()},
        drawn=[fmt.one_line(arm) for arm in palette.drawn_arms(result)],
        speculative_count=sum(arm.method is not None for arm in result.arms),
        speedup_wide=plots.speedup_chart(result, styles, 1100, 420),
        speedup_narrow=plots.speedup_chart(result, styles, 372, 320),
        not_drawn=_not_drawn(result),
        loads=[_load_view(result, styles, load) for load in tables.ordered_loads(result)],
        open_loads=OPEN_LOADS,
        deploy_loads=tables.deploy_loads(result),
        arm_cells={arm.arm: _mix_cell(arm) for arm in result.arms},
        arm_notes=tables.null_reasons(_mix_cell(arm) for arm in result.arms),
        cost=_table(cost.rows),
        cost_title=COST_TITLE,
        cost_columns=cost.columns,
        cost_left_out=cost.left_out,
        machine=machine,
        machine_title=MACHINE_TITLE,
        machine_views=_machine_views(result, machine),
        busy_caveat=CAVEAT,
        policy=policy_text.policy_pieces(result),
        policy_title=policy_text.TITLE,
        open_lines=policy_text.open_check_lines(result),
        open_title=policy_text.OPEN_TITLE,
        matched_lines=policy_text.matched_lines(result),
        matched_title=policy_text.MATCHED_TITLE,
        task_lines=policy_text.task_lines(result),
        task_title=policy_text.TASK_TITLE,
        engines=_table(tables.engine_rows(result)),
        engine_columns=tables.ENGINE_COLUMNS,
        detail_columns=tables.DETAIL_COLUMNS,
        unbroken=lambda text: _unbroken(text, result),
        warnings=tables.grouped(result.warnings),
        differences=tables.grouped(result.engine_differences),
        decision=tables.decision,
        script=Markup(script),  # noqa: S704 - a file of this package
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        palette_light=Markup(palette.css_variables(dark=False)),  # noqa: S704 - constants
        palette_dark=Markup(palette.css_variables(dark=True)),  # noqa: S704 - constants
        palette_classes=Markup(palette.css_classes()),  # noqa: S704 - constants
    )


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("specbench.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.filters |= {
        "number": fmt.number,
        "count": fmt.count,
        "share": fmt.share,
        "times": fmt.times,
        "duration": fmt.duration,
        "timestamp": fmt.timestamp,
        "command": fmt.command,
        "one_line": fmt.one_line,
        "letter": _letter,
        "settings": _settings,
        "slug": lambda text: text.lower().replace(" ", "-"),
    }
    return environment


def _finalize(value: Any) -> Any:
    """Applied to every ``{{ }}`` before it is escaped: no control character gets into the page."""
    return fmt.clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _source(environment: jinja2.Environment, name: str) -> str:
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


def _letter(notes: list[str], cell: Cell) -> str:
    """Footnote mark of a cell; empty when it has none."""
    return fmt.letter(notes.index(cell.why)) if cell.why and cell.footnote else ""


def _unbroken(text: str, result: Result) -> Markup:
    """Text in which the names of arms do not break at their hyphens."""
    names = sorted(
        {arm.arm for arm in result.arms if "-" in arm.arm and len(arm.arm) < 28}, key=len, reverse=True
    )
    safe = escape(fmt.clean(text))
    if not names:
        return safe
    pattern = "|".join(re.escape(str(escape(name))) for name in names)
    whole = re.sub(rf"(?<![\w-])({pattern})(?![\w-])", r'<span class="name">\1</span>', str(safe))
    return Markup(whole)  # noqa: S704 - escaped above


def _settings(settings: dict[str, object]) -> str:
    return ", ".join(f"{fmt.one_line(key)}={fmt.one_line(str(value))}" for key, value in settings.items())


def _headline(result: Result) -> Headline | None:
    candidates = [arm for arm in result.arms if arm.method is not None]
    if not candidates:
        return None
    chosen = next((a for a in candidates if result.recommended and a.arm == result.recommended.arm), None)
    best = chosen or max(candidates, key=palette.mix_rank)
    return Headline(
        arm=fmt.one_line(best.arm),
        recommended=chosen is not None,
        speedup=tables.ratio_cell(best.mix_speedup),
        value=fmt.times(best.mix_speedup.value),
        interval=fmt.interval(best.mix_speedup),
    )


def _mix_cell(arm: ArmSummary) -> Cell:
    return tables.NOT_APPLICABLE if arm.method is None else tables.ratio_cell(arm.mix_speedup)


def _table(rows: Sequence[tuple[str, tuple[Cell, ...]]]) -> Table:
    return Table(rows, tables.null_reasons(cell for _, cells in rows for cell in cells))


def _machine_views(result: Result, section: MachineSection | None) -> list[tuple[str, Table]]:
    """Title of a load and its table."""
    if section is None:
        return []
    return [(tables.load_title(result, x.load), _table(x.rows)) for x in section.tables]


def _load_view(result: Result, styles: dict[str, palette.ArmStyle], load: str) -> LoadView:
    rows = tables.load_rows(result, load)
    categories = tables.category_rows(result, load)
    return LoadView(
        id=load,
        title=tables.load_title(result, load),
        lines=tables.load_lines(result, load),
        share=result.traffic.get(load),
        rows=rows,
        notes=tables.null_reasons(cell for row in rows for cell in row_cells(row)),
        details=_table(tables.detail_rows(result, load)),
        acceptance=plots.acceptance_chart(result, styles, load),
        latency=[
            (name, plots.distribution_chart(_quantiles(result, styles, load, field), name))
            for name, field in (
                ("Time to first token", "ttft_ms"),
                ("Time per output token", "tpot_ms"),
                ("Chunk gap", "chunk_gap_ms"),
            )
        ],
        category_arms=tables.category_arms(result, load),
        categories=categories,
        category_notes=tables.null_reasons(
            cell for row in categories for cells in row.cuts for cell in cells
        ),
    )


def row_cells(row: tables.LoadRow) -> tuple[Cell, ...]:
    """The cells of a row in the order of the page's table."""
    return (
        row.cells,
        row.tokens_per_s,
        row.speedup,
        row.ttft_p50,
        row.ttft_p95,
        row.tpot_p50,
        row.tpot_p95,
        row.length,
        row.rate,
        row.coverage,
        row.tokens_per_step,
    )


def _quantiles(
    result: Result, styles: dict[str, palette.ArmStyle], load: str, field: str
) -> list[tuple[str, palette.ArmStyle, Quantiles]]:
    drawn = {*tables.baseline_ids(result), *palette.drawn_arms(result)}
    return [
        (arm.arm, styles[arm.arm], getattr(item, field))
        for arm in result.arms
        if arm.arm in drawn and (item := result.at(arm.arm, load)) is not None
    ]


def _not_drawn(result: Result) -> list[str]:
    """Arms and loads without a point in the speedup chart, and why."""
    missing: list[str] = []
    for arm in result.arms:
        if arm.method is None:
            continue
        gaps: dict[str, list[str]] = {}
        for load in tables.ordered_loads(result):
            item = result.at(arm.arm, load)
            if item is None:
                gaps.setdefault("not run", []).append(load)
            elif not fmt.known(item.speedup.value):
                why = tables.ratio_cell(item.speedup).why or ""
                gaps.setdefault(why, []).append(load)
        missing += [f"{fmt.one_line(arm.arm)} at {', '.join(loads)}: {why}" for why, loads in gaps.items()]
    return missing
