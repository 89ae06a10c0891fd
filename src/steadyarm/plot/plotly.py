"""Charts for Plotly: as plain values for a page (nothing is imported), or as its own figure."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import numpy as np

from steadyarm.errors import MissingExtraError
from steadyarm.plot import layout
from steadyarm.plot.chart import Chart, Panel, Series
from steadyarm.plot.charts.common import shown
from steadyarm.plot.layout import NARROW, WIDE
from steadyarm.plot.plotly_layout import (
    LEAST_LEFT,
    Cell,
    axes_of,
    cells_of,
    heading,
    moment,
    plain,
    safe,
    wrapped,
)

# The series of a panel as traces of Plotly.


Trace = dict[str, Any]
FEW = 12  # points that are worth a marker each


def traces_of(
    panel: Panel, i: int, ground: layout.Ground, named: set[str], legend: bool
) -> list[Trace]:
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
        first = common["legendgroup"] not in named
        named.add(common["legendgroup"])
        common["legendgroup"] = safe(common["legendgroup"])
        if series.kind == "line" and (band := _band(panel, series, ground)):
            traces.append(band | common | {"showlegend": False})
        if series.kind == "area":
            trace["stackgroup"] = f"of{i}"
        traces.append(trace | common | {"showlegend": legend and first and len(panel.series) > 1})
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


def _trace(panel: Panel, series: Series, ground: layout.Ground, shift: float) -> Trace:
    x, y = _x(panel, series, shift), plain(series.y)
    color = ground.quiet if series.color is None else ground.lines[series.color % len(ground.lines)]
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
        trace |= {"mode": "markers", "marker": ring}
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
    reach = layout.reaches(series)
    if reach is not None:
        down, up = (plain(values) for values in reach)
        trace["error_x" if panel.sideways else "error_y"] = {
            "type": "data", "symmetric": False, "array": up, "arrayminus": down, "color": color,
            "thickness": 1.5, "width": 0 if panel.sideways else 3,
        }  # fmt: skip  # a table reads better so
    return trace


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


def _band(panel: Panel, series: Series, ground: layout.Ground) -> Trace | None:
    """Each run of known intervals as a closed shape."""
    assert series.color is not None or series.low is None
    if series.color is None or series.low is None or series.high is None:
        return None
    x = _x(panel, series, 0.0)
    xs: list[Any] = []
    ys: list[float | None] = []
    for run in layout.band_runs(series):
        around = [*x[run], *x[run][::-1]]
        xs += [*around, None]
        ys += [*plain(series.low[run]), *plain(series.high[run][::-1]), None]
    if not xs:
        return None
    fill = layout.clear(ground.lines[series.color % len(ground.lines)], 0.14)
    return {
        "type": "scatter", "mode": "lines", "x": xs[:-1], "y": ys[:-1], "fill": "toself",
        "fillcolor": fill, "line": {"width": 0}, "hoverinfo": "skip",
    }  # fmt: skip  # a table reads better so


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
        text = _number(0.0 if zero else value, digits, panel.y.percent)
        if series.low is not None and series.high is not None:
            low, high = series.low[j], series.high[j]
            low = 0.0 if zero else low
            if np.isfinite(low) and np.isfinite(high):
                ends = (_number(end, digits, panel.y.percent) for end in (low, high))
                text += " ({} to {})".format(*ends)
        if panel.x.kind == "label":
            text = f"{safe(shown(str(series.x[j]), 40))}: {text}"
        elif series.kind in ("points", "rings"):
            where = series.x[j]
            day = panel.x.kind == "time"
            text = f"{moment(where)[:10]}: {text}" if day else f"{where:,.0f}: {text}"
        texts.append(text)
    return {"customdata": texts, "hovertemplate": "%{customdata}"}


def _number(value: float, digits: int, percent: bool) -> str:
    return f"{100 * value:.3g} %" if percent else f"{value:,.{digits}f}"


def _dash(series: Series) -> str:
    lengths = layout.DASHES[(series.color or 0) % len(layout.DASHES)]
    return ",".join(f"{2 * length:g}px" for length in lengths) or "solid"


def _symbol(series: Series) -> str:
    return layout.SHAPES[(series.color or 0) % len(layout.SHAPES)][0]


ROW = 14  # pixels of a line of small text
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
        notes += _heading(panel, cell, ground, grid.left)
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


def _shapes(panel: Panel, i: int, ground: layout.Ground) -> list[dict[str, Any]]:
    """Marks, the level to compare with, and the strip that stands for zero."""
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
    return shapes


def _place(panel: Panel, x: Any) -> Any:
    return moment(x) if panel.x.kind == "time" else float(x)


def _mark_texts(panel: Panel, i: int, ground: layout.Ground, width: float) -> list[dict[str, Any]]:
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


def _heading(panel: Panel, cell: Cell, ground: layout.Ground, margin: int) -> list[dict[str, Any]]:
    """Where labels take much room, it begins above them."""
    text = safe(heading(panel))
    if not text:
        return []
    return [
        {
            "x": cell.left, "xref": "paper", "xanchor": "left", "y": cell.top, "yref": "paper",
            "yanchor": "bottom", "yshift": 4 + ROW * cell.rows, "text": text, "showarrow": False,
            "xshift": 0 if cell.left else LEAST_LEFT - margin,
            "font": {"size": 12, "color": ground.faint},
        }
    ]  # fmt: skip  # a table reads better so


def _add_title(page: dict[str, Any], chart: Chart, ground: layout.Ground) -> None:
    lines = wrapped(chart.note, 100)
    room = 40 + ROW * (lines.count("<br>") + 1) * bool(lines)
    page["height"] += room
    page["margin"] = page["margin"] | {"t": page["margin"]["t"] + room}
    page["title"] = {
        "text": safe(shown(chart.title, 90)), "font": {"size": 16}, "x": 0.01, "xanchor": "left",
        "y": 1, "yref": "container", "yanchor": "top", "pad": {"t": 12},
        "subtitle": {"text": lines, "font": {"size": 12, "color": ground.faint}},
    }  # fmt: skip  # a table reads better so
