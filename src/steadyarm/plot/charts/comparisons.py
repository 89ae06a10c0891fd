"""Charts that compare: the variants of a test, the policies of a plan or of simulations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from steadyarm.errors import InvalidInputError
from steadyarm.live.verdict import Verdict
from steadyarm.planning.answer import Curve, Plan, Point
from steadyarm.planning.question import Question
from steadyarm.plot.chart import Axis, Chart, Mark, Panel, Series, Table
from steadyarm.plot.charts.common import shown, split
from steadyarm.segments import Direction
from steadyarm.simulation import Results
from steadyarm.wording import counted, labels_of, number, percent

# The variants from best to worst, with what is known of each.


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
    low, high = verdict.intervals[order].T
    gap_low, gap_high = verdict.gap_intervals[order].T
    return Table.of(
        {
            "rank": range(1, len(order) + 1),
            "variant": [names[k] for k in order],
            "estimate": verdict.estimates[order],
            "standard error": verdict.standard_errors[order],
            "low": low,
            "high": high,
            "behind by": verdict.gaps[order],
            "behind by, low": gap_low,
            "behind by, high": gap_high,
            "not ruled out": [names[k] in verdict.plausible for k in order],
        }
    )


# How often each policy would be wrong, against the number of visits.


def plan(plan: Plan) -> Chart:
    """Error against budget for each policy, if nothing moves and with the rhythm, if there is one.

    The lead of the best variant over the days of the test shows what the rhythm does.
    """
    panels = [_plan_panel(plan, "If nothing moves", moving=False)]
    if plan.moving:
        panels += [_plan_panel(plan, "With this rhythm", moving=True), _lead_panel(plan)]
    trusting = any(not line.robust for line in plan.lines)
    star = "* trusts that nothing moves. " if trusting else ""
    strip = any(s.y.size and (s.y == 0).any() for panel in panels[:2] for s in panel.series)
    zero = " The grey strip at the bottom stands for no wrong verdict at all." if strip else ""
    return Chart(
        "plan",
        _plan_title(plan),
        _plan_summary(plan),
        tuple(panels),
        _plan_table(plan),
        f"{star}Bars: exact 95 % intervals from simulated tests.{zero}",
    )


def _plan_title(plan: Plan) -> str:
    if plan.choice is None:
        most = counted(plan.most_days, "day")
        return f"No robust policy errs in only {percent(plan.error)} within {most}"
    return (
        f"{plan.choice.label}: {plan.budget:,} visits in {counted(plan.days or 0, 'day')} for "
        f"about {percent(plan.error)} wrong verdicts"
    )


def _plan_panel(plan: Plan, title: str, moving: bool) -> Panel:
    series = []
    for i, line in enumerate(plan.lines):
        points = _points(line.asked if moving else line.calm)
        low, high = np.array([point.interval() for point in points]).T
        rates = np.array([point.rate for point in points])
        budgets = tuple(float(point.budget) for point in points)
        series.append(Series(line.name, budgets, rates, low, high, kind="points", color=i))
    if not moving and plan.theory.floor:
        floor = np.array(plan.theory.floor, float)
        seen = np.where(floor >= max(plan.error / 30, 1e-6), floor, np.nan)
        budgets = tuple(map(float, plan.budgets))
        series.append(Series("oracle that knows all means", budgets, seen, color=None))
    marks: tuple[Mark, ...] = ()
    if plan.choice is not None:
        need = (plan.choice.asked if moving else plan.choice.calm).need
        if need.budget is not None:
            marks = (Mark(float(need.budget), f"{plan.choice.label}: {need.budget:,}"),)
    visits, wrong = Axis("visits", "log"), Axis("wrong verdicts", "log", percent=True)
    return Panel(visits, wrong, tuple(series), title, marks, level=plan.error, height=1.2)


def _lead_panel(plan: Plan) -> Panel:
    """The lead as a multiple of its average, at both ends of every piece of the chosen test."""
    question = Question.from_settings(plan.question)
    budget = plan.budget or plan.most_rounds
    days = question.rhythm.days(budget, question.traffic_per_day)
    pieces = question.rhythm.pieces(budget, days)
    ends = pieces.ends / budget * days
    x = np.column_stack([np.append(0.0, ends[:-1]), ends]).ravel()
    lead = Series("lead of the best variant", tuple(x.tolist()), np.repeat(pieces.swing, 2))
    title = "Lead of the best variant during the test (1 on average)"
    axis = Axis("day of the test")
    low, high = min(0.0, 1.15 * pieces.swing.min()), 1.15 * pieces.swing.max()
    return Panel(
        axis, Axis("lead"), (lead,), title, level=0.0, y_range=(float(low), float(high)), height=0.5
    )


def _points(curve: Curve) -> list[Point]:
    """By rising budget; where the need was checked, that check of more tests than the others."""
    check = curve.need.check
    points = [point for point in curve.points if point.budget != check.budget]
    return sorted([*points, check], key=lambda point: point.budget)


def _plan_summary(plan: Plan) -> str:
    if plan.choice is None:
        return f"{_plan_title(plan)}."
    check = plan.choice.asked.need.check
    low, high = check.interval()
    return (
        f"{plan.choice.label} needs {plan.budget:,} visits in {counted(plan.days or 0, 'day')} for "
        f"about {percent(plan.error)} wrong verdicts; in simulated tests {percent(check.rate)} "
        f"were wrong (95 % interval {percent(low)} to {percent(high)})."
    )


def _plan_table(plan: Plan) -> Table:
    header = (
        "world", "policy", "stays unbiased", "visits", "wrong", "simulated tests", "share wrong",
        "low", "high", "enough",
    )  # fmt: skip  # a table reads better so
    rows = []
    for world, moving in (("nothing moves", False), ("with this rhythm", True)):
        for line in plan.lines:
            if (curve := line.moving if moving else line.calm) is None:
                continue
            for point in _points(curve):
                counts = point.budget, point.errors, point.trials, point.rate, *point.interval()
                enough = curve.need.budget is not None and point.budget >= curve.need.budget
                rows.append((world, line.label, line.robust, *counts, enough))
    return Table(header, tuple(rows))


# How often each policy was wrong in the same simulated world.


def results(found: Sequence[Results], title: str = "") -> Chart:
    """Error probability of each policy with its exact 95 % interval, in the order given.

    Examples
    --------
    >>> import steadyarm as sa
    >>> world = sa.Environment.from_parameters(
    ...     sa.ArmSet.one_hot(["A", "B", "C"]), [0.3, 0.2, 0.0], budget=300
    ... )
    >>> chart = results([sa.simulate(policy, world) for policy in (sa.Steady(), sa.Uniform())])
    >>> chart.table.header[:3]
    ('policy', 'wrong', 'simulated tests')
    """
    if not found or not all(isinstance(one, Results) for one in found):
        raise InvalidInputError(
            f"results is {found!r}; give a list of what sa.simulate() returned, at least one."
        )
    low, high = np.array([one.interval() for one in found]).T
    names = tuple(f"{one.policy}: {percent(one.error_rate)}" for one in found)
    rates = np.array([one.error_rate for one in found])
    series = Series("wrong verdicts", names, rates, low, high, kind="points")
    trials = sorted({one.trials for one in found})
    often = f"{trials[0]:,}" if len(trials) == 1 else f"{trials[0]:,} to {trials[-1]:,}"
    wrong, ends = Axis("wrong verdicts", percent=True), (-0.02 * high.max(), 1.04 * high.max())
    table = {
        "policy": [one.policy for one in found],
        "wrong": [one.errors for one in found],
        "simulated tests": [one.trials for one in found],
        "share wrong": rates,
        "low": low,
        "high": high,
    }
    return Chart(
        "results",
        title or "How often each policy was wrong",
        _results_summary(found),
        (Panel(Axis("", "label"), wrong, (series,), sideways=True, y_range=ends),),
        Table.of(table),
        f"{often} simulated tests of each policy. Lines: exact 95 % intervals.",
    )


def _results_summary(found: Sequence[Results]) -> str:
    best, worst = (pick(found, key=lambda one: one.error_rate) for pick in (min, max))
    return (
        f"Of {counted(len(found), 'policy', 'policies')} {best.policy} was wrong least often "
        f"({percent(best.error_rate)} of {best.trials:,} tests), {worst.policy} most often "
        f"({percent(worst.error_rate)} of {worst.trials:,})."
    )
