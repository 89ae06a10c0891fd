"""The draw step: a plan as a picture. Needs matplotlib, the extra `plots`."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, LogLocator, NullFormatter

from steadyarm.files import write_atomically
from steadyarm.planning.answer import Line, Plan, Point
from steadyarm.planning.question import Question

__all__ = ["Panel", "Series", "draw_plan", "panels_of", "picture_of"]

_FONT: Any = {"font.size": 9, "axes.titlesize": 10, "legend.fontsize": 8.5, "pdf.fonttype": 42}
_GREY, _LIGHT, _STRIP = "#555555", "#DDDDDD", "#F0F0F0"
# Okabe and Ito's colours without yellow, with a marker and a line for those who see no colours
_STYLES: tuple[tuple[str, str, Any], ...] = (
    ("#000000", "o", "-"),
    ("#0072B2", "s", (0, (6, 1.5))),
    ("#009E73", "^", (0, (3, 1.2))),
    ("#D55E00", "v", (0, (1, 1.2))),
    ("#CC79A7", "D", (0, (5, 1.2, 1, 1.2))),
    ("#56B4E9", "P", (0, (2, 2))),
    ("#E69F00", "X", (0, (8, 2))),
)


@dataclass(frozen=True)
class Series:
    """One policy: points by rising budget, the one that is enough, and what to call it."""

    label: str
    points: tuple[Point, ...]
    enough: Point | None
    style: int


@dataclass(frozen=True)
class Panel:
    """One kind of world: its policies, the oracle's floor, and the lead over the days."""

    title: str
    series: tuple[Series, ...]
    floor: tuple[tuple[int, float], ...]
    lead: tuple[tuple[float, float], ...]


def panels_of(plan: Plan) -> tuple[Panel, ...]:
    """What is to be drawn, as plain numbers: calm, and the rhythm if there is one."""
    floor = tuple(zip(plan.budgets, plan.theory.floor or (), strict=False))
    calm = Panel("if nothing moves", _series(plan, moving=False), floor, ())
    if plan.lines[0].moving is None:
        return (calm,)
    return calm, Panel("with this rhythm", _series(plan, moving=True), (), _lead(plan))


def draw_plan(plan: Plan, path: Path) -> Path:
    """Write the picture; the ending of `path` says as what (.png, .pdf or .svg)."""
    content = io.BytesIO()
    kind = path.suffix.lstrip(".").lower() or "png"
    metadata = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind)
    with matplotlib.rc_context(_FONT):
        picture_of(plan).savefig(content, format=kind, dpi=160, metadata=metadata)
    return write_atomically(path, content.getvalue())


def picture_of(plan: Plan) -> Picture:
    """The picture as matplotlib's object, on no screen and in no global state."""
    panels = panels_of(plan)
    moving = len(panels) > 1
    picture = Picture(
        figsize=(10.4 if moving else 7.0, 5.4 if moving else 4.6), layout="constrained"
    )
    FigureCanvasAgg(picture)
    ratios = [3.6, 1] if moving else [1]
    grid = picture.add_gridspec(len(ratios), len(panels), height_ratios=ratios)
    bottom, top = _limits(plan, panels)
    for i, panel in enumerate(panels):
        axes = picture.add_subplot(grid[0, i])
        _draw_errors(axes, panel, plan.error, bottom, top)
        axes.set_ylabel("wrong verdicts" if i == 0 else "")
    if moving:
        _draw_lead(picture.add_subplot(grid[1, 1]), panels[1])
        beside = picture.add_subplot(grid[1, 0])
        beside.set_axis_off()
        _legend(beside, panels[0])
    else:
        _legend(picture.axes[0], panels[0], inside=True)
    picture.suptitle(_title(plan), x=0.01, ha="left", fontweight="bold", fontsize=11)
    return picture


def _title(plan: Plan) -> str:
    if plan.choice is None:
        return f"No robust policy errs in only {100 * plan.error:g} % within {plan.most_days} days"
    return (
        f"{plan.choice.label}: {plan.budget:,} visits in {plan.days} days for about "
        f"{100 * plan.error:g} % wrong verdicts"
    )


def _series(plan: Plan, moving: bool) -> tuple[Series, ...]:
    made = []
    for i, line in enumerate(plan.lines):
        curve = line.asked if moving else line.calm
        check = curve.need.check  # of more tests than the others
        points = [point for point in curve.points if point.budget != check.budget] + [check]
        ordered = tuple(sorted(points, key=lambda point: point.budget))
        enough = None if curve.need.budget is None else check
        made.append(Series(_name(line), ordered, enough, i % len(_STYLES)))
    return tuple(made)


