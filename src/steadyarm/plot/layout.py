"""What both drawers share: styles, positions, limits of axes, and texts cut to the room there is.

`prepared` makes a chart ready to be drawn; the other functions answer a drawer's questions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from steadyarm.plot.chart import Chart, Mark, Panel, Series
from steadyarm.plot.charts.common import apart

# Colours, dashes and markers, in the order of `Series.color`. There are more markers than colours,
# so styles differ beyond the last colour, too.


@dataclass(frozen=True)
class Ground:
    """Colours on one background: of series, of the grey rest, of texts and grids."""

    ground: str
    lines: tuple[str, ...]
    quiet: str
    text: str
    faint: str
    grid: str

    def color(self, series: Series) -> str:
        """The colour of a series."""
        return self.quiet if series.color is None else self.lines[series.color % len(self.lines)]


LIGHT = Ground(
    ground="#ffffff",
    lines=(
        "#0072B2", "#D55E00", "#008A66", "#B8578F", "#B57A00", "#2B8FCB", "#333A45", "#882255",
    ),
    quiet="#8A92A0",
    text="#1f2430",
    faint="#5a6270",
    grid="#dfe2e7",
)  # fmt: skip  # a table reads better so
DARK = Ground(
    ground="#14181f",
    lines=(
        "#4CA3E0", "#F0762B", "#1FB58A", "#DE93BF", "#F0B03A", "#8FD0F5", "#E3E7EE", "#D9618A",
    ),
    quiet="#7d8696",
    text="#e6e9ef",
    faint="#a9b1be",
    grid="#333a46",
)  # fmt: skip  # a table reads better so

DASHES: tuple[tuple[float, ...], ...] = (
    (),
    (7, 2),
    (3, 2),
    (1.2, 1.6),
    (8, 2, 1.5, 2),
    (5, 1.5, 1.5, 1.5, 1.5, 1.5),
    (12, 3),
    (3, 1.5, 1, 1.5),
)
# names of markers in Plotly and in matplotlib
SHAPES: tuple[tuple[str, str], ...] = (
    ("circle", "o"),
    ("square", "s"),
    ("triangle-up", "^"),
    ("triangle-down", "v"),
    ("diamond", "D"),
    ("cross", "P"),
    ("x", "X"),
    ("star", "*"),
    ("triangle-left", "<"),
    ("hexagon", "h"),
    ("triangle-right", ">"),
)


def clear(color: str, share: float) -> str:
    """A colour with the given opacity.

    Examples
    --------
    >>> clear("#0072B2", 0.2)
    'rgba(0,114,178,0.2)'
    """
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{share:g})"


Floats = NDArray[np.float64]
Anchor = Literal["left", "center", "right"]

# share of the distance between places by which error bars at one place stand apart, and in all
BESIDE = 0.03  # how far from the end of an axis its break is marked
DODGE = {"label": 0.05, "time": 0.1, "number": 0.06, "log": 0.08}
SPREAD = 0.5
HOUR = 3600.0
MARGIN = 0.04  # of what a short clock shows, at each end
LEAST, MOMENT = 1.0, 60.0  # seconds that a clock shows, and around a single moment
LETTER = 6.5  # pixels
CROWD = 1500  # points of the grey series from which on it is drawn fainter


def places(panel: Panel, series: Series, shift: float = 0.0) -> Floats:
    """Where the points are: seconds on clocks, 0, 1, 2 for labels, else the numbers themselves.

    The shift, see `shifts`, is one of logarithms on a logarithmic axis.
    """
    if panel.x.kind == "label":
        return _label_places(label_names(panel), series.x) + shift
    if panel.x.kind == "time":
        return np.array([seconds(x) for x in series.x]) + shift
    x = np.array(series.x, dtype=float)
    return x * np.exp(shift) if panel.x.kind == "log" else x + shift


def label_names(panel: Panel) -> tuple[Any, ...]:
    """The labels of x in their order; the grey series repeats them for each of its variants."""
    longest = max(_leading(panel), key=lambda series: len(series.x), default=None)
    if longest is None:
        return ()
    joined = longest.color is None and longest.kind == "line"
    return tuple(dict.fromkeys(longest.x)) if joined else longest.x


def _label_places(names: tuple[Any, ...], x: tuple[Any, ...]) -> Floats:
    at = {name: float(k) for k, name in enumerate(names)}
    if x == names[: len(x)] or not set(x) <= set(at):
        return np.arange(len(x), dtype=float)
    return np.array([at[name] for name in x])


def seconds(moment: Any) -> float:
    """Seconds since 1970; a time without a zone is in UTC."""
    assert isinstance(moment, datetime)
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return aware.timestamp()


def _leading(panel: Panel) -> list[Series]:
    """The series in colour, if there are any: the grey one stands at the same places."""
    return [s for s in panel.series if s.color is not None] or list(panel.series)


def _all_places(panel: Panel) -> Floats:
    found = [places(panel, series) for series in _leading(panel) if len(series.x)]
    return np.concatenate(found or [np.zeros(1)])


def step_of(panel: Panel) -> float:
    """The least distance between neighbouring points; a day, or 1, if there is one point only.

    On a logarithmic axis it is a tenth of the whole.
    """
    seen = np.unique(_all_places(panel))
    if panel.x.kind == "log":
        return 0.1 * float(np.log(seen[-1] / seen[0])) or 0.1
    if len(seen) < 2:
        return 86400.0 if panel.x.kind == "time" else 1.0
    return float(np.diff(seen).min())


def clock_limits(panel: Panel) -> tuple[float, float] | None:
    """Of a clock that shows less than an hour, in seconds, with a small margin; else None.

    Areas fill the whole width.
    """
    if panel.x.kind != "time":
        return None
    seen = _all_places(panel)
    span = float(np.ptp(seen))
    if span >= HOUR:
        return None
    if any(series.kind == "area" for series in panel.series) and span:
        return float(seen.min()), float(seen.max())
    middle = float(seen.min() + seen.max()) / 2
    wide = max((1 + 2 * MARGIN) * span, LEAST) if span else MOMENT
    room = 0.6 * 86400 if by_day(panel) else wide / 2
    return middle - room, middle + room


def marked_limits(panel: Panel) -> tuple[float, float] | None:
    """Of x where texts of marks stand above: these would else stretch the axis; None elsewhere."""
    if panel.x.kind not in ("time", "number") or not panel.marks or len(_all_places(panel)) < 2:
        return None
    seen = _all_places(panel)
    return (float(seen.min()), float(seen.max())) if np.ptp(seen) else None


def by_day(panel: Panel) -> bool:
    """Whether all points stand for whole days."""
    return panel.x.kind == "time" and all(
        x == x.replace(hour=0, minute=0, second=0, microsecond=0)
        for series in _leading(panel)
        for x in series.x
    )


def shifts(panel: Panel) -> dict[int, float]:
    """By how much the points of each series are moved aside so that error bars do not overlap.

    By the index of the series. Rings move with the points of their colour. Nothing moves down the
    side where every row belongs to one series.
    """
    barred = [s for s in panel.series if s.kind == "points" and s.low is not None]
    if len(barred) < 2 or (panel.sideways and _rows_apart(barred)):
        return {}
    dodge = SPREAD if panel.sideways else DODGE[panel.x.kind]
    width = min(SPREAD, dodge * (len(barred) - 1)) * step_of(panel)
    places = np.linspace(-width / 2, width / 2, len(barred)).tolist()
    moved = dict(zip((series.color for series in barred), places, strict=True))
    return {
        i: moved[series.color]
        for i, series in enumerate(panel.series)
        if series.color in moved and (series.kind == "rings" or series in barred)
    }


def _rows_apart(barred: Sequence[Series]) -> bool:
    """Whether no two series have a value in the same row."""
    rows = [name for s in barred for name, y in zip(s.x, s.y, strict=True) if np.isfinite(y)]
    return len(rows) == len(set(rows))


def reaches(series: Series) -> tuple[Floats, Floats] | None:
    """How far error bars go down and up; nan where an end is not known."""
    if series.low is None or series.high is None:
        return None
    down, up = series.y - series.low, series.high - series.y
    known = np.isfinite(down) & np.isfinite(up)
    if not known.any():
        return None
    return np.where(known, down, np.nan), np.where(known, up, np.nan)


def parts(series: Series) -> tuple[Series, Series | None]:
    """The points that are drawn in full, and those of little data, which are hollow, if any."""
    weak = series.weak
    if series.kind != "points" or weak is None or not weak.any():
        return series, None
    return series.where(~weak), series.where(weak)


def band_runs(series: Series) -> list[slice]:
    """Runs of neighbouring points whose intervals are known."""
    if series.low is None or series.high is None:
        return []
    known = np.isfinite(series.low) & np.isfinite(series.high)
    edges = np.flatnonzero(np.diff(known.astype(int), prepend=0, append=0))
    return [slice(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def decimals(panel: Panel) -> int:
    """Digits after the point that tell the panel's values apart."""
    values = np.concatenate([series.y for series in panel.series] or [np.zeros(0)])
    known = np.abs(values[np.isfinite(values)])
    if not known.size or (known == np.rint(known)).all():
        return 0
    return int(np.clip(2 - np.floor(np.log10(max(float(np.median(known)), 1e-9))), 0, 9))


