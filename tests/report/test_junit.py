from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter

import pytest

from specbench.report.junit import to_junit
from tests.report import samples


def _outcomes(root: ET.Element) -> Counter[str]:
    found: Counter[str] = Counter()
    for case in root.iter("testcase"):
        tags = [child.tag for child in case if child.tag != "system-out"]
        assert len(tags) <= 1
        found[tags[0] if tags else "passed"] += 1
    return found


@pytest.mark.parametrize("name", samples.ALL)
def test_counts_agree_with_the_cases(name: str) -> None:
    result = samples.ALL[name]()
    root = ET.fromstring(to_junit(result))
    outcomes = _outcomes(root)
    for element in (root, root[0]):
        assert int(element.attrib["tests"]) == len(result.arms) * len(result.loads) == sum(outcomes.values())
        assert int(element.attrib["failures"]) == outcomes["failure"]
        assert int(element.attrib["errors"]) == outcomes["error"]
        assert int(element.attrib["skipped"]) == outcomes["skipped"]
    assert to_junit(samples.ALL[name]()) == to_junit(result)


def test_go_sample() -> None:
    outcomes = _outcomes(ET.fromstring(to_junit(samples.go())))
    assert outcomes == {"passed": 12, "skipped": 2, "failure": 2}


def test_no_go_is_a_failure_with_its_reasons() -> None:
    root = ET.fromstring(to_junit(samples.no_go()))
    failure = root.find(".//testcase[@name='ngram-k4']/failure")
    assert failure is not None
    assert failure.attrib["type"] == "NO-GO"
    assert failure.attrib["message"] == "NO-GO: the whole interval is below the required 1.05x"
    assert root.findall(".//testcase[@name='baseline']/failure") == []


def test_inconclusive_can_fail() -> None:
    result = samples.inconclusive()
    assert _outcomes(ET.fromstring(to_junit(result))) == {"passed": 1, "skipped": 5}
    strict = ET.fromstring(to_junit(result, inconclusive="failure"))
    assert _outcomes(strict) == {"passed": 1, "failure": 2, "skipped": 3}


def test_invalid_is_an_error_for_the_baseline_too() -> None:
    assert _outcomes(ET.fromstring(to_junit(samples.invalid()))) == {"error": 4}


def test_hostile_names_survive() -> None:
    root = ET.fromstring(to_junit(samples.hostile()))
    names = {case.attrib["name"] for case in root.iter("testcase")}
    assert len(names) == 31
    assert any("<script>" in name for name in names)
