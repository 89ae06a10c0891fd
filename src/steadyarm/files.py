"""Files that are never half-written: how results, pictures and reports are kept.

And texts in CSV files that spreadsheets must not take for formulas.
"""

from __future__ import annotations

import base64
import html
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import unquote

from steadyarm.errors import MissingExtraError

__all__ = [
    "GUARDED",
    "code_block",
    "csv_cell",
    "csv_text",
    "html_page",
    "markdown_table",
    "plain_text",
    "write_atomically",
]

FORMULA = "=+-@\t\r"  # what a cell begins with that spreadsheets compute
GUARDED = FORMULA + "'"  # what a text begins with that has an apostrophe put before it


def write_atomically(path: Path, content: bytes) -> Path:
    """Write into a temporary file beside `path`, then put it in its place in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def csv_cell(text: str) -> str:
    """A text as it stands in a CSV file: an apostrophe before what may be taken for a formula.

    A text that begins with an apostrophe gets another one, so that `csv_text` finds back every
    text. Only texts are guarded: a negative number stays a number.

    Examples
    --------
    >>> [csv_cell(text) for text in ("A", "=1+1", "'tis", "-5 %")]
    ['A', "'=1+1", "''tis", "'-5 %"]
    >>> [csv_text(cell) for cell in ("A", "'=1+1", "''tis", "'-5 %", "'A'")]
    ['A', '=1+1', "'tis", '-5 %', "'A'"]
    """
    return "'" + text if text[:1] and text[0] in GUARDED else text


def csv_text(cell: str) -> str:
    """The text of a cell that `csv_cell` wrote; others stay as they are."""
    return cell[1:] if cell[:1] == "'" and cell[1:2] and cell[1] in GUARDED else cell


# Markdown that means what it says, and Markdown as one HTML page; knows nothing of reports.


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


def html_page(text: str, title: str, folder: Path | None = None) -> str:
    """Markdown as one file: styles, and the pictures of the folder, are inside."""
    try:
        from markdown_it import MarkdownIt
    except ImportError as error:
        raise MissingExtraError(
            f"HTML reports need {error.name}; install it with: pip install 'steadyarm[plots]', "
            "or write Markdown."
        ) from None
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(text)
    for inline in (child for token in tokens for child in token.children or []):
        if inline.type == "image" and folder is not None:
            picture = (folder / unquote(str(inline.attrs["src"]))).read_bytes()
            inline.attrs["src"] = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
    body = parser.renderer.render(tokens, parser.options, {})
    return _PAGE.format(title=html.escape(title), style=_STYLE, body=body)


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}</body>
</html>
"""
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 3rem; border-bottom: 1px solid #ccc; }
img { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-size: 0.85rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.15rem 0.7rem; border-bottom: 1px solid #e4e4e4; white-space: nowrap; }
thead th { border-bottom: 2px solid #888; background: #fff; position: sticky; top: 0; }
td strong { color: #b00020; }
pre { background: #f4f4f4; padding: 0.7rem 1rem; overflow-x: auto; }
@media print { body { max-width: none; } img, tr { break-inside: avoid; } }
"""
