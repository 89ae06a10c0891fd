"""The draw step: a `Panel` as a picture, in PNG and PDF."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Picture
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import (
    FixedFormatter,
    FixedLocator,
    FuncFormatter,
    LogLocator,
    NullFormatter,
    NullLocator,
)

from steadyarm.files import write_atomically
from steadyarm.paper.beyond import BASELINE, EASY, Beyond, Ratio, Row
from steadyarm.paper.panels import Panel, panel_of
from steadyarm.paper.run import CellResult, format_value
from steadyarm.paper.specification import BEYOND_PAPER, FIGURES, Figure

__all__ = [
    "Style",
    "beyond_picture",
    "draw_beyond",
    "draw_figure",
    "draw_panel",
    "picture_of",
    "save_picture",
    "style_of",
]

_SIZE, _DPI = (7.0, 5.0), 200
_GREY, _STRIP = "#555555", "#F0F0F0"
_FONT: Any = {
    "font.size": 9,
    "axes.titlesize": 9,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "pdf.fonttype": 42,
}


@dataclass(frozen=True)
class Style:
    """How a policy is drawn: told apart by colour, by marker and by line."""

    colour: str
    marker: str
    line: Any
    size: float = 4


# Okabe and Ito's colours; yellow is left out, as it is hardly seen on white
_STYLES = {
    "G-BAI": Style("#009E73", "^", (0, (6, 1.5))),
    "P1-RAGE": Style("#0072B2", "o", "-"),
    "P1-Peace": Style("#56B4E9", "s", (0, (3, 1.2))),
    "Mixed-Peace": Style("#CC79A7", "D", (0, (5, 1.2, 1, 1.2))),
    "Peace": Style("#D55E00", "v", (0, (1, 1.2))),
    "OD-LinBAI": Style("#E69F00", ">", (0, (3, 1.2, 1, 1.2, 1, 1.2))),
    "Steady": Style("#000000", "*", "-", 6),
    "P1": Style("#7F7F7F", "h", (0, (8, 2))),
    "Uniform": Style("#5D3A9B", "p", (0, (2, 2))),
    "Adjacent-BAI": Style("#117733", "X", (0, (4, 1))),
    "Sequential-Halving": Style("#AA4499", "P", (0, (2, 1))),
    "Linear-Thompson": Style("#B35900", "1", (0, (1, 2)), 6),
    "Top-Two-Thompson": Style("#6699CC", "2", (0, (3, 3)), 6),
}
_SPARE = (
    Style("#8B5A2B", "<", (0, (1, 3))),
    Style("#444444", "d", (0, (8, 2, 2, 2))),
    Style("#882255", "8", (0, (4, 4))),
)


def style_of(policy: str, policies: Sequence[str] = ()) -> Style:
    """A policy's style; the known ones have their own, others get spare ones in order.

    Examples
    --------
    >>> style_of("P1-RAGE").marker, style_of("Mine", ["Peace", "Mine"]).marker
    ('o', '<')
    """
    if policy in _STYLES:
        return _STYLES[policy]
    others = [name for name in policies if name not in _STYLES] or [policy]
    return _SPARE[others.index(policy) % len(_SPARE)]


def draw_figure(figure: Figure, results: Iterable[CellResult], folder: Path) -> list[Path]:
    """Draw a figure from its results, as PNG and PDF; say where they are."""
    return draw_panel(panel_of(figure, results), folder)


def draw_panel(panel: Panel, folder: Path) -> list[Path]:
    """Write the picture into `folder` as NAME.png and NAME.pdf."""
    with matplotlib.rc_context(_FONT):
        return save_picture(picture_of(panel), folder, panel.name)


def save_picture(picture: Picture, folder: Path, name: str) -> list[Path]:
    """Write PNG and PDF; no date inside, so the same results give the same files."""
    paths = []
    for kind, metadata in (("png", None), ("pdf", {"CreationDate": None})):
        content = io.BytesIO()
        picture.savefig(content, format=kind, dpi=_DPI, metadata=metadata)
        paths.append(write_atomically(folder / f"{name}.{kind}", content.getvalue()))
    return paths


def picture_of(panel: Panel) -> Picture:
    """The picture as matplotlib's object, on no screen and in no global state."""
    height = 1.9 + 0.4 * len(panel.series) if panel.single else _SIZE[1]
    picture = Picture(figsize=(_SIZE[0], height), layout="constrained")
    FigureCanvasAgg(picture)
    if panel.gaps:
        axes, below = picture.subplots(2, 1, sharex=True, height_ratios=[4.2, 1])
        _draw_gaps(below, panel)
    else:
        axes = picture.subplots()
        axes.set_xlabel(panel.label)
    if panel.single:
        _draw_policies(axes, panel)
        picture.legend(handles=_legend(panel, []), loc="outside lower center", ncols=3)
    else:
        _draw_curves(axes, panel)
    few, most = (f"{trials:,}" for trials in panel.trials)
    trials = few if few == most else f"{few} to {most}"
    axes.set_title(f"{trials} trials per point", loc="left", color=_GREY)
    picture.suptitle(panel.title, x=0.01, ha="left", fontweight="bold")
    return picture