def whole(panel: Panel) -> float | None:
    """The largest value, if all values are counts; else None."""
    values = np.concatenate([series.y for series in panel.series] or [np.zeros(0)])
    known = values[np.isfinite(values)]
    counted = known.size and panel.y.kind == "number" and (known == np.rint(known)).all()
    return float(known.max()) if counted else None


def mark_places(panel: Panel, width: float) -> list[tuple[int | None, Anchor]]:
    """Where the text of each mark stands above a panel of this width: its row and its anchor.

    Rows keep texts from covering each other, anchors keep them inside the picture. The row is None
    if all marks have the same text: the legend says it once.
    """
    where, first, last = _mark_places(panel)
    anchors = [_anchor(x, first, last) for x in where]
    if one_text(panel) is not None:
        return [(None, anchor) for anchor in anchors]
    scale = width / (last - first) if last > first else 0.0
    found: list[tuple[int | None, Anchor]] = []
    ends: list[float] = []
    for x, mark, anchor in zip(where, panel.marks, anchors, strict=True):
        before = {"left": 0.0, "center": 0.5, "right": 1.0}[anchor]
        left = (x - first) * scale - before * LETTER * len(mark.text)
        row = next((i for i, end in enumerate(ends) if end < left), len(ends))
        ends[row : row + 1] = [max(left, 0.0) + LETTER * (len(mark.text) + 1)]
        found.append((row, anchor))
    return found


