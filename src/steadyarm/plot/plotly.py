"""Charts for Plotly: as plain values for a page (nothing is imported), or as its own figure."""

from __future__ import annotations

import math
from typing import Any

from steadyarm.errors import MissingExtraError
from steadyarm.plot import frame, palette
from steadyarm.plot.axes import axes_of
from steadyarm.plot.chart import Chart, Panel
from steadyarm.plot.charts.words import shown
from steadyarm.plot.fitting import NARROW, WIDE, fitted
from steadyarm.plot.grid import LEAST_LEFT, Cell, cells_of, heading
from steadyarm.plot.limits import limits_of
from steadyarm.plot.safe import moment, safe, wrapped
from steadyarm.plot.traces import traces_of

__all__ = ["figure_of", "spec_of"]

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
    look = palette.DARK if dark else palette.LIGHT
    room = WIDE if columns > 1 else NARROW
    chart = fitted(chart, room)
    grid = cells_of(chart, columns, room)
    data: list[dict[str, Any]] = []
    named: set[str] = set()
    shapes: list[dict[str, Any]] = []
    notes: list[dict[str, Any]] = []
    layout: dict[str, Any] = {}
    show, limits = frame.legend(chart), limits_of(chart)
    for i, (panel, cell) in enumerate(zip(chart.panels, grid.cells, strict=True)):
        data += traces_of(panel, i, look, named, show)
        layout |= axes_of(chart, i, cell, look, limits[i], room, grid.left > CRAMPED)
        shapes += _lines(panel, i, look)
        notes += [*_heading(panel, cell, look, grid.left), *_mark_texts(panel, i, look, grid.wide)]
    layout |= {
        "autosize": True,
        "height": grid.height,
        "margin": {"l": grid.left, "r": 12, "t": grid.top, "b": grid.bottom, "pad": 2},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {
            "family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",
            "size": 12,
            "color": look.text,
        },
        "colorway": list(look.lines),
        "hovermode": _hovermode(chart),
        "hoverlabel": {
            "bgcolor": look.ground,
            "bordercolor": look.grid,
            "font": {"color": look.text, "size": 12},
            "namelength": -1,
        },
        "barmode": "overlay",
        "uirevision": chart.name,
        "showlegend": show,
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": -grid.below / grid.inner,
            "yanchor": "top",
            "font": {"size": 12, "color": look.text},
            "bgcolor": "rgba(0,0,0,0)",
            "tracegroupgap": 0,
        },
        "shapes": shapes,
        "annotations": notes,
    }
    if title:
        _add_title(layout, chart, look)
    return {"data": data, "layout": layout}


def figure_of(chart: Chart) -> Any:
    """The chart as a `plotly.graph_objects.Figure`, with title and small print."""
    try:
        from plotly.graph_objects import Figure  # type: ignore[import-untyped]  # it has no types
    except ImportError as error:
        raise MissingExtraError(
            f"this picture needs {error.name}; install it with: pip install 'steadyarm[plots]'."
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


def _lines(panel: Panel, i: int, look: palette.Ground) -> list[dict[str, Any]]:
    x, y = (f"{axis}{i + 1 if i else ''}" for axis in "xy")
    marks = [
        {
            "type": "line", "xref": x, "yref": f"{y} domain", "x0": at, "x1": at, "y0": 0, "y1": 1,
            "line": {"color": look.faint, "width": 1, "dash": "dash"}, "layer": "above",
        }
        for at in (_place(panel, mark.x) for mark in panel.marks)
    ]  # fmt: skip  # a table reads better so
    if panel.level is None:
        return marks
    along, across = ("x", "y") if panel.sideways else ("y", "x")
    own, other = (x, y) if panel.sideways else (y, x)
    level = {
        "type": "line", f"{along}ref": own, f"{across}ref": f"{other} domain",
        f"{along}0": panel.level, f"{along}1": panel.level, f"{across}0": 0, f"{across}1": 1,
        "line": {"color": look.faint, "width": 1}, "layer": "above",
    }  # fmt: skip  # a table reads better so
    return [*marks, level]


def _place(panel: Panel, x: Any) -> Any:
    return moment(x) if panel.x.kind == "time" else float(x)


def _mark_texts(panel: Panel, i: int, look: palette.Ground, width: float) -> list[dict[str, Any]]:
    texts = []
    rows, ends = frame.mark_rows(panel, width), frame.mark_anchors(panel)
    for mark, row, end in zip(panel.marks, rows, ends, strict=True):
        if row is None:
            continue
        at = _place(panel, mark.x)
        texts.append(
            {
                "x": math.log10(at) if panel.x.kind == "log" else at,
                "xref": f"x{i + 1 if i else ''}",
                "y": 1,
                "yref": f"y{i + 1 if i else ''} domain",
                "yshift": ROW * row,
                "xanchor": end,
                "yanchor": "bottom",
                "text": safe(mark.text),
                "showarrow": False,
                "font": {"size": 11, "color": look.faint},
            }
        )
    return texts


def _heading(panel: Panel, cell: Cell, look: palette.Ground, margin: int) -> list[dict[str, Any]]:
    """Where labels take much room, it begins above them."""
    text = safe(heading(panel))
    if not text:
        return []
    return [
        {
            "x": cell.left, "xref": "paper", "xanchor": "left", "y": cell.top, "yref": "paper",
            "yanchor": "bottom", "yshift": 4 + ROW * cell.rows, "text": text, "showarrow": False,
            "xshift": 0 if cell.left else LEAST_LEFT - margin,
            "font": {"size": 12, "color": look.faint},
        }
    ]  # fmt: skip  # a table reads better so


def _add_title(layout: dict[str, Any], chart: Chart, look: palette.Ground) -> None:
    lines = wrapped(chart.note, 100)
    room = 40 + ROW * (lines.count("<br>") + 1) * bool(lines)
    layout["height"] += room
    layout["margin"] = layout["margin"] | {"t": layout["margin"]["t"] + room}
    layout["title"] = {
        "text": safe(shown(chart.title, 90)),
        "font": {"size": 16},
        "x": 0.01,
        "xanchor": "left",
        "y": 1,
        "yref": "container",
        "yanchor": "top",
        "pad": {"t": 12},
        "subtitle": {"text": lines, "font": {"size": 12, "color": look.faint}},
    }
