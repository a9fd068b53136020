"""The charts of the HTML report, each a pure function of the result that returns inline SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from specbench.report import formatting as fmt
from specbench.report import svg
from specbench.report.model import ArmAtLoad, Quantiles, Result
from specbench.report.palette import ArmStyle, drawn_arms
from specbench.report.tables import baseline_ids, ordered_loads

LETTER: Final = 6.4
"""Mean width of a letter at the charts' 12 px, for shortening labels."""

LOG_FROM: Final = 12.0
"""A latency axis turns logarithmic when its largest p95 is this many times its smallest p50."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The plotting area inside a chart."""

    left: float
    top: float
    right: float
    bottom: float


def speedup_chart(result: Result, styles: dict[str, ArmStyle], width: float, height: float) -> Markup | None:
    """Speedup against load, a line per speculative arm, with intervals; null when no arm has a speedup.

    Filled marks are GO. Intervals that reach far outside the values are cut and end in an arrow.
    """
    drawn = _with_speedup(result)
    loads = [load for load in ordered_loads(result) if any(item.load == load for item in drawn)]
    if not loads:
        return None
    wide = width > 600
    frame = Frame(left=46, top=14, right=width - (118 if wide else 10), bottom=height - 46)
    full = drawn_arms(result)
    low, high = _speedup_range(drawn, [item for item in drawn if item.arm in full], result.min_speedup)
    y = svg.linear(low, high, frame.bottom, frame.top)
    slot = (frame.right - frame.left) / len(loads)
    centre = {load: frame.left + slot * (i + 0.5) for i, load in enumerate(loads)}
    names = {
        item.load: fmt.count(item.concurrency) if item.kind == "closed" else fmt.one_line(item.load)
        for item in drawn
    }
    axis = "Requests in flight" if all(item.kind == "closed" for item in drawn) else "Load"
    values = svg.ticks(low, high, 6 if wide else 5)
    parts = [
        *_y_grid(values, y, frame, _times_names(values)),
        *(svg.text(centre[load], frame.bottom + 20, names[load], "middle", "tick") for load in loads),
        svg.text((frame.left + frame.right) / 2, height - 6, axis, "middle", "axis"),
        svg.line(frame.left, y(1.0), frame.right, y(1.0), "baseline-line"),
        svg.line(frame.left, y(result.min_speedup), frame.right, y(result.min_speedup), "required-line"),
    ]
    if wide:
        parts += _line_labels(y, frame, result.min_speedup)
    speculative = [arm.arm for arm in result.arms if any(item.arm == arm.arm for item in drawn)]
    arms = [arm for arm in speculative if arm in full]
    points = {arm: {item.load: item for item in drawn if item.arm == arm} for arm in speculative}
    parts += [
        _faint_arm(points[arm], loads, centre, y, styles[arm]) for arm in speculative if arm not in arms
    ]
    step = min(11.0, slot * 0.62 / max(len(arms) - 1, 1))
    for i, arm in enumerate(arms):
        shift = (i - (len(arms) - 1) / 2) * step
        parts.append(_speedup_arm(points[arm], loads, centre, shift, y, frame, styles[arm]))
    label = (
        f"Speedup over the baseline at {len(loads)} load{'s' if len(loads) != 1 else ''} "
        f"for {len(arms)} arm{'s' if len(arms) != 1 else ''}; the tables below hold the numbers."
    )
    return svg.document(width, height, label, parts)


def _with_speedup(result: Result) -> list[ArmAtLoad]:
    baselines = baseline_ids(result)
    return [r for r in result.results if r.arm not in baselines and fmt.known(r.speedup.value)]


def _speedup_range(
    items: Sequence[ArmAtLoad], with_interval: Sequence[ArmAtLoad], min_speedup: float
) -> tuple[float, float]:
    core = [1.0, min_speedup, *(item.speedup.value or 0.0 for item in items)]
    reach = max(0.12, 0.8 * (max(core) - min(core)))
    floor, ceiling = max(0.0, min(core) - reach), max(core) + reach
    ratios = [item.speedup for item in with_interval]
    ends = [end for r in ratios for end in (r.low, r.high) if end is not None and fmt.known(end)]
    low = min([*core, *(max(e, floor) for e in ends)])
    high = max([*core, *(min(e, ceiling) for e in ends)])
    pad = max(0.02, 0.05 * (high - low))
    return max(0.0, low - pad), high + pad


