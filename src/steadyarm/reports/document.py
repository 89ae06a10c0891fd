"""Document: a report before it is written, and how it becomes a file.

A document is plain values that say what, not how it looks. It is written as one HTML page that can
be mailed, or as Markdown with pictures beside it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from importlib import resources
from pathlib import Path
from typing import Literal, cast
from urllib.parse import quote

from steadyarm.errors import InvalidInputError
from steadyarm.files import write_atomically
from steadyarm.plot.chart import Chart


@dataclass(frozen=True)
class Heading:
    """A heading; level 2 for sections, 3 within them; `appendix` begins a new page."""

    text: str
    level: Literal[2, 3] = 2
    appendix: bool = False


@dataclass(frozen=True)
class Lead:
    """The sentence that matters most."""

    text: str


@dataclass(frozen=True)
class Paragraph:
    """Plain text, no markup in it."""

    text: str


@dataclass(frozen=True)
class Note:
    """A sentence that is picked out; its status is shown in colour and in a word."""

    text: str
    status: Literal["ok", "warn", "fail", "none"] = "none"


@dataclass(frozen=True)
class Facts:
    """Names and values in a line."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Items:
    """A list."""

    texts: tuple[str, ...]
    numbered: bool = False


class Strong(str):
    """A cell of a table that is picked out."""

    __slots__ = ()


@dataclass(frozen=True)
class Table:
    """Cells as text; `align` has an l or r for every column, the first column names the row."""

    caption: str
    header: tuple[str, ...]
    align: str
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True, eq=False)
class Picture:
    """A chart; the writer draws it."""

    chart: Chart


@dataclass(frozen=True)
class Code:
    """What is typed or stored, letter by letter."""

    text: str
    language: str = "console"


Block = Heading | Lead | Paragraph | Note | Facts | Items | Table | Picture | Code


@dataclass(frozen=True, eq=False)
class Document:
    """A whole report.

    Attributes
    ----------
    title : at its top
    blocks : in their order
    foot : who wrote it and when, small at the end

    Examples
    --------
    >>> found = Document("A report", (Paragraph("All is well."),))
    >>> found.title, len(found.blocks)
    ('A report', 1)
    """

    title: str
    blocks: tuple[Block, ...]
    foot: str = ""


# A document as one HTML page that can be mailed: styles and pictures inside, no script.


HEAVY = 400_000  # bytes of a drawing from which on dots are lighter than lines
FEW = 16  # rows of a table that is not cut at the end of a page
LONG, NARROW = 60, 40  # lines and letters of code that is set in columns: many short lines
SHORT = 22  # letters that stay in one line
WORDS = {"ok": "All right.", "warn": "Look at this.", "fail": "Wrong.", "none": ""}


def page(document: Document, paper: bool = False) -> str:
    """The whole page; laid out for paper, black on white, if `paper`."""
    body = "\n".join(map(_block, document.blocks))
    styles = resources.files("steadyarm.reports")
    style = "".join(
        (styles / name).read_text()
        for name in ("paper.css" if paper else "screen.css", "report.css")
    )
    foot = f"<footer><p>{escape(document.foot)}</p></footer>\n" if document.foot else ""
    return _PAGE.format(
        title=escape(document.title),
        scheme="light" if paper else "light dark",
        style=style,
        body=body,
        foot=foot,
    )


def _block(block: Block) -> str:
    match block:
        case Heading(words, level, appendix):
            new = ' class="appendix"' if appendix else ""
            return f"<h{level}{new}>{escape(words)}</h{level}>"
        case Lead(words):
            return f'<p class="lead">{escape(words)}</p>'
        case Paragraph(words):
            return f"<p>{escape(words)}</p>"
        case Note(words, status):
            word = f"<strong>{WORDS[status]}</strong> " if WORDS[status] else ""
            return f'<p class="note {status}">{word}{escape(words)}</p>'
        case Facts(pairs):
            cells = (
                f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
                for name, value in pairs
            )
            return f'<dl class="facts">{"".join(cells)}</dl>'
        case Items(texts, numbered):
            tag = "ol" if numbered else "ul"
            return f"<{tag}>{''.join(f'<li>{escape(line)}</li>' for line in texts)}</{tag}>"
        case Code(words):
            lines = words.split("\n")
            columns = len(lines) > LONG and max(map(len, lines)) < NARROW
            long = ' class="long"' if columns else ""
            return f"<pre{long}><code>{escape(words)}</code></pre>"
        case Table():
            return _table(block)
        case Picture(chart):
            return _picture(chart)


