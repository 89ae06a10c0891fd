"""What both drawers must agree on: places, bands, hollow points, and where texts of marks go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from steadyarm.plot.chart import Chart, Mark, Panel, Series
from steadyarm.plot.charts.common import apart

__all__ = [
    "CROWD",
    "DARK",
    "DASHES",
    "LIGHT",
    "NARROW",
    "PAPER",
    "SHAPES",
    "WIDE",
    "Ground",
    "Room",
    "band_runs",
    "by_day",
    "clear",
    "clock_limits",
    "decimals",
    "fitted",
    "label_names",
    "legend",
    "limits_of",
    "mark_anchors",
    "mark_rows",
    "marked_limits",
    "one_text",
    "parts",
    "places",
    "reaches",
    "seconds",
    "shifts",
    "step_of",
    "whole",
]

# Colours, dashes and markers, in the order of `Series.color`.


@dataclass(frozen=True)
class Ground:
    """Colours on one ground: of what is picked out, of the quiet rest, of texts and grids."""

    ground: str
    lines: tuple[str, ...]
    quiet: str
    text: str
    faint: str
    grid: str


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
# names in Plotly and in matplotlib
SHAPES: tuple[tuple[str, str], ...] = (
    ("circle", "o"),
    ("square", "s"),
    ("triangle-up", "^"),
    ("triangle-down", "v"),
    ("diamond", "D"),
    ("cross", "P"),
    ("x", "X"),
    ("star", "*"),
)


def clear(color: str, share: float) -> str:
    """A colour that lets the ground shine through.

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
DODGE = {"label": 0.05, "time": 0.1}
SPREAD = 0.5
HOUR = 3600.0
MARGIN = 0.04  # of what a short clock shows, at each end
LEAST, MOMENT = 1.0, 60.0  # seconds that a clock shows, and around a single moment
LETTER = 6.0  # pixels
CROWD = 1500  # points of the quiet rest from which on it is drawn fainter


def places(panel: Panel, series: Series) -> Floats:
    """Where the points are: seconds on clocks, 0, 1, 2 for labels, else the numbers themselves."""
    if panel.x.kind == "label":
        return _label_places(label_names(panel), series.x)
    if panel.x.kind == "time":
        return np.array([seconds(x) for x in series.x])
    return np.array(series.x, dtype=float)


def label_names(panel: Panel) -> tuple[Any, ...]:
    """The labels of x in their order; the quiet rest repeats them for each of its variants."""
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
    """A time, in UTC unless it says otherwise, since 1970."""
    assert isinstance(moment, datetime)
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return aware.timestamp()


def _leading(panel: Panel) -> list[Series]:
    """The series in colour, if there are any: the quiet rest stands at the same places."""
    return [s for s in panel.series if s.color is not None] or list(panel.series)


def _all_places(panel: Panel) -> Floats:
    found = [places(panel, series) for series in _leading(panel) if len(series.x)]
    return np.concatenate(found or [np.zeros(1)])


def step_of(panel: Panel) -> float:
    """The least distance between neighbouring points; a day, or 1, if there is one point only."""
    seen = np.unique(_all_places(panel))
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
    """By how much points of each series are moved aside so that error bars do not cover others.

    By the index of the series; none on logarithmic axes and where labels stand down the side.
    """
    barred = [
        i for i, series in enumerate(panel.series) if series.kind == "points" and _barred(series)
    ]
    if panel.sideways or panel.x.kind not in ("label", "time") or len(barred) < 2:
        return {}
    width = min(SPREAD, DODGE[panel.x.kind] * (len(barred) - 1)) * step_of(panel)
    return {
        i: float(shift)
        for i, shift in zip(barred, np.linspace(-width / 2, width / 2, len(barred)), strict=True)
    }


def _barred(series: Series) -> bool:
    return series.low is not None and series.high is not None


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
    firm, hollow = (
        replace(
            series,
            y=np.where(hidden, np.nan, series.y),
            low=None if series.low is None else np.where(hidden, np.nan, series.low),
            high=None if series.high is None else np.where(hidden, np.nan, series.high),
        )
        for hidden in (weak, ~weak)
    )
    return firm, hollow


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


def mark_rows(panel: Panel, width: float) -> list[int | None]:
    """In which row above a panel so wide each mark's text stands so that none covers another.

    None where the same text stands at all marks: the legend says it once.
    """
    if not panel.marks or _same(panel.marks):
        return [None] * len(panel.marks)
    where, first, last = _mark_places(panel)
    scale = width / (last - first) if last > first else 0.0
    rows: list[int | None] = []
    ends: list[float] = []
    for x, mark in zip(where, panel.marks, strict=True):
        before = {"left": 0.0, "center": 0.5, "right": 1.0}[_anchor(x, first, last)]
        left = (x - first) * scale - before * LETTER * len(mark.text)
        row = next((i for i, end in enumerate(ends) if end < left), len(ends))
        ends[row : row + 1] = [max(left, 0.0) + LETTER * (len(mark.text) + 1)]
        rows.append(row)
    return rows


