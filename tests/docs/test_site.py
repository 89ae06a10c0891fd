"""The site: mkdocs builds it strictly, and its pages ask no other machine for anything."""

from __future__ import annotations

import html
import inspect
import re
from pathlib import Path

import steadyarm
from tools.docs.pages import PUBLISHED
from tools.docs.reference import PAGES

ROOT = Path(__file__).parents[2]
LOADED = re.compile(r"<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)=\"(?:https?:)?//[^\"]+")


def test_every_page_is_built_and_loads_from_nowhere_else(built: Path) -> None:
    places = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    places += [Path(place) for place in (*PAGES, *PUBLISHED.values()) if place.endswith(".md")]
    for place in places:
        folder = place.parent if place.name == "index.md" else place.with_suffix("")
        text = (built / folder / "index.html").read_text()
        assert not LOADED.findall(text), f"{place} loads from elsewhere"
        assert "</article>" in text
        assert "$<code>" not in text, f"{place} has TeX in it"
        assert 'class="math"' not in text, f"{place} has TeX in it"
    assert (built / "search/search_index.json").stat().st_size > 100_000


def test_formulas_are_drawn_in_the_colour_of_the_text(built: Path) -> None:
    text = (built / "research/theory/index.html").read_text()
    labels = re.findall(r'<svg [^>]*role="img" aria-label="([^"]+)"', text)
    source = (ROOT / "docs/research/theory.md").read_text()
    displayed = re.findall(r"```math\n(.*?)\n```", source, re.DOTALL)
    assert len(displayed) > 5
    for tex in [*displayed, *re.findall(r"\$`(.*?)`\$", source)]:
        assert html.escape(tex) in labels, tex
    assert 'fill="currentColor"' in text
    assert 'fill="black"' not in text


def test_every_public_object_is_in_the_reference(built: Path) -> None:
    text = (built / "reference/python/index.html").read_text()
    for name in steadyarm.__all__:
        value = getattr(steadyarm, name)
        assert inspect.ismodule(value) or f'id="{value.__module__}.{name}"' in text, name
