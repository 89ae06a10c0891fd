"""The series of a panel as traces of Plotly."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np

from steadyarm.plot import frame, palette
from steadyarm.plot.chart import Panel, Series
from steadyarm.plot.charts.words import shown
from steadyarm.plot.safe import moment, plain, safe

__all__ = ["traces_of"]

Trace = dict[str, Any]
FEW = 12  # points that are worth a marker each


def traces_of(
    panel: Panel, i: int, look: palette.Ground, named: set[str], legend: bool
) -> list[Trace]:
    """All traces of panel number i; `named` holds what the legend has already, and grows."""
    n = i + 1 if i else ""
    moved = frame.shifts(panel)
    traces: list[Trace] = []
    for s, series in enumerate(panel.series):
        firm, hollow = frame.parts(series)
        trace = _trace(panel, firm, look, moved.get(s, 0.0))
        common = {"name": safe(series.name), "legendgroup": f"{series.name}\n{series.color}"}
        common |= {"xaxis": f"x{n}", "yaxis": f"y{n}"}
        first = common["legendgroup"] not in named
        named.add(common["legendgroup"])
        common["legendgroup"] = safe(common["legendgroup"])
        if series.kind == "line" and (band := _band(panel, series, look)):
            traces.append(band | common | {"showlegend": False})
        if series.kind == "area":
            trace["stackgroup"] = f"of{i}"
        traces.append(trace | common | {"showlegend": legend and first})
        if hollow is not None:
            faint = _hollow(_trace(panel, hollow, look, moved.get(s, 0.0)))
            traces.append(faint | common | {"showlegend": False})
    if (text := frame.one_text(panel)) is not None:
        traces.append(
            {
                "type": "scatter", "mode": "lines", "x": [None], "y": [None], "name": safe(text),
                "xaxis": f"x{n}", "yaxis": f"y{n}", "hoverinfo": "skip", "showlegend": True,
                "line": {"color": look.faint, "width": 1, "dash": "dash"},
            }
        )  # fmt: skip  # a table reads better so
    return traces


def _trace(panel: Panel, series: Series, look: palette.Ground, shift: float) -> Trace:
    x, y = _x(panel, series, shift), plain(series.y)
    color = look.quiet if series.color is None else look.lines[series.color % len(look.lines)]
    trace: Trace = {"type": "scatter", "x": x, "y": y}
    if series.color is None and series.kind == "line":
        faint = palette.clear(color, 0.55 if len(x) < frame.CROWD else 0.3)
        trace |= {"mode": "lines", "line": {"color": faint, "width": 1}}
        return trace | {"hoverinfo": "skip"}
    trace |= _hover(panel, series)
    if series.kind == "bars":
        bars = {"type": "bar", "marker": {"color": color, "line": {"width": 0}}}
        share = 0.6 if panel.sideways else 0.8
        scale = 1000 if panel.x.kind == "time" else 1
        trace |= bars | {"width": share * frame.step_of(panel) * scale}
        if series.color is None:
            trace["marker"]["color"] = palette.clear(color, 0.45)
    elif series.kind == "area":
        fill = palette.clear(color, 0.45 if series.color is None else 0.8)
        trace |= {"mode": "lines", "fillcolor": fill}
        trace["line"] = {"shape": "hv", "width": 0.5, "color": look.ground}
    elif series.kind == "points":
        trace |= _points(panel, series, color)
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
        "line": {"color": palette.clear(color, 0.7), "width": 1, "dash": _dash(series)},
        "marker": {"color": color, "size": 8, "symbol": _symbol(series)},
    }
    reach = frame.reaches(series)
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
            bars = {"color": palette.clear(color, 0.35), "thickness": 1, "width": 0}
            found[side] = trace[side] | bars
    return found


def _band(panel: Panel, series: Series, look: palette.Ground) -> Trace | None:
    """Each run of known intervals as a closed shape."""
    assert series.color is not None or series.low is None
    if series.color is None or series.low is None or series.high is None:
        return None
    x = _x(panel, series, 0.0)
    xs: list[Any] = []
    ys: list[float | None] = []
    for run in frame.band_runs(series):
        around = [*x[run], *x[run][::-1]]
        xs += [*around, None]
        ys += [*plain(series.low[run]), *plain(series.high[run][::-1]), None]
    if not xs:
        return None
    fill = palette.clear(look.lines[series.color % len(look.lines)], 0.14)
    return {
        "type": "scatter", "mode": "lines", "x": xs[:-1], "y": ys[:-1], "fill": "toself",
        "fillcolor": fill, "line": {"width": 0}, "hoverinfo": "skip",
    }  # fmt: skip  # a table reads better so


def _x(panel: Panel, series: Series, shift: float) -> list[Any]:
    if panel.x.kind == "time":
        return [moment(x + timedelta(seconds=shift)) for x in series.x]
    return plain(frame.places(panel, series) + shift)


def _hover(panel: Panel, series: Series) -> Trace:
    """What is said of each point; texts of people are values here, never templates."""
    digits = frame.decimals(panel)
    texts = []
    for j, value in enumerate(series.y):
        text = _number(value, digits, panel.y.percent)
        if series.low is not None and series.high is not None:
            low, high = series.low[j], series.high[j]
            if np.isfinite(low) and np.isfinite(high):
                ends = (_number(end, digits, panel.y.percent) for end in (low, high))
                text += " ({} to {})".format(*ends)
        if panel.x.kind == "label":
            text = f"{safe(shown(str(series.x[j]), 40))}: {text}"
        elif series.kind == "points":
            where = series.x[j]
            day = panel.x.kind == "time"
            text = f"{moment(where)[:10]}: {text}" if day else f"{where:,.0f}: {text}"
        texts.append(text)
    return {"customdata": texts, "hovertemplate": "%{customdata}"}


def _number(value: float, digits: int, percent: bool) -> str:
    return f"{100 * value:.3g} %" if percent else f"{value:,.{digits}f}"


def _dash(series: Series) -> str:
    lengths = palette.DASHES[(series.color or 0) % len(palette.DASHES)]
    return ",".join(f"{2 * length:g}px" for length in lengths) or "solid"


def _symbol(series: Series) -> str:
    return palette.SHAPES[(series.color or 0) % len(palette.SHAPES)][0]
