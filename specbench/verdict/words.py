"""Numbers as a reader says them."""

from __future__ import annotations


def ratio_text(value: float | None) -> str:
    """``1.23x``, or ``unknown``."""
    return "unknown" if value is None else f"{value:.2f}x"


def interval_text(interval: tuple[float, float]) -> str:
    """``[1.10, 1.38]``."""
    return f"[{interval[0]:.2f}, {interval[1]:.2f}]"
