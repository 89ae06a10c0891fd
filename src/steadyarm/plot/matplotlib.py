"""Figures of matplotlib, to print: the functions of `steadyarm.plot` under the same names.

Needs the extra `plots`. Charts become figures by `draw` and files by `save`.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from steadyarm.errors import InvalidInputError, MissingExtraError
from steadyarm.files import write_atomically
from steadyarm.plot import layout
from steadyarm.plot.chart import Axis, Chart, Panel, Series
from steadyarm.plot.charts.common import apart, shown
from steadyarm.plot.layout import DASHES, LIGHT, PAPER, SHAPES
from steadyarm.plot.sources import Drawings

try:
    import matplotlib
    from matplotlib import dates, font_manager, ticker
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis as Ruler
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.transforms import ScaledTranslation
except ImportError as error:
    raise MissingExtraError(
        f"pictures need {error.name}; install it with: pip install 'steadyarm[plots]'."
    ) from None

__all__ = [
    "allocation", "daily", "draw", "drift", "effects", "error_against_budget", "estimates",
    "interactions", "leaderboard", "lifts", "plan", "plausible", "png", "profile", "regret",
    "results", "save", "svg", "waiting",
]  # fmt: skip  # a table reads better so

# Which fonts draw the names of people all over the world, of those that are installed.


FIRST = "DejaVu Sans"  # comes with matplotlib
WORLD = (
    "Noto Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Microsoft YaHei", "PingFang SC",
    "Hiragino Sans", "Malgun Gothic", "Arial Unicode MS", "Noto Sans Devanagari", "Noto Emoji",
)  # fmt: skip  # a table reads better so


@cache
def families() -> tuple[str, ...]:
    """The font of every picture, then those that have letters which it lacks."""
    installed = {font.name for font in font_manager.fontManager.ttflist}
    return (FIRST, *(name for name in WORLD if name in installed))


@cache
def _signs() -> frozenset[int]:
    signs: set[int] = set()
    for family in families():
        path = font_manager.findfont(font_manager.FontProperties(family=family))
        signs |= set(font_manager.get_font(path).get_charmap())
    return frozenset(signs)


def printed(text: str) -> str:
    """The text with a box for every letter that no installed font has."""
    signs = _signs()
    return "".join(sign if ord(sign) in signs or sign == "\n" else "□" for sign in text)


# Ticks and names of axes for matplotlib.


# by years, months, days, hours, minutes and seconds; what stands at the end of the axis
DATES: dict[str, Any] = {
    "formats": ["%Y", "%b %Y", "%d %b", "%H:%M", "%H:%M", "%H:%M:%S.%f"],
    "zero_formats": ["", "%b %Y", "%d %b", "%d %b", "%H:%M", "%H:%M:%S"],
    "offset_formats": ["", "", "%Y", "%d %b %Y", "%d %b %Y", "%d %b %Y"],
}
SIXTIETHS = [1, 2, 5, 10, 15, 30]  # minutes or seconds between ticks
MOST = 8  # labels beside each other
STEPS = [1, 2, 2.5, 5, 10]  # between numbers, times a power of ten


def _set_ticks(axes: Axes, panel: Panel) -> None:
    """Scales, ticks and names of both axes."""
    labels: Ruler = axes.yaxis if panel.sideways else axes.xaxis
    values: Ruler = axes.xaxis if panel.sideways else axes.yaxis
    if panel.x.kind == "label":
        _set_labels(axes, panel, labels)
    else:
        _scale(axes, labels, panel.x, "x")
        if layout.by_day(panel) and len(panel.series[0].x) <= MOST:
            days = np.unique([place for s in panel.series for place in layout.places(panel, s)])
            texts = [f"{datetime.fromtimestamp(day, UTC):%d %b}" for day in days]
            labels.set_ticks([float(day) / 86400 for day in days], texts)
        if panel.x.kind == "number" and not panel.sideways:
            labels.set_major_locator(ticker.MaxNLocator(10, steps=STEPS))
    _scale(axes, values, panel.y, "x" if panel.sideways else "y")
    if layout.whole(panel) is not None:
        values.set_major_locator(ticker.MaxNLocator(6, integer=True, steps=STEPS))
    if (ticks := layout.log_ticks(panel)) is not None:
        values.set_ticks(*ticks)
    for ruler, axis in ((labels, panel.x), (values, panel.y)):
        ruler.set_label_text(_text(axis.title), size=SIZE, color=LIGHT.faint, **_font())
        ruler.set_tick_params(labelsize=SIZE - 0.5, color=LIGHT.grid, labelcolor=LIGHT.faint)
        ruler.offsetText.set_fontsize(SIZE - 1)


def _set_labels(axes: Axes, panel: Panel, ruler: Ruler) -> None:
    names = layout.label_names(panel)
    count = len(names)
    at = range(0, count, 1 if panel.sideways else max(1, -(-count // MOST)))
    short = apart([str(name) for name in names], PAPER.side if panel.sideways else PAPER.below)
    ruler.set_ticks(list(at), [_text(short[k]) for k in at], **_font())
    ruler.grid(panel.sideways)
    if panel.sideways:
        axes.set_ylim(count - 0.5, -0.5)
    else:
        axes.set_xlim(-0.5, count - 0.5)


def _scale(axes: Axes, ruler: Ruler, axis: Axis, side: str) -> None:
    if axis.kind == "time":
        locator: Any = dates.AutoDateLocator(minticks=3, maxticks=7, tz=UTC)  # type: ignore[no-untyped-call]  # its types are not given
        for unit in (dates.MINUTELY, dates.SECONDLY):
            locator.intervald[unit] = SIXTIETHS
        ruler.set_major_locator(locator)
        form: Any = dates.ConciseDateFormatter(locator, tz=UTC, **DATES)  # type: ignore[no-untyped-call]  # as above
        ruler.set_major_formatter(form)
        return
    if axis.kind == "log":
        (axes.set_xscale if side == "x" else axes.set_yscale)("log")
        ruler.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
        ruler.set_minor_locator(ticker.NullLocator())
    else:
        ruler.set_major_locator(ticker.MaxNLocator(6, steps=STEPS))
    ruler.set_major_formatter(_numbers(axis))


def _numbers(axis: Axis) -> Any:
    if axis.percent and axis.kind != "log":
        return ticker.PercentFormatter(1.0, symbol=" %")
    if axis.percent:
        return ticker.FuncFormatter(lambda value, _: f"{100 * value:g} %")
    return ticker.FuncFormatter(lambda value, _: _number(value))


def _number(value: float) -> str:
    if value and (abs(value) < 1e-4 or abs(value) >= 1e9):
        return f"{value:.3g}"
    digits = f"{value:,.6f}".rstrip("0").rstrip(".")
    return "0" if np.isclose(value, 0, atol=1e-12) else digits.replace("-", "\u2212")


WIDTH = 7.0  # inches: the text of an A4 page
SIZE, SMALL = 8.5, 7.5
FULL, HALF = 90, 42  # letters of a title across the page, and across half of it
_SAVING = Lock()  # what SVG's identifiers are made of is a setting of the whole process


def draw(chart: Chart) -> Figure:
    """The chart as a `matplotlib.figure.Figure`, on no screen and in no global state."""
    chart = layout.prepared(chart, PAPER)
    lines = _lines(chart.panels)
    heights = [max(_height(panel, len(lines)) for panel in line) for line in lines]
    keys = _keys(chart)
    columns = 3 if max(map(len, keys), default=0) <= 24 else 2 if len(keys) > 1 else 1
    note = textwrap.wrap(chart.note, 110)
    extra = 0.45 + 0.17 * -(-len(keys) // columns) + 0.14 * len(note)
    figure = Figure(figsize=(WIDTH, sum(heights) + extra), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(len(lines), 2, height_ratios=heights)
    first: dict[Axis, Axes] = {}
    for i, line in enumerate(lines):
        for j, panel in enumerate(line):
            place = grid[i, j] if len(line) > 1 or _paired(lines) else grid[i, :]
            same = first.get(panel.x) if panel.x.kind == "number" else None
            axes = figure.add_subplot(place, sharex=same)
            first.setdefault(panel.x, axes)
            _draw(axes, panel, HALF if place.colspan.stop - place.colspan.start == 1 else FULL)
    title = textwrap.fill(shown(chart.title, 160), 80)
    figure.suptitle(_text(title), x=0.01, ha="left", fontweight="bold", size=11, **_font())
    small = _text("\n".join(note))
    if keys:
        legend = figure.legend(
            handles=list(keys.values()), labels=[_label(name) for name in keys],
            loc="outside lower left", ncols=columns, frameon=False, handlelength=3.2,
            title=small, alignment="left", prop=_font() | {"size": SMALL},
            title_fontproperties=_font() | {"size": SMALL},
        )  # fmt: skip  # a table reads better so
        legend.get_title().set_color(LIGHT.faint)
        for text in legend.get_texts():
            text.set_color(LIGHT.text)
    elif note:
        figure.supxlabel(small, x=0.01, ha="left", size=SMALL, color=LIGHT.faint, **_font())
    return figure


def png(chart: Chart, dpi: int = 160) -> bytes:
    """The chart as a PNG file, byte for byte the same at every call."""
    return _saved(chart, "png", {"Software": None}, dpi=dpi)


def svg(chart: Chart) -> bytes:
    """The chart as an SVG file, byte for byte the same at every call; letters are outlines."""
    return _saved(chart, "svg", dict.fromkeys(("Date", "Creator", "Format", "Type")))


def _pdf(chart: Chart) -> bytes:
    return _saved(chart, "pdf", {"CreationDate": None})


def save(chart: Chart, path: Path) -> Path:
    """Write the chart as a file; the ending of its name says as what (.png, .svg or .pdf).

    Files are byte for byte the same at every call; the text of a PDF file can be searched.
    """
    writers = {".png": png, ".svg": svg, ".pdf": _pdf}
    if path.suffix.lower() not in writers:
        raise InvalidInputError(f"the picture is {path}; expected a name in .png, .pdf or .svg.")
    return write_atomically(path, writers[path.suffix.lower()](chart))


def _saved(chart: Chart, kind: str, metadata: dict[str, None], **settings: Any) -> bytes:
    content = io.BytesIO()
    fonts: Any = {"svg.hashsalt": chart.name, "svg.fonttype": "path", "pdf.fonttype": 42}
    with _SAVING, matplotlib.rc_context(fonts):
        figure = draw(chart)
        figure.savefig(content, format=kind, facecolor="white", metadata=metadata, **settings)
    return content.getvalue()


def _font() -> dict[str, Any]:
    return {"family": list(families())}


def _text(text: str) -> str:
    """As it is: dollars begin no formula, letters without a glyph are boxes."""
    return printed(text).replace("$", r"\$")


def _label(name: str) -> str:
    text = _text(name)
    return f" {text}" if text.startswith("_") else text  # else matplotlib leaves it out


def _lines(panels: Sequence[Panel]) -> list[list[Panel]]:
    """Panels by line: two narrow ones that follow each other share a line."""
    lines: list[list[Panel]] = []
    for panel in panels:
        if _narrow(panel) and lines and len(lines[-1]) == 1 and _narrow(lines[-1][0]):
            lines[-1].append(panel)
        else:
            lines.append([panel])
    return lines


def _paired(lines: Sequence[Sequence[Panel]]) -> bool:
    """Whether all panels are narrow and some share a line; then a last one alone stays narrow."""
    return any(len(line) > 1 for line in lines) and all(_narrow(p) for line in lines for p in line)


def _narrow(panel: Panel) -> bool:
    """Panels by labels fit beside each other; those over time share their clock instead."""
    if panel.x.kind == "label":
        return panel.sideways or _short(panel)
    return panel.x.kind == "log"


def _short(panel: Panel) -> bool:
    """Whether all labels fit below a panel of half the width."""
    names = layout.label_names(panel)
    return sum(min(len(str(name)), 14) + 2 for name in names) <= 36


def _height(panel: Panel, lines: int) -> float:
    if panel.sideways:
        count = max((len(series.x) for series in panel.series), default=1)
        return 0.2 * max(count, 3) * panel.height + 0.6
    usual = 3.0 if lines == 1 else 2.1
    return usual * panel.height + 0.14 * layout.rows_above(panel, PAPER.width)


def _draw(axes: Axes, panel: Panel, letters: int) -> None:
    """Draw one panel, whose title has room for so many letters in a line."""
    for spine in ("top", "right"):
        axes.spines[spine].set_visible(False)
    for spine in ("left", "bottom"):
        axes.spines[spine].set_color(LIGHT.grid)
    axes.grid(color=LIGHT.grid, linewidth=0.6)
    axes.set_axisbelow(True)
    moved = layout.shifts(panel)
    areas = [series for series in panel.series if series.kind == "area"]
    if areas:
        _areas(axes, panel, areas)
    for i, series in enumerate(panel.series):
        if series.kind != "area":
            _series(axes, panel, series, moved.get(i, 0.0))
    if panel.level is not None:
        line = axes.axvline if panel.sideways else axes.axhline
        line(panel.level, color=LIGHT.faint, linewidth=0.9, zorder=1.5)
    if panel.zeros is not None and panel.y_range is not None:
        strip = axes.axvspan if panel.sideways else axes.axhspan
        strip(panel.y_range[0], panel.zeros, color=LIGHT.quiet, alpha=0.13, linewidth=0, zorder=0)
    if (broken := layout.axis_break(panel)) is not None:
        _break(axes, broken, panel.sideways)
    _set_ticks(axes, panel)
    _limits(axes, panel)
    rows = _marks(axes, panel)
    pad = 5 + 10 * rows
    title = _text(textwrap.fill(panel.title, letters))
    axes.set_title(title, loc="left", size=SIZE + 0.5, color=LIGHT.text, pad=pad, **_font())


def _break(axes: Axes, where: float, sideways: bool) -> None:
    """Two strokes across the axis of values, which say that it leaves something out."""
    stroke = [(-0.5, -1.0), (0.5, 1.0)] if sideways else [(-1.0, -0.5), (1.0, 0.5)]
    style: dict[str, Any] = {
        "marker": stroke,
        "markersize": 8,
        "markeredgewidth": 0.9,
        "linestyle": "none",
    }
    for points in (-1.7, 1.7):
        right, up = (points, 0.0) if sideways else (0.0, points)
        inches = ScaledTranslation(right / 72, up / 72, axes.figure.dpi_scale_trans)
        x, y = (where, 0.0) if sideways else (0.0, where)
        axes.plot(
            [x], [y], **style, color=LIGHT.text, transform=axes.transAxes + inches, clip_on=False,
            zorder=5, scalex=False, scaley=False,
        )  # fmt: skip  # a table reads better so


def _limits(axes: Axes, panel: Panel) -> None:
    kinds = {series.kind for series in panel.series}
    if panel.y_range is not None:
        (axes.set_xlim if panel.sideways else axes.set_ylim)(*panel.y_range)
    elif kinds & {"bars", "steps"} and panel.y.kind != "log":
        tops = np.concatenate([series.y for series in panel.series])
        top = 1.06 * float(np.nanmax(tops, initial=0.0)) or 1.0
        (axes.set_xlim if panel.sideways else axes.set_ylim)(0, top)
    if "area" in kinds:
        axes.margins(x=0)
    if (wide := layout.clock_limits(panel)) is not None:
        axes.set_xlim(wide[0] / 86400, wide[1] / 86400)


def _dash(series: Series) -> Any:
    lengths = DASHES[(series.color or 0) % len(DASHES)]
    return (0, lengths) if lengths else "-"


def _marker(series: Series) -> str:
    return SHAPES[(series.color or 0) % len(SHAPES)][1]


def _x(panel: Panel, series: Series, shift: float = 0.0) -> Any:
    where = layout.places(panel, series, shift)
    return where / 86400 if panel.x.kind == "time" else where  # matplotlib counts days


def _areas(axes: Axes, panel: Panel, areas: list[Series]) -> None:
    base = np.zeros(len(areas[0].y))
    for series in areas:
        top = base + np.nan_to_num(series.y)
        axes.fill_between(
            _x(panel, series), base, top, step="post", color=LIGHT.color(series), linewidth=0.4,
            edgecolor="white", alpha=0.5 if series.color is None else 0.85,
        )  # fmt: skip  # a table reads better so
        base = top


def _series(axes: Axes, panel: Panel, series: Series, shift: float) -> None:
    x, color = _x(panel, series, shift), LIGHT.color(series)
    if series.kind == "bars":
        scale = 86400 if panel.x.kind == "time" else 1
        width = (0.6 if panel.sideways else 0.8) * layout.step_of(panel) / scale
        bars = axes.barh if panel.sideways else axes.bar
        bars(x, np.nan_to_num(series.y), width, color=color, alpha=_alpha(series))
    elif series.color is None and series.kind == "line":
        faint = 0.55 if len(x) < layout.CROWD else 0.3
        axes.plot(x, series.y, color=color, linewidth=0.6, alpha=faint, zorder=1.8)
    elif series.kind == "rings":
        across = (series.y, x) if panel.sideways else (x, series.y)
        axes.plot(*across, zorder=3, **_ring(_marker(series), color))
        if (reach := layout.reaches(series)) is not None:
            spread = np.nan_to_num(np.stack(reach))
            axes.errorbar(
                across[0], across[1],
                xerr=spread if panel.sideways else None, yerr=None if panel.sideways else spread,
                fmt="none", ecolor=color, elinewidth=0.5, capsize=2.5, zorder=2.4,
            )  # fmt: skip  # a table reads better so
    elif series.kind == "points":
        firm, hollow = layout.parts(series)
        _points(axes, panel, firm, x, color)
        if hollow is not None:
            _points(axes, panel, hollow, x, color, hollow=True)
    else:
        few = np.isfinite(series.y).sum() <= 12
        axes.plot(
            x, series.y, color=color, linestyle=_dash(series), markersize=3.5,
            linewidth=1.2 if series.low is None else 1.9,
            marker=_marker(series) if few else "", zorder=2.5,
            drawstyle="steps-post" if series.kind == "steps" else "default",
        )  # fmt: skip  # a table reads better so
        for run in layout.band_runs(series):
            assert series.low is not None
            assert series.high is not None
            low, high = series.low[run], series.high[run]
            axes.fill_between(x[run], low, high, color=color, alpha=0.08, linewidth=0)
            for edge in (low, high):
                axes.plot(
                    x[run], edge, color=color, linewidth=0.5, alpha=0.5, linestyle=_dash(series)
                )


def _ring(marker: str, color: str) -> dict[str, Any]:
    return {
        "linestyle": "none", "marker": marker, "markersize": 7, "markeredgewidth": 0.9,
        "markerfacecolor": "none", "color": color,
    }  # fmt: skip  # a table reads better so


def _alpha(series: Series) -> float:
    return 0.45 if series.color is None else 1.0


def _points(
    axes: Axes, panel: Panel, series: Series, x: Any, color: str, hollow: bool = False
) -> None:
    y = series.y
    across = (y, x) if panel.sideways else (x, y)
    line: Any = "none" if panel.sideways or hollow else _dash(series)
    axes.plot(
        *across, color=color, marker=_marker(series), markersize=4, linewidth=0.7,
        linestyle=line, zorder=2.6, markerfacecolor="white" if hollow else color,
    )  # fmt: skip  # a table reads better so
    reach = layout.reaches(series)
    if reach is None:
        return
    known = np.isfinite(reach[0]) & np.isfinite(y)
    ends = (y - reach[0])[known], (y + reach[1])[known]
    bars = axes.hlines if panel.sideways else axes.vlines
    alpha = 0.35 if hollow else 1.0
    bars(np.asarray(x)[known], *ends, color=color, linewidth=1.1, zorder=2.4, alpha=alpha)


def _marks(axes: Axes, panel: Panel) -> int:
    """Lines where something happened; how many rows of text stand above the panel."""
    places = layout.mark_places(panel, PAPER.width)
    for mark, (row, end) in zip(panel.marks, places, strict=True):
        x = layout.seconds(mark.x) / 86400 if isinstance(mark.x, datetime) else mark.x
        if mark.until is None:
            axes.axvline(x, color=LIGHT.faint, linewidth=0.7, linestyle=(0, (4, 3)), zorder=3)
        else:
            axes.axvspan(x, mark.until, color=LIGHT.quiet, alpha=0.13, linewidth=0, zorder=0)
        if row is not None:
            axes.annotate(
                _text(mark.text), (x, 1), (0, 2 + 10 * row), size=SMALL, color=LIGHT.faint,
                xycoords=axes.get_xaxis_transform(), textcoords="offset points",
                ha=end, annotation_clip=False, **_font(),
            )  # fmt: skip  # a table reads better so
    return layout.rows_above(panel, PAPER.width)


def _keys(chart: Chart) -> dict[str, Any]:
    """What the legend shows, by name."""
    if not layout.legend(chart):
        return {}
    keys: dict[str, Any] = {}
    for panel in chart.panels:
        for series in panel.series if len(panel.series) > 1 else ():
            keys.setdefault(series.name, _key(series, panel.sideways))
        if (text := layout.one_text(panel)) is not None:
            keys[text] = (
                Line2D([], [], color=LIGHT.faint, linewidth=0.7, linestyle=(0, (4, 3)))
                if panel.marks[0].until is None
                else Patch(facecolor=LIGHT.quiet, alpha=0.2)
            )
    return keys


def _key(series: Series, sideways: bool) -> Patch | Line2D:
    color = LIGHT.color(series)
    if series.kind in ("area", "bars"):
        return Patch(facecolor=color, alpha=_alpha(series))
    if series.color is None and series.kind == "line":
        return Line2D([], [], color=color, linewidth=0.8, alpha=0.7)
    if series.kind == "rings":
        return Line2D([], [], **_ring("o", LIGHT.faint))
    marker = _marker(series) if series.kind == "points" else ""
    dashes: Any = "-" if sideways else _dash(series)
    return Line2D([], [], color=color, linestyle=dashes, marker=marker, markersize=4)


_DRAWINGS = Drawings(draw)
estimates, daily, allocation = _DRAWINGS.estimates, _DRAWINGS.daily, _DRAWINGS.allocation
plausible, leaderboard, drift = _DRAWINGS.plausible, _DRAWINGS.leaderboard, _DRAWINGS.drift
effects, interactions, waiting = _DRAWINGS.effects, _DRAWINGS.interactions, _DRAWINGS.waiting
lifts, plan, results = _DRAWINGS.lifts, _DRAWINGS.plan, _DRAWINGS.results
error_against_budget, profile = _DRAWINGS.error_against_budget, _DRAWINGS.profile
regret = _DRAWINGS.regret
