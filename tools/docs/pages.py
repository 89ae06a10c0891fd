"""Documents beside docs/ that are pages of the site, and links as they are there."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

__all__ = ["PUBLISHED", "ROOT", "published_files", "turned"]

ROOT = Path(__file__).parents[2]
PUBLISHED = {  # documents of the repository, and where they are on the site
    "README.md": "index.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CITATION.cff": "project/CITATION.cff",
    "LICENSE": "project/LICENSE.txt",
    "examples/README.md": "examples/index.md",
}
LINK = re.compile(r"(\]\(|(?:src|href)=\")([^)\s\"#]+)")
NAMED = re.compile(r"(?<!!)\[([^\[\]]*)\]\(([^)\s#]+)(?:#[^)]*)?\)")


def published_files() -> dict[str, str]:
    """All files beside docs/ that the site has; the scripts of examples among them."""
    scripts = {
        f"examples/{path.name}": f"examples/{path.name}"
        for path in sorted((ROOT / "examples").iterdir())
        if path.suffix in (".py", ".ipynb")
    }
    return PUBLISHED | scripts


def turned(text: str, page: str) -> str:
    """A page's text with links as they are on the site.

    Links are written for those who read files: relative to the file, also to what is not on the
    site. Links to code become their names; those that lead nowhere stay, for mkdocs to find.

    Examples
    --------
    >>> turned("[a](docs/run/plan.md), [b](CONTRIBUTING.md), [setup](pyproject.toml)", "index.md")
    '[a](run/plan.md), [b](project/contributing.md), setup'
    >>> turned("[the root](../../README.md#why)", "run/ab_test.md")
    '[the root](../index.md#why)'
    """
    places = published_files()
    source = {page: path for path, page in places.items()}.get(page, f"docs/{page}")
    folder = posixpath.dirname(source)

    def path_of(target: str) -> str | None:
        path = posixpath.normpath(posixpath.join(folder, target))
        found = "://" not in target and not path.startswith("..") and (ROOT / path).exists()
        return path if found else None

    def without_code(match: re.Match[str]) -> str:
        path = path_of(match[2])
        if path is None or path.startswith("docs/") or path in places:
            return match[0]
        return match[1]

    def on_site(match: re.Match[str]) -> str:
        path = path_of(match[2])
        if path is None:
            return match[0]
        place = places.get(path, path.removeprefix("docs/"))
        return match[1] + posixpath.relpath(place, posixpath.dirname(page) or ".")

    return LINK.sub(on_site, NAMED.sub(without_code, text))
