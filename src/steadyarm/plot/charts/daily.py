"""Estimates of each day or period by itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from steadyarm.factors import labels_of
from steadyarm.inference import DriftReport
from steadyarm.plot.chart import Axis, Chart, Panel, Series, Table
from steadyarm.plot.charts.periods import few_visits, hollow_note, period_axis, rivals
from steadyarm.plot.charts.picks import MOST, colours, others, wanted
from steadyarm.plot.charts.words import known, shown
from steadyarm.wording import counted, number, percent

__all__ = ["daily"]

FEW, BARS = 4, 3  # variants that all have error bars; else how many of them do


def daily(report: DriftReport, picked: Sequence[int] | None = None) -> Chart:
    """What each period said on its own; `picked` are drawn in colour."""
    K = len(report.names)
    chosen = wanted(picked, rivals(report, MOST))
    tint, best = colours(chosen), report.names.index(report.best)
    barred = {best, *chosen[: len(chosen) if len(chosen) <= FEW else BARS]}
    x, axis = period_axis(report)
    few, labels = few_visits(report), labels_of(report.names)
    left = [k for k in range(K) if k not in tint]
    quiet = others(x, report.estimates, left, counted(len(left), "other"), few)
    points = [
        Series(
            labels[k],
            x,
            report.estimates[:, k],
            report.intervals[:, k, 0] if k in barred else None,
            report.intervals[:, k, 1] if k in barred else None,
            kind="points",
            color=tint[k],
            weak=few,
        )
        for k in sorted(tint)
    ]
    days = axis.kind == "time"
    return Chart(
        "daily",
        f"Estimated reward {'on each day' if days else 'in each part of the test'}, by itself",
        _summary(report, labels[best], "days" if days else "parts"),
        (Panel(axis, Axis("estimated reward"), (*quiet, *points)),),
        _table(report),
        f"Bars: {percent(report.level)} intervals that hold for all variants and "
        f"{'days' if days else 'parts'} at once.{hollow_note(few, axis)}",
    )


def _summary(report: DriftReport, label: str, unit: str) -> str:
    best = report.names.index(report.best)
    ahead = sum(leader == report.best for leader in report.leaders)
    values = report.estimates[:, best]
    seen = values[np.isfinite(values)]
    span = f" between {number(seen.min())} and {number(seen.max())}" if seen.size else ""
    return (
        f"{shown(label, 60)}, the best over the whole test, was ahead in {ahead:,} of "
        f"{len(report.periods):,} {unit}; its estimates lie{span or ' nowhere yet'}."
    )


def _table(report: DriftReport) -> Table:
    header = ("period", "visits", "variant", "estimate", "standard error", "low", "high")
    rows = tuple(
        (
            period,
            int(report.rounds[p]),
            name,
            known(report.estimates[p, k]),
            known(report.errors[p, k]),
            known(report.intervals[p, k, 0]),
            known(report.intervals[p, k, 1]),
        )
        for p, period in enumerate(report.periods)
        for k, name in enumerate(report.names)
    )
    return Table(header, rows)
