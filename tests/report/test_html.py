from __future__ import annotations

import base64
import hashlib
import itertools
import math
import os
import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser

import msgspec
import pytest

from specbench.report import palette
from specbench.report.html import to_html
from specbench.report.model import Ratio
from tests.report import samples

VOID = {"meta", "br", "img", "link", "input", "hr"}
PAGES = {name: to_html(make()) for name, make in samples.ALL.items()}
pages = pytest.mark.parametrize("name", samples.ALL)


class Page(HTMLParser):
    """Tags with attributes, visible text, and whether every element was closed."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, str] = {}
        self.stack: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.stack, f"</{tag}> closes nothing"
        assert self.stack[-1] == tag, f"</{tag}> closes <{self.stack[-1]}>"
        self.stack.pop()

    def handle_data(self, data: str) -> None:
        tag = self.stack[-1] if self.stack else ""
        self.text[tag] = self.text.get(tag, "") + data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def words(self) -> str:
        return " ".join(text for tag, text in self.text.items() if tag not in ("script", "style"))


@pages
def test_asks_the_network_for_nothing(name: str) -> None:
    page = Page(PAGES[name])
    loading = {
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "base",
        "video",
        "audio",
        "source",
        "form",
        "use",
        "image",
    }
    assert [tag for tag, _ in page.tags if tag in loading] == []
    for tag, attributes in page.tags:
        assert not {"src", "srcset", "background", "style", "xlink:href"} & attributes.keys(), tag
        assert not any(key.startswith("on") for key in attributes), tag
        assert (attributes.get("href") or "#").startswith("#")
    style = page.text["style"]
    assert "url(" not in style
    assert "@import" not in style
    assert not re.search(r"https?:|//", style + page.text["script"])


@pages
def test_one_script_and_the_policy_names_it(name: str) -> None:
    page = Page(PAGES[name])
    assert page.all("script") == [{}]
    digest = base64.b64encode(hashlib.sha256(page.text["script"].encode()).digest()).decode()
    policy = next(m["content"] for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")


@pages
def test_elements_are_closed_and_ids_unique(name: str) -> None:
    page = Page(PAGES[name])
    assert page.stack == []
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {(a.get("href") or "").removeprefix("#") for a in page.all("a")}
    assert targets <= set(ids)


def test_foreign_text_stays_text() -> None:
    page = Page(PAGES["hostile"])
    assert "<img src=x onerror=alert(1)>" in page.words
    assert "</pre><script src=//evil>" in page.words
    assert "\x1b" not in PAGES["hostile"]
    assert "\u202e" not in PAGES["hostile"]
    PAGES["hostile"].encode()


@pages
def test_no_number_is_a_word_of_python(name: str) -> None:
    assert re.findall(r"\b(?:nan|inf|None|True|-?Infinity|NaN)\b", Page(PAGES[name]).words) in ([], ["True"])


def test_not_a_number_is_shown_as_not_measured() -> None:
    result = samples.go()
    bad = msgspec.structs.replace(
        result.results[1],
        output_tokens_per_s=math.nan,
        speedup=Ratio(value=math.inf, low=math.nan, high=math.inf),
        tpot_ms=msgspec.structs.replace(result.results[1].tpot_ms, p50=math.nan, p95=math.nan),
    )
    html = to_html(msgspec.structs.replace(result, results=(result.results[0], bad, *result.results[2:])))
    assert re.search(r"\b(nan|inf)\b", Page(html).words) is None
    assert re.search(r'="[^"]*\bnan\b', html) is None


@pages
def test_every_dash_says_why(name: str) -> None:
    nulls = [a for a in Page(PAGES[name]).all("span") if a.get("class") == "null"]
    assert [a for a in nulls if not a.get("title")] == []


def test_reasons_of_nulls_are_below_the_table_too() -> None:
    words = Page(PAGES["inconclusive"]).words
    for reason in (
        "no launch of this arm came up",
        "no valid cell (3 failed)",
        "the metrics page has no counters by position",
        "memory was not observed",
        "cells: 1 invalid",
    ):
        assert reason in words


@pages
def test_same_result_same_text(name: str) -> None:
    assert to_html(samples.ALL[name]()) == PAGES[name]


def test_same_text_in_another_process() -> None:
    program = (
        "import hashlib; from tests.report import samples; from specbench.report.html import to_html;"
        "print(hashlib.sha256(to_html(samples.inconclusive()).encode()).hexdigest())"
    )
    run = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "4242"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == hashlib.sha256(PAGES["inconclusive"].encode()).hexdigest()


@pages
def test_can_be_read_aloud(name: str) -> None:
    page = Page(PAGES[name])
    assert page.all("html") == [{"lang": "en"}]
    assert all(th.get("scope") in ("row", "col", "colgroup") for th in page.all("th"))
    assert all(svg.get("aria-label") or svg.get("aria-hidden") == "true" for svg in page.all("svg"))
    regions = [div for div in page.all("div") if div.get("role") == "region"]
    assert len(regions) == len(page.all("table"))
    assert all(div.get("aria-label") and div.get("tabindex") == "0" for div in regions)
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert all(b - a <= 2 for a, b in itertools.pairwise(levels))


def test_the_answer_comes_first() -> None:
    for name, page in PAGES.items():
        result = samples.ALL[name]()
        words = page[page.index("<main>") :]
        assert (
            words.index(f"<span>{result.verdict}</span>")
            < words.index("<h1>")
            < words.index("What to deploy")
        )
        assert words.index("What to deploy") < words.index("Speedup against load")


def test_flags_can_be_copied_whole() -> None:
    page = Page(PAGES["go"])
    button = next(b for b in page.all("button") if b.get("data-copy") == "flags")
    assert "hidden" in button
    recommended = samples.go().recommended
    assert recommended is not None
    assert shlex.join(recommended.flags) in page.text["pre"]
    assert all(not Page(PAGES[n]).all("button") for n in ("no_go", "inconclusive", "single_round"))


def test_an_unfinished_run_says_so() -> None:
    assert "This run is not complete." in Page(PAGES["inconclusive"]).words
    assert "This run is not complete." not in Page(PAGES["go"]).words


def test_a_result_without_arms_or_loads_is_still_a_page() -> None:
    empty = msgspec.structs.replace(
        samples.inconclusive(), arms=(), results=(), loads=(), traffic={}, categories=(), rounds=0
    )
    page = Page(to_html(empty))
    assert page.stack == []
    assert "There is no speedup to draw." in page.words


def _luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(a: str, b: str) -> float:
    high, low = sorted((_luminance(a), _luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1])
def test_marks_stand_out_from_the_page(scheme: int) -> None:
    for pair in (palette.BASELINE, *palette.ARMS):
        assert _contrast(pair[scheme], palette.PAGE[scheme]) >= 3.0, pair


@pytest.mark.parametrize("scheme", [0, 1])
def test_text_stands_out_from_the_page(scheme: int) -> None:
    style = Page(PAGES["go"]).text["style"]
    found = [
        dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block))
        for block in re.findall(r":root \{(.*?)\}", style, re.S)
    ]
    colours = found[scheme]
    assert colours["page"] == palette.PAGE[scheme]
    for name in ("ink", "muted", "go", "no", "unsure", "invalid", "accent"):
        for background in ("page", "panel"):
            assert _contrast(colours[name], colours[background]) >= 4.5, (name, background)