def _table(table: Table) -> str:
    sides = [_side(side, [row[i] for row in table.rows]) for i, side in enumerate(table.align)]
    header = "".join(
        f'<th scope="col"{side}>{escape(cell)}</th>'
        for cell, side in zip(table.header, sides, strict=True)
    )
    rows = []
    for first, *others in table.rows:
        cells = (
            f"<td{side}>{_cell(cell)}</td>" for cell, side in zip(others, sides[1:], strict=True)
        )
        rows.append(f'<tr><th scope="row"{sides[0]}>{_cell(first)}</th>{"".join(cells)}</tr>')
    note = f'<p class="small">{escape(table.note)}</p>' if table.note else ""
    whole = " whole" if len(rows) <= FEW else ""
    body = "\n".join(rows)
    return (
        f'<div class="table{whole}" role="region" aria-label="{escape(table.caption)}" '
        f'tabindex="0"><table>\n<caption>{escape(table.caption)}</caption>\n'
        f"<thead><tr>{header}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>{note}"
    )


def _cell(cell: str) -> str:
    return f"<strong>{escape(cell)}</strong>" if isinstance(cell, Strong) else escape(cell)


def _side(side: str, column: Sequence[str]) -> str:
    """Numbers on the right; short texts in one line."""
    if side == "r":
        return ' class="r"'
    return ' class="short"' if max(map(len, column), default=0) <= SHORT else ""


def _picture(chart: Chart) -> str:
    """The picture as lines, or as dots if these are lighter, with the small print as text."""
    from steadyarm.plot import matplotlib  # takes its time

    plain = replace(chart, note="")
    drawn, kind = matplotlib.svg(plain), "svg+xml"
    if len(drawn) > HEAVY:
        drawn, kind = matplotlib.png(plain), "png"
    inside = f"data:image/{kind};base64,{base64.b64encode(drawn).decode()}"
    note = f"<figcaption>{escape(chart.note)}</figcaption>" if chart.note else ""
    return f'<figure><img src="{inside}" alt="{escape(chart.summary)}">{note}</figure>'


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="{scheme}">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
{body}
</main>
{foot}</body>
</html>
"""


# A document as Markdown, with its pictures as PNG files in a folder beside it.


def markdown_table(header: Sequence[str], align: str, rows: Iterable[Sequence[str]]) -> str:
    """A table; `align` has an l or r for every column.

    Examples
    --------
    >>> print(markdown_table(["arm", "rows"], "lr", [["A", "12"]]))
    | arm | rows |
    | :--- | ---: |
    | A | 12 |
    """
    rules = ["---:" if side == "r" else ":---" for side in align]
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, rules, *rows))


def plain_text(text: object) -> str:
    r"""Text that means itself in Markdown, also in a table; addresses in it are no links.

    Examples
    --------
    >>> print(plain_text("*A* | <b>"), plain_text("1. www.x.org"), plain_text("- B"))
    \*A\* \| \<b\> 1\. www\.x.org \- B
    >>> print(plain_text("-0.5 to 1.5"))
    -0.5 to 1.5
    """
    words = re.sub(r"([\\`*_\[\]<>|&#~$@])", r"\\\1", " ".join(str(text).split()))
    linked = re.sub(r"(?i):(?=//)|(?<=www)\.|(?<=mailto):", r"\\\g<0>", words)
    return re.sub(r"^(\d+(?=[.)](\s|$))|(?=[-+](\s|$|-)))", r"\g<1>\\", linked)


def code_block(text: str, language: str = "console") -> str:
    """What was typed, whatever quotes it has."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}"


