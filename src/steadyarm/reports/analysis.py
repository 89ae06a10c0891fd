"""The report on a log, and the table of periods that reports on live tests share with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from steadyarm.analysis import Analysis
from steadyarm.inference import DriftReport
from steadyarm.live.estimates import lift_text
from steadyarm.plot.sources import chart_for
from steadyarm.plot.standings import lifts
from steadyarm.reports.render import plus_minus, render
from steadyarm.wording import number, reach

MOST_PERIODS = 31
MOST_COLUMNS = 6  # variants beside each other, as many as fit on paper
LONG = 16  # letters of a name from which on half as many fit


def analysis_report(found: Analysis, command: str = "") -> str:
    """The report on what `analyze` found, as a page.

    Parameters
    ----------
    found : what `sa.analyze` returned
    command : what was typed, to be shown

    Returns
    -------
    str : HTML, for `write_report`

    Examples
    --------
    >>> import pandas as pd
    >>> import steadyarm as sa
    >>> shown = ["A", "B"] * 1000
    >>> clicks = [int(i % 10 < (4 if name == "B" else 2)) for i, name in enumerate(shown)]
    >>> when = pd.date_range("2026-03-01", periods=2000, freq="5min")
    >>> log = pd.DataFrame({"timestamp": when, "unit": range(2000), "arm": shown, "reward": clicks})
    >>> "<h1>What the log says</h1>" in analysis_report(sa.analyze(log.assign(probability=0.5)))
    True
    """
    names = found.intervals.arms.names
    order = [names[k] for k in _order(found)]
    drawn = (
        "The logged probabilities are those with which variants were drawn, given all that was "
        "known then."
        if found.split is None
        else "Variants were drawn at random with the shares that were given."
    )
    return render(
        "analysis.html",
        title="What the log says",
        found=found,
        command=command,
        leaderboard=chart_for("leaderboard", found),
        own=_part(found),
        further=[
            (
                name,
                f"{one.notes[0]} {one.summary} {one.size[:1].upper()}{one.size[1:]}.",
                _part(one),
            )
            for name, one in found.further.items()
        ],
        drift_chart=chart_for("drift", found) if len(found.drift.periods) > 1 else None,
        periods=periods_of(found.drift, order, "rewards"),
        assumptions=(
            drawn,
            found.intervals.assumption,
            f"Variance: {found.intervals.method}; of periods: {found.drift.method}.",
            *found.notes,
        ),
    )


def _order(found: Analysis) -> list[int]:
    """Variants from the best to the worst; unknown ones come last."""
    sign = 1 if found.evidence.direction == "maximize" else -1
    return [int(k) for k in np.argsort(-sign * found.estimates, kind="stable")]


def _part(found: Analysis) -> dict[str, Any]:
    """The tables of one metric: estimates, and differences from the control."""
    i, shown, verdict, order = found.intervals, found.shown, found.verdict, _order(found)
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
    part: dict[str, Any] = {"level": i.level, "estimates": rows, "lifts": []}
    if verdict.control is not None:
        part["chart"] = lifts(verdict, found.evidence.direction)
        part["lifts"] = [
            (
                verdict.names[k],
                number(verdict.lifts[k]),
                reach(*verdict.lift_intervals[k].tolist()),
                lift_text(verdict, k),
            )
            for k in order
            if verdict.names[k] != verdict.control
        ]
    return part


@dataclass(frozen=True)
class Periods:
    """The table of estimates in every period; the last ones of very many."""

    header: tuple[str, ...]
    rows: list[tuple[str, ...]]
    total: int
    note: str


def periods_of(drift: DriftReport, order: Sequence[str], counted_as: str) -> Periods:
    """Estimates in every period, of the first variants of an order that the report knows."""
    known = [drift.names.index(name) for name in order if name in drift.names] or [0]
    wide = any(len(drift.names[k]) > LONG for k in known[:MOST_COLUMNS])
    shown = known[: MOST_COLUMNS // 2 if wide else MOST_COLUMNS]
    first = max(0, len(drift.periods) - MOST_PERIODS)
    rows = [
        (
            drift.periods[j],
            f"{drift.rounds[j]:,}",
            drift.leaders[j],
            *(plus_minus(drift.estimates[j, k], drift.errors[j, k]) for k in shown),
        )
        for j in range(first, len(drift.periods))
    ]
    total = len(drift.names) + drift.others
    best = f"Only the best {len(shown)} of {total:,} variants are shown. "
    last = f"The last {MOST_PERIODS} of {len(drift.periods):,} periods are shown."
    note = (best if len(shown) < total else "") + (last if first else "")
    header = ("period", counted_as, "ahead", *(drift.names[k] for k in shown))
    return Periods(header, rows, len(rows), note)
