"""Where panels stand in a picture of Plotly: sizes in pixels, as shares of what is inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from steadyarm.plot import frame
from steadyarm.plot.chart import Chart, Panel
from steadyarm.plot.fitting import Room

__all__ = ["LEAST_LEFT", "Cell", "Grid", "below", "cells_of", "heading"]

TALL, LOW, LINE = 300, 190, 24  # of a single panel, of one of several, of a row of labels
HEAD, ROW, TICKS, TITLE = 24, 14, 22, 20
LEAST_LEFT = 44  # margin for numbers
SMALL = 6.2  # of a letter of a label down the side
KEY, LETTER, PHONE = 45, 7, 300  # of a legend: sample, letter and line
USUAL = 900  # of a picture with panels beside each other


@dataclass(frozen=True)
class Cell:
    """Bounds of a panel as shares, and rows of texts above it."""

    left: float
    right: float
    bottom: float
    top: float
    rows: int


@dataclass(frozen=True)
class Grid:
    """All panels. In pixels: the picture's height, its margins, and what lies between.

    `below` is where the legend begins under the lowest panel, `wide` how wide each panel is.
    """

    cells: tuple[Cell, ...]
    height: int
    left: int
    top: int
    bottom: int
    inner: int
    below: int
    wide: float


def cells_of(chart: Chart, columns: int, room: Room) -> Grid:
    """Panels row by row; marks need room above their panel."""
    columns = max(1, min(columns, len(chart.panels)))
    lines = [chart.panels[i : i + columns] for i in range(0, len(chart.panels), columns)]
    heights = [max(_height(panel, len(lines) > 1) for panel in line) for line in lines]
    wide = room.width / columns
    rows = [max(_rows(panel, wide) for panel in line) for line in lines]
    heads = [
        ROW * count + (HEAD if any(heading(panel) for panel in line) else ROW)
        for count, line in zip(rows, lines, strict=True)
    ]
    gaps = [
        max(_under(chart, n * columns + c) for c in range(len(line)))
        for n, line in enumerate(lines)
    ]
    inner = sum(heights) + sum(heads[1:]) + sum(gaps[:-1])
    cells = []
    y = float(inner)
    for n, line in enumerate(lines):
        y -= heads[n] if n else 0
        width = 1 / columns
        for c, panel in enumerate(line):
            space = 0.0 if columns == 1 else 0.05
            left, right = c * width + space * (c > 0), (c + 1) * width - space * (c < columns - 1)
            if c and panel.sideways:  # its labels need more than the usual space
                left = max(left, c * width - space + _left([panel], room.side) / USUAL)
            own = _height(panel, len(lines) > 1) if panel.sideways else heights[n]
            cells.append(Cell(left, right, (y - own) / inner, y / inner, _rows(panel, wide)))
        y -= heights[n] + gaps[n]
    named = frame.legend(chart)
    bottom = gaps[-1] + 4
    names = {series.name for panel in chart.panels for series in panel.series}
    lines_below = ceil(_phone_lines(names) / columns**2)
    key = 20 * lines_below if named else 0
    return Grid(
        tuple(cells),
        inner + heads[0] + bottom + key,
        _left(chart.panels[::columns], room.side),
        heads[0],
        bottom,
        inner,
        gaps[-1],
        wide,
    )


def heading(panel: Panel) -> str:
    """Title and the name of the values above the panel: words up the side take a phone's width."""
    words = [panel.title, panel.y.title]
    if panel.sideways or panel.y.title.lower() in panel.title.lower():
        words = [panel.title]
    return " · ".join(word for word in words if word)


def below(chart: Chart, i: int) -> str:
    """What stands under panel number i: nothing if it stands under a later one."""
    panel = chart.panels[i]
    if panel.sideways:
        return "" if any(later.y == panel.y for later in chart.panels[i + 1 :]) else panel.y.title
    same = any(later.x == panel.x for later in chart.panels[i + 1 :])
    return "" if panel.x.kind == "time" and same else panel.x.title


def _left(panels: Sequence[Panel], most: int) -> int:
    """Room for the labels of the leftmost axes; Plotly's own measure comes too late at times."""
    texts = [str(x) for panel in panels if panel.sideways for s in panel.series for x in s.x]
    longest = min(max(map(len, texts), default=0), most)
    return max(LEAST_LEFT, 12 + ceil(SMALL * longest))


def _phone_lines(names: set[str]) -> int:
    """Lines of the legend on a phone, where it would else take the picture's own height."""
    return ceil(sum(KEY + LETTER * len(name) for name in names) / PHONE)


def _under(chart: Chart, i: int) -> int:
    """Pixels for ticks (days and years in two lines) and a title."""
    clock = chart.panels[i].x.kind == "time" and not chart.panels[i].sideways
    return TICKS + ROW * clock + TITLE * bool(below(chart, i))


def _height(panel: Panel, several: bool) -> int:
    if panel.sideways:
        count = max((len(series.x) for series in panel.series), default=1)
        return LINE * max(count, 2) + 10
    return LOW if several else TALL


def _rows(panel: Panel, width: float) -> int:
    return max((row + 1 for row in frame.mark_rows(panel, width) if row is not None), default=0)
