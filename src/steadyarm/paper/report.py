"""The report on a run: its charts, the numbers, and how they agree with the paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from steadyarm import plot
from steadyarm.errors import InvalidInputError
from steadyarm.files import write_atomically
from steadyarm.paper import published
from steadyarm.paper.published import BASELINE, EASY, Beyond, Comparison, Row, Scatter, Summary
from steadyarm.paper.run import format_value
from steadyarm.paper.specification import BEYOND_PAPER, FIGURES, Figure
from steadyarm.plot.chart import Axis, Chart, Panel, Series
from steadyarm.plot.chart import Table as Numbers
from steadyarm.plot.charts.sweeps import (
    ERROR,
    INTERVALS,
    STRIP,
    error_series,
    setting_of,
    styles,
    trials_of,
)
from steadyarm.reports import document
from steadyarm.reports.document import (
    Block,
    Code,
    Document,
    Heading,
    Items,
    Lead,
    Paragraph,
    Picture,
    Strong,
    Table,
)
from steadyarm.simulation import Results, clopper_pearson

SAME = 1e-6  # relative difference up to which gaps are the same but for rounding
TITLE = "SteadyArm: the paper's experiments, run again"


def write_report(
    figures: Sequence[Figure],
    results: Iterable[Results],
    folder: Path,
    command: str = "",
    settings: Mapping[str, object] | None = None,
    seconds: float | None = None,
    beyond: Beyond | None = None,
) -> str:
    """Write report.md, report.html and the pictures; say in a few lines what the report says.

    Parameters
    ----------
    figures : in the order in which they are to appear
    results : of these figures, and those that `beyond` compares
    folder : where the files go; each picture is NAME.png and NAME.pdf
    command : what was typed
    settings : names and values to show below it
    seconds : that the whole run took
    beyond : every published setting relative to P1-RAGE, for a section of its own
    """
    cells = list(results)
    report = report_of(figures, cells, command, settings or {}, seconds, beyond)
    for block in report.blocks:
        if isinstance(block, Picture):
            for kind in ("png", "pdf"):
                plot.matplotlib.save(block.chart, folder / f"{block.chart.name}.{kind}")
    write_atomically(folder / "report.md", document.text(report, ".").encode())
    write_atomically(folder / "report.html", document.page(report).encode())
    return _in_short(published.summarise(cells))


def report_of(
    figures: Sequence[Figure],
    cells: Sequence[Results],
    command: str = "",
    settings: Mapping[str, object] | None = None,
    seconds: float | None = None,
    beyond: Beyond | None = None,
) -> Document:
    """The whole report; see `write_report`."""
    summary = published.summarise(cells)
    blocks: list[Block] = [Code(command)] if command else []
    if settings:
        rows = tuple((name, str(value)) for name, value in settings.items())
        blocks.append(Table("Settings", ("setting", "value"), "ll", rows))
    blocks += [Heading("Summary"), *_summary(cells, summary, seconds)]
    if beyond is not None:
        blocks += _beyond(beyond)
    for figure in figures:
        if own := [cell for cell in cells if cell.world == figure.name]:
            blocks += _figure(figure, own, summary)
    return Document(TITLE, tuple(blocks))


def _in_short(summary: Summary) -> str:
    total, unexplained = len(summary.comparisons), len(summary.unexplained)
    if total == 0:
        return "None of the cells has a published counterpart."
    lines = [f"{summary.agreeing} of {total} comparable cells agree with the published counts."]
    if summary.disagreeing:
        words = [(c.ours.world, _where(c), c.ours.policy) for c in summary.disagreeing]
        names = ", ".join(" ".join(filter(None, word)) for word in words)
        lines += [f"These do not ({unexplained} for no known reason): {names}."]
    return "\n".join(lines)


def _where(c: Comparison) -> str:
    return f"{c.ours.parameter} {format_value(c.ours.value)}" if c.ours.parameter else ""


def _summary(cells: Sequence[Results], summary: Summary, seconds: float | None) -> Iterable[Block]:
    total, computing = len(summary.comparisons), sum(cell.seconds for cell in cells)
    trials = sum(cell.trials for cell in cells)
    took = "" if seconds is None else f"; this run took {seconds:.1f} seconds"
    yield Paragraph(
        f"{len(cells)} cells, {trials:,} trials, {computing:.1f} seconds of computing{took}."
    )
    if total == 0:
        yield Paragraph("None of the cells has a published counterpart.")
        return
    share = f"{summary.agreeing} of {total} comparable cells ({summary.agreeing / total:.1%})"
    yield Lead(f"{share} agree with the published counts.")
    yield Paragraph(
        "They lie inside the 99.9 % two-sample interval (Fisher's exact test, two-sided, "
        "p ≥ 0.001)."
    )
    if summary.disagreeing:
        yield from _disagreeing(summary)
    rows = [_scatter(name, scatter) for name, scatter in summary.scatter.items()]
    if len(rows) > 1:
        rows.append(_scatter("all", published.scatter_of(summary.comparisons)))
    yield Heading("Scatter", 3)
    yield Paragraph(
        "z is ours minus published in standard errors, over cells with enough errors for a normal "
        "approximation. Its mean should be near 0 and its root mean square near 1; the last "
        "column is the probability of a root mean square as large as this by chance."
    )
    header = ("figure", "cells", "mean z", "rms z", "by chance")
    yield Table("Distance of ours from the published counts", header, "lrrrr", tuple(rows))


def _disagreeing(summary: Summary) -> Iterable[Block]:
    """The cells that do not agree, each with the numbers of its reasons, and the reasons."""
    rows = []
    for c in summary.disagreeing:
        why = [str(i) for i, cells in enumerate(summary.reasons.values(), 1) if c in cells]
        counts = [f"{x.errors:,} of {x.trials:,}" for x in (c.ours, c.theirs)]
        cell = (c.ours.world, _where(c) or "-", c.ours.policy, *counts, _p(c.p_value))
        rows.append((*cell, ", ".join(why) or "not known"))
    header = ("figure", "setting", "policy", "ours", "published", "p-value", "reason")
    yield Table("Cells that do not agree", header, "lllrrrl", tuple(rows))
    if summary.reasons:
        yield Items(tuple(summary.reasons), numbered=True)


def _scatter(name: str, scatter: Scatter) -> tuple[str, ...]:
    if scatter.cells == 0:
        return (name, "0", "-", "-", "-")
    numbers = f"{scatter.mean:+.2f}", f"{scatter.rms:.2f}", _p(scatter.chance)
    return (name, str(scatter.cells), *numbers)


def _figure(figure: Figure, cells: list[Results], summary: Summary) -> Iterable[Block]:
    yield Heading(f"{figure.title} ({figure.name})")
    yield Picture(figure_chart(figure, cells))
    found = {c.ours: c for c in summary.comparisons}
    header = (
        cells[0].parameter or "setting", "policy", "errors", "trials", "error rate",
        "95 % interval", "published", "p-value",
    )  # fmt: skip  # a table reads better so
    rows = tuple(_row(cell, found.get(cell)) for cell in cells)
    note = "Bold: does not agree with the published count." if summary.disagreeing else ""
    yield Table("Errors of each policy", header, "rlrrrrrr", rows, note)


def _row(cell: Results, found: Comparison | None) -> tuple[str, ...]:
    low, high = cell.interval(0.95)
    row = (
        format_value(cell.value) or "-",
        cell.policy,
        f"{cell.errors:,}",
        f"{cell.trials:,}",
        _rate(cell.error_rate),
        f"{_rate(low)} to {_rate(high)}",
        "-" if found is None else _rate(found.theirs.error_rate),
        "-" if found is None else _p(found.p_value),
    )
    return row if found is None or found.agrees else tuple(map(Strong, row))


def _beyond(beyond: Beyond) -> Iterable[Block]:
    yield Heading(f"Error relative to {BASELINE} in the published settings ({BEYOND_PAPER})")
    yield Picture(beyond_chart(beyond))
    yield Items(tuple(beyond.lines()))
    header = ["figure", "setting", "trials", BASELINE]
    for policy in beyond.policies:
        header += [policy, "ratio", "95 % interval"]
    align = "llrr" + "rrr" * len(beyond.policies) + "r"
    rows = tuple(_beyond_row(row, beyond.policies) for row in beyond.rows)
    note = (
        "Errors are counts, no errors count as half of one, and ratios have 95 % score intervals. "
        f"Ratios in parentheses are not in the mean: {BASELINE} errs in at most {EASY:g} there. "
        "Significant is Fisher's exact test, two-sided, p < 0.001; what is significantly worse "
        "is bold. The floor is the oracle's probability of error Φ(-√(T / (σ²ρ*)))."
    )
    yield Table("Errors and their ratios", (*header, "floor"), align, rows, note)


def _beyond_row(row: Row, policies: Sequence[str]) -> tuple[str, ...]:
    base = row.base
    setting = f"{base.parameter} {format_value(base.value)}".strip() or "-"
    entries = [base.world, setting, f"{base.trials:,}", f"{base.errors:,}"]
    for policy in policies:
        if (ratio := row.ratios.get(policy)) is None:
            entries += ["-", "-", "-"]
            continue
        cell, number = ratio.cell, f"{ratio.ratio:.3g}"
        same = cell.trials == base.trials
        errors = f"{cell.errors:,}" if same else f"{cell.errors:,} of {cell.trials:,}"
        own = [errors, number if row.counts else f"({number})"]
        own.append(f"{ratio.low:.2g} to {ratio.high:.2g}".replace("inf", "∞"))
        entries += map(Strong, own) if ratio.significant > 0 else own
    return (*entries, _rate(row.floor))


def _rate(rate: float) -> str:
    return f"{rate:.4f}" if rate == 0 or rate >= 0.001 else f"{rate:.1e}"


def _p(p_value: float) -> str:
    return f"{p_value:.3f}" if p_value >= 0.001 else f"{p_value:.1e}"


# The charts: our error rates with their intervals beside the published ones.


def figure_chart(figure: Figure, results: Iterable[Results]) -> Chart:
    """What to draw for a figure; results of other figures are left out.

    Examples
    --------
    >>> from steadyarm.paper.specification import figure_named
    >>> cells = [
    ...     Results("Peace", {0: 1000 - s, 1: s}, None, 0, world="soare_scale", value=s, gap=gap)
    ...     for s, gap in ((0, 0.2), (5, 0.1))
    ... ]
    >>> errors, gaps = figure_chart(figure_named("soare_scale"), cells).panels
    >>> errors.series[0].y.tolist(), gaps.series[0].y.tolist()
    ([0.0, 0.005], [0.2, 0.1])
    """
    cells = [result for result in results if result.world == figure.name]
    if not cells:
        raise InvalidInputError(f"there are no results of {figure.name} to draw.")
    panels = [_rows(cells)] if cells[0].value is None else _curves(figure, cells)
    drawn = panels[0].series
    strip = STRIP if any((series.y == 0).any() for series in drawn) else ""
    if any(series.kind == "rings" for series in drawn):
        strip = (
            f" Hollow with capped lines: published counts, with intervals of the same kind.{strip}"
        )
    return Chart(
        figure.name,
        figure.title,
        f"{figure.title}: probability of error of each policy",
        tuple(panels),
        _table(cells),
        f"{trials_of(cells)} trials per point. {INTERVALS}{strip}{_where_it_is(cells)}",
    )


def _where_it_is(cells: Sequence[Results]) -> str:
    """Rounds, arms, features and noise of a figure's worlds, as a sentence of its caption."""
    found = setting_of(cells)
    return f" {found}." if found else ""


