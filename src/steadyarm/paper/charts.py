"""The figures as charts: our error rates with their intervals beside the published ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from steadyarm.errors import InvalidInputError
from steadyarm.paper.beyond import BASELINE, EASY, Beyond, Row
from steadyarm.paper.published import NOT_COMPARABLE, published_counts
from steadyarm.paper.run import CellResult, format_value
from steadyarm.paper.specification import BEYOND_PAPER, FIGURES, PAPER_POLICIES, Figure
from steadyarm.plot.chart import Axis, Chart, Panel, Series, Table
from steadyarm.policies import POLICIES

_KNOWN = list(dict.fromkeys([*PAPER_POLICIES, "Steady", *POLICIES]))
_ERROR = Axis("probability of error", "log")
_STRIP = " The grey strip stands for no errors at all."


def styles(policies: Iterable[str]) -> dict[str, int]:
    """The style of each policy in its order: the paper's policies first, then others by name.

    A known policy has the same style in every figure.

    Examples
    --------
    >>> styles(["Mine", "Steady", "Peace"])
    {'Peace': 4, 'Steady': 6, 'Mine': 13}
    """
    names = set(policies)
    new = sorted(names.difference(_KNOWN))
    return {name: i for i, name in enumerate([*_KNOWN, *new]) if name in names}


def figure_chart(figure: Figure, results: Iterable[CellResult]) -> Chart:
    """What to draw for a figure; results of other figures are left out.

    Examples
    --------
    >>> from steadyarm.paper.specification import figure_named
    >>> cells = [CellResult("soare_scale", "scale", s, "Peace", 1000, s, 0.2, 1.0) for s in (0, 5)]
    >>> errors, gaps = figure_chart(figure_named("soare_scale"), cells).panels
    >>> errors.series[0].y.tolist(), gaps.series[0].y.tolist()
    ([0.0, 0.005], [0.2, 0.2])
    """
    cells = [result for result in results if result.figure == figure.name]
    if not cells:
        raise InvalidInputError(f"there are no results of {figure.name} to draw.")
    panels = [_rows(cells)] if cells[0].value is None else _curves(figure, cells)
    drawn = panels[0].series
    strip = _STRIP if any((series.y == 0).any() for series in drawn) else ""
    return Chart(
        figure.name,
        figure.title,
        f"{figure.title}: probability of error of each policy",
        tuple(panels),
        _table(cells),
        f"{_trials(cells)} trials per point. Lines: exact 95 % intervals.{strip}",
    )


def _curves(figure: Figure, cells: Sequence[CellResult]) -> list[Panel]:
    """Errors by the parameter's value, a line for each policy; the smallest gap below."""
    ours, theirs = [], []
    for policy, style in styles(cell.policy for cell in cells).items():
        own = sorted((c for c in cells if c.policy == policy), key=lambda c: c.value or 0)
        x = tuple(float(cell.value or 0) for cell in own)
        ours.append(_series(policy, x, own, style))
        theirs += _published_series(x, own, style)
    axis = Axis(figure.label, "log" if figure.log_values else "number")
    series = (*ours, *theirs)
    if not figure.gap_panel:
        return [Panel(axis, _ERROR, series, height=1.2)]
    return [Panel(axis, _ERROR, series, height=1.6), _gaps(cells, axis)]


def _rows(cells: Sequence[CellResult]) -> Panel:
    """One setting: a row for each policy, with our rate and the published one in parentheses."""
    order = list(styles(cell.policy for cell in cells))
    own = sorted(cells, key=lambda cell: order.index(cell.policy))
    beside = ["" if (rate := _published(c)) is None else f" ({rate:.4f})" for c in own]
    names = tuple(
        f"{c.policy}: {c.error_rate:.4f}{rate}" for c, rate in zip(own, beside, strict=True)
    )
    series = (_series("ours", names, own, 0), *_published_series(names, own, 0))
    return Panel(Axis("", "label"), _ERROR, series, sideways=True, height=1.5)


def _series(name: str, x: tuple[Any, ...], cells: Sequence[CellResult], style: int) -> Series:
    rates = np.array([cell.error_rate for cell in cells])
    low, high = np.array([cell.interval(0.95) for cell in cells]).T
    return Series(name, x, rates, low, high, kind="points", color=style)


def _published_series(x: tuple[Any, ...], cells: Sequence[CellResult], style: int) -> list[Series]:
    rates = np.array([_published(cell) for cell in cells], float)
    known = np.isfinite(rates).any()
    return [Series("published", x, rates, kind="rings", color=style)] if known else []


def _published(cell: CellResult) -> float | None:
    theirs = published_counts().get((cell.figure, cell.value, cell.policy))
    return None if theirs is None or cell.figure in NOT_COMPARABLE else theirs.error_rate


