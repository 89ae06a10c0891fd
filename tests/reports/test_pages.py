"""Reports as HTML and Markdown: whole, harmless, readable by everybody."""

from __future__ import annotations

import re
import struct
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

import steadyarm as sa
from steadyarm.errors import InvalidInputError, MissingExtraError
from steadyarm.plot.chart import Chart
from steadyarm.plot.chart import Table as Numbers
from steadyarm.reports import Document, experiment_report, format_of, write_report
from steadyarm.reports import document as documents
from steadyarm.reports.document import (
    Code,
    Facts,
    Heading,
    Items,
    Lead,
    Note,
    Paragraph,
    Picture,
    Table,
)
from tests.reports.worlds import Elements, visited

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "[here](javascript:alert(1)) ![x](http://evil.example/x.png)",
    "a | b `code` *c* _d_ ~~e~~ $x$ &amp; <b>",
    "http://evil.example www.evil.example <http://evil.example>",
)
ELEMENTS = re.findall(
    r"\w+",
    "html head meta title style body main h1 h2 h3 p strong dl div dt dd ul li pre code table "
    "caption thead tbody tr th td figure img figcaption footer",
)
ATTRIBUTES = {
    "lang": {"en"},
    "charset": {"utf-8"},
    "class": {"lead", "facts", "small", "table", "table whole", "r", "short", "appendix", "long"}
    | {f"note {status}" for status in ("ok", "warn", "fail", "none")},
    "scope": {"row", "col"},
    "role": {"region"},
    "tabindex": {"0"},
    "name": {"viewport", "color-scheme"},
}
FREE = {"alt", "aria-label", "content", "src"}


@pytest.fixture(scope="module")
def document() -> Document:
    return experiment_report(visited(600, arms=list(HOSTILE)))


@pytest.fixture(scope="module")
def factorial() -> Document:
    levels = {HOSTILE[1]: [HOSTILE[0], "b|c"], "<i>": ["`", "*x*"]}
    return experiment_report(visited(300, arms=sa.ArmSet.factorial(levels)))


@pytest.fixture(scope="module")
def screen(document: Document) -> str:
    return documents.page(document)


def first_picture(document: Document) -> Document:
    picture = next(block for block in document.blocks if isinstance(block, Picture))
    return Document("One picture", (picture,))


def check_harmless(page: Elements) -> None:
    assert page.open == []
    for tag, attributes in page.found:
        assert tag in ELEMENTS
        for name, value in attributes.items():
            assert name in FREE or value in ATTRIBUTES[name]
        source = attributes.get("src", "data:image/png;base64,A")
        assert re.fullmatch(r"data:image/(svg\+xml|png);base64,[\w+/=]+", source or "")


def test_hostile_names_are_text(screen: str) -> None:
    page = Elements(screen)
    check_harmless(page)
    for name in HOSTILE:
        assert name in page.text


def test_hostile_factors_are_text_on_paper(factorial: Document) -> None:
    page = Elements(documents.page(factorial, paper=True))
    check_harmless(page)
    assert f"{HOSTILE[0]} + *x*" in page.text


def test_hostile_names_are_text_in_markdown(document: Document, factorial: Document) -> None:
    parser = MarkdownIt("gfm-like", {"html": True, "linkify": False})
    for each in (document, factorial):
        tokens = parser.parse(documents.text(each, "p"))
        inline = [child for token in tokens for child in token.children or []]
        kinds = {token.type for token in (*tokens, *inline)}
        assert not {kind for kind in kinds if "html" in kind or "link" in kind}
        assert "s_open" not in kinds
        sources = [child.attrs["src"] for child in inline if child.type == "image"]
        wanted = [b.chart.name for b in each.blocks if isinstance(b, Picture)]
        assert sources == [f"p/{name}.png" for name in wanted]
        strong = sum(child.type == "strong_open" for child in inline)
        assert strong == 1  # the headline
        assert {child.content for child in inline if child.type == "code_inline"} == set()
    said = "\n".join(
        "".join(child.content for child in token.children or [] if child.type == "text")
        for token in parser.parse(documents.text(document, "p"))
    )
    for name in HOSTILE:
        assert name in said


def test_addresses_are_no_links_in_markdown(document: Document) -> None:
    text = re.sub(r"```.*?```", "", documents.text(document, "p"), flags=re.DOTALL)
    assert "://" not in text.replace(r"\://", "")
    assert "www." not in text


def test_pages_are_accessible(document: Document, screen: str) -> None:
    page = Elements(screen)
    levels = [int(tag[1]) for tag, _ in page.found if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later <= before + 1 for before, later in pairwise(levels))
    tags = [tag for tag, _ in page.found]
    assert tags.count("caption") == tags.count("table") > 4
    assert all("scope" in attributes for tag, attributes in page.found if tag == "th")
    alts = [attributes["alt"] for tag, attributes in page.found if tag == "img"]
    assert alts == [b.chart.summary for b in document.blocks if isinstance(b, Picture)]
    assert dict(page.found[0][1]) == {"lang": "en"}


