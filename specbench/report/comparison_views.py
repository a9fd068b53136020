"""How a `Comparison` is printed: terminal, Markdown, JUnit, JSON."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Final

import msgspec
from rich.table import Table

from specbench.report import formatting as fmt
from specbench.report.jsonfile import checked
from specbench.report.markdown import escape
from specbench.report.terminal import Printer

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from specbench.report.comparison_model import ArmChange, Change, Comparison

MOST_CHANGES: Final = 12
"""Lines of what differs that the terminal shows; the other formats have all."""

COLUMNS: Final = (
    "Arm",
    "Speed",
    "Speed, ratio",
    "Speedup",
    "Speedup, ratio",
    "Tokens/step",
    "TTFT p95, ratio",
    "Verdict",
)
NARROW: Final = ("Arm", "Speed, ratio", "Speedup", "Speedup, ratio", "Verdict")
"""What fits in a terminal of 80 columns."""

WIDE: Final = 130

TRAFFIC: Final = "Over the traffic"
CHANGES: Final = "What differs"

_STYLE: Final = {"GO": "green", "NO-GO": "bold red", "INCONCLUSIVE": "yellow", "INVALID": "magenta"}
_MARK: Final = {"GO": "✅", "NO-GO": "❌", "INCONCLUSIVE": "❔", "INVALID": "⚠️"}
_JUNIT: Final = {"NO-GO": "failure", "INVALID": "error", "INCONCLUSIVE": "skipped"}


def render_comparison(result: Comparison, console: Console) -> None:
    """Print it."""
    text = Printer(console).text
    console.print(text(f"{result.verdict}: {_line(result.headline)}", _STYLE[result.verdict]), soft_wrap=True)
    for reason in result.reasons:
        console.print(text(f"  {_line(reason)}"), soft_wrap=True)
    for line in result.left_out:
        console.print(text(f"  not compared: {_line(line)}"), soft_wrap=True)
    console.print()
    console.print(text(_runs(result)), soft_wrap=True)
    columns = COLUMNS if console.width >= WIDE else NARROW
    for title, rows in _tables(result):
        table = Table(title=text(title), title_justify="left", box=None, pad_edge=False)
        for column in columns:
            edge = column in (COLUMNS[0], COLUMNS[-1])
            table.add_column(
                column, justify="left" if edge else "right", overflow="fold", no_wrap=column != COLUMNS[0]
            )
        for row in rows:
            cells = dict(zip(COLUMNS, _cells(row), strict=True))
            table.add_row(
                *(text(cells[x], _STYLE[row.decision] if x == COLUMNS[-1] else "") for x in columns)
            )
        console.print()
        console.print(table)
    if result.changes:
        console.print()
        console.print(text(CHANGES, "bold"))
        for line in result.changes[:MOST_CHANGES]:
            console.print(text(f"  {_line(line)}"), soft_wrap=True)
        if len(result.changes) > MOST_CHANGES:
            more = len(result.changes) - MOST_CHANGES
            console.print(text(f"  and {more} more (--format markdown shows all)"), soft_wrap=True)


def comparison_markdown(result: Comparison) -> str:
    """For a pull request or a job summary."""
    out = [f"## {_MARK[result.verdict]} {result.verdict}: {escape(_line(result.headline))}", ""]
    out += [f"- {escape(_line(reason))}" for reason in result.reasons]
    out += ["", escape(_runs(result))]
    for title, rows in _tables(result):
        out += ["", f"### {escape(title)}", "", f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
        out += [f"| {' | '.join(escape(x) for x in _cells(row))} |" for row in rows]
    for title, lines in _notes(result):
        out += ["", f"### {title}", "", *(f"- {escape(_line(line))}" for line in lines)]
    return "\n".join(out) + "\n"


def comparison_junit(result: Comparison) -> bytes:
    """One test case per arm over the traffic and per arm and load.

    GO passes, NO-GO is a failure, INVALID an error and INCONCLUSIVE is skipped. Runs that cannot be compared
    are one case with an error.
    """
    suite = ET.Element("testsuite", name=f"{_line(result.name)} compared")
    counts = {"failure": 0, "error": 0, "skipped": 0}
    tests = 0
    if not result.arms:
        case = ET.SubElement(suite, "testcase", classname=_line(result.name), name="comparable")
        error = ET.SubElement(case, "error", message=_line("; ".join(result.reasons)), type=result.verdict)
        error.text = "\n".join(_line(x) for x in result.reasons)
        counts["error"], tests = 1, 1
    for row in result.arms:
        where = _line(row.load or "traffic")
        case = ET.SubElement(
            suite, "testcase", classname=f"{_line(result.name)}.{where}", name=_line(row.arm)
        )
        tests += 1
        tag = _JUNIT.get(row.decision)
        if tag is None:
            continue
        counts[tag] += 1
        reasons = "; ".join(_line(x) for x in row.reasons)
        ET.SubElement(case, tag, message=f"{row.decision}: {reasons}")
    totals = {
        "tests": tests,
        "failures": counts["failure"],
        "errors": counts["error"],
        "skipped": counts["skipped"],
    }
    suite.attrib.update({k: str(v) for k, v in totals.items()})
    root = ET.Element("testsuites", {**suite.attrib, "name": "specbench"})
    root.append(suite)
    ET.indent(root)
    document: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def comparison_json(result: Comparison) -> bytes:
    """UTF-8 JSON, indented by two; schema ``specbench.comparison/1``."""
    data = checked(msgspec.to_builtins(result, order="deterministic"), "comparison")
    return msgspec.json.format(msgspec.json.encode(data), indent=2) + b"\n"


def _tables(result: Comparison) -> list[tuple[str, list[ArmChange]]]:
    loads = list(dict.fromkeys(row.load for row in result.arms))
    return [
        (TRAFFIC if x is None else _line(x), [row for row in result.arms if row.load == x]) for x in loads
    ]


def _cells(row: ArmChange) -> tuple[str, ...]:
    """The texts of a row, in the order of the columns."""
    tail = (row.tails or {}).get("ttft_p95")
    return (
        _line(row.arm),
        fmt.DASH if row.load is None else _from_to(row.speed, fmt.number),
        _ratio(row.speed),
        _from_to(row.speedup, fmt.times),
        _ratio(row.speedup),
        _from_to(row.tokens_per_step, fmt.number),
        _ratio(tail),
        row.decision,
    )


def _ratio(change: Change | None) -> str:
    if change is None or change.ratio is None:
        return fmt.DASH
    text = fmt.times(change.ratio)
    if change.low is None or change.high is None:
        return text
    return f"{text} [{change.low:.2f}, {change.high:.2f}]"


def _from_to(change: Change | None, show: Callable[[float | None], str]) -> str:
    if change is None or (change.before is None and change.after is None):
        return fmt.DASH
    return f"{show(change.before)} -> {show(change.after)}"


def _runs(result: Comparison) -> str:
    before, after = result.before, result.after
    return (
        f"Recorded: {_line(before.run_id)} ({_line(before.engine)}). New: {_line(after.run_id)} "
        f"({_line(after.engine)}). Ratios are new over recorded with {result.confidence:.0%} intervals over launches; "
        "a machine is not the same at two times, which no spread of launches shows, so speeds are judged coarsely "
        f"({fmt.times(result.slowest)}) and speed-ups, each over the baseline of its own run, sharply "
        f"({fmt.times(result.required)})."
    )


def _notes(result: Comparison) -> list[tuple[str, tuple[str, ...]]]:
    return [
        (title, lines)
        for title, lines in ((CHANGES, result.changes), ("Not compared", result.left_out))
        if lines
    ]


def _line(text: str) -> str:
    return fmt.one_line(text)
