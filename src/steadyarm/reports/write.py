"""Reports as files: which format, which name, never half-written."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, cast

from steadyarm.errors import InvalidInputError
from steadyarm.files import write_atomically
from steadyarm.reports import html, markdown
from steadyarm.reports.document import Document
from steadyarm.reports.drawing import drawer

__all__ = ["FORMATS", "Format", "format_of", "write_report"]

Format = Literal["html", "md", "print"]
FORMATS: dict[Format, tuple[str, ...]] = {
    "html": (".html", ".htm"),
    "md": (".md", ".markdown"),
    "print": (".html", ".htm"),
}


def format_of(path: Path, wanted: str | None = None) -> Format:
    """How to write the file: as its ending says, or as wanted if that fits the ending.

    Refuses what cannot be written, and says so before any work is done.

    Examples
    --------
    >>> format_of(Path("report.md")), format_of(Path("report.html"), "print")
    ('md', 'print')
    """
    ending = path.suffix.lower()
    if wanted is None:
        fits = [name for name, endings in FORMATS.items() if ending in endings]
        if not fits:
            raise InvalidInputError(
                f"the report is {path.name}; expected a name in .md or .html. To get PDF write "
                ".html and print it."
            )
        wanted = fits[0]
    elif ending not in FORMATS[cast(Format, wanted)]:
        raise InvalidInputError(
            f"the report is {path.name} and its format {wanted}; expected a name that ends with "
            f"{FORMATS[cast(Format, wanted)][0]}."
        )
    if path.is_dir():
        raise InvalidInputError(f"{path} is a folder; give the name of a file.")
    drawer()
    return cast(Format, wanted)


def write_report(document: Document, path: Path, form: str | None = None) -> Path:
    """Write a document; pictures of Markdown go into a folder beside it, NAME-pictures."""
    chosen = format_of(path, form)
    try:
        if chosen != "md":
            return write_atomically(path, html.page(document, chosen == "print").encode())
        folder = path.with_name(f"{path.stem}-pictures")
        for name, picture in markdown.pictures(document).items():
            write_atomically(folder / name, picture)
        return write_atomically(path, markdown.text(document, folder.name).encode())
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be written: {error}") from None
