"""The little SVG that the charts need: elements, scales, ticks and markers.

Charts are written into the page, so they take its fonts and colours (CSS variables) and follow the
reader's colour scheme; no drawing library knows that. Nothing here depends on time or chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from markupsafe import Markup, escape

Scale = Callable[[float], float]
"""From a value to a coordinate."""


def coordinate(value: float) -> str:
    """A coordinate in tenths of a unit: small files, the same on every platform."""
    short = f"{value:.1f}".removesuffix(".0")
    return "0" if short == "-0" else short


def element(tag: str, *children: str | Markup, **attributes: str | float) -> Markup:
    """``<tag …>children</tag>``; a trailing underscore frees Python's words, others become dashes."""
    parts = [
        f'{name.rstrip("_").replace("_", "-")}="'
        f'{coordinate(value) if isinstance(value, int | float) else escape(value)}"'
        for name, value in attributes.items()
        if value != ""
    ]
    inside = "".join(escape(child) for child in children)
    opening = " ".join([tag, *parts])
    # escape() has been applied to every attribute and child.
    return Markup(f"<{opening}>{inside}</{tag}>")  # noqa: S704


def text(x: float, y: float, content: str, anchor: str = "start", css: str = "") -> Markup:
    """A line of text with its baseline at ``y``."""
    return element("text", content, x=x, y=y, text_anchor="" if anchor == "start" else anchor, class_=css)


def line(x1: float, y1: float, x2: float, y2: float, css: str) -> Markup:
    """A straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=css)


def path(points: Sequence[tuple[float, float]], css: str, dash: str = "", closed: bool = False) -> Markup:
    """A polyline, or a polygon."""
    moves = "L".join(f"{coordinate(x)} {coordinate(y)}" for x, y in points)
    return element("path", d=f"M{moves}{'Z' if closed else ''}", class_=css, stroke_dasharray=dash)


def marker(kind: str, x: float, y: float, size: float = 4.2) -> Markup:
    """A point mark centred on (x, y), filled with the arm's colour."""
    s = size
    if kind == "circle":
        return element("circle", cx=x, cy=y, r=s, class_="mark")
    if kind == "square":
        return element("rect", x=x - s * 0.9, y=y - s * 0.9, width=s * 1.8, height=s * 1.8, class_="mark")
    shapes: dict[str, list[tuple[float, float]]] = {
        "triangle": [(0, -1.2), (1.1, 0.85), (-1.1, 0.85)],
        "down": [(0, 1.2), (1.1, -0.85), (-1.1, -0.85)],
        "diamond": [(0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)],
    }
    if kind in shapes:
        return path([(x + dx * s, y + dy * s) for dx, dy in shapes[kind]], "mark", closed=True)
    arm, half = 1.2, 0.38
    plus = [
        *((-half, -arm), (half, -arm), (half, -half), (arm, -half), (arm, half), (half, half)),
        *((half, arm), (-half, arm), (-half, half), (-arm, half), (-arm, -half), (-half, -half)),
    ]
    turn = math.pi / 4 if kind == "cross" else 0.0
    cos, sin = math.cos(turn), math.sin(turn)
    return path(
        [(x + s * (dx * cos - dy * sin), y + s * (dx * sin + dy * cos)) for dx, dy in plus],
        "mark",
        closed=True,
    )


def document(width: float, height: float, label: str, children: Sequence[Markup], css: str = "") -> Markup:
    """A whole inline SVG that scales to its container; ``label`` is read aloud instead of it."""
    return element(
        "svg",
        *children,
        viewBox=f"0 0 {coordinate(width)} {coordinate(height)}",
        role="img",
        aria_label=label,
        class_=f"chart {css}".strip(),
    )


def linear(low: float, high: float, start: float, end: float) -> Scale:
    """Map [low, high] to [start, end]."""
    span = (high - low) or 1.0
    return lambda value: start + (value - low) / span * (end - start)


def logarithmic(low: float, high: float, start: float, end: float) -> Scale:
    """Map [low, high], both positive, to [start, end] by logarithm."""
    inner = linear(math.log(low), math.log(high), start, end)
    return lambda value: inner(math.log(max(value, low)))


def ticks(low: float, high: float, about: int) -> list[float]:
    """Round values (steps of 1, 2 or 5 times a power of ten) inside [low, high]."""
    if not high > low:
        return [low]
    raw = (high - low) / max(about, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten times 1, 2 and 5 inside [low, high]; only powers of ten over more than two decades."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    wide = math.log10(high / low) > 2
    values = [10.0**d * m for d in decades for m in ((1,) if wide else (1, 2, 5))]
    return [v for v in values if low * 0.999 <= v <= high * 1.001]
