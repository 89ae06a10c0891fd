"""The draw step: a `Panel` as a picture, in PNG and PDF."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Picture
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedFormatter, FixedLocator, NullFormatter, NullLocator

from steadyarm.figures.journal import CellResult
from steadyarm.figures.panels import Panel, panel_of
from steadyarm.figures.specification import Figure
from steadyarm.files import write_atomically

__all__ = ["Style", "draw_figure", "draw_panel", "picture_of", "save_picture", "style_of"]

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