def _faint_arm(
    mine: dict[str, ArmAtLoad],
    loads: Sequence[str],
    centre: dict[str, float],
    y: svg.Scale,
    style: ArmStyle,
) -> Markup:
    line = svg.path([(centre[at], y(mine[at].speedup.value or 0.0)) for at in loads if at in mine], "curve")
    name = svg.element("title", fmt.one_line(next(iter(mine.values())).arm))
    return svg.element("g", name, line, class_=f"{style.css} faint")


def _speedup_arm(
    mine: dict[str, ArmAtLoad],
    loads: Sequence[str],
    centre: dict[str, float],
    shift: float,
    y: svg.Scale,
    frame: Frame,
    style: ArmStyle,
) -> Markup:
    parts: list[Markup] = []
    points = [(centre[load] + shift, y(mine[load].speedup.value or 0.0)) for load in loads if load in mine]
    if len(points) > 1:
        parts.append(svg.path(points, "curve", style.dash))
    for load, (px, py) in zip([load for load in loads if load in mine], points, strict=True):
        item = mine[load]
        ratio = item.speedup
        marks: list[Markup] = []
        if (
            ratio.low is not None
            and ratio.high is not None
            and fmt.known(ratio.low)
            and fmt.known(ratio.high)
        ):
            marks += _whisker(px, y(ratio.low), y(ratio.high), frame)
        marks.append(svg.marker(style.marker, px, py))
        words = f"{fmt.one_line(item.arm)}, {_load_words(item)}: {fmt.speedup(ratio)}, {item.decision}"
        parts.append(
            svg.element(
                "g", svg.element("title", words), *marks, class_="" if item.decision == "GO" else "hollow"
            )
        )
    return svg.element("g", *parts, class_=style.css)


def _load_words(item: ArmAtLoad) -> str:
    if item.kind == "closed":
        return f"{item.concurrency} in flight"
    return fmt.one_line(item.title or item.load)


def _whisker(x: float, y_low: float, y_high: float, frame: Frame) -> list[Markup]:
    bottom, top = min(y_low, frame.bottom), max(y_high, frame.top)
    parts = [svg.line(x, bottom, x, top, "whisker")]
    for end, cut, toward in ((bottom, y_low > frame.bottom, 1), (top, y_high < frame.top, -1)):
        if cut:
            parts.append(
                svg.path([(x - 4, end - toward * 6), (x, end), (x + 4, end - toward * 6)], "whisker")
            )
        else:
            parts.append(svg.line(x - 4, end, x + 4, end, "whisker"))
    return parts


def _line_labels(y: svg.Scale, frame: Frame, min_speedup: float) -> list[Markup]:
    """Names of the two horizontal lines beside the plot, pushed apart when the lines are close."""
    required, base = y(min_speedup), y(1.0)
    gap = 16.0
    if abs(required - base) < gap:
        middle = (required + base) / 2
        sign = -1 if min_speedup >= 1.0 else 1
        required, base = middle + sign * gap / 2, middle - sign * gap / 2
    return [
        svg.text(frame.right + 8, required + 4, f"required {fmt.times(min_speedup)}", css="label"),
        svg.text(frame.right + 8, base + 4, "baseline 1.00x", css="label"),
    ]


