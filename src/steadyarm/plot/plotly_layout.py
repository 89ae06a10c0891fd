"""Where panels, axes and texts stand in a picture of Plotly."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil
from typing import Any

import numpy as np

from steadyarm.plot import layout
from steadyarm.plot.chart import Axis, Chart, Panel
from steadyarm.plot.charts.common import apart
from steadyarm.plot.layout import WIDE, Room

# Texts and values as Plotly may have them: its texts are half HTML, its numbers are JSON.


ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "$": "&#36;"})


def safe(text: str) -> str:
    """Text that Plotly shows as it is: no tags, no links, no formulas.

    Examples
    --------
    >>> safe("<b>1 & 2</b> for $5")
    '&lt;b&gt;1 &amp; 2&lt;/b&gt; for &#36;5'
    """
    return text.translate(ENTITIES)


def wrapped(text: str, width: int) -> str:
    """Safe text in lines of at most so many letters."""
    return "<br>".join(safe(line) for line in textwrap.wrap(text, width))


def moment(value: datetime) -> str:
    """A time in UTC; Plotly knows no zones."""
    if value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    return value.isoformat()


def plain(values: Iterable[Any]) -> list[float | None]:
    """Numbers; None for those that JSON does not have."""
    return [float(value) if math.isfinite(value) else None for value in values]


# Where panels stand in a picture of Plotly: sizes in pixels, as shares of what is inside.


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
    rows = [max(layout.rows_above(panel, wide) for panel in line) for line in lines]
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
            cells.append(
                Cell(left, right, (y - own) / inner, y / inner, layout.rows_above(panel, wide))
            )
        y -= heights[n] + gaps[n]
    named = layout.legend(chart)
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
        return round(LINE * max(count, 2) * panel.height) + 10
    return round((LOW if several else TALL) * panel.height)


# Axes of a panel for Plotly.


Layout = dict[str, Any]

# by the distance of ticks: short enough to stand side by side on a phone
DATES = [
    {"dtickrange": [None, 999], "value": "%H:%M:%S.%1f\n%-d %b"},
    {"dtickrange": [1_000, 59_999], "value": "%H:%M:%S\n%-d %b"},
    {"dtickrange": [60_000, 86_399_999], "value": "%H:%M\n%-d %b"},
    {"dtickrange": [86_400_000, 2_419_199_999], "value": "%-d %b\n%Y"},
    {"dtickrange": ["M1", "M11"], "value": "%b\n%Y"},
    {"dtickrange": ["M12", None], "value": "%Y"},
]


def axes_of(
    chart: Chart,
    i: int,
    cell: Cell,
    ground: layout.Ground,
    room: Room,
    cramped: bool,
) -> Layout:
    """Both axes of panel number i; panels with the same clock are zoomed together."""
    n, panel, panels = i + 1 if i else "", chart.panels[i], chart.panels
    labels = _common(panel.x, cell.left, cell.right, f"y{n}", ground)
    values = _common(panel.y, cell.bottom, cell.top, f"x{n}", ground)
    if panel.sideways:
        labels |= {"domain": [cell.bottom, cell.top], "anchor": f"x{n}"}
        values |= {"domain": [cell.left, cell.right], "anchor": f"y{n}"}
    labels |= _labels(panel, room) if panel.x.kind == "label" else _scale(panel.x) | _across(panel)
    if cramped and room.width < WIDE.width and panel.x.kind == "time":
        labels["nticks"] = 3
    values |= _scale(panel.y) | _values(panel)
    across, up = (values, labels) if panel.sideways else (labels, values)
    if title := below(chart, i):
        across["title"] = {"text": safe(title), "standoff": 6, "font": _font(ground)}
    clocks = [j for j, other in enumerate(panels) if other.x.kind == "time" and not other.sideways]
    if i in clocks and i != clocks[0]:
        across["matches"] = f"x{clocks[0] + 1 if clocks[0] else ''}"
    return {f"xaxis{n}": across, f"yaxis{n}": up}


def _font(ground: layout.Ground) -> Layout:
    return {"size": 12, "color": ground.faint}


def _common(axis: Axis, start: float, end: float, anchor: str, ground: layout.Ground) -> Layout:
    return {
        "domain": [start, end],
        "anchor": anchor,
        "automargin": True,
        "gridcolor": ground.grid,
        "zerolinecolor": ground.grid,
        "linecolor": ground.grid,
        "tickfont": {"size": 11, "color": ground.faint},
        "showgrid": axis.kind != "label",
        "zeroline": False,
    }


def _scale(axis: Axis) -> Layout:
    if axis.kind == "time":
        clock: Layout = {"type": "date", "nticks": 6, "hoverformat": "%-d %b %Y, %H:%M"}
        return clock | {"tickformatstops": DATES, "tickangle": 0}
    if axis.kind == "log":
        ticks: Layout = {"type": "log", "dtick": "D2", "minor": {"showgrid": False}}
        return ticks | ({"tickformat": ",.3~%"} if axis.percent else {"tickformat": ",.0f"})
    whole = {"tickformat": ".0%"} if axis.percent else {"separatethousands": True}
    return {"type": "linear", "nticks": 6, "exponentformat": "none", **whole}


def _across(panel: Panel) -> Layout:
    """Whole days have no hours; a moment needs something around it."""
    found: Layout = {}
    if layout.by_day(panel):
        found["hoverformat"] = "%-d %b %Y"
        if len(panel.series[0].x) <= 4:
            found["dtick"] = 86_400_000
    short = layout.clock_limits(panel)
    if short is not None and not layout.by_day(panel):
        found["hoverformat"] = "%-d %b %Y, %H:%M:%S"
    ends = short or layout.marked_limits(panel)
    if ends is not None:
        time = panel.x.kind == "time"
        found["range"] = [moment(datetime.fromtimestamp(x, UTC)) if time else x for x in ends]
    return found


def _values(panel: Panel) -> Layout:
    kinds = {series.kind for series in panel.series}
    if panel.y_range is None:
        few = {"dtick": 1} if (layout.whole(panel) or 9) <= 5 else {}
        return {"rangemode": "tozero", **few} if kinds & {"bars", "steps"} else {}
    if (ticks := layout.log_ticks(panel)) is None:
        return {"range": list(panel.y_range)}
    ends = [float(np.log10(end)) for end in panel.y_range]
    return {"range": ends, "tickmode": "array", "tickvals": ticks[0], "ticktext": ticks[1]}


def _labels(panel: Panel, room: Room) -> Layout:
    """Labels at 0, 1, 2: names that look alike when cut short stay apart."""
    names = layout.label_names(panel)
    count = len(names)
    step = 1 if panel.sideways else max(1, -(-count // 8))
    at = list(range(0, count, step))
    texts = apart([str(name) for name in names], room.side if panel.sideways else room.below)
    edge = [count - 0.5, -0.5] if panel.sideways else [-0.5, count - 0.5]
    return {
        "type": "linear",
        "tickmode": "array",
        "tickvals": [float(k) for k in np.array(at, float)],
        "ticktext": [safe(texts[k]) for k in at],
        "range": edge,
    }
