"""Markdown for GitHub: a job summary or a comment on a pull request."""

from __future__ import annotations

import re
from typing import Final

from specbench.report import formatting as fmt
from specbench.report import tables
from specbench.report.cost_table import TITLE as COST_TITLE
from specbench.report.cost_table import cost_table
from specbench.report.machine import CAVEAT
from specbench.report.machine_tables import TITLE as MACHINE_TITLE
from specbench.report.machine_tables import machine_section
from specbench.report.model import Result
from specbench.report.policy_text import (
    MATCHED_TITLE,
    OPEN_TITLE,
    TASK_TITLE,
    matched_lines,
    open_check_lines,
    policy_pieces,
    task_lines,
)
from specbench.report.policy_text import TITLE as POLICY_TITLE
from specbench.report.tables import Cell, LoadRow

MAX_BYTES: Final = 65_000
"""GitHub refuses comments of more than 65,536 characters."""

OPEN_LOADS: Final = 4
"""With more loads than this, their tables are folded."""

_MARK: Final = {"GO": "✅", "NO-GO": "❌", "INCONCLUSIVE": "❔", "INVALID": "⚠️"}
_SPECIAL: Final = re.compile(r"([\\`*|~]|^\[|\[(?!\d)|\](?=[(\[])|(?<!\w)_|_(?!\w))")
"""Intervals such as ``[1.10, 1.38]`` stay readable: brackets are escaped where they could make a link."""

_MENTION: Final = re.compile(r"([@#])(?=\w)")

_COLUMNS: Final = (
    "Arm",
    "Tokens/s",
    "Speedup",
    "TTFT p50",
    "p95",
    "TPOT p50",
    "p95",
    "Acceptance length",
    "rate",
    "Coverage",
    "Decision",
)


def to_markdown(result: Result, max_bytes: int = MAX_BYTES) -> str:
    """Verdict, flags, a table per load, warnings and failures, in whole sections up to ``max_bytes``."""
    sections = [
        _head(result),
        _deploy(result),
        _policy(result),
        _engines(result),
        *_loads(result),
        _notes(result),
        _failures(result),
        _cost(result),
        _machine(result),
        _foot(result),
    ]
    text = ""
    for section in sections:
        if not section:
            continue
        if len(text.encode()) + len(section.encode()) > max_bytes:
            return text + "\n*Cut here to fit GitHub's limit; the HTML report holds the rest.*\n"
        text += f"\n{section}" if text else section
    return text


def escape(text: str) -> str:
    """Foreign text as plain words: no markup, no HTML, no mention of people, no link to an issue."""
    safe = fmt.one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MENTION.sub("\\1\u200b", _SPECIAL.sub(r"\\\1", safe))


def code(text: str) -> str:
    """Foreign text as a code span that may stand in a table."""
    inner = fmt.one_line(text).replace("|", "\\|")
    fence = "`" * (max((len(run) for run in re.findall("`+", inner)), default=0) + 1)
    pad = " " if inner.startswith("`") or inner.endswith("`") or not inner else ""
    return f"{fence}{pad}{inner}{pad}{fence}"


def _block(text: str) -> str:
    safe = fmt.clean(text)
    fence = "`" * max(3, max((len(run) for run in re.findall("`+", safe)), default=0) + 1)
    return f"{fence}sh\n{safe}\n{fence}\n"


def _head(result: Result) -> str:
    lines = [
        f"## {_MARK[result.verdict]} {result.verdict}: {escape(result.name)}",
        "",
        f"**{escape(result.headline)}**",
        "",
        *(f"- {escape(reason)}" for reason in result.reasons),
    ]
    if not result.complete:
        lines += ["", "**This run is not complete**: it covers what was measured so far."]
    rounds = f"{result.rounds} round{'' if result.rounds == 1 else 's'}"
    lines += [
        "",
        f"{code(result.target)} on {escape(result.engine)}, {rounds}, "
        f"required {fmt.times(result.min_speedup)} with {fmt.share(result.confidence)} confidence.",
        "",
        f"Evidence grade **{result.grade}**"
        + (f": {'; '.join(escape(r) for r in result.grade_reasons)}" if result.grade_reasons else ""),
    ]
    return "\n".join(lines) + "\n"


