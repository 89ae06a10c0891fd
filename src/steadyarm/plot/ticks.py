"""Ticks and names of axes for matplotlib."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis as Ruler
from matplotlib.dates import MINUTELY, SECONDLY, AutoDateLocator, ConciseDateFormatter
from matplotlib.ticker import (
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullLocator,
    PercentFormatter,
)

from steadyarm.plot.chart import Axis, Panel
from steadyarm.plot.charts.names import apart
from steadyarm.plot.fitting import PAPER
from steadyarm.plot.frame import by_day, label_names, places, whole
from steadyarm.plot.palette import LIGHT

__all__ = ["set_ticks"]

# by years, months, days, hours, minutes and seconds; what stands at the end of the axis
DATES: dict[str, Any] = {
    "formats": ["%Y", "%b %Y", "%d %b", "%H:%M", "%H:%M", "%H:%M:%S.%f"],
    "zero_formats": ["", "%b %Y", "%d %b", "%d %b", "%H:%M", "%H:%M:%S"],
    "offset_formats": ["", "", "%Y", "%d %b %Y", "%d %b %Y", "%d %b %Y"],
}
SIXTIETHS = [1, 2, 5, 10, 15, 30]  # minutes or seconds between ticks
MOST = 8  # labels beside each other


def set_ticks(
    axes: Axes, panel: Panel, text: Callable[[str], str], font: dict[str, Any], size: float
) -> None:
    """Scales, ticks and names of both axes."""
    labels: Ruler = axes.yaxis if panel.sideways else axes.xaxis
    values: Ruler = axes.xaxis if panel.sideways else axes.yaxis
    if panel.x.kind == "label":
        _names(axes, panel, labels, text, font)
    else:
        _scale(axes, labels, panel.x, "x")
        if by_day(panel) and len(panel.series[0].x) <= MOST:
            days = np.unique([place for s in panel.series for place in places(panel, s)])
            texts = [f"{datetime.fromtimestamp(day, UTC):%d %b}" for day in days]
            labels.set_ticks([float(day) / 86400 for day in days], texts)
    _scale(axes, values, panel.y, "x" if panel.sideways else "y")
    if whole(panel) is not None:
        values.set_major_locator(MaxNLocator(6, integer=True))
    for ruler, axis in ((labels, panel.x), (values, panel.y)):
        ruler.set_label_text(text(axis.title), size=size, color=LIGHT.faint, **font)
        ruler.set_tick_params(labelsize=size - 0.5, color=LIGHT.grid, labelcolor=LIGHT.faint)
        ruler.offsetText.set_fontsize(size - 1)


def _names(
    axes: Axes, panel: Panel, ruler: Ruler, text: Callable[[str], str], font: dict[str, Any]
) -> None:
    names = label_names(panel)
    count = len(names)
    step = 1 if panel.sideways else max(1, -(-count // MOST))
    at = range(0, count, step)
    most = PAPER.side if panel.sideways else PAPER.below
    short = apart([str(name) for name in names], most)
    ruler.set_ticks(list(at), [text(short[k]) for k in at], **font)
    ruler.grid(panel.sideways)
    if panel.sideways:
        axes.set_ylim(count - 0.5, -0.5)
    else:
        axes.set_xlim(-0.5, count - 0.5)


def _scale(axes: Axes, ruler: Ruler, axis: Axis, side: str) -> None:
    if axis.kind == "time":
        locator: Any = AutoDateLocator(minticks=3, maxticks=7, tz=UTC)  # type: ignore[no-untyped-call]  # its types are not given
        for unit in (MINUTELY, SECONDLY):
            locator.intervald[unit] = SIXTIETHS
        ruler.set_major_locator(locator)
        dates: Any = ConciseDateFormatter(locator, tz=UTC, **DATES)  # type: ignore[no-untyped-call]  # as above
        ruler.set_major_formatter(dates)
        return
    if axis.kind == "log":
        (axes.set_xscale if side == "x" else axes.set_yscale)("log")
        ruler.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ruler.set_minor_locator(NullLocator())
    else:
        ruler.set_major_locator(MaxNLocator(6))
    ruler.set_major_formatter(_numbers(axis))


def _numbers(axis: Axis) -> Any:
    if axis.percent and axis.kind != "log":
        return PercentFormatter(1.0, symbol=" %")
    if axis.percent:
        return FuncFormatter(lambda value, _: f"{100 * value:g} %")
    return FuncFormatter(lambda value, _: _number(value))


def _number(value: float) -> str:
    if value and (abs(value) < 1e-4 or abs(value) >= 1e9):
        return f"{value:.3g}"
    digits = f"{value:,.6f}".rstrip("0").rstrip(".")
    return "0" if np.isclose(value, 0, atol=1e-12) else digits.replace("-", "\u2212")