def rows_above(panel: Panel, width: float) -> int:
    """How many rows of texts of marks stand above a panel of this width."""
    rows = (row for row, _ in mark_places(panel, width) if row is not None)
    return max(rows, default=-1) + 1


def _anchor(x: float, first: float, last: float) -> Anchor:
    third = (last - first) / 3
    return "left" if x <= first + third else "right" if x >= last - third else "center"


def _mark_places(panel: Panel) -> tuple[list[float], float, float]:
    time, log = panel.x.kind == "time", panel.x.kind == "log"
    where = [seconds(mark.x) if time else float(mark.x) for mark in panel.marks]  # type: ignore[arg-type]  # a number where the axis is no clock
    seen = _all_places(panel)
    if log:
        where, seen = [float(np.log(x)) for x in where], np.log(seen)
    return where, float(seen.min()), float(seen.max())


def one_text(panel: Panel) -> str | None:
    """The text of all marks of a panel, if it has several and they say the same."""
    texts = {mark.text for mark in panel.marks}
    return panel.marks[0].text if len(texts) == 1 < len(panel.marks) else None


def legend(chart: Chart) -> bool:
    """Whether there is more than one thing to tell apart in a panel; titles name single series."""
    return any(len(panel.series) > 1 or one_text(panel) for panel in chart.panels)


# How far the axis of values goes, for both drawers.


Limits = tuple[float, float]

LATE = 3  # the last two of so many parts of a line's firm values: their intervals are seen whole
EARLY = 0.2  # share of the picture in which lines may leave it, if they do not say where


def _limits_of(panels: Sequence[Panel]) -> list[Limits | None]:
    """Of each panel's values; None to let the drawer choose.

    Values that rest on little data do not count. Lines: early values, and early bands, may leave
    the picture. Points: error bars that are much longer than points are apart may. Panels with the
    same axis and the same kinds of series have the same limits. A panel's own range goes first.
    """
    found = [panel.y_range or _limits(panel) for panel in panels]
    groups: dict[Any, list[int]] = {}
    for i, panel in enumerate(panels):
        if panel.y_range is None and found[i] is not None:
            groups.setdefault((panel.y, frozenset(s.kind for s in panel.series)), []).append(i)
    for same in groups.values():
        ends = np.array([found[i] for i in same])
        for i in same:
            found[i] = float(ends[:, 0].min()), float(ends[:, 1].max())
    return found


