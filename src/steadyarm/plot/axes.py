"""Axes of a panel for Plotly."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np

from steadyarm.plot import frame, palette
from steadyarm.plot.chart import Axis, Chart, Panel
from steadyarm.plot.charts.names import apart
from steadyarm.plot.fitting import WIDE, Room
from steadyarm.plot.grid import Cell, below
from steadyarm.plot.safe import moment, safe

__all__ = ["axes_of"]

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
    look: palette.Ground,
    limits: tuple[float, float] | None,
    room: Room,
    cramped: bool,
) -> Layout:
    """Both axes of panel number i; panels with the same clock are zoomed together."""
    n, panel, panels = i + 1 if i else "", chart.panels[i], chart.panels
    labels = _common(panel.x, cell.left, cell.right, f"y{n}", look)
    values = _common(panel.y, cell.bottom, cell.top, f"x{n}", look)
    if panel.sideways:
        labels |= {"domain": [cell.bottom, cell.top], "anchor": f"x{n}"}
        values |= {"domain": [cell.left, cell.right], "anchor": f"y{n}"}
    labels |= _labels(panel, room) if panel.x.kind == "label" else _scale(panel.x) | _across(panel)
    if cramped and room.width < WIDE.width and panel.x.kind == "time":
        labels["nticks"] = 3
    values |= _scale(panel.y) | _values(panel, limits)
    across, up = (values, labels) if panel.sideways else (labels, values)
    if title := below(chart, i):
        across["title"] = {"text": safe(title), "standoff": 6, "font": _font(look)}
    clocks = [j for j, other in enumerate(panels) if other.x.kind == "time" and not other.sideways]
    if i in clocks and i != clocks[0]:
        across["matches"] = f"x{clocks[0] + 1 if clocks[0] else ''}"
    return {f"xaxis{n}": across, f"yaxis{n}": up}


def _font(look: palette.Ground) -> Layout:
    return {"size": 12, "color": look.faint}


def _common(axis: Axis, start: float, end: float, anchor: str, look: palette.Ground) -> Layout:
    return {
        "domain": [start, end],
        "anchor": anchor,
        "automargin": True,
        "gridcolor": look.grid,
        "zerolinecolor": look.grid,
        "linecolor": look.grid,
        "tickfont": {"size": 11, "color": look.faint},
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
    if frame.by_day(panel):
        found["hoverformat"] = "%-d %b %Y"
        if len(panel.series[0].x) <= 4:
            found["dtick"] = 86_400_000
    short = frame.clock_limits(panel)
    if short is not None and not frame.by_day(panel):
        found["hoverformat"] = "%-d %b %Y, %H:%M:%S"
    ends = short or frame.marked_limits(panel)
    if ends is not None:
        time = panel.x.kind == "time"
        found["range"] = [moment(datetime.fromtimestamp(x, UTC)) if time else x for x in ends]
    return found


def _values(panel: Panel, limits: tuple[float, float] | None) -> Layout:
    kinds = {series.kind for series in panel.series}
    if limits is None:
        few = {"dtick": 1} if (frame.whole(panel) or 9) <= 5 else {}
        return {"rangemode": "tozero", **few} if kinds & {"bars", "steps"} else {}
    log = panel.y.kind == "log"
    return {"range": [float(np.log10(end)) if log else end for end in limits]}


def _labels(panel: Panel, room: Room) -> Layout:
    """Labels at 0, 1, 2: names that look alike when cut short stay apart."""
    names = frame.label_names(panel)
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