def _draw_curves(axes: Axes, panel: Panel) -> None:
    names = [line.policy for line in panel.series]
    for line in panel.series:
        style, points = style_of(line.policy, names), line.points
        x = [point.x for point in points]
        rates = [panel.place(line, point.rate) for point in points]
        low = [panel.place(line, point.low) for point in points]
        high = [point.high for point in points]
        seen = [point.low > 0 for point in points]  # bands down to zero would cover each other
        colour = style.colour
        axes.fill_between(x, low, high, where=seen, color=colour, alpha=0.16, linewidth=0)
        axes.vlines(x, low, high, color=colour, linewidth=0.9, alpha=0.8)
        axes.plot(x, rates, color=colour, linestyle=style.line, linewidth=1.4)
        axes.plot(x, rates, style.marker, color=colour, markersize=style.size, zorder=3)
        for point in points:
            if point.published is not None:
                axes.plot(point.x, panel.place(line, point.published), **_open(style))
    axes.set_ylabel("probability of error")
    if panel.log_values:
        axes.set_xscale("log")
        axes.minorticks_off()
    axes.set_xticks(panel.values, [f"{value:,.0f}" for value in panel.values])
    _error_axis(axes, panel, vertical=True)
    axes.legend(handles=_legend(panel, names), loc="upper left", bbox_to_anchor=(1.01, 1.0))


def _draw_policies(axes: Axes, panel: Panel) -> None:
    names = [line.policy for line in panel.series]
    for y, line in enumerate(panel.series):
        style, point = style_of(line.policy, names), line.points[0]
        axes.hlines(
            y, panel.place(line, point.low), point.high, color=style.colour, linewidth=7, alpha=0.3
        )
        rate = panel.place(line, point.rate)
        axes.plot(rate, y, style.marker, color=style.colour, markersize=1.5 * style.size)
        if point.published is not None:
            ring = _open(style) | {"markersize": 10}
            axes.plot(panel.place(line, point.published), y, **ring)
            _beside(axes, 1.17, y, f"{point.published:.4f}")
        _beside(axes, 1.02, y, f"{point.rate:.4f}")
    for x, header in ((1.02, "ours"), (1.17, "published"))[: 1 + panel.has_published]:
        axes.annotate(header, (x, 1), (0, 6), xycoords="axes fraction", textcoords="offset points")
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlabel("probability of error")
    _error_axis(axes, panel, vertical=False)


def _beside(axes: Axes, x: float, y: float, text: str) -> None:
    axes.text(x, y, text, transform=axes.get_yaxis_transform(), va="center")


