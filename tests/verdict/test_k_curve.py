"""The curve over K that picks among arms that did not run."""

from __future__ import annotations

import math

import pytest

from specbench.verdict.k_curve import curve


def test_the_curve_is_a_parabola_and_does_not_leave_what_was_measured() -> None:
    ladder = {f"k{k}": k for k in range(1, 11)}
    true = {a: 0.1 + 0.5 * math.log1p(k) - 0.2 * math.log1p(k) ** 2 for a, k in ladder.items()}
    found = curve(ladder, {a: true[a] for a in ("k2", "k5", "k8")} | {"other": 9.0})
    assert found == pytest.approx({a: x for a, x in true.items() if 2 <= ladder[a] <= 8})
    assert curve(ladder, {a: true[a] for a in ("k2", "k5")}) == {}
