"""The site: mkdocs builds it strictly, and its pages ask no other machine for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools.docs.pages import MADE, PUBLISHED

ROOT = Path(__file__).parents[2]
LOADED = re.compile(r"<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)=\"(?:https?:)?//[^\"]+")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_built_and_loads_from_nowhere_else(built: Path) -> None:
    places = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    places += [Path(place) for place in (*MADE, *PUBLISHED.values()) if place.endswith(".md")]
    for place in places:
        folder = place.parent if place.name == "index.md" else place.with_suffix("")
        text = (built / folder / "index.html").read_text()
        assert not LOADED.findall(text), f"{place} loads from elsewhere"
        assert "</article>" in text
    assert (built / "search/search_index.json").stat().st_size > 100_000