def _limits(panel: Panel) -> Limits | None:
    if panel.y.kind == "log":
        return _around_rates(panel)
    kinds = {series.kind for series in panel.series}
    if "area" in kinds:
        return 0.0, 1.0
    if kinds & {"bars", "steps"}:
        return None
    if "points" in kinds:
        return _around_points(panel)
    return _around_lines(panel)


def _around_rates(panel: Panel) -> Limits | None:
    """On a logarithmic axis error bars may reach far down; upper ends of those at zero are seen."""
    drawn = [series for series in panel.series if series.color is not None]
    barred = [(s.y, s.high) for s in drawn if s.high is not None]
    values = np.concatenate([series.y for series in drawn])
    above = np.concatenate([values, *(high for _, high in barred)])
    seen = np.concatenate([values, *(high[y == 0] / 2 for y, high in barred)])
    seen = seen[seen > 0]
    if not seen.size:
        return None
    low = min(float(seen.min()), panel.level or np.inf)
    high = max(float(np.nanmax(above)), panel.level or 0.0)
    return low / 2, min(1.15 * high, 1.0) if panel.y.percent else 1.15 * high


def _with_zeros(panel: Panel, limits: Limits | None) -> Panel:
    """The panel with its limits; zeros on a logarithmic axis get a strip with a lane per colour."""
    if limits is None or panel.y.kind != "log":
        return replace(panel, y_range=limits)
    bottom, top = limits
    if not any((series.y == 0).any() for series in panel.series):
        series = tuple(_lifted(series, bottom, None) for series in panel.series)
        return replace(panel, y_range=limits, series=series)
    colors = list(dict.fromkeys(s.color for s in panel.series if s.color is not None))
    share = 0.06 if panel.sideways else 0.05 + 0.025 * len(colors)  # of the axis
    depth = (bottom / top) ** (share / (1 - share))
    lanes = {
        color: bottom * depth ** (0.5 if panel.sideways else (i + 1) / (len(colors) + 1))
        for i, color in enumerate(colors)
    }
    series = tuple(_lifted(s, bottom, lanes.get(s.color)) for s in panel.series)  # type: ignore[arg-type]  # None is no colour
    return replace(panel, y_range=(bottom * depth, top), zeros=bottom, series=series)


def _lifted(series: Series, bottom: float, lane: float | None) -> Series:
    """Zeros in their lane, and no error bar that ends at zero, which has no place on the axis."""
    if lane is None:
        low = series.low if series.low is None else np.maximum(series.low, bottom / 10)
        return replace(series, low=low)
    zero = series.y == 0
    low = series.low
    if low is not None:
        low = np.where(zero, lane, np.maximum(low, bottom))
    return replace(series, y=np.where(zero, lane, series.y), low=low)


def axis_break(panel: Panel) -> float | None:
    """Where the axis of values leaves something out, from 0 at its beginning to 1 at its end.

    That is above the strip of zeros on a logarithmic axis, and next to zero where a linear axis
    does not reach it. Drawers mark it with two strokes.

    Examples
    --------
    >>> from steadyarm.plot.chart import Axis
    >>> shares = Panel(Axis(), Axis(), (), y_range=(0.4, 0.6))
    >>> axis_break(shares), axis_break(replace(shares, y_range=(-0.1, 0.6)))
    (0.03, None)
    """
    if panel.y_range is None:
        return None
    low, high = panel.y_range
    if panel.y.kind == "log":
        return None if panel.zeros is None else math.log(panel.zeros / low) / math.log(high / low)
    if panel.y.kind != "number" or low <= 0 <= high:
        return None
    return BESIDE if low > 0 else 1 - BESIDE


def log_ticks(panel: Panel) -> tuple[list[float], list[str]] | None:
    """Places and texts of ticks on a logarithmic axis of values; None if it is none.

    1, 10, 100, …; also 2 and 5 where few decades leave room, and all digits in a single one.
    """
    if panel.y.kind != "log" or panel.y_range is None:
        return None
    low, high = panel.zeros or panel.y_range[0], panel.y_range[1]
    wide = high / low
    steps = (1,) if wide > 2000 else (1, 2, 5) if wide > 12 else (1, 2, 3, 4, 5, 6, 8)
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    places = [float(f"{step}e{power}") for power in powers for step in steps]
    least = 1.2 * low if panel.zeros else low  # where the text of zero is near
    places = [place for place in places if least <= place <= high]
    texts = [f"{100 * place:g} %" if panel.y.percent else f"{place:,g}" for place in places]
    if panel.zeros is None:
        return places, texts
    return [(panel.y_range[0] * panel.zeros) ** 0.5, *places], ["0", *texts]