def acceptance_chart(
    result: Result, styles: dict[str, ArmStyle], load: str, width: float = 256, height: float = 190
) -> Markup | None:
    """P(draft i accepted) against i, a line per arm; null when no arm has it at this load."""
    drawn = [
        item
        for arm in drawn_arms(result)
        if (item := result.at(arm, load)) is not None
        and item.acceptance.per_position
        and all(fmt.known(p) for p in item.acceptance.per_position)
    ]
    if not drawn:
        return None
    longest = max(len(item.acceptance.per_position) for item in drawn)
    frame = Frame(left=40, top=10, right=width - 12, bottom=height - 40)
    x = svg.linear(1, longest, frame.left + 12, frame.right - 12) if longest > 1 else _middle(frame)
    y = svg.linear(0, 1, frame.bottom, frame.top)
    every = 1 if longest <= 12 else -(-longest // 10)
    parts = [
        *_y_grid([0, 0.25, 0.5, 0.75, 1], y, frame, lambda v: f"{v:.0%}"),
        *(
            svg.text(x(i), frame.bottom + 18, str(i), "middle", "tick")
            for i in range(1, longest + 1)
            if (i - 1) % every == 0
        ),
        svg.text((frame.left + frame.right) / 2, height - 4, "Draft position", "middle", "axis"),
    ]
    for item in drawn:
        style = styles[item.arm]
        points = [(x(i), y(p)) for i, p in enumerate(item.acceptance.per_position, start=1)]
        values = ", ".join(fmt.percent(p) for p in item.acceptance.per_position)
        parts.append(
            svg.element(
                "g",
                svg.element("title", f"{fmt.one_line(item.arm)}: {values}"),
                svg.path(points, "curve", style.dash) if len(points) > 1 else Markup(""),
                *(svg.marker(style.marker, px, py, 3.4) for px, py in points),
                class_=style.css,
            )
        )
    label = "Share of drafts accepted at each position. " + " ".join(
        f"{fmt.one_line(i.arm)}: {', '.join(fmt.percent(p) for p in i.acceptance.per_position)}."
        for i in drawn
    )
    return svg.document(width, height, label, parts)


def distribution_chart(
    rows: Sequence[tuple[str, ArmStyle, Quantiles]], measure: str, width: float = 330
) -> Markup | None:
    """One silhouette per arm over a common axis in milliseconds, with its median and 95th percentile.

    Args:
        rows: arm, its style and its quantiles; arms without a median are left out.
        measure: name of the measure, for the label that is read aloud.
        width: of the chart.
    """
    drawn = [(arm, style, q) for arm, style, q in rows if fmt.known(q.p50)]
    if not drawn:
        return None
    row_height = 42.0
    frame = Frame(left=6, top=4, right=width - 6, bottom=4 + row_height * len(drawn))
    low, high, is_log = _latency_range([q for _, _, q in drawn])
    height = frame.bottom + (36 if is_log else 20)
    x = (svg.logarithmic if is_log else svg.linear)(low, high, frame.left, frame.right)
    ticks = svg.log_ticks(low, high) if is_log else svg.ticks(low, high, 5)
    parts: list[Markup] = []
    for tick in ticks:
        parts.append(svg.line(x(tick), frame.top + 16, x(tick), frame.bottom, "grid"))
        anchor = "start" if x(tick) < frame.left + 8 else "end" if x(tick) > frame.right - 14 else "middle"
        parts.append(svg.text(x(tick), frame.bottom + 15, _tick_ms(tick), anchor, "tick"))
    if is_log:
        parts.append(svg.text(frame.right, height - 4, "logarithmic", "end", "axis"))
    for i, (arm, style, q) in enumerate(drawn):
        parts.append(
            _distribution_row(fmt.one_line(arm), style, q, frame, frame.top + row_height * i, row_height, x)
        )
    label = f"{measure} in milliseconds. " + " ".join(
        f"{fmt.one_line(arm)}: p50 {fmt.number(q.p50)}, p95 {fmt.number(q.p95)}." for arm, _, q in drawn
    )
    return svg.document(width, height, label, parts)


def _distribution_row(
    arm: str, style: ArmStyle, q: Quantiles, frame: Frame, top: float, row_height: float, x: svg.Scale
) -> Markup:
    floor = top + row_height - 4
    tall = row_height - 22
    figures = f"{fmt.number(q.p50)} / {fmt.number(q.p95)}"
    room = int((frame.right - frame.left) / LETTER - len(figures) - 2)
    parts = [
        svg.element("title", f"{arm}: p50 {fmt.number(q.p50)} ms, p95 {fmt.number(q.p95)} ms, n = {q.n:,}"),
        svg.text(frame.left, top + 12, fmt.shorten(arm, room), css="name"),
        svg.text(frame.right, top + 12, figures, "end", "figures"),
    ]
    outline = _silhouette(q, x, frame, floor, tall)
    if outline:
        parts.append(svg.path(outline, "silhouette", closed=True))
    parts.append(svg.line(frame.left, floor, frame.right, floor, "floor"))
    for value, css in ((q.p50, "median"), (q.p95, "tail")):
        if value is not None and fmt.known(value) and frame.left <= x(value) <= frame.right + 0.5:
            parts.append(svg.line(x(value), floor, x(value), floor - tall, css))
    return svg.element("g", *parts, class_=style.css)


def _silhouette(
    q: Quantiles, x: svg.Scale, frame: Frame, floor: float, tall: float
) -> list[tuple[float, float]]:
    """Outline of the histogram: area, not height, is the number of requests, whatever the bin widths."""
    if not q.histogram:
        return []
    edges = [edge for edge, _ in q.histogram]
    first = max(0.0, 2 * edges[0] - edges[1]) if len(edges) > 1 else 0.0
    bars: list[tuple[float, float, float]] = []
    for left, (right, number) in zip([first, *edges], q.histogram, strict=False):
        x0, x1 = max(x(left), frame.left), min(x(right), frame.right)
        full = x(right) - x(left)
        if x1 > x0 and full > 0:
            bars.append((x0, x1, number / full))
    peak = max((density for *_, density in bars), default=0.0)
    if peak <= 0:
        return []
    outline = [(bars[0][0], floor)]
    for x0, x1, density in bars:
        level = floor - tall * density / peak
        outline += [(x0, level), (x1, level)]
    outline.append((bars[-1][1], floor))
    return outline


def _latency_range(quantiles: Sequence[Quantiles]) -> tuple[float, float, bool]:
    """Axis ends, and whether it is logarithmic. Tails beyond 1.6 times the largest p95 are cut."""
    tails = [v for q in quantiles for v in (q.p50, q.p95) if v is not None and fmt.known(v)]
    medians = [q.p50 for q in quantiles if q.p50 is not None and q.p50 > 0]
    edges = [edge for q in quantiles for edge, number in q.histogram if number]
    high = min(max([*edges, *tails]), 1.6 * max(tails)) or 1.0
    high = max(high, max(tails) * 1.04)
    if medians and max(tails) / min(medians) > LOG_FROM:
        smallest = min([e for e in edges if e > 0] + medians)
        return max(smallest * 0.7, high / 1e5), high, True
    return 0.0, high, False


def _tick_ms(value: float) -> str:
    return f"{value:,.6f}".rstrip("0").rstrip(".")


def _times_names(values: Sequence[float]) -> Callable[[float], str]:
    """As many decimals as the finest tick needs, one at least, the same for all."""
    decimals = 2 if any(abs(v * 10 - round(v * 10)) > 1e-6 for v in values) else 1
    return lambda value: f"{value:.{decimals}f}x"


def _middle(frame: Frame) -> svg.Scale:
    return lambda _: (frame.left + frame.right) / 2


def _y_grid(
    values: Sequence[float], y: svg.Scale, frame: Frame, name: Callable[[float], str]
) -> list[Markup]:
    parts: list[Markup] = []
    for value in values:
        parts.append(svg.line(frame.left, y(value), frame.right, y(value), "grid"))
        parts.append(svg.text(frame.left - 8, y(value) + 4, name(value), "end", "tick"))
    return parts


def legend_mark(style: ArmStyle) -> Markup:
    """The little mark that stands before an arm's name; decoration, so hidden from screen readers."""
    return svg.element(
        "svg",
        svg.path([(0, 6), (22, 6)], "curve", style.dash),
        svg.marker(style.marker, 11, 6, 3.8),
        viewBox="0 0 22 12",
        width="22",
        height="12",
        aria_hidden="true",
        class_=f"key {style.css}",
    )
