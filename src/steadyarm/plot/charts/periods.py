"""What charts by day or period share."""

from __future__ import annotations

from typing import Any

import numpy as np

from steadyarm.inference import DriftReport
from steadyarm.plot.chart import Axis
from steadyarm.plot.charts.picks import nearest
from steadyarm.plot.charts.words import days_of

__all__ = ["period_axis", "rivals"]


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
