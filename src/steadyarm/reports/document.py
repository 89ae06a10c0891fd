"""Document: a report before it is written; plain values that say what, not how it looks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

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
    """

    title: str
    blocks: tuple[Block, ...]
    foot: str = field(default="")