def _name(line: Line) -> str:
    return line.label if line.robust else f"{line.label} *"


def _lead(plan: Plan) -> tuple[tuple[float, float], ...]:
    """(day, lead as a multiple of its average) at the ends of every piece of the chosen test."""
    question = Question.from_settings(plan.question)
    budget = plan.budget or plan.most_rounds
    days = question.rhythm.days(budget, question.traffic_per_day)
    pieces = question.rhythm.pieces(budget, days)
    corners: list[tuple[float, float]] = []
    start = 0.0
    for end, swing in zip(pieces.ends / budget * days, pieces.swing, strict=True):
        corners += [(start, float(swing)), (float(end), float(swing))]
        start = float(end)
    return tuple(corners)


def _limits(plan: Plan, panels: tuple[Panel, ...]) -> tuple[float, float]:
    points = [point for panel in panels for series in panel.series for point in series.points]
    least = min((point.rate for point in points if point.rate > 0), default=plan.error)
    return min(max(least / 1.5, plan.error / 30), plan.error / 3), 1.0


def _draw_errors(axes: Axes, panel: Panel, wanted: float, bottom: float, top: float) -> None:
    zero = bottom / 1.3
    axes.axhspan(bottom / 1.7, bottom, color=_STRIP, zorder=0)
    axes.axhline(wanted, color=_GREY, linewidth=0.9, linestyle=(0, (4, 2)))
    axes.annotate(
        f"wanted: {100 * wanted:g} %",
        (0.01, wanted),
        (0, 3),
        axes.get_yaxis_transform(),
        "offset points",
        color=_GREY,
        fontsize=8,
    )
    if panel.floor:
        axes.plot(*zip(*panel.floor, strict=True), color=_GREY, linewidth=0.9, linestyle=":")
    for series in panel.series:
        colour, marker, line = _STYLES[series.style]
        x = [point.budget for point in series.points]
        y = [point.rate if point.rate >= bottom else zero for point in series.points]
        ends = [point.interval() for point in series.points]
        low, high = [max(a, bottom) for a, _ in ends], [b for _, b in ends]
        seen = [point.rate > 0 for point in series.points]  # bands to zero cover each other
        axes.fill_between(x, low, high, where=seen, color=colour, alpha=0.10, linewidth=0)
        axes.plot(x, y, color=colour, linestyle=line, linewidth=1.4, marker=marker, markersize=3.5)
        if series.enough is not None:
            mark: Any = {"markersize": 9, "markeredgecolor": "white", "markeredgewidth": 1}
            height = max(series.enough.rate, zero)
            axes.plot(series.enough.budget, height, marker, color=colour, zorder=4, **mark)
    axes.set(xscale="log", yscale="log", ylim=(bottom / 1.7, top), xlabel="visits")
    ticks = [t for t in (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1) if bottom <= t]
    axes.yaxis.set_major_locator(FixedLocator([zero, *ticks]))
    axes.yaxis.set_major_formatter(FixedFormatter(["0", *(f"{100 * tick:g} %" for tick in ticks)]))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_minor_locator(FixedLocator([]))
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(color=_LIGHT, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(panel.title, loc="left")


def _draw_lead(axes: Axes, panel: Panel) -> None:
    x, y = zip(*panel.lead, strict=True)
    axes.axhline(0, color=_GREY, linewidth=0.8)
    axes.fill_between(x, 0, y, color="#0072B2", alpha=0.25, linewidth=0)
    axes.plot(x, y, color="#0072B2", linewidth=1)
    axes.set(xlabel="day of the test", ylabel="lead of the best\n(average 1)", xlim=(0, x[-1]))
    axes.spines[["top", "right"]].set_visible(False)


def _legend(axes: Axes, panel: Panel, inside: bool = False) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=c, marker=m, linestyle=line, markersize=5, label=series.label)
        for series in panel.series
        for c, m, line in [_STYLES[series.style]]
    ]
    if panel.floor:
        handles.append(
            Line2D([], [], color=_GREY, linestyle=":", label="oracle that knows all means")
        )
    dot: Any = {"marker": "o", "linestyle": "none", "markersize": 8}
    handles.append(Line2D([], [], color=_GREY, label="budget for about the wanted error", **dot))
    place: Any = {"loc": "lower left"} if inside else {"loc": "center left", "ncols": 2}
    note = "* trusts that nothing moves; bands: exact 95 % intervals"
    axes.legend(
        handles=handles, frameon=False, title=note, alignment="left", title_fontsize=8, **place
    )
