"""The acceptance at which speculation would just pay."""

from __future__ import annotations

from pathlib import Path

import pytest

from specbench.analysis.break_even import break_even
from specbench.report.build import build
from specbench.report.tables import DETAIL_COLUMNS, detail_rows
from tests.synthetic import Pace, SyntheticRun


@pytest.mark.parametrize("accepted", [0.2, 0.5, 0.9])
@pytest.mark.parametrize(("cost", "drafted"), [(1.5, 4.0), (2.0, 1.2), (0.9, 3.0)])
def test_it_is_where_the_model_gives_a_speed_up_of_one(accepted: float, cost: float, drafted: float) -> None:
    tokens = 1 + drafted * accepted
    found = break_even(accepted, tokens, tokens / cost)
    assert found is not None
    # Whatever the acceptance that it was worked out from.
    assert found == pytest.approx(max(0.0, (cost - 1) / drafted))
    if found > 0:
        assert (1 + drafted * found) / cost == pytest.approx(1.0)


def test_beyond_one_no_draft_would_do() -> None:
    assert break_even(0.5, 1.5, 0.5) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("rate", "tokens", "speedup"),
    [(None, 2.0, 1.1), (0.0, 1.0, 0.9), (0.5, None, 1.0), (0.5, 2.0, None), (0.5, 1.0, 1.0)],
)
def test_nothing_is_made_up(rate: float | None, tokens: float | None, speedup: float | None) -> None:
    assert break_even(rate, tokens, speedup) is None


def test_it_is_in_the_report(tmp_path: Path) -> None:
    # Steps of three tokens, two of three drafts accepted, that cost 1.5 times as much.
    pace: dict[tuple[str, int, int], Pace | str | None] = {
        (arm, 4, n): p
        for n in (1, 2, 3)
        for arm, p in (("baseline", Pace(0.010)), ("ngram-k4", Pace(0.015, tokens_per_step=3)))
    }
    result = build(SyntheticRun(loads=(4,)).write(tmp_path, pace))
    arm = result.at("ngram-k4", "c4")
    assert arm is not None
    found = arm.acceptance
    assert found.rate == pytest.approx(2 / 3)
    assert found.break_even == break_even(found.rate, found.tokens_per_step, arm.speedup.value)
    # (1.5 - 1) / 3 draft tokens, and the first tokens are later too.
    assert 1 / 6 < (found.break_even or 0) < 0.23
    row = dict(detail_rows(result, "c4"))["ngram-k4"]
    assert row[DETAIL_COLUMNS.index("Break-even acceptance")].text == "21.8%"
    base = dict(detail_rows(result, "c4"))["baseline"]
    assert base[DETAIL_COLUMNS.index("Break-even acceptance")].why
