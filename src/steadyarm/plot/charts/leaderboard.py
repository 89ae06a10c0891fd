"""The variants from best to worst, with what is known of each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from steadyarm.factors import labels_of
from steadyarm.plot.chart import Axis, Chart, Panel, Series, Table
from steadyarm.plot.charts.words import known, shown
from steadyarm.segments import Direction
from steadyarm.verdict import Verdict
from steadyarm.wording import counted, number, percent

__all__ = ["leaderboard"]

ROWS = 30


def leaderboard(verdict: Verdict, names: Sequence[str], direction: Direction) -> Chart:
    """Estimate and interval of each variant, the recommended one on top, then the best.

    names : of the rows of the verdict, or of all variants
    """
    if verdict.shown is not None and len(names) != len(verdict.shown):
        names = tuple(names[k] for k in verdict.shown.tolist())
    sign = 1.0 if direction == "maximize" else -1.0
    order = np.argsort(-sign * verdict.estimates, kind="stable")  # nan come last
    order = np.concatenate([[verdict.row], order[order != verdict.row]])
    top = order[:ROWS]
    alive = set(verdict.plausible) - {verdict.name}
    states = {
        "leads": np.array([k == verdict.row for k in top]),
        "not ruled out": np.array([names[k] in alive and k != verdict.row for k in top]),
    }
    states["ruled out"] = ~(states["leads"] | states["not ruled out"])
    colors = {"leads": 0, "not ruled out": 4, "ruled out": None}
    labels = names if verdict.size else labels_of(names)
    rows = tuple(labels[k] for k in top)
    series = tuple(
        Series(
            state,
            rows,
            np.where(here, verdict.estimates[top], np.nan),
            np.where(here, verdict.intervals[top, 0], np.nan),
            np.where(here, verdict.intervals[top, 1], np.nan),
            kind="points",
            color=colors[state],
        )
        for state, here in states.items()
        if here.any()
    )
    more = len(order) - len(top)
    panel = Panel(Axis("", "label"), Axis("estimated reward"), series, sideways=True)
    small = "Small values are good. " if direction == "minimize" else ""
    cut = f"{more:,} more variants are in the table. " if more else ""
    if verdict.size:
        cut += f"The table has the best {len(order):,} of {verdict.size:,} variants. "
    when = "and at all times " if verdict.anytime else ""
    return Chart(
        "leaderboard",
        "Variants from best to worst",
        _summary(verdict, labels),
        (panel,),
        _table(verdict, names, order),
        f"{cut}{small}Lines: {percent(verdict.level)} intervals that hold for all variants {when}"
        "at once.",
    )


def _summary(verdict: Verdict, labels: Sequence[str]) -> str:
    low, high = verdict.intervals[verdict.row]
    reach = f" (interval {number(low)} to {number(high)})" if np.isfinite(high - low) else ""
    return (
        f"{shown(labels[verdict.row], 60)} leads with an estimate of "
        f"{number(verdict.estimates[verdict.row])}{reach}; not ruled out: "
        f"{verdict.possible:,} of {counted(verdict.variants, 'variant')}."
    )


def _table(
    verdict: Verdict, names: Sequence[str], order: np.ndarray[tuple[int, ...], np.dtype[np.intp]]
) -> Table:
    header = (
        "rank", "variant", "estimate", "standard error", "low", "high", "behind by",
        "behind by, low", "behind by, high", "not ruled out",
    )  # fmt: skip  # a table reads better so
    alive = set(verdict.plausible)
    rows = tuple(
        (
            rank,
            names[k],
            known(verdict.estimates[k]),
            known(verdict.standard_errors[k]),
            known(verdict.intervals[k, 0]),
            known(verdict.intervals[k, 1]),
            known(verdict.gaps[k]),
            known(verdict.gap_intervals[k, 0]),
            known(verdict.gap_intervals[k, 1]),
            names[k] in alive,
        )
        for rank, k in enumerate(order, 1)
    )
    return Table(header, rows)
