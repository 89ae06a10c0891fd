"""What charts by day or period share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadyarm.inference import DriftReport
from steadyarm.plot.chart import Axis
from steadyarm.plot.charts.picks import nearest
from steadyarm.plot.charts.words import days_of

__all__ = ["few_visits", "hollow_note", "period_axis", "rivals"]

ENOUGH = 0.25  # share of the usual visits of a period from which on it sets the scale


def period_axis(report: DriftReport) -> tuple[tuple[Any, ...], Axis]:
    """The periods, as days if they are days."""
    days = days_of(report.periods)
    if days is not None:
        return days, Axis("day (UTC)", "time")
    return report.periods, Axis("share of the test", "label")


def rivals(report: DriftReport, most: int) -> list[int]:
    """The best variant over the whole test and those nearest to it."""
    weights = report.rounds / max(int(report.rounds.sum()), 1)
    behind = np.nan_to_num(report.gaps).T @ weights
    best = report.names.index(report.best)
    return nearest(behind, best, np.ones(len(report.names), bool), most)


def few_visits(report: DriftReport) -> NDArray[np.bool_]:
    """(P,) periods with far fewer visits than usual, such as a day that has just begun."""
    seen = report.rounds[report.rounds > 0]
    return np.asarray(report.rounds < ENOUGH * (np.median(seen) if seen.size else 0))


def hollow_note(few: NDArray[np.bool_], axis: Axis) -> str:
    """The small print about such periods, or nothing."""
    unit = "Days" if axis.kind == "time" else "Parts"
    return f" {unit} with few visits are hollow and do not set the scale." if few.any() else ""