def _curves(figure: Figure, cells: Sequence[Results]) -> list[Panel]:
    """Errors by the parameter's value, a line for each policy; the smallest gap below."""
    ours, theirs = [], []
    for policy, style in styles(cell.policy for cell in cells).items():
        own = sorted((c for c in cells if c.policy == policy), key=lambda c: c.value or 0)
        x = tuple(float(cell.value or 0) for cell in own)
        ours.append(error_series(policy, x, own, style))
        theirs += _published_series(x, own, style)
    axis = Axis(figure.label, "log" if figure.log_values else "number")
    series = (*ours, *theirs)
    gaps = [cell.gap or 0.0 for cell in cells]
    if not figure.gap_panel or np.ptp(gaps) <= SAME * max(gaps):  # a constant gap says nothing
        return [Panel(axis, ERROR, series, height=1.2)]
    return [Panel(axis, ERROR, series, height=1.6), _gaps(cells, axis)]


def _rows(cells: Sequence[Results]) -> Panel:
    """One setting: a row for each policy, with our rate and the published one in parentheses."""
    order = list(styles(cell.policy for cell in cells))
    own = sorted(cells, key=lambda cell: order.index(cell.policy))
    beside = ["" if (rate := _published(c)) is None else f" ({rate:.4f})" for c in own]
    names = tuple(
        f"{c.policy}: {c.error_rate:.4f}{rate}" for c, rate in zip(own, beside, strict=True)
    )
    series = (error_series("ours", names, own, 0), *_published_series(names, own, 0))
    return Panel(Axis("", "label"), ERROR, series, sideways=True, height=1.5)


