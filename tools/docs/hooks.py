"""What mkdocs calls: adds the pages that are no files of docs/, and adapts links for the site."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

if (root := str(Path(__file__).parents[2])) not in sys.path:
    sys.path.insert(0, root)  # mkdocs loads this file by its path

from tools.docs.formulas import with_formulas
from tools.docs.pages import ROOT, published_files, turned
from tools.docs.reference import PAGES


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the reference, and documents beside docs/."""
    for place, make in PAGES.items():
        files.append(File.generated(config, place, content=make()))  # type: ignore[no-untyped-call]
    for path, place in published_files().items():
        files.append(File.generated(config, place, content=(ROOT / path).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Adapt links, except on pages that were written for the site; let search prefer the guides."""
    place = page.file.src_uri
    if place in PAGES or place.startswith("project/"):
        page.meta["search"] = {"boost": 0.1}
    return markdown if place in PAGES else turned(markdown, place)


def on_page_content(content: str, **_: Any) -> str:
    """Draw the formulas."""
    return with_formulas(content)
