from __future__ import annotations

import io

import msgspec
import pytest
from rich.cells import cell_len
from rich.console import Console

from specbench.report.terminal import render
from tests.report import samples
from tests.report.golden import FOLDER, expected, terminal


@pytest.mark.parametrize("file", [f for f in expected() if f.endswith(".txt")])
def test_golden(file: str) -> None:
    assert expected()[file] == (FOLDER / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", samples.ALL)
@pytest.mark.parametrize("width", [80, 120])
def test_nothing_is_wider_than_the_terminal_but_the_flags(name: str, width: int) -> None:
    lines = terminal(samples.ALL[name](), width).splitlines()
    flags = next((i for i, line in enumerate(lines) if line.startswith("Deploy ")), len(lines))
    assert [line for line in lines[:flags] if cell_len(line) > width] == []


def test_flags_are_one_line_however_narrow() -> None:
    assert any(
        line.startswith("--speculative-config '{") and line.endswith("}'")
        for line in terminal(samples.go(), 40).splitlines()
    )


def test_a_name_with_its_engine_stays_on_one_line() -> None:
    result = samples.go()
    old, new = result.arms[-1].arm, "ngram-k4@sglang"
    rename = msgspec.structs.replace
    renamed = rename(
        result, results=tuple(rename(x, arm=new) if x.arm == old else x for x in result.results),
        arms=tuple(rename(x, arm=new) if x.arm == old else x for x in result.arms),
    )  # fmt: skip
    table = [line for line in terminal(renamed, 80).splitlines() if line.startswith(new)]
    assert len(table) >= len(result.loads)
    assert all("." in line.removeprefix(new) for line in table)  # its figures stand beside it


def test_markup_and_escapes_in_names_are_text() -> None:
    text = terminal(samples.hostile(), 120)
    assert "[b]" in text.replace("\n", "")
    assert "\x1b" not in text


def test_colour_on_a_terminal_only() -> None:
    console = Console(
        file=io.StringIO(), width=80, force_terminal=True, color_system="standard", no_color=False
    )
    render(samples.go(), console)
    assert isinstance(console.file, io.StringIO)
    assert "\x1b[1;32m" in console.file.getvalue()
    assert "\x1b" not in terminal(samples.go(), 80)


@pytest.mark.parametrize("name", ["inconclusive", "hostile"])
def test_an_ascii_console_can_show_it(name: str) -> None:
    raw = io.BytesIO()
    console = Console(
        file=io.TextIOWrapper(raw, encoding="ascii", errors="strict"), width=80, color_system=None
    )
    render(samples.ALL[name](), console)
    console.file.flush()
    assert samples.ALL[name]().verdict.encode() in raw.getvalue()