def _published_series(x: tuple[Any, ...], cells: Sequence[Results], style: int) -> list[Series]:
    theirs = [_published_cell(cell) for cell in cells]
    if not any(theirs):
        return []
    none = (np.nan,) * 3
    rates, low, high = np.array(
        [
            none if one is None else (one.error_rate, *clopper_pearson(one.errors, one.trials))
            for one in theirs
        ]
    ).T
    return [Series("published", x, rates, low, high, kind="rings", color=style)]


def _published(cell: Results) -> float | None:
    theirs = _published_cell(cell)
    return None if theirs is None else theirs.error_rate


def _published_cell(cell: Results) -> published.Published | None:
    if cell.world in published.NOT_COMPARABLE:
        return None
    return published.published_counts().get((cell.world, cell.value, cell.policy))


def _gaps(cells: Sequence[Results], axis: Axis) -> Panel:
    gaps = sorted({float(cell.value or 0): cell.gap or 0.0 for cell in cells}.items())
    x, y = zip(*gaps, strict=True)
    line = Series("smallest gap", x, np.array(y))
    ends = (0.0, 1.25 * max(y))
    return Panel(axis, Axis("smallest gap"), (line,), y_range=ends, height=0.5)


def _table(cells: Sequence[Results]) -> Numbers:
    low, high = np.array([cell.interval(0.95) for cell in cells]).T
    return Numbers.of(
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


def beyond_chart(beyond: Beyond) -> Chart:
    """Errors relative to the baseline, a panel for each figure and a row for each setting."""
    cells = [row.base for row in beyond.rows]
    cells += [ratio.cell for row in beyond.rows for ratio in row.ratios.values()]
    ends = _span(beyond)
    groups = groupby(beyond.rows, lambda row: row.base.world)
    panels = [_ratios(FIGURES[name], list(rows), beyond, ends) for name, rows in groups]
    verdicts = ". ".join(map(beyond.verdict, beyond.policies))
    return Chart(
        BEYOND_PAPER,
        f"Error relative to {BASELINE} in {len(beyond.rows)} published settings",
        f"{verdicts}.",
        tuple(panels),
        _beyond_table(beyond),
        f"{verdicts}. {trials_of(cells)} trials per point. In parentheses: how often {BASELINE} "
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


def _beyond_table(beyond: Beyond) -> Numbers:
    pairs = [(row, name, ratio) for row in beyond.rows for name, ratio in row.ratios.items()]
    return Numbers.of(
        {
            "figure": [row.base.world for row, _, _ in pairs],
            "value": [row.base.value for row, _, _ in pairs],
            "policy": [name for _, name, _ in pairs],
            "ratio": [ratio.ratio for _, _, ratio in pairs],
            "low": [ratio.low for _, _, ratio in pairs],
            "high": [ratio.high for _, _, ratio in pairs],
            "counts": [row.counts for row, _, _ in pairs],
        }
    )