def test_screens_are_dark_or_light_and_paper_is_white() -> None:
    document = Document("x", (Heading("Appendix", appendix=True),))
    light, paper = documents.page(document), documents.page(document, paper=True)
    assert "prefers-color-scheme: dark" in light
    assert "prefers-color-scheme" not in paper
    for page in (light, paper):
        assert "@page" in page
        assert "counter(page)" in page
        assert ".appendix { break-before: page; }" in page
        assert "break-inside: avoid" in page
        assert '<h2 class="appendix">Appendix</h2>' in page


def test_every_kind_of_block() -> None:
    blocks = (
        Lead("A wins."),
        Facts((("State", "running"), ("Visits", "5"))),
        Heading("One"),
        Paragraph("Two < three"),
        Note("Careful.", "warn"),
        Items(("- four", "1. five")),
        Table("Six", ("x", "y"), "lr", (("a|b", "7"),), "Eight."),
        Code("```\nnine <b>", "text"),
    )
    document = Document("Title & more", blocks, "The end.")
    assert documents.pictures(document) == {}
    text = documents.text(document)
    assert text == (
        "# Title \\& more\n\n**A wins.**\n\nState: running · Visits: 5\n\n## One\n\n"
        "Two \\< three\n\n> Look at this: Careful.\n\n- \\- four\n- 1\\. five\n\nSix\n\n"
        "| x | y |\n| :--- | ---: |\n"
        "| a\\|b | 7 |\n\nEight.\n\n````text\n```\nnine <b>\n````\n\n*The end.*\n"
    )
    page = documents.page(document)
    assert "<title>Title &amp; more</title>" in page
    assert '<p class="note warn"><strong>Look at this.</strong> Careful.</p>' in page
    assert '<tr><th scope="row" class="short">a|b</th><td class="r">7</td></tr>' in page
    assert "<pre><code>```\nnine &lt;b&gt;</code></pre>" in page


def test_markdown_has_its_pictures_beside_it(document: Document, tmp_path: Path) -> None:
    path = write_report(document, tmp_path / "my report.md")
    text = path.read_text()
    links = re.findall(r"\]\((my%20report-pictures/([a-z-]+\.png))\)", text)
    assert len(links) == sum(isinstance(block, Picture) for block in document.blocks)
    files = {file.name: file.read_bytes() for file in (tmp_path / "my report-pictures").iterdir()}
    assert files.keys() == {name for _, name in links}
    for content in files.values():
        assert content[:8] == b"\x89PNG\r\n\x1a\n"
        width, height = struct.unpack(">II", content[16:24])
        assert width > 400
        assert height > 100


def test_large_drawings_become_dots(document: Document, monkeypatch: pytest.MonkeyPatch) -> None:
    one = first_picture(document)
    assert "image/svg+xml" in documents.page(one)
    monkeypatch.setattr(documents, "HEAVY", 10)
    page = documents.page(one)
    assert "image/svg+xml" not in page
    assert "image/png" in page


def test_small_print_is_text(document: Document) -> None:
    one = first_picture(document)
    (picture,) = (block for block in one.blocks if isinstance(block, Picture))
    assert picture.chart.note
    assert f"<figcaption>{picture.chart.note}</figcaption>" in documents.page(one)


def test_formats_and_endings(tmp_path: Path) -> None:
    assert format_of(Path("a.HTML")) == "html"
    for name, wanted, message in (
        ("a.pdf", None, "expected a name in .md or .html"),
        ("a.md", "html", "ends with .html"),
        ("a.md", "print", "ends with .html"),
        ("a.html", "md", "ends with .md"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            format_of(Path(name), wanted)
    folder = tmp_path / "x.html"
    folder.mkdir()
    with pytest.raises(InvalidInputError, match="is a folder"):
        format_of(folder)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delattr(sa.plot, "matplotlib")
    monkeypatch.delitem(sys.modules, "steadyarm.plot.matplotlib")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    chart = Chart("x", "x", "x", (), Numbers((), ()))
    for work in (
        lambda: format_of(Path("a.html")),
        lambda: documents.page(Document("x", (Picture(chart),))),
        lambda: documents.pictures(Document("x", (Picture(chart),))),
    ):
        with pytest.raises(MissingExtraError, match=r"need matplotlib; .*steadyarm\[plots\]"):
            work()
    assert documents.page(Document("x", (Paragraph("no picture"),)))


def test_nothing_is_left_if_writing_fails(tmp_path: Path) -> None:
    document = Document("x", (Paragraph("y"),))
    (tmp_path / "file").write_text("x")
    with pytest.raises(InvalidInputError, match="cannot be written"):
        write_report(document, tmp_path / "file" / "report.html")
    write_report(document, tmp_path / "report.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "report.html"]
