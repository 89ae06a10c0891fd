"""The draw step of `beyond_paper`: one row per setting on a single portrait page."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Picture
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from steadyarm.figures.beyond import BASELINE, EASY, Beyond, Ratio, Row
from steadyarm.figures.catalogue import BEYOND_PAPER, FIGURES
from steadyarm.figures.draw import save_picture, style_of
from steadyarm.figures.tables import format_value

__all__ = ["beyond_picture", "draw_beyond"]

_WIDTH = 7.0
_LINE, _PAGE = 0.152, 11.2  # inches for a row, and for all at most: one page
_GREY, _BAND = "#666666", "#F1F1F1"
_FADED = 0.45
_PAPER: Any = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # behind words over lines
_FONT: Any = {"font.size": 7.5, "legend.frameon": False, "pdf.fonttype": 42}


def draw_beyond(beyond: Beyond, folder: Path) -> list[Path]:
    """Write the picture into `folder` as beyond_paper.png and .pdf; say where they are."""
    with matplotlib.rc_context(_FONT):
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
        handles=list(_legend(beyond)), loc="outside lower left", fontsize=7.5, borderpad=0.6
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


def _legend(beyond: Beyond) -> Iterator[Any]:
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
