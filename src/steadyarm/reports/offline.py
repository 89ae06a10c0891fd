"""The reports on a log and on a plan, and the table of periods that live tests share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from steadyarm.analysis import Analysis
from steadyarm.inference import DriftReport
from steadyarm.live.estimates import lift_text
from steadyarm.planning.answer import Plan, Table, budget_tables, need_tables
from steadyarm.plot import sweeps
from steadyarm.plot.sources import chart_for
from steadyarm.plot.standings import lifts
from steadyarm.reports.render import plus_minus, render
from steadyarm.wording import counted, number, reach, toml_of

MOST_PERIODS = 31
MOST_COLUMNS = 6  # variants beside each other, as many as fit on paper
LONG = 16  # letters of a name from which on half as many fit


def analysis_report(analysis: Analysis, command: str = "") -> str:
    """The report on what `analyze` found, as a page.

    Parameters
    ----------
    analysis : the result of `sa.analyze`
    command : the command, to show in the report

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
    names = analysis.intervals.arms.names
    order = [names[k] for k in _order(analysis)]
    drawn = (
        "The logged probabilities are those with which variants were drawn, given all that was "
        "known then."
        if analysis.split is None
        else "Variants were drawn at random with the shares that were given."
    )
    return render(
        "analysis.html",
        title="What the log says",
        found=analysis,
        command=command,
        leaderboard=chart_for("leaderboard", analysis),
        own=_part(analysis),
        further=[
            (
                name,
                f"{one.notes[0]} {one.summary} {one.size[:1].upper()}{one.size[1:]}.",
                _part(one),
            )
            for name, one in analysis.further.items()
        ],
        drift_chart=chart_for("drift", analysis) if len(analysis.drift.periods) > 1 else None,
        periods=periods_of(analysis.drift, order, "rewards"),
        assumptions=(
            drawn,
            analysis.intervals.assumption,
            f"Variance: {analysis.intervals.method}; of periods: {analysis.drift.method}.",
            *analysis.notes,
        ),
    )


def _order(analysis: Analysis) -> list[int]:
    """Variants from the best to the worst; unknown ones come last."""
    sign = 1 if analysis.evidence.direction == "maximize" else -1
    return [int(k) for k in np.argsort(-sign * analysis.estimates, kind="stable")]


def _part(analysis: Analysis) -> dict[str, Any]:
    """The tables of one metric: estimates, and differences from the control."""
    i, shown, verdict, order = (
        analysis.intervals,
        analysis.shown,
        analysis.verdict,
        _order(analysis),
    )
    rows = []
    for k in order:
        best = k == i.recommended[0]
        rows.append(
            (
                i.arms.names[k],
                f"{analysis.counts[shown[k]]:,}",
                number(i.estimates[0, k]),
                reach(i.low[0, k], i.high[0, k]),
                "" if best else number(i.gaps[0, k]),
                "" if best else reach(i.gap_low[0, k], i.gap_high[0, k]),
                "yes" if i.plausible[0, k] else "no",
                number(analysis.means[shown[k]]),
            )
        )
    part: dict[str, Any] = {"level": i.level, "estimates": rows, "lifts": []}
    if verdict.control is not None:
        part["chart"] = lifts(verdict, analysis.evidence.direction)
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


# The report on a plan

ACROSS = 5  # policies beside each other, as many as fit on paper


def plan_report(plan: Plan, command: str = "") -> str:
    """The report on a plan, as a page.

    Parameters
    ----------
    plan : the result of `sa.plan`
    command : the command, to show in the report

    Returns
    -------
    str : HTML, for `write_report`

    Examples
    --------
    >>> import steadyarm as sa
    >>> plan = sa.plan({
    ...     "traffic_per_day": 200,
    ...     "arms": {"one_hot": ["A", "B"]},
    ...     "effects": {"smallest_gap": 0.5},
    ...     "rewards": {"sd": 1.0},
    ...     "policies": ["a/b-test"],
    ... }, trials=300)
    >>> "<h1>How long the test must be</h1>" in plan_report(plan)
    True
    """
    _, *reasons = plan.verdict.split("\n", 1)
    kinds = (False, True) if plan.question.clear else (False,)
    return render(
        "plan.html",
        title="How long the test must be",
        plan=plan,
        command=command,
        reasons=[text.replace("\n", " ") for text in reasons],
        needs=need_tables(plan),
        charts=[sweeps.plan(plan, clear) for clear in kinds],
        budgets=[turned for table in budget_tables(plan) for turned in _turn(table)],
        assumptions=_assumptions(plan),
        question=toml_of(_known(plan.question.to_dict())).strip(),
    )


def _turn(table: Table) -> Iterator[Table]:
    """Budgets below each other, policies beside each other, in as many tables as needed."""
    visits, *budgets = table.header
    for first in range(0, len(table.rows), ACROSS):
        names, *cells = zip(*table.rows[first : first + ACROSS], strict=True)
        rows = [(budget, *row) for budget, row in zip(budgets, cells, strict=True)]
        yield Table(table.caption, (visits, *names), rows)


def _assumptions(plan: Plan) -> tuple[str, ...]:
    trials = [point.wrong.trials for line in plan.lines for point in line.points]
    few, most = f"{min(trials):,}", f"{max(trials):,}"
    simulated = few if few == most else f"{few} to {most}"
    world = (
        "The world moves as the rhythm of the question says; another rhythm needs other budgets."
        if plan.question.rhythm.moves
        else "Nothing moves during the test. Give the question a rhythm to see what drift does."
    )
    return (
        "Effects, noise and traffic are those of the question; a smaller effect needs more visits.",
        world,
        f"Errors are counted in {simulated} simulated tests for each policy and budget; intervals "
        "are exact (Clopper and Pearson) and hold for each number by itself.",
        "A pick is wrong if it names a variant that is not the best on average over the test.",
        "Answers are judged as the verdict of a live test is.",
        f"Seed {plan.seed}; budgets up to {plan.question.most_rounds:,} visits in "
        f"{counted(plan.question.most_days, 'day')} were tried.",
    )


def _known(value: Any) -> Any:
    """The settings without those that are None, as usual ones of policies are."""
    if isinstance(value, Mapping):
        return {key: _known(entry) for key, entry in value.items() if entry is not None}
    return list(map(_known, value)) if isinstance(value, (list, tuple)) else value
