"""The report on a run: the pictures, the numbers, and how they agree with the paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from steadyarm.files import write_atomically
from steadyarm.paper.beyond import BASELINE, EASY, Beyond, Row
from steadyarm.paper.charts import beyond_chart, figure_chart
from steadyarm.paper.published import Comparison, Scatter, Summary, scatter_of, summarise
from steadyarm.paper.run import CellResult, format_value
from steadyarm.paper.specification import BEYOND_PAPER, Figure
from steadyarm.plot.matplotlib import save
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
from steadyarm.reports.render import page, text

TITLE = "SteadyArm: the paper's experiments, run again"


def write_report(
    figures: Sequence[Figure],
    results: Iterable[CellResult],
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
    document = report_of(figures, cells, command, settings or {}, seconds, beyond)
    for block in document.blocks:
        if isinstance(block, Picture):
            for kind in ("png", "pdf"):
                save(block.chart, folder / f"{block.chart.name}.{kind}")
    write_atomically(folder / "report.md", text(document, ".").encode())
    write_atomically(folder / "report.html", page(document).encode())
    return _in_short(summarise(cells))


def report_of(
    figures: Sequence[Figure],
    cells: Sequence[CellResult],
    command: str = "",
    settings: Mapping[str, object] | None = None,
    seconds: float | None = None,
    beyond: Beyond | None = None,
) -> Document:
    """The whole report; see `write_report`."""
    summary = summarise(cells)
    blocks: list[Block] = [Code(command)] if command else []
    if settings:
        rows = tuple((name, str(value)) for name, value in settings.items())
        blocks.append(Table("Settings", ("setting", "value"), "ll", rows))
    blocks += [Heading("Summary"), *_summary(cells, summary, seconds)]
    if beyond is not None:
        blocks += _beyond(beyond)
    for figure in figures:
        if own := [cell for cell in cells if cell.figure == figure.name]:
            blocks += _figure(figure, own, summary)
    return Document(TITLE, tuple(blocks))


def _in_short(summary: Summary) -> str:
    total, unexplained = len(summary.comparisons), len(summary.unexplained)
    if total == 0:
        return "None of the cells has a published counterpart."
    lines = [f"{summary.agreeing} of {total} comparable cells agree with the published counts."]
    if summary.disagreeing:
        words = [(c.ours.figure, _where(c), c.ours.policy) for c in summary.disagreeing]
        names = ", ".join(" ".join(filter(None, word)) for word in words)
        lines += [f"These do not ({unexplained} for no known reason): {names}."]
    return "\n".join(lines)


def _where(c: Comparison) -> str:
    return f"{c.ours.parameter} {format_value(c.ours.value)}" if c.ours.parameter else ""


def _summary(
    cells: Sequence[CellResult], summary: Summary, seconds: float | None
) -> Iterable[Block]:
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
        rows.append(_scatter("all", scatter_of(summary.comparisons)))
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
        cell = (c.ours.figure, _where(c) or "-", c.ours.policy, *counts, _p(c.p_value))
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


def _figure(figure: Figure, cells: list[CellResult], summary: Summary) -> Iterable[Block]:
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


def _row(cell: CellResult, found: Comparison | None) -> tuple[str, ...]:
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
    entries = [base.figure, setting, f"{base.trials:,}", f"{base.errors:,}"]
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
