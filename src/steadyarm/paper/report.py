"""The report on a run: its charts, the numbers, and how they agree with the paper."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from steadyarm import plot
from steadyarm.errors import InvalidInputError
from steadyarm.paper.specification import (
    Beyond,
    Comparison,
    Figure,
    Ratio,
    compare,
    published_cell,
)
from steadyarm.plot.spec import (
    HEIGHT,
    QUIET,
    ROW,
    WIDTH,
    Rows,
    Spec,
    chart,
    field,
    hover,
    intervals,
    labels,
    layers,
)
from steadyarm.plot.sweeps import INTERVALS, NONE, error_layers, setting_of, tint, trials_of
from steadyarm.reports.render import render
from steadyarm.reports.render import write_report as write_page
from steadyarm.simulation import Results
from steadyarm.simulation.compare import Value
from steadyarm.wording import write_atomically

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
    """Write report.html and the pictures; say in a few lines what the report says.

    Parameters
    ----------
    figures : in the order in which they are to appear
    results : the results of these figures, and those that `beyond` compares
    folder : where the files go; each picture is NAME.png and NAME.pdf
    command : the command line that was typed
    settings : names and values to show below it
    seconds : that the whole run took
    beyond : every published setting relative to P1-RAGE, for a section of its own
    """
    cells = list(results)
    for spec in [figure_chart(figure, cells) for figure in shown_of(figures, cells)]:
        for kind in ("png", "pdf"):
            plot.save(spec, folder / f"{spec['name']}.{kind}")
    page = report_of(figures, cells, command, settings or {}, seconds, beyond)
    write_page(page, folder / "report.html")
    return _in_short(cells)


def shown_of(figures: Sequence[Figure], cells: Sequence[Results]) -> list[Figure]:
    """The figures that there are results of."""
    worlds = {cell.world for cell in cells}
    return [figure for figure in figures if figure.name in worlds]


def report_of(
    figures: Sequence[Figure],
    cells: Sequence[Results],
    command: str = "",
    settings: Mapping[str, object] | None = None,
    seconds: float | None = None,
    beyond: Beyond | None = None,
) -> str:
    """The whole report as a page; see `write_report`."""
    compared = {c.ours: c for c in compare(cells)}
    return render(
        "reproduce.html",
        title=TITLE,
        command=command,
        settings=settings or {},
        cells=cells,
        trials=sum(cell.trials for cell in cells),
        computing=sum(cell.seconds for cell in cells),
        seconds=seconds,
        total=len(compared),
        agreeing=sum(c.agrees for c in compared.values()),
        disagreeing=[_disagreeing(c) for c in compared.values() if not c.agrees],
        beyond=beyond,
        ratios=[] if beyond is None else _beyond_table(beyond),
        figures=[
            (
                f"{figure.title} ({figure.name})",
                figure_chart(figure, own),
                own[0].parameter or "setting",
                [_row(cell, compared.get(cell)) for cell in own],
            )
            for figure in shown_of(figures, cells)
            for own in ([cell for cell in cells if cell.world == figure.name],)
        ],
    )


def _in_short(cells: Sequence[Results]) -> str:
    compared = compare(cells)
    if not compared:
        return "None of the cells has a published counterpart."
    wrong = [c for c in compared if not c.agrees]
    text = f"{len(compared) - len(wrong)} of {len(compared)} comparable cells agree with the "
    text += "published counts."
    if wrong:
        words = [(c.ours.world, _setting(c.ours), c.ours.policy) for c in wrong]
        text += f"\nThese do not: {', '.join(' '.join(filter(None, word)) for word in words)}."
    return text


def _setting(cell: Results) -> str:
    return f"{cell.parameter} {format_value(cell.value)}" if cell.parameter else ""


def _disagreeing(c: Comparison) -> tuple[str, ...]:
    counts = [f"{x.errors:,} of {x.trials:,}" for x in (c.ours, c.theirs)]
    return (c.ours.world, _setting(c.ours) or "-", c.ours.policy, *counts, _p(c.p_value))


def _row(cell: Results, comparison: Comparison | None) -> tuple[bool, tuple[str, ...]]:
    """Whether a cell agrees with the published count, and its row of the table."""
    low, high = cell.interval(0.95)
    row = (
        format_value(cell.value) or "-",
        cell.policy,
        f"{cell.errors:,}",
        f"{cell.trials:,}",
        _rate(cell.error_rate),
        f"{_rate(low)} to {_rate(high)}",
        "-" if comparison is None else _rate(comparison.theirs.error_rate),
        "-" if comparison is None else _p(comparison.p_value),
    )
    return comparison is None or comparison.agrees, row


def _rate(rate: float) -> str:
    return f"{rate:.4f}" if rate == 0 or rate >= 0.001 else f"{rate:.1e}"


def _p(p_value: float) -> str:
    return f"{p_value:.3f}" if p_value >= 0.001 else f"{p_value:.1e}"


# The charts: our error rates with their intervals beside the published ones.


def figure_chart(figure: Figure, results: Iterable[Results]) -> Spec:
    """The chart of a figure; results of other figures are left out.

    Examples
    --------
    >>> from steadyarm.paper.specification import figure_named
    >>> cells = [
    ...     Results("Peace", {0: 1000 - s, 1: s}, None, 0, world="soare_scale", value=s, gap=gap)
    ...     for s, gap in ((0, 0.2), (5, 0.1))
    ... ]
    >>> spec = figure_chart(figure_named("soare_scale"), cells)
    >>> [row["rate"] for row in spec["data"]["values"]]
    [0.0, 0.005]
    """
    cells = [result for result in results if result.world == figure.name]
    if not cells:
        raise InvalidInputError(f"there are no results of {figure.name} to draw.")
    rows = [_numbers(cell) for cell in cells]
    none = NONE if any(row["rate"] == 0 for row in rows) else ""
    theirs = any(row["published"] is not None for row in rows)
    rings = " Large and hollow: published counts." if theirs else ""
    setting = setting_of(cells)
    return chart(
        figure.name,
        figure.title,
        rows,
        summary=f"{figure.title}: probability of error of each policy.",
        note=f"{trials_of(cells)} trials per point. {INTERVALS}{rings}{none} {setting}".strip(),
        **(_bars(cells) if cells[0].value is None else _curves(figure, cells, rows)),
    )


def _numbers(cell: Results) -> dict[str, Any]:
    low, high = cell.interval(0.95)
    theirs = published_cell(cell)
    return {
        "value": cell.value,
        "policy": cell.policy,
        "errors": cell.errors,
        "trials": cell.trials,
        "rate": cell.error_rate,
        "low": low,
        "high": high,
        "gap": cell.gap or 0.0,
        "published": None if theirs is None else theirs.error_rate,
    }


def _curves(figure: Figure, cells: Sequence[Results], rows: Rows) -> Spec:
    """Errors by the parameter's value, a line for each policy; the smallest gap below."""
    scale = {"type": "log" if figure.log_values else "linear", "nice": False, "zero": False}
    x = field("value", title=figure.label, scale={**scale, "padding": 15})
    style = tint(cell.policy for cell in cells)
    drawn = error_layers(rows, x, style)
    rate = drawn[0]["encoding"]["y"]
    rings = {
        "mark": {"type": "point", "filled": False, "size": 170, "strokeWidth": 1.2},
        "transform": [{"filter": "datum.published > 0"}],
        "encoding": {**style, "x": x, "y": {**rate, "field": "published"}},
    }
    errors = {"layer": [*drawn, rings], "width": WIDTH, "height": HEIGHT}
    gaps = [cell.gap or 0.0 for cell in cells]
    if not figure.gap_panel or np.ptp(gaps) <= SAME * max(gaps):  # a constant gap says nothing
        return errors
    gap = field("gap", title="smallest gap", scale={"zero": True}, axis={"tickCount": 3})
    below = {
        "mark": {"type": "line", "color": QUIET, "point": {"color": QUIET}},
        "encoding": {"x": x, "y": {**gap, "aggregate": "min"}},
        "width": WIDTH,
        "height": 80,
    }
    return {"vconcat": [errors, below]}


