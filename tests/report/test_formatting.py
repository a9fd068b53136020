from __future__ import annotations

import math
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench.report import formatting as fmt
from specbench.report.model import Ratio


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "–"),
        (0, "0"),
        (0.01234, "0.0123"),
        (1.234, "1.23"),
        (9.996, "10.0"),
        (99.96, "100"),
        (123.4, "123"),
        (12_345.0, "12,300"),
        (-1.5, "-1.50"),
    ],
)
def test_number_has_three_significant_digits(value: float | None, text: str) -> None:
    assert fmt.number(value) == text


@given(st.floats(min_value=1e-6, max_value=1e12))
def test_number_is_within_half_a_digit(value: float) -> None:
    shown = float(fmt.number(value).replace(",", ""))
    assert shown == pytest.approx(value, rel=0.00502)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.1234, "0.123 ms"), (12.34, "12.3 ms"), (999.4, "999 ms"), (999.6, "1.00 s"), (1234, "1.23 s")],
)
def test_milliseconds_become_seconds(value: float, text: str) -> None:
    assert fmt.milliseconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.25, "250 ms"),
        (12.34, "12.3 s"),
        (245.2, "4 min 5 s"),
        (3599.6, "1 h 0 min"),
        (7380.0, "2 h 3 min"),
        (None, "–"),
    ],
)
def test_duration(value: float | None, text: str) -> None:
    assert fmt.duration(value) == text


def test_shares_and_bytes() -> None:
    assert fmt.percent(0.8734) == "87.3%"
    assert fmt.share(0.9) == "90%"
    assert fmt.share(0.125) == "12.5%"
    assert fmt.share(0.0) == "0%"
    assert fmt.gibibytes(1.5 * 2**30) == "1.50 GiB"
    assert fmt.gibibytes(345 * 2**20) == "345 MiB"


def test_speedup_with_and_without_interval() -> None:
    assert fmt.speedup(Ratio(value=1.2345, low=1.1, high=1.378)) == "1.23x [1.10, 1.38]"
    assert fmt.speedup(Ratio(value=12.34)) == "12.3x [–]"
    assert fmt.speedup(Ratio(why_null="not run")) == "–"
    assert fmt.speedup(Ratio(value=math.nan, low=1.0, high=2.0)) == "–"
    assert fmt.speedup(Ratio(value=1.0, low=math.nan, high=2.0)) == "1.00x [–]"


def test_timestamp_is_utc_to_the_minute() -> None:
    assert fmt.timestamp("2026-03-01T12:15:30+02:00") == "2026-03-01 10:15 UTC"
    assert fmt.timestamp("2026-03-01T10:15:30Z") == "2026-03-01 10:15 UTC"
    assert fmt.timestamp("yesterday") == "yesterday"
    assert fmt.timestamp(None) == "–"


@given(st.text())
def test_clean_text_is_harmless_and_stays_so(text: str) -> None:
    safe = fmt.clean(text)
    assert fmt.clean(safe) == safe
    safe.encode()
    assert not any(ord(c) < 32 and c not in "\t\n" for c in safe)


def test_clean_removes_terminal_escapes_whole() -> None:
    assert fmt.clean("\x1b[31mred\x1b[0m \x1b]0;title\x07tab\tline\n") == "red tab\tline\n"
    assert fmt.clean("abc\u202edef\udcff") == "abcdef\ufffd"


@given(st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"]), min_size=1), min_size=1))
def test_command_reads_back(words: list[str]) -> None:
    assert shlex.split(fmt.command(words)) == words


@given(st.text(min_size=0, max_size=60), st.integers(min_value=1, max_value=40))
def test_shorten_keeps_both_ends(text: str, width: int) -> None:
    short = fmt.shorten(text, width)
    assert len(short) <= width or len(text) <= width
    if len(text) > width >= 3:
        assert short[0] == text[0]
        assert short[-1] == text[-1]


def test_footnote_letters() -> None:
    assert [fmt.letter(i) for i in (0, 25, 26, 51, 52)] == ["a", "z", "aa", "az", "ba"]
