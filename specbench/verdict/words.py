"""Numbers as a reader says them."""

from __future__ import annotations


def ratio_text(value: float | None) -> str:
    """``1.23x``, or ``unknown``."""
    return "unknown" if value is None else f"{value:.2f}x"


def interval_text(interval: tuple[float, float]) -> str:
    """``[1.10, 1.38]``."""
    return f"[{interval[0]:.2f}, {interval[1]:.2f}]"


def time_text(seconds: float | None) -> str:
    """``, about 25 min`` or ``, about 3.5 h``, to follow a number of rounds; empty when it is not known."""
    if seconds is None:
        return ""
    if seconds < 5400:
        return f", about {max(1, round(seconds / 60))} min"
    return f", about {seconds / 3600:.1f} h"