def _deploy(result: Result) -> str:
    if result.recommended is None:
        return ""
    arm = next((a for a in result.arms if a.arm == result.recommended.arm), None)
    speedup = f", {fmt.speedup(arm.mix_speedup)} over the traffic mix" if arm is not None else ""
    return (
        f"### Deploy {code(result.recommended.arm)}\n\n"
        f"GO at {escape(tables.deploy_loads(result))}{speedup}.\n\n"
        f"{_block(fmt.command(result.recommended.flags))}"
    )


def _policy(result: Result) -> str:
    parts = []
    for piece in policy_pieces(result):
        more = "".join(f" {escape(text)}." for text in (x.rstrip(".") for x in piece.more))
        parts.append(f"- {escape(piece.text)}{more}\n")
        if piece.flags:
            parts.append(
                f"\n  {_block(fmt.command(piece.flags)).strip().replace(chr(10), chr(10) + '  ')}\n\n"
            )
    text = f"### {POLICY_TITLE}\n\n{''.join(parts)}" if parts else ""
    lines = open_check_lines(result)
    if lines:
        text += f"\n### {OPEN_TITLE}\n\n" + "".join(f"- {escape(line)}\n" for line in lines)
    lines = matched_lines(result)
    if lines:
        text += f"\n### {MATCHED_TITLE}\n\n" + "".join(f"- {escape(line)}\n" for line in lines)
    lines = task_lines(result)
    if lines:
        text += f"\n### {TASK_TITLE}\n\n" + "".join(f"- {escape(line)}\n" for line in lines)
    return text.lstrip("\n")


def _engines(result: Result) -> str:
    rows = tables.engine_rows(result)
    if not rows:
        return ""
    lines = [
        "### Engines beside each other",
        "",
        "| Engine | " + " | ".join(tables.ENGINE_COLUMNS) + " |",
        "|---|" + "---|" * len(tables.ENGINE_COLUMNS),
        *(f"| {escape(name)} | " + " | ".join(escape(c.text) for c in cells) + " |" for name, cells in rows),
    ]
    return "\n".join(lines) + "\n"


def _loads(result: Result) -> list[str]:
    sections = [_load(result, load) for load in tables.ordered_loads(result)]
    if len(sections) <= OPEN_LOADS:
        return sections
    return [
        f"<details><summary>{tables.load_title(result, load)}</summary>\n\n{section}\n</details>\n"
        for load, section in zip(tables.ordered_loads(result), sections, strict=True)
    ]


def _load(result: Result, load: str) -> str:
    share = f" ({fmt.share(result.traffic[load])} of traffic)" if load in result.traffic else ""
    title = f"### {escape(tables.load_title(result, load))}{share}\n\n"
    rows = tables.load_rows(result, load)
    if not rows:
        return f"{title}Nothing was run at this load.\n"
    notes = tables.null_reasons(cell for row in rows for cell in _cells(row))
    lines = [
        f"| {' | '.join(_COLUMNS)} |",
        f"|:--|{'--:|' * (len(_COLUMNS) - 2)}:--|",
        *(_row(row, notes) for row in rows),
    ]
    more = "".join(f"- {escape(line)}\n" for line in tables.load_lines(result, load))
    return f"{title}{chr(10).join(lines)}\n\n<sub>Latencies in ms.{_footnotes(notes)}</sub>\n" + (
        more and f"\n{more}"
    )


def _cells(row: LoadRow) -> tuple[Cell, ...]:
    return (
        row.tokens_per_s,
        row.speedup,
        row.ttft_p50,
        row.ttft_p95,
        row.tpot_p50,
        row.tpot_p95,
        row.length,
        row.rate,
        row.coverage,
    )


