from __future__ import annotations

import re

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from specbench.report.markdown import MAX_BYTES, code, escape, to_markdown
from tests.report import samples
from tests.report.golden import FOLDER, expected


@pytest.mark.parametrize("file", [f for f in expected() if f.endswith(".md")])
def test_golden(file: str) -> None:
    assert expected()[file] == (FOLDER / file).read_text(encoding="utf-8")


def _tokens(text: str) -> list[Token]:
    flat: list[Token] = []
    for token in MarkdownIt("commonmark", {"html": True}).enable("table").parse(text):
        flat += [token, *(token.children or [])]
    return flat


@pytest.mark.parametrize("name", samples.ALL)
def test_only_our_own_html_and_no_broken_table(name: str) -> None:
    tokens = _tokens(to_markdown(samples.ALL[name]()))
    html = {t.content.strip() for t in tokens if t.type in ("html_inline", "html_block")}
    ours = re.compile(r"(</?(sub|sup|br|details)>|<details><summary>\d+ in flight</summary>|<br>)+")
    assert [h for h in html if not ours.fullmatch(h)] == []
    assert not any(t.type in ("image", "link_open") for t in tokens)
    widths = _table_widths(to_markdown(samples.ALL[name]()))
    assert [rows for rows in widths if len(set(rows)) != 1] == []
    assert 11 in {rows[0] for rows in widths}


def _table_widths(text: str) -> list[list[int]]:
    """Cells in each line of each table, by its bars: the parser would cut or fill up a broken row."""
    tables: list[list[int]] = []
    before = ""
    for line in text.splitlines():
        if line.startswith("|"):
            if not before.startswith("|"):
                tables.append([])
            tables[-1].append(len(re.findall(r"(?<!\\)\|", line)) - 1)
        before = line
    return tables


def test_headings_come_from_us_alone() -> None:
    tokens = _tokens(to_markdown(samples.hostile()))
    headings = [tokens[i + 1].content for i, t in enumerate(tokens) if t.type == "heading_open"]
    assert headings[0] == "✅ GO: hostile"
    assert "heading" not in headings


def test_nobody_is_mentioned_outside_code() -> None:
    words = [t.content for t in _tokens(to_markdown(samples.hostile())) if t.type == "text"]
    assert any("@" in text for text in words)
    assert [text for text in words if re.search(r"[@#]\w", text)] == []


def test_cut_at_a_section_when_too_long() -> None:
    result = samples.hostile()
    whole, cut = to_markdown(result), to_markdown(result, max_bytes=20_000)
    assert len(whole.encode()) < MAX_BYTES
    assert len(cut.encode()) < 20_100
    head, _, tail = cut.rpartition("\n*Cut here to fit")
    assert whole.startswith(head)
    assert tail
    assert "Cut here" not in whole


@pytest.mark.parametrize("text", ["plain", "a`b", "``", "`x`", "a|b", "", " "])
def test_code_spans_hold_any_text(text: str) -> None:
    tokens = _tokens(f"x {code(text)} y")
    spans = [t.content for t in tokens if t.type == "code_inline"]
    if text.strip():
        assert [s.replace("\\|", "|").strip() for s in spans] == [text]


def test_escape_leaves_words_with_underscores_readable() -> None:
    assert escape("low_acceptance of *x* <b> a|b") == r"low_acceptance of \*x\* &lt;b&gt; a\|b"


@pytest.mark.parametrize(
    "text", ["[x](https://e.x)", "[1](https://e.x)", "[1][2]", "[1]: /e", "![1](/e)", "a [1](/e)"]
)
def test_no_links_can_be_made(text: str) -> None:
    tokens = _tokens(f"- {escape('[2]: /elsewhere')}\n\n***\n\n- {escape(text)}")
    assert not any(t.type in ("link_open", "image") for t in tokens)
    assert "".join(t.content for t in tokens if t.type == "text").endswith(text)


def test_intervals_stay_readable() -> None:
    assert escape("1.57x [1.56, 1.58]: faster") == "1.57x [1.56, 1.58]: faster"
