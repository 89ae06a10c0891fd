"""A document as one HTML page that can be mailed: styles and pictures inside, no script."""

from __future__ import annotations

import base64
from html import escape

from steadyarm.plot.chart import Chart
from steadyarm.reports.document import (
    Block,
    Code,
    Document,
    Facts,
    Heading,
    Items,
    Lead,
    Note,
    Paragraph,
    Picture,
    Table,
)
from steadyarm.reports.drawing import Drawer, drawer
from steadyarm.reports.style import PAPER, SCREEN

__all__ = ["page"]

HEAVY = 400_000  # bytes of a drawing from which on dots are lighter than lines
FEW = 16  # rows of a table that is not cut at the end of a page
LONG, NARROW = 60, 40  # lines and letters of code that is set in columns
SHORT = 22  # letters that stay in one line
WORDS = {"ok": "All right.", "warn": "Look at this.", "fail": "Wrong.", "none": ""}


def page(document: Document, paper: bool = False) -> str:
    """The whole page; laid out for paper, black on white, if `paper`."""
    draw = drawer() if any(isinstance(block, Picture) for block in document.blocks) else None
    body = "\n".join(_block(block, draw) for block in document.blocks)
    foot = f"<footer><p>{escape(document.foot)}</p></footer>\n" if document.foot else ""
    return _PAGE.format(
        title=escape(document.title),
        scheme="light" if paper else "light dark",
        style=PAPER if paper else SCREEN,
        body=body,
        foot=foot,
    )


def _block(block: Block, draw: Drawer | None) -> str:
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
        case Items(texts):
            return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in texts)}</ul>"
        case Code(words):
            return f"<pre{_length(words)}><code>{escape(words)}</code></pre>"
        case Table():
            return _table(block)
        case Picture(chart):
            assert draw is not None
            return _picture(chart, draw)


def _length(text: str) -> str:
    """Many short lines stand in columns."""
    lines = text.split("\n")
    return ' class="long"' if len(lines) > LONG and max(map(len, lines)) < NARROW else ""


def _table(table: Table) -> str:
    sides = [_side(side, column) for side, column in zip(table.align, _columns(table), strict=True)]
    header = "".join(
        f'<th scope="col"{side}>{escape(cell)}</th>'
        for cell, side in zip(table.header, sides, strict=True)
    )
    rows = []
    for first, *others in table.rows:
        cells = (
            f"<td{side}>{escape(cell)}</td>" for cell, side in zip(others, sides[1:], strict=True)
        )
        rows.append(f'<tr><th scope="row"{sides[0]}>{escape(first)}</th>{"".join(cells)}</tr>')
    note = f'<p class="small">{escape(table.note)}</p>' if table.note else ""
    whole = " whole" if len(rows) <= FEW else ""
    body = "\n".join(rows)
    return (
        f'<div class="table{whole}" role="region" aria-label="{escape(table.caption)}" '
        f'tabindex="0"><table>\n<caption>{escape(table.caption)}</caption>\n'
        f"<thead><tr>{header}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>{note}"
    )


def _columns(table: Table) -> list[list[str]]:
    return [[row[i] for row in table.rows] for i in range(len(table.header))]


def _side(side: str, column: list[str]) -> str:
    """Numbers on the right; short texts in one line."""
    if side == "r":
        return ' class="r"'
    return ' class="short"' if max(map(len, column), default=0) <= SHORT else ""


def _picture(chart: Chart, draw: Drawer) -> str:
    drawn, kind = draw.svg(chart), "svg+xml"
    if len(drawn) > HEAVY:
        drawn, kind = draw.png(chart), "png"
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
