"""The report on a log: the verdict and all that it rests on."""

from __future__ import annotations

from steadyarm import __version__
from steadyarm.analysis import Analysis
from steadyarm.plot import charts
from steadyarm.plot.sources import verdict_on
from steadyarm.reports.document import (
    Block,
    Code,
    Document,
    Heading,
    Items,
    Lead,
    Paragraph,
    Picture,
    Table,
)
from steadyarm.reports.sections import (
    MOST_ROWS,
    best_first,
    health_table,
    otherwise_blocks,
    period_table,
    rest_note,
)
from steadyarm.wording import number, percent, reach


def analysis_report(found: Analysis, command: str = "") -> Document:
    """The report on what `analyze` found; `command` is what was typed."""
    direction = found.evidence.direction
    order = best_first(found.estimates, direction)
    good = "large" if direction == "maximize" else "small"
    blocks: list[Block] = [
        Lead(found.verdict),
        Paragraph(f"{found.log}: {found.size}. A good reward is {good}."),
        Heading("Estimates"),
        Picture(charts.leaderboard(verdict_on(found), found.arms.names, direction)),
        _estimates(found, order),
        Heading(f"Can the log be trusted? {found.health.status}"),
        health_table(found.health, "What was checked"),
        Heading("Did the world move?"),
        Paragraph(found.drift.verdict),
    ]
    if len(found.drift.periods) > 1:
        blocks.append(Picture(charts.drift(found.drift)))
    blocks += [
        period_table(found.drift, _drifting(found, order), "rewards"),
        Heading("What would have been concluded otherwise?"),
        *otherwise_blocks(found.counterfactuals),
        Heading("What this rests on"),
        Items(_assumptions(found)),
    ]
    if command:
        blocks += [Heading("How to get this again"), Code(command)]
    return Document("What the log says", tuple(blocks), f"Written by SteadyArm {__version__}.")


def _drifting(found: Analysis, order: list[int]) -> list[int]:
    """The same order in the drift report, whose short list may be another one."""
    return charts.matched(order, found.intervals.arms.names, found.drift.names) or [0]


def _estimates(found: Analysis, order: list[int]) -> Table:
    i, shown = found.intervals, found.shown
    rows = []
    for k in order[:MOST_ROWS]:
        best = k == i.recommended[0]
        rows.append(
            (
                i.arms.names[k],
                f"{found.counts[shown[k]]:,}",
                number(i.estimates[0, k]),
                reach(i.low[0, k], i.high[0, k]),
                "" if best else number(i.gaps[0, k]),
                "" if best else reach(i.gap_low[0, k], i.gap_high[0, k]),
                "yes" if i.plausible[0, k] else "no",
                number(found.means[shown[k]]),
            )
        )
    header = ("variant", "rewards", "estimate", "interval", "behind by", "interval of that")
    caption = (
        "Time-averaged reward of every variant. Intervals hold for all variants at once with "
        f"probability {percent(i.level)}, so does the list of those that may be the best."
    )
    note = rest_note(MOST_ROWS, found.arms.size)
    more = ("may be the best", "plain mean")
    return Table(caption, (*header, *more), "lrrrrrlr", tuple(rows), note)


def _assumptions(found: Analysis) -> tuple[str, ...]:
    return (
        "The logged probabilities are those with which variants were drawn, given all that was "
        "known then.",
        found.intervals.assumption,
        f"Variance: {found.intervals.method}; of periods: {found.drift.method}.",
        *found.notes,
    )
