"""JUnit XML, so that a CI server shows every arm at every load as a test."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Literal

from specbench.report import formatting as fmt
from specbench.report import tables
from specbench.report.model import Result


def to_junit(result: Result, inconclusive: Literal["skipped", "failure"] = "skipped") -> bytes:
    """One test case per arm and load.

    GO passes, NO-GO is a failure, INVALID an error, and INCONCLUSIVE what ``inconclusive`` says.
    The baseline passes where it was measured and is an error where it was not. A pair of arm and load
    that the run never reached is skipped.
    """
    suite = ET.Element("testsuite", name=fmt.one_line(result.name))
    properties = ET.SubElement(suite, "properties")
    for name, value in (
        ("verdict", result.verdict),
        ("headline", result.headline),
        ("evidence_grade", result.grade),
        ("target", result.target),
        ("engine", result.engine),
        ("run_id", result.run_id),
        ("min_speedup", f"{result.min_speedup}"),
        ("confidence", f"{result.confidence}"),
    ):
        ET.SubElement(properties, "property", name=name, value=fmt.one_line(value))
    counts = {"failure": 0, "error": 0, "skipped": 0}
    tests = 0
    for load in tables.ordered_loads(result):
        rows = {row.id: row for row in tables.load_rows(result, load)}
        for arm in result.arms:
            case = ET.SubElement(
                suite,
                "testcase",
                classname=f"{fmt.one_line(result.name)}.{fmt.one_line(load)}",
                name=fmt.one_line(arm.arm),
            )
            tests += 1
            outcome = _fill(case, rows.get(arm.arm), inconclusive)
            if outcome:
                counts[outcome] += 1
    totals = {
        "tests": str(tests),
        "failures": str(counts["failure"]),
        "errors": str(counts["error"]),
        "skipped": str(counts["skipped"]),
    }
    if result.duration_s is not None:
        totals["time"] = f"{result.duration_s:.3f}"
    suite.attrib.update(totals)
    root = ET.Element("testsuites", {"name": "specbench", **totals})
    root.append(suite)
    ET.indent(root)
    document: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _fill(
    case: ET.Element, row: tables.LoadRow | None, inconclusive: Literal["skipped", "failure"]
) -> str | None:
    """Add the outcome to a test case; returns its tag, or null when the case passed."""
    if row is None:
        ET.SubElement(case, "skipped", message="the run has no result for this arm at this load")
        return "skipped"
    reasons = "; ".join(row.reasons) or row.cells.why or row.speedup.why or "no reason was given"
    tag: str | None = None
    if row.decision == "INVALID" or (row.is_baseline and not row.measured):
        tag = "error"
    elif row.decision == "NO-GO":
        tag = "failure"
    elif row.decision == "INCONCLUSIVE":
        tag = inconclusive
    if tag is not None:
        outcome = ET.SubElement(case, tag, message=f"{row.decision}: {reasons}")
        if tag != "skipped":
            outcome.set("type", row.decision)
            outcome.text = "\n".join(row.reasons)
    ET.SubElement(case, "system-out").text = (
        f"speedup {row.speedup.text}, {row.tokens_per_s.text} tokens/s, "
        f"TTFT p95 {row.ttft_p95.text} ms, TPOT p95 {row.tpot_p95.text} ms, "
        f"acceptance length {row.length.text}"
    )
    return tag
