"""The report on a log: the verdict and all that it rests on."""

from __future__ import annotations

import numpy as np

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
    counterfactual_section,
    cut_table,
    drift_section,
    health_table,
)
from steadyarm.wording import number, percent, reach


def analysis_report(found: Analysis, command: str = "") -> Document:
    """The report on what `analyze` found; `command` is what was typed."""
    direction = found.evidence.direction
    sign, good = (1, "large") if direction == "maximize" else (-1, "small")
    order = np.argsort(-sign * found.estimates, kind="stable").tolist()  # unknown ones come last
    # the drift report's short list may be another one
    drifting = charts.matched(order, found.intervals.arms.names, found.drift.names) or [0]
    blocks: list[Block] = [
        Lead(found.verdict),
        Paragraph(f"{found.log}: {found.size}. A good reward is {good}."),
        Heading("Estimates"),
        Picture(charts.leaderboard(verdict_on(found), found.arms.names, direction)),
        _estimates(found, order),
        Heading(f"Can the log be trusted? {found.health.status}"),
        health_table(found.health),
        Heading("Did the world move?"),
        *drift_section(found.drift, drifting, "rewards"),
        Heading("What would other methods have concluded?"),
        *counterfactual_section(found.counterfactuals),
        Heading("What this rests on"),
        Items(_assumptions(found)),
    ]
    if command:
        blocks += [Heading("How to get this again"), Code(command)]
    return Document("What the log says", tuple(blocks), f"Written by SteadyArm {__version__}.")


def _estimates(found: Analysis, order: list[int]) -> Table:
    i, shown = found.intervals, found.shown
    rows = []
    for k in order:
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
    header = (
        "variant", "rewards", "estimate", "interval", "behind by", "interval of that",
        "may be the best", "plain mean",
    )  # fmt: skip  # a table reads better so
    caption = (
        "Time-averaged reward of every variant. Intervals hold for all variants at once with "
        f"probability {percent(i.level)}; so does the list of those that may be the best."
    )
    return cut_table(caption, header, "lrrrrrlr", rows, total=found.arms.size)


def _assumptions(found: Analysis) -> tuple[str, ...]:
    return (
        "The logged probabilities are those with which variants were drawn, given all that was "
        "known then.",
        found.intervals.assumption,
        f"Variance: {found.intervals.method}; of periods: {found.drift.method}.",
        *found.notes,
    )