def _row(row: LoadRow, notes: list[str]) -> str:
    decision = row.decision if row.is_baseline else f"**{row.decision}**"
    return f"| {code(row.arm)} | {' | '.join(_marked(cell, notes) for cell in _cells(row))} | {decision} |"


def _notes(result: Result) -> str:
    groups = tables.grouped([*result.warnings, *result.engine_differences])
    if not groups:
        return ""
    lines = []
    for group in groups:
        action = f" *{escape(group.action)}*" if group.action else ""
        if len(group.messages) == 1:
            lines.append(f"- {escape(group.messages[0])}{action}")
        else:
            lines.append(f"- {escape(group.code)}:{action}")
            lines += [f"  - {escape(message)}" for message in group.messages]
    return "### Warnings\n\n" + "\n".join(lines) + "\n"


def _failures(result: Result) -> str:
    if not result.failures:
        return ""
    lines = [
        f"- **{escape(f.where)}** ({escape(f.kind)}): {escape(f.summary)}"
        + (f" *{escape(f.mend)}*" if f.mend else "")
        for f in result.failures
    ]
    return "### Failures\n\n" + "\n".join(lines) + "\n"


def _cost(result: Result) -> str:
    cost = cost_table(result)
    notes = tables.null_reasons(cell for _, cells in cost.rows for cell in cells)
    rows = [(code(arm), cells) for arm, cells in cost.rows]
    left_out = f"<br>Not told by the engine: {', '.join(cost.left_out).lower()}." if cost.left_out else ""
    return (
        f"### {COST_TITLE}\n\n{_plain_table(('Arm', *cost.columns), rows, notes)}\n"
        f"<sub>In brackets: the difference to the baseline.{_footnotes(notes)}{left_out}</sub>\n"
    )


def _machine(result: Result) -> str:
    section = machine_section(result, tables.ordered_loads(result))
    if section is None:
        return ""
    notes = tables.null_reasons(cell for t in section.tables for _, cells in t.rows for cell in cells)
    rows = [
        (code(arm), (Cell(escape(tables.load_title(result, t.load))), *cells))
        for t in section.tables
        for arm, cells in t.rows
    ]
    lines = "".join(f"- {escape(note.message)}\n" for note in result.headroom)
    missing = "".join(f"<br>{escape(sentence)}." for sentence in section.missing)
    caveat = f" {CAVEAT}." if section.gpus else ""
    return (
        f"### {MACHINE_TITLE}\n\n{lines and f'{lines}{chr(10)}'}"
        f"{_plain_table(('Arm', 'Load', *section.columns), rows, notes)}\n"
        f"<sub>Means over the steady windows; context, no part of the verdict.{caveat}"
        f"{_footnotes(notes)}{missing}</sub>\n"
    )


def _plain_table(columns: tuple[str, ...], rows: list[tuple[str, tuple[Cell, ...]]], notes: list[str]) -> str:
    lines = [
        f"| {' | '.join(columns)} |",
        f"|:--|{'--:|' * (len(columns) - 1)}",
        *(f"| {name} | {' | '.join(_marked(cell, notes) for cell in cells)} |" for name, cells in rows),
    ]
    return "\n".join(lines) + "\n"


def _marked(cell: Cell, notes: list[str]) -> str:
    mark = f"<sup>{fmt.letter(notes.index(cell.why))}</sup>" if cell.why and cell.footnote else ""
    return f"{cell.text}{mark}"


def _footnotes(notes: list[str]) -> str:
    return "".join(f"<br>{fmt.letter(i)} {escape(note)}" for i, note in enumerate(notes))


def _foot(result: Result) -> str:
    return f"<sub>specbench {escape(result.specbench)}, run {escape(result.run_id)}</sub>\n"
