"""report.md and report.html: the pictures, the numbers, and how they agree with the paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from steadyarm.files import code_block, html_page, markdown_table, plain_text, write_atomically
from steadyarm.paper.beyond import BASELINE, EASY, Beyond, Row
from steadyarm.paper.published import Comparison, Scatter, Summary, scatter_of, summarise
from steadyarm.paper.run import CellResult, format_value
from steadyarm.paper.specification import BEYOND_PAPER, Figure

__all__ = ["markdown_report", "write_report"]

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
    """Write report.md and report.html beside the pictures, and say in a few lines what they say.

    Parameters
    ----------
    figures : in the order in which they are to appear
    results : of these figures, and those that `beyond` compares
    folder : where `draw_figure` put the pictures NAME.png; one that is missing is left out
    command : what was typed
    settings : names and values to show below it
    seconds : that the whole run took
    beyond : every published setting relative to P1-RAGE, for a section of its own
    """
    cells = list(results)
    names = [*(figure.name for figure in figures), BEYOND_PAPER]
    pictures = [name for name in names if (folder / f"{name}.png").exists()]
    text = markdown_report(figures, cells, command, settings or {}, seconds, pictures, beyond)
    write_atomically(folder / "report.md", text.encode())
    write_atomically(folder / "report.html", html_page(text, TITLE, folder).encode())
    return _in_short(summarise(cells))


def markdown_report(
    figures: Sequence[Figure],
    cells: Sequence[CellResult],
    command: str = "",
    settings: Mapping[str, object] | None = None,
    seconds: float | None = None,
    pictures: Iterable[str] = (),
    beyond: Beyond | None = None,
) -> str:
    """The whole report as Markdown, with links to the pictures of the figures named."""
    summary, shown = summarise(cells), set(pictures)
    blocks = [f"# {TITLE}"]
    if command:
        blocks.append(code_block(command))
    if settings:
        rows = [[plain_text(name), plain_text(value)] for name, value in settings.items()]
        blocks.append(markdown_table(["setting", "value"], "ll", rows))
    blocks += ["## Summary", *_summary(cells, summary, seconds)]
    if beyond is not None:
        blocks += _beyond(beyond, BEYOND_PAPER in shown)
    for figure in figures:
        if own := [cell for cell in cells if cell.figure == figure.name]:
            blocks += _figure(figure, own, summary, figure.name in shown)
    return "\n\n".join(blocks) + "\n"


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


def _summary(cells: Sequence[CellResult], summary: Summary, seconds: float | None) -> list[str]:
    total, computing = len(summary.comparisons), sum(cell.seconds for cell in cells)
    trials = sum(cell.trials for cell in cells)
    counted = f"{len(cells)} cells, {trials:,} trials, {computing:.1f} seconds of computing."
    if seconds is not None:
        counted = f"{counted[:-1]}; this run took {seconds:.1f} seconds."
    if total == 0:
        return [f"{counted} None of the cells has a published counterpart."]
    share = f"{summary.agreeing} of {total} comparable cells ({summary.agreeing / total:.1%})"
    blocks = [
        f"{counted} **{share} agree with the published counts**: they lie inside the 99.9 %"
        " two-sample interval (Fisher's exact test, two-sided, p ≥ 0.001)."
    ]
    if summary.disagreeing:
        blocks += _disagreeing(summary)
    rows = [_scatter(f"`{name}`", scatter) for name, scatter in summary.scatter.items()]
    if len(rows) > 1:
        rows.append(_scatter("all", scatter_of(summary.comparisons)))
    blocks += [
        "### Scatter",
        "z is ours minus published in standard errors, over cells with enough errors for a normal"
        " approximation. Its mean should be near 0 and its root mean square near 1; the last"
        " column is the probability of a root mean square as large as this by chance.",
        markdown_table(["figure", "cells", "mean z", "rms z", "by chance"], "lrrrr", rows),
    ]
    return blocks


def _disagreeing(summary: Summary) -> list[str]:
    """The cells that do not agree, each with the numbers of its reasons, and the reasons."""
    rows = []
    for c in summary.disagreeing:
        why = [str(i) for i, cells in enumerate(summary.reasons.values(), 1) if c in cells]
        counts = [f"{x.errors:,} of {x.trials:,}" for x in (c.ours, c.theirs)]
        row = [
            f"`{c.ours.figure}`",
            _where(c) or "-",
            plain_text(c.ours.policy),
            *counts,
            _p(c.p_value),
        ]
        rows.append([*row, ", ".join(why) or "not known"])
    header = ["figure", "setting", "policy", "ours", "published", "p-value", "reason"]
    blocks = ["These do not:", markdown_table(header, "lllrrrl", rows)]
    if summary.reasons:
        blocks.append("\n".join(f"{i}. {why}" for i, why in enumerate(summary.reasons, 1)))
    return blocks


def _scatter(name: str, scatter: Scatter) -> list[str]:
    if scatter.cells == 0:
        return [name, "0", "-", "-", "-"]
    numbers = f"{scatter.mean:+.2f}", f"{scatter.rms:.2f}", _p(scatter.chance)
    return [name, str(scatter.cells), *numbers]


def _figure(figure: Figure, cells: list[CellResult], summary: Summary, picture: bool) -> list[str]:
    name, title = figure.name, plain_text(figure.title)
    blocks = [f"## {title} (`{name}`)"]
    if picture:
        blocks.append(f"![{title}: probability of error of each policy]({quote(name)}.png)")
    found = {c.ours: c for c in summary.comparisons}
    rows = [_row(cell, found.get(cell)) for cell in cells]
    header = [cells[0].parameter or "setting", "policy", "errors", "trials", "error rate"]
    header += ["95 % interval", "published", "p-value"]
    blocks.append(markdown_table(header, "rlrrrrrr", rows))
    return blocks


def _beyond(beyond: Beyond, picture: bool) -> list[str]:
    title = f"Error relative to {BASELINE} in the published settings"
    blocks = [f"## {title} (`{BEYOND_PAPER}`)"]
    if picture:
        blocks.append(f"![{title}]({BEYOND_PAPER}.png)")
    blocks.append("\n".join(f"- {plain_text(line)}" for line in beyond.lines()))
    blocks.append(
        "Errors are counts, no errors count as half of one, and ratios have 95 % score intervals."
        f" Ratios in parentheses are not in the mean: {BASELINE} errs in at most {EASY:g} there."
        " Significant is Fisher's exact test, two-sided, p < 0.001; what is significantly worse"
        " is bold. The floor is the oracle's probability of error Φ(-√(T / (σ²ρ\\*)))."
    )
    header = ["figure", "setting", "trials", BASELINE]
    for policy in beyond.policies:
        header += [plain_text(policy), "ratio", "95 % interval"]
    align = "llrr" + "rrr" * len(beyond.policies) + "r"
    rows = [_beyond_row(row, beyond.policies) for row in beyond.rows]
    return [*blocks, markdown_table([*header, "floor"], align, rows)]


def _beyond_row(row: Row, policies: Sequence[str]) -> list[str]:
    base = row.base
    setting = f"{plain_text(base.parameter)} {format_value(base.value)}".strip() or "-"
    entries = [f"`{base.figure}`", setting, f"{base.trials:,}", f"{base.errors:,}"]
    for policy in policies:
        if (ratio := row.ratios.get(policy)) is None:
            entries += ["-", "-", "-"]
            continue
        cell, number = ratio.cell, f"{ratio.ratio:.3g}"
        same = cell.trials == base.trials
        errors = f"{cell.errors:,}" if same else f"{cell.errors:,} of {cell.trials:,}"
        own = [errors, number if row.counts else f"({number})"]
        own.append(f"{ratio.low:.2g} to {ratio.high:.2g}".replace("inf", "∞"))
        entries += [f"**{entry}**" for entry in own] if ratio.significant > 0 else own
    return [*entries, _rate(row.floor)]


def _row(cell: CellResult, found: Comparison | None) -> list[str]:
    low, high = cell.interval(0.95)
    theirs, p_value = (
        ("-", "-") if found is None else (_rate(found.theirs.error_rate), _p(found.p_value))
    )
    row = [format_value(cell.value) or "-", plain_text(cell.policy), f"{cell.errors:,}"]
    row += [f"{cell.trials:,}", _rate(cell.error_rate), f"{_rate(low)} to {_rate(high)}"]
    row += [theirs, p_value]
    return row if found is None or found.agrees else [f"**{entry}**" for entry in row]


def _rate(rate: float) -> str:
    return f"{rate:.4f}" if rate == 0 or rate >= 0.001 else f"{rate:.1e}"


def _p(p_value: float) -> str:
    return f"{p_value:.3f}" if p_value >= 0.001 else f"{p_value:.1e}"
