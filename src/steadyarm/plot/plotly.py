"""Charts for Plotly: as plain values for a page (nothing is imported), or as its own figure."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any

import numpy as np

from steadyarm.errors import MissingExtraError
from steadyarm.plot import layout
from steadyarm.plot.chart import Axis, Chart, Panel, Series
from steadyarm.plot.charts.common import apart, shown
from steadyarm.plot.layout import NARROW, WIDE, Ground, Room
from steadyarm.wording import amount

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
        ROW * count + (HEAD if any(map(heading, line)) else ROW)
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
        width, space = 1 / columns, 0.0 if columns == 1 else 0.05
        for c, panel in enumerate(line):
            left, right = c * width + space * (c > 0), (c + 1) * width - space * (c < columns - 1)
            if c and panel.sideways:  # its labels need more than the usual space
                left = max(left, c * width - space + _left([panel], room.side) / USUAL)
            own = _height(panel, len(lines) > 1) if panel.sideways else heights[n]
            above = layout.rows_above(panel, wide)
            cells.append(Cell(left, right, (y - own) / inner, y / inner, above))
        y -= heights[n] + gaps[n]
    bottom, key = gaps[-1] + 4, 0
    if layout.legend(
        chart
    ):  # as many lines as on a phone, where it would take the picture's height
        names = {series.name for panel in chart.panels for series in panel.series}
        lines_below = ceil(sum(KEY + LETTER * len(name) for name in names) / PHONE)
        key = 20 * ceil(lines_below / columns**2)
    left = _left(chart.panels[::columns], room.side)
    height = inner + heads[0] + bottom + key
    return Grid(tuple(cells), height, left, heads[0], bottom, inner, gaps[-1], wide)


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


def axes_of(chart: Chart, i: int, cell: Cell, ground: Ground, room: Room, cramped: bool) -> Layout:
    """Both axes of panel number i; panels with the same clock are zoomed together."""
    n, panel, panels = i + 1 if i else "", chart.panels[i], chart.panels
    labels = _labels(panel, room) if panel.x.kind == "label" else _scale(panel.x) | _across(panel)
    if cramped and room.width < WIDE.width and panel.x.kind == "time":
        labels["nticks"] = 3
    values = _scale(panel.y) | _values(panel)
    for found, axis in ((labels, panel.x), (values, panel.y)):
        found |= {
            "automargin": True, "gridcolor": ground.grid, "zerolinecolor": ground.grid,
            "linecolor": ground.grid, "tickfont": {"size": 11, "color": ground.faint},
            "showgrid": axis.kind != "label", "zeroline": False,
        }  # fmt: skip  # a table reads better so
    across, up = (values, labels) if panel.sideways else (labels, values)
    across |= {"domain": [cell.left, cell.right], "anchor": f"y{n}"}
    up |= {"domain": [cell.bottom, cell.top], "anchor": f"x{n}"}
    if title := below(chart, i):
        font = {"size": 12, "color": ground.faint}
        across["title"] = {"text": safe(title), "standoff": 6, "font": font}
    clocks = [j for j, other in enumerate(panels) if other.x.kind == "time" and not other.sideways]
    if i in clocks and i != clocks[0]:
        across["matches"] = f"x{clocks[0] + 1 if clocks[0] else ''}"
    return {f"xaxis{n}": across, f"yaxis{n}": up}


def _scale(axis: Axis) -> Layout:
    if axis.kind == "time":
        clock: Layout = {"type": "date", "nticks": 6, "hoverformat": "%-d %b %Y, %H:%M"}
        return clock | {"tickformatstops": DATES, "tickangle": 0}
    if axis.kind == "log":
        ticks: Layout = {"type": "log", "dtick": "D2", "minor": {"showgrid": False}}
        return ticks | ({"tickformat": ",.3~%"} if axis.percent else {"tickformat": ",.0f"})
    whole = {"tickformat": ",.2~%"} if axis.percent else {"separatethousands": True}
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
    at = range(0, count, 1 if panel.sideways else max(1, -(-count // 8)))
    texts = apart([str(name) for name in names], room.side if panel.sideways else room.below)
    return {
        "type": "linear", "tickmode": "array", "tickvals": [float(k) for k in at],
        "ticktext": [safe(texts[k]) for k in at],
        "range": [count - 0.5, -0.5] if panel.sideways else [-0.5, count - 0.5],
    }  # fmt: skip  # a table reads better so


# The series of a panel as traces of Plotly.


Trace = dict[str, Any]
FEW = 12  # points that are worth a marker each


def traces_of(panel: Panel, i: int, ground: Ground, named: set[str], legend: bool) -> list[Trace]:
    """All traces of panel number i; `named` holds what the legend has already, and grows."""
    n = i + 1 if i else ""
    moved = layout.shifts(panel)
    traces: list[Trace] = []
    for s, series in enumerate(panel.series):
        firm, hollow = layout.parts(series)
        trace = _trace(panel, firm, ground, moved.get(s, 0.0))
        same = "" if series.kind == "rings" else series.color  # rings of all colours are one entry
        common = {"name": safe(series.name), "legendgroup": f"{series.name}\n{same}"}
        common |= {"xaxis": f"x{n}", "yaxis": f"y{n}"}
        entry = legend and len(panel.series) > 1 and common["legendgroup"] not in named
        if entry:
            named.add(common["legendgroup"])
        common["legendgroup"] = safe(common["legendgroup"])
        if series.kind == "line":
            bands = _bands(panel, series, ground)
            traces += [band | common | {"showlegend": False} for band in bands]
        if series.kind == "area":
            trace["stackgroup"] = f"of{i}"
        traces.append(trace | common | {"showlegend": entry})
        if hollow is not None:
            faint = _hollow(_trace(panel, hollow, ground, moved.get(s, 0.0)))
            traces.append(faint | common | {"showlegend": False})
    if (text := layout.one_text(panel)) is not None:
        dashed = {"color": ground.faint, "width": 1, "dash": "dash"}
        shaded = {"color": layout.clear(ground.quiet, 0.3), "width": 12}
        key = {
            "type": "scatter", "mode": "lines", "x": [None], "y": [None], "name": safe(text),
            "xaxis": f"x{n}", "yaxis": f"y{n}", "hoverinfo": "skip", "showlegend": True,
            "line": dashed if panel.marks[0].until is None else shaded,
        }  # fmt: skip  # a table reads better so
        traces.append(key)
    return traces


def _trace(panel: Panel, series: Series, ground: Ground, shift: float) -> Trace:
    x, y = _x(panel, series, shift), plain(series.y)
    color = ground.color(series)
    trace: Trace = {"type": "scatter", "x": x, "y": y}
    if series.color is None and series.kind == "line":
        faint = layout.clear(color, 0.55 if len(x) < layout.CROWD else 0.3)
        trace |= {"mode": "lines", "line": {"color": faint, "width": 1}}
        return trace | {"hoverinfo": "skip"}
    trace |= _hover(panel, series)
    if series.kind == "bars":
        bars = {"type": "bar", "marker": {"color": color, "line": {"width": 0}}}
        share = 0.6 if panel.sideways else 0.8
        scale = 1000 if panel.x.kind == "time" else 1
        trace |= bars | {"width": share * layout.step_of(panel) * scale}
        if series.color is None:
            trace["marker"]["color"] = layout.clear(color, 0.45)
    elif series.kind == "area":
        fill = layout.clear(color, 0.45 if series.color is None else 0.8)
        trace |= {"mode": "lines", "fillcolor": fill}
        trace["line"] = {"shape": "hv", "width": 0.5, "color": ground.ground}
    elif series.kind == "points":
        trace |= _points(panel, series, color)
    elif series.kind == "rings":
        ring = {"color": color, "size": 12, "symbol": f"{_symbol(series)}-open"}
        trace |= {"mode": "markers", "marker": ring} | _bars(panel, series, color, 0.7, 5)
    else:
        few = int(np.isfinite(series.y).sum()) <= FEW
        trace |= {"mode": "lines+markers" if few else "lines"}
        width = 1.8 if series.low is None else 2.8  # those with a band matter most
        trace["line"] = {"color": color, "width": width, "dash": _dash(series)}
        trace["line"]["shape"] = "hv" if series.kind == "steps" else "linear"
        trace["marker"] = {"color": color, "size": 6, "symbol": _symbol(series)}
    if panel.sideways:
        trace["x"], trace["y"] = trace["y"], trace["x"]
        trace |= {"orientation": "h"} if series.kind == "bars" else {}
    return trace


def _points(panel: Panel, series: Series, color: str) -> Trace:
    trace: Trace = {
        "mode": "markers" if panel.sideways else "lines+markers",
        "line": {"color": layout.clear(color, 0.7), "width": 1, "dash": _dash(series)},
        "marker": {"color": color, "size": 8, "symbol": _symbol(series)},
    }
    return trace | _bars(panel, series, color, 1.5, 0 if panel.sideways else 3)


def _bars(panel: Panel, series: Series, color: str, thickness: float, width: int) -> Trace:
    """Error bars, where the ends of intervals are known."""
    reach = layout.reaches(series)
    if reach is None:
        return {}
    down, up = (plain(values) for values in reach)
    bars = {
        "type": "data", "symmetric": False, "array": up, "arrayminus": down, "color": color,
        "thickness": thickness, "width": width,
    }  # fmt: skip  # a table reads better so
    return {"error_x" if panel.sideways else "error_y": bars}


def _hollow(trace: Trace) -> Trace:
    """Points of little data: rings, with bars that do not draw the eye."""
    color = trace["marker"]["color"]
    ring = trace["marker"] | {"symbol": f"{trace['marker']['symbol']}-open", "size": 7}
    found = trace | {"mode": "markers", "marker": ring}
    for side in ("error_x", "error_y"):
        if side in trace:
            bars = {"color": layout.clear(color, 0.35), "thickness": 1, "width": 0}
            found[side] = trace[side] | bars
    return found


def _bands(panel: Panel, series: Series, ground: Ground) -> list[Trace]:
    """The runs of known intervals as closed shapes, and their edges as thin lines."""
    if series.color is None or series.low is None or series.high is None:
        return []
    x = _x(panel, series, 0.0)
    xs: list[Any] = []
    ys: list[float | None] = []
    edge_xs: list[Any] = []
    edge_ys: list[float | None] = []
    for run in layout.band_runs(series):
        low, high = plain(series.low[run]), plain(series.high[run])
        xs += [*x[run], *x[run][::-1], None]
        ys += [*low, *high[::-1], None]
        edge_xs += [*x[run], None, *x[run], None]
        edge_ys += [*low, None, *high, None]
    if not xs:
        return []
    color = ground.color(series)
    common: Trace = {"type": "scatter", "mode": "lines", "hoverinfo": "skip"}
    fill = {"fill": "toself", "fillcolor": layout.clear(color, 0.08), "line": {"width": 0}}
    edge = {"line": {"color": layout.clear(color, 0.5), "width": 1, "dash": _dash(series)}}
    return [
        common | {"x": xs[:-1], "y": ys[:-1]} | fill,
        common | {"x": edge_xs[:-1], "y": edge_ys[:-1]} | edge,
    ]


def _x(panel: Panel, series: Series, shift: float) -> list[Any]:
    if panel.x.kind == "time":
        return [moment(x + timedelta(seconds=shift)) for x in series.x]
    return plain(layout.places(panel, series, shift))


def _hover(panel: Panel, series: Series) -> Trace:
    """What is said of each point; texts of people are values here, never templates."""
    digits = layout.decimals(panel)
    texts = []
    for j, value in enumerate(series.y):
        zero = panel.zeros is not None and value < panel.zeros
        text = _number(0.0 if zero else value, digits, panel.y)
        if series.low is not None and series.high is not None:
            low, high = 0.0 if zero else series.low[j], series.high[j]
            if np.isfinite(low) and np.isfinite(high):
                ends = (_number(end, digits, panel.y) for end in (low, high))
                text += " ({} to {})".format(*ends)
        if panel.x.kind == "label":
            text = f"{safe(shown(str(series.x[j]), 40))}: {text}"
        elif series.kind in ("points", "rings"):
            day = panel.x.kind == "time"
            where = moment(series.x[j])[:10] if day else f"{series.x[j]:,.0f}"
            text = f"{where}: {text}"
        texts.append(text)
    return {"customdata": texts, "hovertemplate": "%{customdata}"}


def _number(value: float, digits: int, axis: Axis) -> str:
    if not axis.percent:
        return f"{value:,.{digits}f}"
    return f"{100 * value:.3g} %" if axis.kind == "log" else amount(value, rates=True)


def _dash(series: Series) -> str:
    lengths = layout.DASHES[(series.color or 0) % len(layout.DASHES)]
    return ",".join(f"{2 * length:g}px" for length in lengths) or "solid"


def _symbol(series: Series) -> str:
    return layout.SHAPES[(series.color or 0) % len(layout.SHAPES)][0]


CRAMPED = 100  # pixels of labels that leave no room for six dates on a phone


def spec_of(
    chart: Chart, dark: bool = False, columns: int = 1, title: bool = False
) -> dict[str, Any]:
    """The chart as Plotly's {"data": …, "layout": …}, of values that JSON can hold.

    Parameters
    ----------
    dark : for a dark ground; the ground itself is left transparent
    columns : how many panels stand beside each other, where there is more than one; from two on
        the picture is taken to be wide, and names are cut later
    title : whether title and small print are in the picture; a page writes them itself

    Examples
    --------
    >>> import numpy as np
    >>> from steadyarm.plot.chart import Axis, Panel, Series, Table
    >>> panel = Panel(Axis("visits"), Axis("reward"), (Series("<b>", (1, 2), np.ones(2)),))
    >>> spec = spec_of(Chart("c", "c", "c", (panel,), Table((), ())))
    >>> spec["data"][0]["name"], spec["layout"]["autosize"]
    ('&lt;b&gt;', True)
    """
    ground = layout.DARK if dark else layout.LIGHT
    room = WIDE if columns > 1 else NARROW
    chart = layout.prepared(chart, room)
    grid = cells_of(chart, columns, room)
    show = layout.legend(chart)
    named: set[str] = set()
    data, shapes, notes = [], [], []
    axes: dict[str, Any] = {}
    for i, (panel, cell) in enumerate(zip(chart.panels, grid.cells, strict=True)):
        data += traces_of(panel, i, ground, named, show)
        axes |= axes_of(chart, i, cell, ground, room, grid.left > CRAMPED)
        shapes += _shapes(panel, i, ground)
        notes += _heading(panel, cell, ground, grid)
        notes += _mark_texts(panel, i, ground, grid.wide)
    small = {"size": 12, "color": ground.text}
    page = axes | {
        "autosize": True, "height": grid.height, "barmode": "overlay", "uirevision": chart.name,
        "margin": {"l": grid.left, "r": 12, "t": grid.top, "b": grid.bottom, "pad": 2},
        "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)",
        "font": small | {"family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"},
        "colorway": list(ground.lines), "hovermode": _hovermode(chart),
        "hoverlabel": {
            "bgcolor": ground.ground, "bordercolor": ground.grid, "font": small, "namelength": -1,
        },
        "showlegend": show,
        "legend": {
            "orientation": "h", "x": 0, "xanchor": "left", "y": -grid.below / grid.inner,
            "yanchor": "top", "font": small, "bgcolor": "rgba(0,0,0,0)", "tracegroupgap": 0,
        },
        "shapes": shapes, "annotations": notes,
    }  # fmt: skip  # a table reads better so
    if title:
        _add_title(page, chart, ground)
    return {"data": data, "layout": page}


def figure_of(chart: Chart) -> Any:
    """The chart as a `plotly.graph_objects.Figure`, with title and small print."""
    try:
        from plotly.graph_objects import Figure  # type: ignore[import-untyped]  # it has no types
    except ImportError as error:
        raise MissingExtraError(
            f"pictures need {error.name}; install it with: pip install 'steadyarm[plots]'."
        ) from None
    spec = spec_of(chart, columns=2, title=True)
    return Figure(data=spec["data"], layout=spec["layout"] | {"template": "none"})


def _hovermode(chart: Chart) -> str:
    """All values of one moment together, where there are moments."""
    lined = {"line", "steps", "area", "bars"}
    together = all(
        not panel.sideways and all(series.kind in lined for series in panel.series)
        for panel in chart.panels
    )
    return "x unified" if together else "closest"


def _shapes(panel: Panel, i: int, ground: Ground) -> list[dict[str, Any]]:
    """Marks, the level to compare with, the strip that stands for zero, and the axis' break."""
    x, y = (f"{axis}{i + 1 if i else ''}" for axis in "xy")
    grey = layout.clear(ground.quiet, 0.15)

    def across(start: Any, end: Any, along: str, **style: Any) -> dict[str, Any]:
        """A line, or a rectangle, at these places along one axis and over the whole other one."""
        own, other = (x, y) if along == "x" else (y, x)
        crossing = "y" if along == "x" else "x"
        return {
            "type": "line" if start == end else "rect", "layer": "above",
            f"{along}ref": own, f"{along}0": start, f"{along}1": end,
            f"{crossing}ref": f"{other} domain", f"{crossing}0": 0, f"{crossing}1": 1, **style,
        }  # fmt: skip  # a table reads better so

    dashed = {"color": ground.faint, "width": 1, "dash": "dash"}
    filled: dict[str, Any] = {"fillcolor": grey, "line": {"width": 0}, "layer": "below"}
    shapes = []
    for mark in panel.marks:
        at = _place(panel, mark.x)
        if mark.until is None:
            shapes.append(across(at, at, "x", line=dashed))
        else:
            shapes.append(across(at, mark.until, "x", **filled))
    values = "x" if panel.sideways else "y"
    if panel.level is not None:
        line = {"color": ground.faint, "width": 1}
        shapes.append(across(panel.level, panel.level, values, line=line))
    if panel.zeros is not None and panel.y_range is not None:
        shapes.append(across(panel.y_range[0], panel.zeros, values, **filled))
    if (broken := layout.axis_break(panel)) is not None:
        along, other = (x, y) if panel.sideways else (y, x)
        across_axis = "y" if panel.sideways else "x"
        for shift in (-2, 2):  # pixels
            shapes.append({
                "type": "line", "line": {"color": ground.faint, "width": 1},
                f"{values}ref": f"{along} domain", f"{values}sizemode": "pixel",
                f"{values}anchor": broken, f"{values}0": shift - 2, f"{values}1": shift + 2,
                f"{across_axis}ref": f"{other} domain", f"{across_axis}sizemode": "pixel",
                f"{across_axis}anchor": 0, f"{across_axis}0": -5, f"{across_axis}1": 5,
            })  # fmt: skip  # a table reads better so
    return shapes


