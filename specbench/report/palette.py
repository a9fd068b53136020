"""One look per arm, the same in every chart and table: colour, marker and dash.

The colours start from Okabe and Ito ("Color Universal Design", 2008) and were moved until each has a contrast
of 3:1 against its page and any two stay apart for readers with protanopia, deuteranopia and tritanopia.
Colour is never alone: markers differ too, and dashes where the colours start again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from specbench.report.model import ArmSummary, Result

PAGE: Final = ("#ffffff", "#14171c")
"""Background of the page, light and dark; the contrast of all colours is against these."""

BASELINE: Final = ("#89909c", "#768294")
"""Grey, light and dark."""

ARMS: Final = (
    ("#037be5", "#1a7dfc"),
    ("#b6420d", "#fcb027"),
    ("#055b44", "#28f79b"),
    ("#91027f", "#f4cded"),
    ("#ca7f03", "#938102"),
    ("#6624e0", "#b99bf3"),
    ("#7c3a1b", "#d85c5a"),
)
"""Light and dark colour of speculative arms, in their order."""

MARKERS: Final = ("circle", "square", "triangle", "diamond", "down", "plus", "cross")
DASHES: Final = ("", "7 3", "2 3", "9 3 2 3", "4 2")


MOST_DRAWN: Final = len(ARMS)
"""Charts draw at most so many speculative arms in full; more cannot be told apart."""


@dataclass(frozen=True, slots=True)
class ArmStyle:
    """How an arm is drawn. ``css`` sets ``--c``, the arm's colour in the reader's colour scheme."""

    css: str
    marker: str
    dash: str


def drawn_arms(result: Result) -> tuple[str, ...]:
    """Speculative arms that charts draw in full: all, or the recommended and the best over the mix."""
    speculative = [arm for arm in result.arms if arm.method is not None]
    if len(speculative) <= MOST_DRAWN:
        return tuple(arm.arm for arm in speculative)
    recommended = result.recommended.arm if result.recommended is not None else None

    ranked = sorted(speculative, key=lambda arm: (arm.arm == recommended, mix_rank(arm)), reverse=True)
    best = {arm.arm for arm in ranked[:MOST_DRAWN]}
    return tuple(arm.arm for arm in speculative if arm.arm in best)


def mix_rank(arm: ArmSummary) -> float:
    """Speedup over the traffic mix, to sort by; below all others when there is none."""
    value = arm.mix_speedup.value
    return value if value is not None and math.isfinite(value) else -math.inf


def arm_styles(result: Result) -> dict[str, ArmStyle]:
    """A style per arm id. The arms that charts draw get a colour each; the rest share colours, not dashes."""
    drawn = drawn_arms(result)
    speculative = [arm.arm for arm in result.arms if arm.method is not None]
    styles = {arm.arm: ArmStyle("a0", "circle", "") for arm in result.arms if arm.method is None}
    for i, arm in enumerate([*drawn, *(arm for arm in speculative if arm not in drawn)]):
        lap, index = divmod(i, len(ARMS))
        styles[arm] = ArmStyle(
            css=f"a{index + 1}",
            marker=MARKERS[(index + lap) % len(MARKERS)],
            dash=DASHES[lap % len(DASHES)],
        )
    return styles


def css_variables(dark: bool) -> str:
    """``--arm-0: …; --arm-1: …``: the palette of one colour scheme."""
    return " ".join(f"--arm-{i}: {pair[dark]};" for i, pair in enumerate((BASELINE, *ARMS)))


def css_classes() -> str:
    """``.a0 { --c: var(--arm-0) }`` and so on."""
    return " ".join(f".a{i} {{ --c: var(--arm-{i}); }}" for i in range(len(ARMS) + 1))