def text(document: Document, folder: str = "pictures") -> str:
    """The whole document; links to pictures go to the folder."""
    blocks = [f"# {plain_text(document.title)}"]
    blocks += [_markdown_block(block, folder) for block in document.blocks]
    if document.foot:
        blocks.append(f"*{plain_text(document.foot)}*")
    return "\n\n".join(block for block in blocks if block) + "\n"


def pictures(document: Document) -> dict[str, bytes]:
    """The pictures by the names of their files."""
    from steadyarm.plot import matplotlib

    charts = [block.chart for block in document.blocks if isinstance(block, Picture)]
    return {f"{chart.name}.png": matplotlib.png(replace(chart, note="")) for chart in charts}


def _markdown_block(block: Block, folder: str) -> str:
    match block:
        case Heading(words, level):
            return f"{'#' * level} {plain_text(words)}"
        case Lead(words):
            return f"**{plain_text(words)}**"
        case Paragraph(words):
            return plain_text(words)
        case Note(words, status):
            word = WORDS[status].replace(".", ": ")
            return f"> {word}{plain_text(words)}"
        case Facts(pairs):
            return " · ".join(f"{plain_text(name)}: {plain_text(value)}" for name, value in pairs)
        case Items(texts, numbered):
            return "\n".join(
                f"{f'{i}.' if numbered else '-'} {plain_text(line)}"
                for i, line in enumerate(texts, 1)
            )
        case Code(words, language):
            return code_block(words, language)
        case Table():
            return _markdown_table(block)
        case Picture(chart):
            link = f"{quote(folder)}/{quote(chart.name)}.png"
            picture = f"![{plain_text(chart.summary)}]({link})"
            return f"{picture}\n\n{plain_text(chart.note)}" if chart.note else picture


def _markdown_table(table: Table) -> str:
    header = [plain_text(cell) for cell in table.header]
    rows = [[_markdown_cell(cell) for cell in row] for row in table.rows]
    parts = [plain_text(table.caption), markdown_table(header, table.align, rows)]
    return "\n\n".join([*parts, plain_text(table.note)] if table.note else parts)


def _markdown_cell(cell: str) -> str:
    return f"**{plain_text(cell)}**" if isinstance(cell, Strong) else plain_text(cell)


# Reports as files: which format, which name, never half-written.


Format = Literal["html", "md", "print"]
FORMATS: dict[Format, tuple[str, ...]] = {
    "html": (".html", ".htm"),
    "md": (".md", ".markdown"),
    "print": (".html", ".htm"),
}
"""Endings of files by format: a page, Markdown, or a page to print."""


def format_of(path: Path, wanted: str | None = None) -> Format:
    """How to write the file: as its ending says, or as wanted if that fits the ending.

    Refuses what cannot be written, and says so before any work is done.

    Parameters
    ----------
    path : of the file
    wanted : "html", "md" or "print"; by default what the ending says

    Returns
    -------
    the format

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
    from steadyarm.plot import matplotlib  # noqa: F401  # says which extra is missing, if it is

    return cast(Format, wanted)


def write_report(document: Document, path: Path, form: str | None = None) -> Path:
    """Write a document; pictures of Markdown go into a folder beside it, NAME-pictures.

    Parameters
    ----------
    document : what to write
    path : of the file
    form : "html", "md" or "print"; by default what the ending says

    Returns
    -------
    Path : of the file

    Examples
    --------
    >>> import tempfile
    >>> found = Document("A report", (Paragraph("All is well."),))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(write_report(found, Path(folder) / "report.md").read_text().splitlines()[0])
    # A report
    """
    chosen = format_of(path, form)
    try:
        if chosen != "md":
            return write_atomically(path, page(document, chosen == "print").encode())
        folder = path.with_name(f"{path.stem}-pictures")
        for name, picture in pictures(document).items():
            write_atomically(folder / name, picture)
        return write_atomically(path, text(document, folder.name).encode())
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be written: {error}") from None
