"""Charts of the variants: from best to worst, and against the control."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadyarm.errors import InvalidInputError
from steadyarm.live.conclusion import compared
from steadyarm.live.tables import lift_text
from steadyarm.live.verdict import Verdict
from steadyarm.plot.chart import Axis, Chart, Panel, Series, Table
from steadyarm.plot.charts.common import difference_axis, shown, split
from steadyarm.segments import Direction
from steadyarm.wording import POINTS, amount, counted, labels_of, percent

# The variants from best to worst, with what is known of each.


ROWS = 30


def leaderboard(
    verdict: Verdict, names: Sequence[str], direction: Direction, rates: bool = False
) -> Chart:
    """Estimate and interval of each variant, the recommended one on top, then the best.

    names : of the rows of the verdict, or of all variants
    rates : whether rewards are yes or no, so that their means are shown in per cent
    """
    if verdict.shown is not None and len(names) != len(verdict.shown):
        names = tuple(names[k] for k in verdict.shown.tolist())
    sign = 1.0 if direction == "maximize" else -1.0
    order = np.argsort(-sign * verdict.estimates, kind="stable")  # nan come last
    order = np.concatenate([[verdict.row], order[order != verdict.row]])
    top = order[:ROWS]
    first, alive = top == verdict.row, np.array([names[k] in verdict.plausible for k in top])
    labels = names if verdict.size else labels_of(names)
    low, high = verdict.intervals[top].T
    rows = tuple(labels[k] for k in top)
    series = split(
        Series("", rows, verdict.estimates[top], low, high, kind="points"),
        {
            "leads": (first, 0),
            "not ruled out": (alive & ~first, 4),
            "ruled out": (~alive & ~first, None),
        },
    )
    more = len(order) - len(top)
    reward = Axis("estimated reward", percent=rates)
    panel = Panel(Axis("", "label"), reward, series, sideways=True)
    small = "Small values are good. " if direction == "minimize" else ""
    cut = f"{more:,} more variants are in the table. " if more else ""
    if verdict.size:
        cut += f"The table has the best {len(order):,} of {verdict.size:,} variants. "
    return Chart(
        "leaderboard",
        "Variants from best to worst",
        _summary(verdict, labels, rates),
        (panel,),
        _table(verdict, names, order),
        f"{cut}{small}Lines: where the true values may lie ({percent(verdict.level)}).",
        intervals_mean(verdict),
    )


def intervals_mean(verdict: Verdict) -> str:
    """What the intervals of a verdict say, and what must hold for them."""
    often = " at all times, so you may look as often as you like" if verdict.anytime else ""
    return (
        f"An interval says where the true value of a variant may lie. In {percent(verdict.level)} "
        f"of all tests those of all variants contain the true values{often}. A variant is ruled "
        "out by its difference from the leader, which is known more exactly than the value of "
        f"either; so the intervals of the two may overlap. Assumptions: {verdict.assumption}"
    )


def _summary(verdict: Verdict, labels: Sequence[str], rates: bool) -> str:
    low, high = verdict.intervals[verdict.row]
    known = np.isfinite(high - low)
    reach = f" (interval {amount(low, rates)} to {amount(high, rates)})" if known else ""
    return (
        f"{shown(labels[verdict.row], 60)} leads with an estimate of "
        f"{amount(verdict.estimates[verdict.row], rates)}{reach}; not ruled out: "
        f"{verdict.possible:,} of {counted(verdict.variants, 'variant')}."
    )


def _table(verdict: Verdict, names: Sequence[str], order: NDArray[np.intp]) -> Table:
    low, high = verdict.intervals[order].T
    gap_low, gap_high = verdict.gap_intervals[order].T
    return Table.of(
        {
            "rank": range(1, len(order) + 1),
            "variant": [names[k] for k in order],
            "estimate": verdict.estimates[order],
            "standard error": verdict.standard_errors[order],
            **({} if verdict.raw is None else {"unadjusted": verdict.raw[order]}),
            "low": low,
            "high": high,
            "behind by": verdict.gaps[order],
            "behind by, low": gap_low,
            "behind by, high": gap_high,
            "not ruled out": [names[k] in verdict.plausible for k in order],
            **_lifts(verdict, order),
        }
    )


# How much each variant differs from the control.


def lifts(
    verdict: Verdict, names: Sequence[str], direction: Direction, rates: bool = False
) -> Chart:
    """Difference of each variant from the control with its interval, the best on top.

    Relative to the control's value if that is defined, else in units of the reward.

    names : of the rows of the verdict, or of all variants
    rates : whether rewards are yes or no, so that differences are percentage points
    """
    against = compared(verdict, direction)
    if against is None:
        raise InvalidInputError(
            "the test has no control, so there are no differences from it; create it with "
            "control=, the name of a variant.",
            field="control",
        )
    if verdict.shown is not None and len(names) != len(verdict.shown):
        names = tuple(names[k] for k in verdict.shown.tolist())
    order = np.argsort(-against.lifts, kind="stable")  # nan come last
    order = order[order != against.control]
    top = order[:ROWS]
    values, ends = verdict.relative, verdict.relative_intervals
    if not against.share:
        values, ends = verdict.lifts, verdict.lift_intervals
    assert values is not None
    assert ends is not None
    labels = names if verdict.size else labels_of(names)
    control, best = shown(labels[against.control], 36), int(order[0])
    low, high = ends[top].T
    series = split(
        Series("", tuple(labels[k] for k in top), values[top], low, high, kind="points"),
        {
            f"better than {control}": (against.better[top], 2),
            "no clear difference": (against.unclear[top] & ~np.isnan(values[top]), None),
            f"worse than {control}": (against.worse[top], 1),
        },
    )
    title = f"difference from {control}"
    axis = Axis(title, percent=True) if against.share else difference_axis(title, rates)
    more = len(order) - len(top)
    cut = f"{more:,} more variants are in the table. " if more else ""
    small = "Small values are good. " if direction == "minimize" else ""
    return Chart(
        "lifts",
        f"Difference of each variant from {control}",
        f"{shown(labels[best], 60)} against {control}, the control: "
        f"{lift_text(verdict, best, POINTS if rates else '')}. "
        f"Of {counted(len(order), 'variant')} {counted(int(against.better.sum()), 'is', 'are')} "
        f"clearly better than the control, {counted(int(against.worse.sum()), 'is', 'are')} "
        "clearly worse.",
        (Panel(Axis("", "label"), axis, series, level=0.0, sideways=True),),
        _lifts_table(verdict, names, [against.control, *order.tolist()]),
        f"{cut}{small}Lines: where the true differences may lie ({percent(verdict.level)}). At "
        "zero a variant is as good as the control.",
        _lifts_mean(verdict),
    )


def _lifts_mean(verdict: Verdict) -> str:
    """What lifts and their intervals say."""
    often = " at all times, so you may look as often as you like" if verdict.anytime else ""
    return (
        "A difference is the value of a variant minus that of the control; relative differences "
        "are divided by the control's value, and are not defined where that may be zero. In "
        f"{percent(verdict.level)} of all tests the intervals of all variants contain the true "
        f"differences{often}."
    )


def _lifts_table(verdict: Verdict, names: Sequence[str], order: Sequence[int]) -> Table:
    known: dict[str, Any] = {
        "variant": [names[k] for k in order],
        "control": [verdict.names[k] == verdict.control for k in order],
        "estimate": verdict.estimates[order],
    }
    return Table.of(known | _lifts(verdict, order))


def _lifts(verdict: Verdict, order: Sequence[int] | NDArray[np.intp]) -> dict[str, Any]:
    """Columns that compare with the control, if there is one."""
    if verdict.lifts is None or verdict.lift_intervals is None:
        return {}
    found = {"lift": verdict.lifts[order]}
    found["lift, low"], found["lift, high"] = verdict.lift_intervals[order].T
    if verdict.relative is not None and verdict.relative_intervals is not None:
        found["relative lift"] = verdict.relative[order]
        ends = verdict.relative_intervals[order].T
        found["relative lift, low"], found["relative lift, high"] = ends
    return found