def _place(panel: Panel, x: Any) -> Any:
    return moment(x) if panel.x.kind == "time" else float(x)


def _mark_texts(panel: Panel, i: int, ground: Ground, width: float) -> list[dict[str, Any]]:
    texts = []
    places = layout.mark_places(panel, width)
    for mark, (row, end) in zip(panel.marks, places, strict=True):
        if row is None:
            continue
        at = _place(panel, mark.x)
        text = {
            "x": math.log10(at) if panel.x.kind == "log" else at, "xref": f"x{i + 1 if i else ''}",
            "y": 1, "yref": f"y{i + 1 if i else ''} domain", "yshift": ROW * row,
            "xanchor": end, "yanchor": "bottom", "text": safe(mark.text), "showarrow": False,
            "font": {"size": 11, "color": ground.faint},
        }  # fmt: skip  # a table reads better so
        texts.append(text)
    return texts


def _heading(panel: Panel, cell: Cell, ground: Ground, grid: Grid) -> list[dict[str, Any]]:
    """Where labels take much room, it begins above them; cut to the width of the panel."""
    text = shown(heading(panel), int(grid.wide / layout.LETTER))
    found = {
        "x": cell.left, "xref": "paper", "xanchor": "left", "y": cell.top, "yref": "paper",
        "yanchor": "bottom", "yshift": 4 + ROW * cell.rows, "text": safe(text),
        "xshift": 0 if cell.left else LEAST_LEFT - grid.left, "showarrow": False,
        "font": {"size": 12, "color": ground.faint},
    }  # fmt: skip  # a table reads better so
    return [found] if found["text"] else []


def _add_title(page: dict[str, Any], chart: Chart, ground: Ground) -> None:
    lines = wrapped(chart.note, 100)
    room = 40 + ROW * (lines.count("<br>") + 1) * bool(lines)
    page["height"] += room
    page["margin"] = page["margin"] | {"t": page["margin"]["t"] + room}
    page["title"] = {
        "text": safe(shown(chart.title, 90)), "font": {"size": 16}, "x": 0.01, "xanchor": "left",
        "y": 1, "yref": "container", "yanchor": "top", "pad": {"t": 12},
        "subtitle": {"text": lines, "font": {"size": 12, "color": ground.faint}},
    }  # fmt: skip  # a table reads better so