def _draw_gaps(axes: Axes, panel: Panel) -> None:
    x, gaps = zip(*panel.gaps, strict=True)
    axes.plot(x, gaps, "o-", color="black", markersize=3.5, linewidth=1)
    axes.set(xlabel=panel.label, ylabel="smallest\ngap", ylim=(0, 1.25 * max(gaps)))
    axes.grid(color="#DDDDDD", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _error_axis(axes: Axes, panel: Panel, vertical: bool) -> None:
    """A logarithmic axis with readable numbers, and a strip for no errors at all."""
    end = panel.bottom if panel.strip is None else panel.strip
    if vertical:
        axes.set(yscale="log", ylim=(end, panel.top))
        axes.axhspan(end, panel.bottom, color=_STRIP, zorder=0)
    else:
        axes.set(xscale="log", xlim=(end, panel.top))
        axes.axvspan(end, panel.bottom, color=_STRIP, zorder=0)
    ticks = _ticks(panel.bottom, panel.top)
    labels = [f"{tick:g}" for tick in ticks]
    if panel.strip is not None:
        ticks, labels = [(end * panel.bottom) ** 0.5, *ticks], ["0", *labels]
    axis = axes.yaxis if vertical else axes.xaxis
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FixedFormatter(labels))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())
    axes.grid(axis="both" if vertical else "x", color="#DDDDDD", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _ticks(bottom: float, top: float) -> list[float]:
    """1, 10, 100, …; also 2 and 5 where few decades leave room, and all digits in a single one."""
    steps = (
        (1,) if top / bottom > 400 else (1, 2, 5) if top / bottom > 12 else (1, 2, 3, 4, 5, 6, 8)
    )
    ticks = [float(f"{step}e{power}") for power in range(-9, 1) for step in steps]
    return [tick for tick in ticks if bottom <= tick <= min(top, 1.0)]


def _open(style: Style) -> dict[str, Any]:
    return {
        "linestyle": "none",
        "marker": style.marker,
        "markersize": 7,
        "markerfacecolor": "none",
        "markeredgecolor": style.colour,
        "markeredgewidth": 0.9,
        "zorder": 4,
    }


def _legend(panel: Panel, names: Sequence[str]) -> list[Any]:
    styles = {name: style_of(name, names) for name in names}
    handles: list[Any] = [
        Line2D([], [], color=s.colour, ls=s.line, marker=s.marker, ms=s.size, label=name)
        for name, s in styles.items()
    ]
    if panel.has_published:
        ring = _open(Style(_GREY, "o", "none"))
        handles.append(Line2D([], [], **ring, label="published (open)"))
    handles.append(Patch(color=_GREY, alpha=0.25, linewidth=0, label="exact 95 % interval"))
    if panel.strip is not None:
        handles.append(Patch(color=_STRIP, label="no errors at all"))
    return handles


# The draw step of `beyond_paper`: one row per setting on a single portrait page.


_WIDTH = 7.0
_LINE, _PAGE = 0.152, 11.2  # inches for a row, and for all at most: one page
_GREY, _BAND = "#666666", "#F1F1F1"
_FADED = 0.45
_PAPER: Any = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # behind words over lines
_BEYOND_FONT: Any = {"font.size": 7.5, "legend.frameon": False, "pdf.fonttype": 42}


def draw_beyond(beyond: Beyond, folder: Path) -> list[Path]:
    """Write the picture into `folder` as beyond_paper.png and .pdf; say where they are."""
    with matplotlib.rc_context(_BEYOND_FONT):
        return save_picture(beyond_picture(beyond), folder, BEYOND_PAPER)


def beyond_picture(beyond: Beyond) -> Picture:
    """The picture as matplotlib's object, on no screen and in no global state."""
    groups = [(name, list(rows)) for name, rows in groupby(beyond.rows, lambda r: r.base.figure)]
    lines = len(beyond.rows) + 1.25 * len(groups)
    height = min(_PAGE, lines * _LINE + 0.15 * len(beyond.policies) + 1.55)
    picture = Picture(figsize=(_WIDTH, height), layout="constrained")
    FigureCanvasAgg(picture)
    axes = picture.subplots()
    left, right = _span(beyond)
    axes.set(xscale="log", xlim=(left, right), ylim=(lines - 0.3, -0.2))
    axes.axvline(1, color="black", linewidth=0.9, zorder=1)
    places, labels, y = [], [], 0.0
    for name, rows in groups:
        figure = FIGURES[name]
        title = f"{figure.title}, {figure.label}" if figure.label else figure.title
        axes.annotate(
            title,
            (0, y + 0.45),
            (4, 0),
            ("axes fraction", "data"),
            "offset points",
            va="center",
            weight="bold",
            fontsize=7,
            zorder=2,
            bbox=_PAPER,
        )
        y += 1.25
        for row in rows:
            _draw_row(axes, row, beyond, y)
            places.append(y)
            labels.append(format_value(row.base.value))
            y += 1
    axes.set_yticks(places, labels)
    axes.tick_params(axis="y", length=0, pad=6)
    axes.hlines(places, left, right, color="#E6E6E6", linewidth=0.5, zorder=0.5)
    for label, row in zip(axes.get_yticklabels(), beyond.rows, strict=True):
        label.set_color("black" if row.counts else _GREY)
    _ratio_axis(axes)
    axes.text(1.01, -0.45, f"{BASELINE}\nerrs", transform=axes.get_yaxis_transform(), va="bottom")
    picture.suptitle(
        f"Error relative to {BASELINE} in {len(beyond.rows)} published settings",
        x=0.01,
        ha="left",
        fontweight="bold",
        fontsize=9.5,
    )
    axes.set_title(_trials(beyond), loc="left", color=_GREY, fontsize=7.5)
    picture.legend(
        handles=list(_beyond_legend(beyond)), loc="outside lower left", fontsize=7.5, borderpad=0.6
    )
    return picture


def _draw_row(axes: Axes, row: Row, beyond: Beyond, y: float) -> None:
    left = axes.get_xlim()[0]
    if not row.counts:
        axes.axhspan(y - 0.5, y + 0.5, color=_BAND, zorder=0, linewidth=0)
    if row.floor_ratio > left:
        axes.plot(row.floor_ratio, y, "|", color=_GREY, markersize=9, markeredgewidth=1.6, zorder=2)
    else:
        axes.plot(left, y, **_arrow("<", _GREY, 4))
    rate = f"{row.base.error_rate:.4f}" if row.base.errors else "0"
    colour = "black" if row.counts else _GREY
    axes.text(
        1.01, y, rate, transform=axes.get_yaxis_transform(), va="center", color=colour, fontsize=7
    )
    names = [name for name in beyond.policies if name in row.ratios]
    for i, name in enumerate(names):
        lane = y + 0.66 * ((i + 0.5) / len(names) - 0.5)
        _draw_ratio(axes, row.ratios[name], lane, beyond, _FADED if not row.counts else 1.0)


def _draw_ratio(axes: Axes, ratio: Ratio, y: float, beyond: Beyond, alpha: float) -> None:
    style = style_of(ratio.cell.policy, beyond.policies)
    left, right = axes.get_xlim()
    low, high = max(ratio.low, left), min(ratio.high, right)
    axes.hlines(y, low, high, color=style.colour, linewidth=1, alpha=alpha, zorder=3)
    for end, marker, cut in ((left, "<", ratio.low < left), (right, ">", ratio.high > right)):
        if cut:
            axes.plot(end, y, **_arrow(marker, style.colour, 4), alpha=alpha)
    axes.plot(
        ratio.ratio,
        y,
        style.marker,
        color=style.colour,
        markersize=0.9 * style.size,
        markerfacecolor=style.colour if ratio.cell.errors else "white",
        markeredgewidth=0.8,
        alpha=alpha,
        zorder=4,
    )


def _span(beyond: Beyond) -> tuple[float, float]:
    """Ends of the axis: every ratio is inside, long intervals are cut off."""
    ratios = [ratio for row in beyond.rows for ratio in row.ratios.values()]
    points = [1.0, *(ratio.ratio for ratio in ratios)]
    ends = [ratio.high for ratio in ratios if ratio.high < 3 * max(points)]
    return min(points) / 3, 1.15 * max(1.5, *points, *ends)


def _ratio_axis(axes: Axes) -> None:
    left, right = axes.get_xlim()
    steps = (1,) if right / left > 300 else (1, 2, 5)
    axes.xaxis.set_major_locator(LogLocator(subs=steps, numticks=20))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel(f"error / error of {BASELINE}, on a logarithmic axis")
    axes.spines[["top", "right"]].set_visible(False)


def _trials(beyond: Beyond) -> str:
    cells = [row.base for row in beyond.rows]
    cells += [ratio.cell for row in beyond.rows for ratio in row.ratios.values()]
    few, most = (f"{f(cell.trials for cell in cells):,}" for f in (min, max))
    return f"{few if few == most else f'{few} to {most}'} trials per point"


def _arrow(marker: str, colour: str, size: float) -> dict[str, Any]:
    """An arrowhead on the axis' end: something goes on beyond it."""
    return {
        "marker": marker,
        "color": colour,
        "markersize": size,
        "markeredgewidth": 0,
        "linestyle": "none",
        "clip_on": False,
        "zorder": 5,
    }


def _beyond_legend(beyond: Beyond) -> Iterator[Any]:
    for name in beyond.policies:
        style = style_of(name, beyond.policies)
        verdict = beyond.verdict(name)
        look: Any = {"color": style.colour, "marker": style.marker, "markersize": style.size}
        yield Line2D([], [], linewidth=1, label=verdict, **look)
    lines = "lines: 95 % score intervals, with an arrow where they go on"
    zero = f"open: no errors at all, drawn as half an error; {lines}"
    floor = "the oracle's floor Φ(-√(T / (σ²ρ*))); an arrow where it lies further left"
    ring: Any = {"markerfacecolor": "white", "marker": "o", "markersize": 4}
    tick: Any = {"marker": "|", "markersize": 8, "markeredgewidth": 1.6}
    for label, look in ((zero, ring), (floor, tick)):
        yield Line2D([], [], linestyle="none", color=_GREY, label=label, **look)
    yield Patch(color=_BAND, label=f"{BASELINE} errs in at most {EASY:g}: not in the mean")