def _gaps(cells: Sequence[CellResult], axis: Axis) -> Panel:
    gaps = sorted({float(cell.value or 0): cell.min_gap for cell in cells}.items())
    x, y = zip(*gaps, strict=True)
    line = Series("smallest gap", x, np.array(y))
    ends = (0.0, 1.25 * max(y))
    return Panel(axis, Axis("smallest gap"), (line,), y_range=ends, height=0.5)


def _table(cells: Sequence[CellResult]) -> Table:
    low, high = np.array([cell.interval(0.95) for cell in cells]).T
    return Table.of(
        {
            cells[0].parameter or "setting": [cell.value for cell in cells],
            "policy": [cell.policy for cell in cells],
            "errors": [cell.errors for cell in cells],
            "trials": [cell.trials for cell in cells],
            "error rate": [cell.error_rate for cell in cells],
            "low": low,
            "high": high,
            "published": map(_published, cells),
        }
    )


def _trials(cells: Iterable[CellResult]) -> str:
    trials = {cell.trials for cell in cells}
    few, most = f"{min(trials):,}", f"{max(trials):,}"
    return few if few == most else f"{few} to {most}"


def beyond_chart(beyond: Beyond) -> Chart:
    """Errors relative to the baseline, a panel for each figure and a row for each setting."""
    cells = [row.base for row in beyond.rows]
    cells += [ratio.cell for row in beyond.rows for ratio in row.ratios.values()]
    ends = _span(beyond)
    groups = groupby(beyond.rows, lambda row: row.base.figure)
    panels = [_ratios(FIGURES[name], list(rows), beyond, ends) for name, rows in groups]
    verdicts = ". ".join(map(beyond.verdict, beyond.policies))
    return Chart(
        BEYOND_PAPER,
        f"Error relative to {BASELINE} in {len(beyond.rows)} published settings",
        f"{verdicts}.",
        tuple(panels),
        _beyond_table(beyond),
        f"{verdicts}. {_trials(cells)} trials per point. In parentheses: how often {BASELINE} "
        "errs. Lines: 95 % score intervals, which may go on beyond the axis; no errors are drawn "
        f"as half an error. Hollow: {BASELINE} errs in at most {EASY:g}, so the setting is not in "
        "the mean. The oracle's floor is Φ(-√(T / (σ²ρ*))), where it lies inside the axis.",
    )


def _ratios(figure: Figure, rows: list[Row], beyond: Beyond, ends: tuple[float, float]) -> Panel:
    names = tuple(f"{format_value(r.base.value)} ({r.base.error_rate:.4f})".strip() for r in rows)
    easy = np.array([not row.counts for row in rows])
    floor = np.array([row.floor_ratio for row in rows])
    floor = np.where(floor >= ends[0], floor, np.nan)
    series = [Series("oracle's floor", names, floor, kind="points", color=None)]
    for policy, style in styles(beyond.policies).items():
        found = [row.ratios.get(policy) for row in rows]
        y, low, high = np.array(
            [(np.nan,) * 3 if one is None else (one.ratio, one.low, one.high) for one in found]
        ).T
        low, high = np.maximum(low, ends[0] / 10), np.minimum(high, 10 * ends[1])
        series.append(Series(policy, names, y, low, high, "points", style, weak=easy))
    title = f"{figure.title}, {figure.label}" if figure.label else figure.title
    axis = Axis(f"error / error of {BASELINE}", "log")
    return Panel(
        Axis("", "label"), axis, tuple(series), title, level=1.0, sideways=True, y_range=ends
    )


def _span(beyond: Beyond) -> tuple[float, float]:
    """Ends of the axis: every ratio is inside, long intervals are cut off."""
    ratios = [ratio for row in beyond.rows for ratio in row.ratios.values()]
    points = [1.0, *(ratio.ratio for ratio in ratios)]
    ends = [ratio.high for ratio in ratios if ratio.high < 3 * max(points)]
    return min(points) / 3, 1.15 * max(1.5, *points, *ends)


def _beyond_table(beyond: Beyond) -> Table:
    pairs = [(row, name, ratio) for row in beyond.rows for name, ratio in row.ratios.items()]
    return Table.of(
        {
            "figure": [row.base.figure for row, _, _ in pairs],
            "value": [row.base.value for row, _, _ in pairs],
            "policy": [name for _, name, _ in pairs],
            "ratio": [ratio.ratio for _, _, ratio in pairs],
            "low": [ratio.low for _, _, ratio in pairs],
            "high": [ratio.high for _, _, ratio in pairs],
            "counts": [row.counts for row, _, _ in pairs],
        }
    )
