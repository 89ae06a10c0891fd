"""Did the lead move, and did all variants move together?"""

from __future__ import annotations

import numpy as np
import scipy

from steadyarm.factors import labels_of
from steadyarm.inference import DriftReport
from steadyarm.plot.chart import Axis, Chart, Panel, Series, Table
from steadyarm.plot.charts.periods import few_visits, hollow_note, period_axis, rivals
from steadyarm.plot.charts.picks import colours
from steadyarm.plot.charts.words import known, shown
from steadyarm.wording import percent

__all__ = ["drift"]

RIVALS = 4


def drift(report: DriftReport) -> Chart:
    """The lead of the best over its strongest rivals, and the level common to all, by period."""
    x, axis = period_axis(report)
    best, *rest = rivals(report, RIVALS + 1)
    tint, few, labels = colours((best, *rest)), few_visits(report), labels_of(report.names)
    reach = scipy.stats.norm.isf((1 - report.level) / 2) * _gap_errors(report)
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
        "average of all variants", x, _common(report), kind="points", color=tint[best], weak=few
    )
    title = f"Lead of {shown(labels[best], 36)}"
    return Chart(
        "drift",
        "Did the lead change over time?",
        _summary(report, labels[best]),
        (
            Panel(axis, Axis("lead"), leads, title, level=0.0),
            Panel(axis, Axis("average reward"), (common,), "Level common to all variants"),
        ),
        _table(report, reach),
        f"Bars: {percent(report.level)} intervals, each by itself. Below zero the rival was "
        "ahead. A common shift is harmless: every variant gains or loses alike."
        f"{hollow_note(few, axis)}",
    )


def _gap_errors(report: DriftReport) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Infinite where a period has too little to tell."""
    unknown = ~np.isfinite(report.errors) | ~np.isfinite(report.gap_errors)
    return np.where(unknown, np.inf, report.gap_errors)


def _common(report: DriftReport) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return report.averages


def _summary(report: DriftReport, label: str) -> str:
    if len(report.periods) < 2:
        return "There is one period only, so nothing can be said about drift."
    gaps = "changed" if report.gaps_move else "were not seen to change"
    level = "moved" if report.level_moves else "was not seen to move"
    behind = sum(leader != report.best for leader in report.leaders)
    return (
        f"Differences between variants {gaps} over time (p = {report.gap_p_value:.2g}); the level "
        f"common to all {level} (p = {report.level_p_value:.2g}). {shown(label, 60)}, the "
        f"best on average, was behind in {behind:,} of {len(report.periods):,} periods."
    )


def _table(report: DriftReport, reach: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Table:
    header = (
        "period", "visits", "best variant", "rival", "lead", "low", "high",
        "average of all variants",
    )  # fmt: skip  # a table reads better so
    common = _common(report)
    rows = tuple(
        (
            period,
            int(report.rounds[p]),
            report.best,
            name,
            known(report.gaps[p, k]),
            known(report.gaps[p, k] - reach[p, k]),
            known(report.gaps[p, k] + reach[p, k]),
            known(common[p]),
        )
        for p, period in enumerate(report.periods)
        for k, name in enumerate(report.names)
        if name != report.best
    )
    return Table(header, rows)
