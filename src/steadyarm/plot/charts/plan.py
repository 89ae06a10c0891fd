"""How often each policy would be wrong, against the number of visits."""

from __future__ import annotations

import numpy as np

from steadyarm.planning.answer import Curve, Plan, Point
from steadyarm.plot.chart import Axis, Chart, Mark, Panel, Series, Table
from steadyarm.plot.charts.picks import MOST
from steadyarm.wording import percent

__all__ = ["plan"]


def plan(plan: Plan) -> Chart:
    """Error against budget for each policy: if nothing moves, and with the rhythm if there is."""
    calm = _panel(plan, "If nothing moves", moving=False)
    panels: tuple[Panel, ...] = (calm,)
    if plan.lines[0].moving is not None:
        panels = (calm, _panel(plan, "With this rhythm", moving=True))
    trusting = any(not line.robust for line in plan.lines)
    star = "* trusts that nothing moves. " if trusting else ""
    return Chart(
        "plan",
        "Wrong verdicts against the number of visits",
        _summary(plan),
        panels,
        _table(plan),
        f"{star}Bars: exact 95 % intervals from simulated tests. Where not one verdict was wrong "
        "there is no point.",
    )


def _panel(plan: Plan, title: str, moving: bool) -> Panel:
    series = []
    for i, line in enumerate(plan.lines):
        points = _points(line.asked if moving else line.calm)
        rates = np.array([point.rate for point in points])
        ends = np.array([point.interval() for point in points])
        seen = rates > 0  # zero has no place on a logarithmic axis
        series.append(
            Series(
                line.label if line.robust else f"{line.label} *",
                tuple(float(point.budget) for point in points),
                np.where(seen, rates, np.nan),
                np.where(seen, ends[:, 0], np.nan),
                np.where(seen, ends[:, 1], np.nan),
                kind="points",
                color=i % MOST,
            )
        )
    if not moving and plan.theory.floor:
        floor = np.array(plan.theory.floor, float)
        low = max(plan.error / 30, 1e-6)
        series.append(
            Series(
                "oracle that knows all means",
                tuple(float(budget) for budget in plan.budgets),
                np.where(floor >= low, floor, np.nan),
                color=None,
            )
        )
    marks: tuple[Mark, ...] = ()
    need = None if plan.choice is None else (plan.choice.asked if moving else plan.choice.calm).need
    if need is not None and need.budget is not None and plan.choice is not None:
        marks = (Mark(float(need.budget), f"{plan.choice.label}: {need.budget:,}"),)
    return Panel(
        Axis("visits", "log"),
        Axis("wrong verdicts", "log", percent=True),
        tuple(series),
        title,
        marks,
        level=plan.error,
    )


def _points(curve: Curve) -> list[Point]:
    """By rising budget; where the need was checked, that check of more tests than the others."""
    check = curve.need.check
    points = [point for point in curve.points if point.budget != check.budget]
    return sorted([*points, check], key=lambda point: point.budget)


def _summary(plan: Plan) -> str:
    if plan.choice is None:
        return (
            f"No robust policy errs in only {percent(plan.error)} of the tests within "
            f"{plan.most_days} days."
        )
    check = plan.choice.asked.need.check
    low, high = check.interval()
    return (
        f"{plan.choice.label} needs {plan.budget:,} visits in {plan.days} days for about "
        f"{percent(plan.error)} wrong verdicts; in simulated tests {percent(check.rate)} were "
        f"wrong (95 % interval {percent(low)} to {percent(high)})."
    )


def _table(plan: Plan) -> Table:
    header = (
        "world", "policy", "stays unbiased", "visits", "wrong", "simulated tests", "share wrong",
        "low", "high", "enough",
    )  # fmt: skip  # a table reads better so
    rows = []
    for world, moving in (("nothing moves", False), ("with this rhythm", True)):
        for line in plan.lines:
            curve = line.moving if moving else line.calm
            if curve is None:
                continue
            for point in _points(curve):
                need = curve.need.budget
                rows.append(
                    (
                        world,
                        line.label,
                        line.robust,
                        point.budget,
                        point.errors,
                        point.trials,
                        point.rate,
                        *point.interval(),
                        need is not None and point.budget >= need,
                    )
                )
    return Table(header, tuple(rows))
