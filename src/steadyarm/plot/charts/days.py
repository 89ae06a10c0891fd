"""Charts by day or period: estimates, drift, and rewards that have come."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, time

import numpy as np
import scipy

from steadyarm.inference import DriftReport
from steadyarm.live.scorecard import Waiting
from steadyarm.plot.chart import Axis, Chart, Panel, Series, Table
from steadyarm.plot.charts.common import (
    MOST,
    colours,
    difference_axis,
    few_visits,
    hollow_note,
    others,
    period_axis,
    rivals,
    shown,
    wanted,
)
from steadyarm.wording import amount, counted, labels_of, number, p_value, percent

# Estimates of each day or period by itself.


FEW, BARS = 4, 2  # variants that all have error bars; else how many of them do


def daily(report: DriftReport, picked: Sequence[int] | None = None, rates: bool = False) -> Chart:
    """What each period said on its own.

    picked : variants that are drawn in colour
    rates : whether rewards are yes or no, so that their means are shown in per cent
    """
    K = len(report.names)
    chosen = wanted(picked, rivals(report, MOST))
    tint, best = colours(chosen), report.names.index(report.best)
    barred = {best, *chosen[: len(chosen) if len(chosen) <= FEW else BARS]}
    x, axis = period_axis(report)
    few, labels = few_visits(report), labels_of(report.names)
    left = [k for k in range(K) if k not in tint]
    quiet = others(x, report.estimates, left, counted(len(left), "other"), few)
    limits = np.clip(report.intervals, 0.0, 1.0) if rates else report.intervals
    limits = np.where(np.isfinite(report.intervals), limits, report.intervals)
    points = [
        Series(
            labels[k],
            x,
            report.estimates[:, k],
            limits[:, k, 0] if k in barred else None,
            limits[:, k, 1] if k in barred else None,
            kind="points",
            color=tint[k],
            weak=few,
        )
        for k in sorted(tint)
    ]
    unit = "day" if axis.kind == "time" else "part"
    return Chart(
        "daily",
        f"Estimated reward {'on each day' if unit == 'day' else 'in each part of the test'}, by "
        "itself",
        _summary(report, labels[best], f"{unit}s", rates),
        (Panel(axis, Axis("estimated reward", percent=rates), (*quiet, *points)),),
        _table(report),
        f"Bars: where the true value of that {unit} may lie ({percent(report.level)})."
        f"{hollow_note(few, axis)}",
        f"Bars are {percent(report.level)} intervals. In {percent(report.level)} of all tests "
        f"those of all variants and {unit}s contain the true values, if you look once. A {unit} "
        f"has few visits, so estimates differ from {unit} to {unit} by chance alone, too.",
    )


def _summary(report: DriftReport, label: str, unit: str, rates: bool) -> str:
    best = report.names.index(report.best)
    ahead = sum(leader == report.best for leader in report.leaders)
    values = report.estimates[:, best]
    seen = values[np.isfinite(values)]
    span = ""
    if seen.size:
        span = f" between {amount(seen.min(), rates)} and {amount(seen.max(), rates)}"
    return (
        f"{shown(label, 60)}, the best over the whole test, was ahead in {ahead:,} of "
        f"{len(report.periods):,} {unit}; its estimates lie{span or ' nowhere yet'}."
    )


def _table(report: DriftReport) -> Table:
    return Table.grid(
        {"period": report.periods, "visits": report.rounds},
        {"variant": report.names},
        {
            "estimate": report.estimates,
            "standard error": report.errors,
            "low": report.intervals[:, :, 0],
            "high": report.intervals[:, :, 1],
        },
    )


# Did the lead move, and did all variants move together?


RIVALS = 4


def drift(report: DriftReport, rates: bool = False) -> Chart:
    """The lead of the best over its strongest rivals, and the level common to all, by period.

    rates : whether rewards are yes or no, so that their means are shown in per cent
    """
    x, axis = period_axis(report)
    best, *rest = rivals(report, RIVALS + 1)
    tint, few, labels = colours((best, *rest)), few_visits(report), labels_of(report.names)
    known = np.isfinite(report.errors) & np.isfinite(report.gap_errors)  # else too little data
    errors = np.where(known, report.gap_errors, np.inf)
    reach = scipy.stats.norm.isf((1 - report.level) / 2) * errors
    leads = tuple(
        Series(
            f"ahead of {labels[k]}",
            x,
            report.gaps[:, k],
            report.gaps[:, k] - reach[:, k],
            report.gaps[:, k] + reach[:, k],
            kind="points",
            color=tint[k],
            weak=few,
        )
        for k in rest
    )
    common = Series(
        "average of all variants", x, report.averages, kind="points", color=tint[best], weak=few
    )
    title = f"Lead of {shown(labels[best], 36)}"
    return Chart(
        "drift",
        "Did the lead change over time?",
        _drift_summary(report, labels[best]),
        (
            Panel(axis, difference_axis("" if rates else "lead", rates), leads, title, level=0.0),
            Panel(
                axis,
                Axis("average reward", percent=rates),
                (common,),
                "Level common to all variants",
            ),
        ),
        _drift_table(report, reach),
        f"Below zero the rival was ahead. A common shift is harmless: every variant gains or loses "
        f"alike.{hollow_note(few, axis)}",
        _drift_meaning(report),
    )


def _drift_meaning(report: DriftReport) -> str:
    bars = f"Bars are {percent(report.level)} intervals, each by itself."
    if len(report.periods) < 2:
        return bars
    return (
        f"{bars} Periods differ by chance alone, too. The p-value is the probability of at least "
        f"so much difference if nothing changes: {p_value(report.gap_p_value)} for the leads, "
        f"{p_value(report.level_p_value)} for the common level. Below {1 - report.level:.2g} it "
        "counts as a change."
    )


def _drift_summary(report: DriftReport, label: str) -> str:
    if len(report.periods) < 2:
        return "There is one period only, so nothing can be said about drift."
    gaps = "changed" if report.gaps_move else "were not seen to change"
    level = "moved" if report.level_moves else "was not seen to move"
    behind = sum(leader != report.best for leader in report.leaders)
    return (
        f"Differences between variants {gaps} over time; the level common to all {level}. "
        f"{shown(label, 60)}, the best on average, was behind in {behind:,} of "
        f"{len(report.periods):,} periods."
    )


def _drift_table(
    report: DriftReport, reach: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
) -> Table:
    rest = [k for k, name in enumerate(report.names) if name != report.best]
    return Table.grid(
        {
            "period": report.periods,
            "visits": report.rounds,
            "best variant": [report.best] * len(report.periods),
        },
        {"rival": [report.names[k] for k in rest]},
        {
            "lead": report.gaps[:, rest],
            "low": (report.gaps - reach)[:, rest],
            "high": (report.gaps + reach)[:, rest],
            "average of all variants": report.averages[:, None],
        },
    )


# How many rewards have come, and how long they took.


NEWEST = 2  # days that count as new
UNITS = (("days", 24.0), ("hours", 1.0), ("minutes", 1 / 60), ("seconds", 1 / 3600))
SHORT = 0.1 / 3600  # hours below which no number is worth reading


def waiting(waiting: Waiting) -> Chart:
    """Rewards by the day on which their variants were assigned."""
    x = tuple(datetime.combine(day, time()) for day in waiting.days)
    clock = Axis("day of the visit (UTC)", "time")
    counts = [
        Series("assigned", x, waiting.assigned.astype(float), kind="bars", color=None),
        Series("reward came", x, waiting.rewarded.astype(float), kind="bars", color=0),
    ]
    if waiting.late.any():
        late = waiting.late.astype(float)
        counts.append(Series("came too late", x, late, kind="points", color=1))
    unit, size = _unit(float(np.nanmax(waiting.hours, initial=0.0)))
    times = waiting.hours / size
    until = Series(f"mean {unit} until the reward", x, times, kind="points", color=0)
    ends = 0.0, 1.1 * float(np.nanmax(times, initial=0.0)) or 1.0
    return Chart(
        "waiting",
        "Have the rewards come?",
        _waiting_summary(waiting),
        (
            Panel(clock, Axis("visits"), tuple(counts), "Assigned, and rewards that came"),
            Panel(clock, Axis(unit), (until,), f"Mean {unit} until the reward", y_range=ends),
        ),
        _waiting_table(waiting),
        _note(waiting),
    )


def _note(waiting: Waiting) -> str:
    missing = waiting.assigned - waiting.rewarded - waiting.late
    if not (missing[-NEWEST:] > 0).any():
        return ""
    return "The newest days may seem worse than they are: some of their rewards may still come."


def _unit(hours: float) -> tuple[str, float]:
    """A unit for times up to so many hours, and how many hours it has."""
    if not hours:
        return "hours", 1.0
    found = [(unit, size) for unit, size in UNITS if hours >= 2 * size]
    return found[0] if found else UNITS[-1]


def _lasting(hours: float) -> str:
    """A time in words.

    Examples
    --------
    >>> _lasting(4.225), _lasting(0.05), _lasting(100.0), _lasting(2e-6)
    ('4.225 hours', '3 minutes', '4.167 days', 'less than 0.1 seconds')
    """
    if hours < SHORT:
        return "less than 0.1 seconds"
    unit, size = _unit(hours)
    text = number(hours / size)
    return f"{text} {unit.removesuffix('s') if text == '1' else unit}"


def _waiting_summary(waiting: Waiting) -> str:
    counts = waiting.assigned, waiting.rewarded, waiting.late
    assigned, came, late = (int(values.sum()) for values in counts)
    share = percent(came / assigned) if assigned else "none"
    seen = np.isfinite(waiting.hours) & (waiting.rewarded > 0)
    slow = ""
    if seen.any():
        mean = np.average(waiting.hours[seen], weights=waiting.rewarded[seen])
        slow = f" A reward took {_lasting(float(mean))} on average."
    refused = f" {counted(late, 'reward')} came too late." if late else ""
    return (
        f"Rewards have come for {came:,} of {counted(assigned, 'visit')} ({share}) on "
        f"{counted(len(waiting.days), 'day')}.{slow}{refused}"
    )


def _waiting_table(waiting: Waiting) -> Table:
    return Table.of(
        {
            "day": [day.isoformat() for day in waiting.days],
            "assigned": waiting.assigned,
            "reward came": waiting.rewarded,
            "came too late": waiting.late,
            "mean hours until the reward": waiting.hours,
        }
    )