def _around_lines(panel: Panel) -> Limits | None:
    everywhere = [places(panel, series) for series in panel.series]
    seen = np.concatenate(everywhere) if everywhere else np.array([])
    if not seen.size:
        return None
    step = EARLY * (seen.max() - seen.min())
    values = []
    for x, series in zip(everywhere, panel.series, strict=True):
        if series.weak is not None:
            values += [series.y[~series.weak], _late_band(series, ~series.weak)]
            continue
        values.append(series.y[x >= seen.min() + step])
        ends = [end for end in (series.low, series.high) if end is not None]
        values += [end[x >= seen.min() + 2 * step] for end in ends]
    return _padded(np.concatenate(values), panel.level)


def _late_band(series: Series, firm: NDArray[np.bool_]) -> Floats:
    """Ends of the later intervals; those before were wider, and are cut at the axis."""
    if series.low is None or series.high is None:
        return np.zeros(0)
    at = np.flatnonzero(firm & np.isfinite(series.low) & np.isfinite(series.high))
    late = at[len(at) // LATE :]
    return np.concatenate([series.low[late], series.high[late]])


def _around_points(panel: Panel) -> Limits | None:
    """If all are of little data, all count."""
    firm = [_firm(series) for series in panel.series]
    if not any(mask.any() for mask in firm):
        firm = [np.isfinite(series.y) for series in panel.series]
    values = np.concatenate([s.y[mask] for s, mask in zip(panel.series, firm, strict=True)])
    if not values.size:
        return None
    ends, bars = [values], []
    for series, mask in zip(panel.series, firm, strict=True):
        if (reach := reaches(series)) is not None:
            down, up = (part[mask] for part in reach)
            bars += [down, up]
            ends += [series.y[mask] - down, series.y[mask] + up]
    known = np.concatenate([*bars, np.zeros(0)])
    if np.isfinite(known).any():
        room = max(1.5 * np.ptp(values), 2.5 * float(np.nanmedian(known)))
        ends = [np.clip(np.concatenate(ends), values.min() - room, values.max() + room)]
    return _padded(np.concatenate(ends), panel.level)


def _firm(series: Series) -> NDArray[np.bool_]:
    known = np.isfinite(series.y)
    return known if series.weak is None else known & ~series.weak


def _padded(values: Floats, level: float | None) -> Limits | None:
    """With some room at both ends; a value that stands alone is seen against zero."""
    known = values[np.isfinite(values)]
    if level is not None:
        known = np.append(known, level)
    if not known.size:
        return None
    low, high = float(known.min()), float(known.max())
    if low == high:
        low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        return -0.06, 1.06
    room = 0.06 * (high - low)
    return low - room, high + room


# Texts of a chart cut to the room that there is, different ones staying different.


@dataclass(frozen=True)
class Room:
    """Letters for a name in the legend, a label down the side, one below and a mark.

    `width` is that of the whole picture in pixels, roughly.
    """

    legend: int
    side: int
    below: int
    mark: int
    width: float


NARROW = Room(legend=34, side=22, below=16, mark=33, width=320)
WIDE = Room(legend=44, side=36, below=20, mark=56, width=640)
PAPER = Room(legend=44, side=34, below=14, mark=56, width=460)


def prepared(chart: Chart, room: Room) -> Chart:
    """The chart as it is drawn: limits of values, and names and texts of marks that fit.

    Labels are cut by their axes.
    """
    names = list(dict.fromkeys(s.name for panel in chart.panels for s in panel.series))
    short = dict(zip(names, apart(names, room.legend), strict=True))
    panels = []
    for panel, limits in zip(chart.panels, _limits_of(chart.panels), strict=True):
        drawn = _with_zeros(panel, limits)
        series = tuple(replace(series, name=short[series.name]) for series in drawn.series)
        panels.append(replace(drawn, series=series, marks=_marks(panel, room)))
    return replace(chart, panels=tuple(panels))


def _marks(panel: Panel, room: Room) -> tuple[Mark, ...]:
    texts = apart([mark.text for mark in panel.marks], room.mark)
    return tuple(replace(mark, text=text) for mark, text in zip(panel.marks, texts, strict=True))
