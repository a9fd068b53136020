"""How numbers and foreign text look in every report format.

Three significant digits, units in words a reader knows, ``–`` for what was not measured.
A value that is not finite is treated as not measured: no report ever prints NaN or inf.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from specbench.report.model import Ratio

DASH: Final = "–"
"""Shown for a null; the reason stands next to it."""

_CONTROL: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufdd0-\ufdef\ufffe\uffff]"
)
_ANSI: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def known(value: float | None) -> bool:
    """Whether there is a finite number to show."""
    return value is not None and math.isfinite(value)


def number(value: float | None) -> str:
    """Three significant digits without an exponent: ``0.0123``, ``1.23``, ``123``, ``12,300``."""
    if value is None or not math.isfinite(value):
        return DASH
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    rounded = round(value, digits)
    # Rounding may carry into the next power of ten (9.996 -> 10.0): count the digits again.
    digits = 2 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{min(max(digits, 0), 9)}f}"


def count(value: float | None) -> str:
    """A whole number with thousands separators: ``12,345``."""
    return f"{value:,.0f}" if value is not None and math.isfinite(value) else DASH


def milliseconds(value_ms: float | None) -> str:
    """``0.123 ms``, ``12.3 ms``, ``1.23 s``."""
    if value_ms is None or not math.isfinite(value_ms):
        return DASH
    return f"{number(value_ms)} ms" if abs(value_ms) < 999.5 else f"{number(value_ms / 1000)} s"


def duration(value_s: float | None) -> str:
    """``450 ms``, ``12.3 s``, ``4 min 5 s``, ``2 h 3 min``."""
    if value_s is None or not math.isfinite(value_s):
        return DASH
    if value_s < 1:
        return milliseconds(value_s * 1000)
    if value_s < 99.5:
        return f"{number(value_s)} s"
    whole = round(value_s)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(value_s / 60)
    return f"{minutes // 60} h {minutes % 60} min"


def percent(share: float | None) -> str:
    """A share of 1 as ``87.3%``, ``4.25%``, ``100%``."""
    if share is None or not math.isfinite(share):
        return DASH
    return f"{number(share * 100)}%"


def share(value: float | None) -> str:
    """A chosen share of 1 (traffic, confidence), without needless zeros: ``90%``, ``12.5%``."""
    if value is None or not math.isfinite(value):
        return DASH
    text = number(value * 100)
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}%"


def gibibytes(value_bytes: float | None) -> str:
    """``1.23 GiB``, or ``345 MiB`` below one GiB."""
    if value_bytes is None or not math.isfinite(value_bytes):
        return DASH
    gib = value_bytes / 2**30
    return f"{number(gib)} GiB" if gib >= 1 else f"{number(gib * 1024)} MiB"


def times(value: float | None) -> str:
    """A ratio: ``1.23x``; ``12.3x`` from ten on."""
    return DASH if value is None or not math.isfinite(value) else f"{_ratio(value)}x"


def interval(ratio: Ratio) -> str:
    """``[1.10, 1.38]``, or ``[–]`` when there is none."""
    if ratio.low is None or ratio.high is None or not (known(ratio.low) and known(ratio.high)):
        return f"[{DASH}]"
    return f"[{_ratio(ratio.low)}, {_ratio(ratio.high)}]"


def speedup(ratio: Ratio) -> str:
    """``1.23x [1.10, 1.38]``, ``1.23x [–]`` without an interval, ``–`` without a value."""
    return f"{times(ratio.value)} {interval(ratio)}" if known(ratio.value) else DASH


def _ratio(value: float) -> str:
    # Two decimals keep a column aligned around 1; thresholds such as 1.05 have two as well.
    return f"{value:.2f}" if abs(value) < 9.995 else number(value)


def mean_and_range(values: Sequence[float]) -> tuple[float, float, float] | None:
    """Mean, smallest and largest of the finite values; null when there is none."""
    finite = [v for v in values if math.isfinite(v)]
    return (sum(finite) / len(finite), min(finite), max(finite)) if finite else None


def timestamp(text: str | None) -> str:
    """``2026-03-01 10:15 UTC`` from ISO 8601; anything else is shown as it is."""
    if not text:
        return DASH
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return clean(text)
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def command(words: Sequence[str]) -> str:
    """A command line, or a part of one, quoted so that a POSIX shell reads it back unchanged."""
    return shlex.join(words)


def letter(index: int) -> str:
    """The mark of a footnote: a, b, …, z, aa, ab, …."""
    letters = ""
    while index >= 0:
        index, rest = divmod(index, 26)
        letters = chr(ord("a") + rest) + letters
        index -= 1
    return letters


def clean(text: str) -> str:
    """Text from outside (names, log lines, settings) without what could steer a terminal or break a file.

    Drops terminal escapes, control and bidirectional-override characters and XML's non-characters;
    a lone surrogate (undecodable byte) becomes U+FFFD. Tabs and line feeds stay.
    """
    return _SURROGATE.sub("\ufffd", _CONTROL.sub("", _ANSI.sub("", text.replace("\r\n", "\n"))))


def one_line(text: str) -> str:
    """`clean`, with every run of white space made one space."""
    return " ".join(clean(text).split())


def shorten(text: str, width: int) -> str:
    """At most ``width`` characters, the middle replaced by ``…``: the ends of arm names tell them apart."""
    if len(text) <= width:
        return text
    tail = max((width - 1) // 2, 0)
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"