def _bars(cells: Sequence[Results]) -> Spec:
    """One setting: a row for each policy, with the published rate as a ring."""
    y = labels("policy", list(tint(cell.policy for cell in cells)["color"]["scale"]["domain"]))
    x = field("rate", title="probability of error", scale={"zero": False})
    tips = hover(field("policy", "nominal"), x, field("low"), field("high"), field("published"))
    ring: Spec = {"mark": {"type": "point", "filled": False, "size": 170}}
    ring["encoding"] = {"x": {**x, "field": "published"}}
    return {"height": {"step": ROW}, "layer": layers({"y": y}, *intervals("x", x, tips), ring)}


def _beyond_table(beyond: Beyond) -> list[tuple[str, ...]]:
    """A row for each setting: how often the baseline errs, and the ratios of the others."""
    return [
        (
            row.base.world,
            format_value(row.base.value),
            f"{row.base.error_rate:.4f}",
            *(_ratio_text(row.ratios.get(policy)) for policy in beyond.policies),
        )
        for row in beyond.rows
    ]


def _ratio_text(ratio: Ratio | None) -> str:
    return "" if ratio is None else f"{ratio.ratio:.3g} ({ratio.low:.2g} to {ratio.high:.2g})"


# results.csv


PUBLISHED_COLUMNS = ("figure", "parameter", "value", "policy", "trials", "errors", "min_gap")
COLUMNS = (*PUBLISHED_COLUMNS, "low", "high", "regret", "seconds")


def results_csv(results: Iterable[Results]) -> str:
    """The text of results.csv: the columns of the published table, 95 % interval, regret and
    processor time of the policy.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for cell in results:
        setting = cell.world, cell.parameter, format_value(cell.value), cell.policy
        numbers = [
            "" if x is None else f"{x:.8f}" for x in (cell.gap, *cell.interval(0.95), cell.regret)
        ]
        writer.writerow((*setting, cell.trials, cell.errors, *numbers, f"{cell.seconds:.3f}"))
    return text.getvalue()


def write_results(results: Iterable[Results], path: Path) -> Path:
    """Write results.csv atomically."""
    return write_atomically(path, results_csv(results).encode())


def format_value(value: Value) -> str:
    """A parameter's value as in the published table: whole numbers without a point, "" for none.

    Examples
    --------
    >>> format_value(1010.0), format_value(2.5), format_value(None)
    ('1010', '2.5', '')
    """
    if value is None:
        return ""
    return str(int(value)) if value == int(value) else repr(float(value))
