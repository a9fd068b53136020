from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from specbench.report import palette, plots, svg
from specbench.report.model import Quantiles, Ratio, Result
from tests.report import samples


def _speedup(result: Result) -> str:
    chart = plots.speedup_chart(result, palette.arm_styles(result), 1000, 400)
    assert chart is not None
    return chart


def test_a_mark_per_arm_and_load_filled_when_go() -> None:
    chart = _speedup(samples.go())
    assert chart.count('class="mark"') == 12
    assert chart.count('class="hollow"') == 4
    assert "eagle3-k3, 16 in flight: 1.41x [1.37, 1.45], GO" in chart


def test_nulls_are_left_out() -> None:
    chart = _speedup(samples.inconclusive())
    assert chart.count('class="mark"') == 1
    nothing = msgspec.structs.replace(samples.go(), results=())
    assert plots.speedup_chart(nothing, palette.arm_styles(nothing), 1000, 400) is None


def test_a_huge_interval_is_cut_and_does_not_squash_the_rest() -> None:
    result = samples.go()
    wild = msgspec.structs.replace(result.results[1], speedup=Ratio(value=1.9, low=0.1, high=60.0))
    before = _speedup(result)
    after = _speedup(msgspec.structs.replace(result, results=(result.results[0], wild, *result.results[2:])))
    assert max(float(tick) for tick in re.findall(r">([\d.]+)x</text>", after)) < 4
    assert after.count("<path") - before.count("<path") == 1  # the arrow at the upper end
    assert before.count('class="whisker"') == after.count('class="whisker"')


def test_one_round_has_no_whiskers() -> None:
    assert 'class="whisker"' not in _speedup(samples.single_round())


def test_coordinates_stay_inside_the_picture() -> None:
    for make in samples.ALL.values():
        result = make()
        chart = plots.speedup_chart(result, palette.arm_styles(result), 1000, 400)
        if chart is not None:
            assert all(0 <= float(y) <= 400 for y in re.findall(r' (?:y|y1|y2|cy)="([-\d.]+)"', chart))


def test_the_same_look_for_an_arm_everywhere() -> None:
    styles = palette.arm_styles(samples.go())
    assert styles["baseline"].css == "a0"
    assert len({s.css for s in styles.values()}) == 4
    assert palette.arm_styles(samples.no_go())["ngram-k4"].css == "a1"


def test_many_arms_still_differ() -> None:
    result = samples.hostile()
    styles = palette.arm_styles(result)
    assert len(set(styles.values())) == 31
    drawn = palette.drawn_arms(result)
    assert len(drawn) == palette.MOST_DRAWN
    assert result.recommended is not None
    assert result.recommended.arm in drawn
    assert len({styles[arm].css for arm in drawn}) == len(drawn)


def test_silhouette_area_is_the_number_of_requests() -> None:
    """A bin twice as wide with twice the count is as high."""
    q = Quantiles(n=40, mean=20, p50=20, p90=30, p95=38, histogram=((10.0, 10), (20.0, 10), (40.0, 20)))
    style = palette.ArmStyle("a1", "circle", "")
    chart = plots.distribution_chart([("arm", style, q)], "TTFT")
    assert chart is not None
    outline = re.search(r'd="M([^"]+)Z" class="silhouette"', chart)
    assert outline is not None
    heights = {point.split()[1] for point in outline[1].split("L")}
    assert len(heights) == 2


def test_distributions_of_different_size_get_a_logarithmic_axis() -> None:
    style = palette.ArmStyle("a1", "circle", "")
    near, far = samples.quantiles(500, 10, 0.2), samples.quantiles(500, 400, 0.2)
    alone = plots.distribution_chart([("a", style, near)], "TTFT")
    both = plots.distribution_chart([("a", style, near), ("b", style, far)], "TTFT")
    assert alone is not None
    assert both is not None
    assert "logarithmic" not in alone
    assert "logarithmic" in both
    assert plots.distribution_chart([("a", style, Quantiles(n=0))], "TTFT") is None


@given(
    low=st.floats(min_value=0, max_value=1e5),
    span=st.floats(min_value=1e-3, max_value=1e5),
    about=st.integers(min_value=2, max_value=10),
)
def test_ticks_are_inside_and_few(low: float, span: float, about: int) -> None:
    values = svg.ticks(low, low + span, about)
    slack = 1e-6 * (low + span)
    assert all(low - slack <= v <= low + span + slack for v in values)
    assert len(values) <= about + 2
    assert values == sorted(values)


def test_attributes_and_children_are_escaped() -> None:
    made = svg.element("text", '<b>"', x=1.0, class_='" onload="x')
    assert made == '<text x="1" class="&#34; onload=&#34;x">&lt;b&gt;&#34;</text>'
    assert svg.element("g", Markup("<a></a>")) == "<g><a></a></g>"


@pytest.mark.parametrize(("value", "text"), [(-0.01, "0"), (1.0, "1"), (2.25, "2.2"), (-3.14, "-3.1")])
def test_coordinates_are_short(value: float, text: str) -> None:
    assert svg.coordinate(value) == text
