"""A document as Markdown, with its pictures as PNG files in a folder beside it."""

from __future__ import annotations

from urllib.parse import quote

from steadyarm.pages import code_block, markdown_table, plain_text
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
from steadyarm.reports.drawing import drawer

__all__ = ["pictures", "text"]

WORDS = {"ok": "All right: ", "warn": "Look at this: ", "fail": "Wrong: ", "none": ""}


def text(document: Document, folder: str = "pictures") -> str:
    """The whole document; links to pictures go to the folder."""
    blocks = [f"# {plain_text(document.title)}"]
    blocks += [_block(block, folder) for block in document.blocks]
    if document.foot:
        blocks.append(f"*{plain_text(document.foot)}*")
    return "\n\n".join(block for block in blocks if block) + "\n"


def pictures(document: Document) -> dict[str, bytes]:
    """The pictures by the names of their files."""
    charts = [block.chart for block in document.blocks if isinstance(block, Picture)]
    if not charts:
        return {}
    draw = drawer()
    return {f"{chart.name}.png": draw.png(chart) for chart in charts}


def _block(block: Block, folder: str) -> str:
    match block:
        case Heading(words, level):
            return f"{'#' * level} {plain_text(words)}"
        case Lead(words):
            return f"**{plain_text(words)}**"
        case Paragraph(words):
            return plain_text(words)
        case Note(words, status):
            return f"> {WORDS[status]}{plain_text(words)}"
        case Facts(pairs):
            return " · ".join(f"{plain_text(name)}: {plain_text(value)}" for name, value in pairs)
        case Items(texts):
            return "\n".join(f"- {plain_text(line)}" for line in texts)
        case Code(words, language):
            return code_block(words, language)
        case Table():
            return _table(block)
        case Picture(chart):
            link = f"{quote(folder)}/{quote(chart.name)}.png"
            picture = f"![{plain_text(chart.summary)}]({link})"
            return f"{picture}\n\n{plain_text(chart.note)}" if chart.note else picture


def _table(table: Table) -> str:
    header = [plain_text(cell) for cell in table.header]
    rows = [[plain_text(cell) for cell in row] for row in table.rows]
    parts = [plain_text(table.caption), markdown_table(header, table.align, rows)]
    return "\n\n".join([*parts, plain_text(table.note)] if table.note else parts)