def mark_anchors(panel: Panel) -> list[Anchor]:
    """Which end of each mark's text stands at the mark, so that long texts stay in the picture."""
    where, first, last = _mark_places(panel)
    return [_anchor(x, first, last) for x in where]


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


def _same(marks: Sequence[Mark]) -> bool:
    return len({mark.text for mark in marks}) == 1 and len(marks) > 1


def one_text(panel: Panel) -> str | None:
    """What all marks of a panel say, if they all say the same."""
    return panel.marks[0].text if _same(panel.marks) else None


def legend(chart: Chart) -> bool:
    """Whether there is more than one thing to tell apart."""
    names = {series.name for panel in chart.panels for series in panel.series}
    alone = all(len(panel.series) == 1 for panel in chart.panels)
    return (len(names) > 1 and not alone) or any(one_text(panel) for panel in chart.panels)


# How far the axis of values goes, for both drawers.


Limits = tuple[float, float]

BEYOND = 1.25  # of the last interval of a line: how much is seen
EARLY = 0.2  # share of the picture in which lines may leave it, if they do not say where


def limits_of(chart: Chart) -> list[Limits | None]:
    """Of each panel's values; None to let the drawer choose.

    What comes of little data does not count. Lines: early values, and early bands, may leave the
    picture. Points: error bars that are much longer than points are apart may. Panels of points of
    the same kind have the same limits. A panel's own range goes before all this.
    """
    found = [panel.y_range or _limits(panel) for panel in chart.panels]
    kinds = {(panel.y, series.kind) for panel in chart.panels for series in panel.series}
    known = [pair for pair in found if pair is not None]
    fixed = any(panel.y_range for panel in chart.panels)
    mixed = len({kind for _, kind in kinds}) > 1 or len({y for y, _ in kinds}) > 1
    if fixed or mixed or not known:
        return found
    both = min(low for low, _ in known), max(high for _, high in known)
    return [both] * len(found)


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
    """On a logarithmic axis error bars may reach down to nearly nothing."""
    values = np.concatenate([series.y for series in panel.series if series.color is not None])
    ends = [series.high for series in panel.series if series.high is not None]
    seen, above = values[values > 0], np.concatenate([values, *ends])
    if not seen.size:
        return None
    low = min(float(seen.min()), panel.level or np.inf)
    high = max(float(np.nanmax(above)), panel.level or 0.0)
    return low / 2, min(1.15 * high, 1.0) if panel.y.percent else 1.15 * high


def _around_lines(panel: Panel) -> Limits | None:
    everywhere = [places(panel, series) for series in panel.series]
    seen = np.concatenate(everywhere) if everywhere else np.array([])
    if not seen.size:
        return None
    step = EARLY * (seen.max() - seen.min())
    values = []
    for x, series in zip(everywhere, panel.series, strict=True):
        if series.weak is not None:
            values += [series.y[~series.weak], _last_band(series)]
            continue
        values.append(series.y[x >= seen.min() + step])
        ends = [end for end in (series.low, series.high) if end is not None]
        values += [end[x >= seen.min() + 2 * step] for end in ends]
    return _padded(np.concatenate(values), panel.level)


def _last_band(series: Series) -> Floats:
    """Ends of the last interval and some more; those before it were wider."""
    reach = reaches(series)
    if reach is None or not np.isfinite(series.y[-1]):
        return np.zeros(0)
    down, up = (BEYOND * part[-1] for part in reach)
    return np.array([series.y[-1] - down, series.y[-1] + up])


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


def fitted(chart: Chart, room: Room) -> Chart:
    """The chart with names of series and texts of marks that fit; labels are cut by their axes."""
    names = list(dict.fromkeys(s.name for panel in chart.panels for s in panel.series))
    short = dict(zip(names, apart(names, room.legend), strict=True))
    panels = tuple(
        replace(
            panel,
            series=tuple(replace(series, name=short[series.name]) for series in panel.series),
            marks=_marks(panel, room),
        )
        for panel in chart.panels
    )
    return replace(chart, panels=panels)


def _marks(panel: Panel, room: Room) -> tuple[Mark, ...]:
    texts = apart([mark.text for mark in panel.marks], room.mark)
    return tuple(replace(mark, text=text) for mark, text in zip(panel.marks, texts, strict=True))
