"""Charts that compare: levels of factors, items of bundles, policies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from steadyarm.errors import InvalidInputError
from steadyarm.live.scorecard import Effect, Effects, Interaction
from steadyarm.planning.answer import Answers, Clear, Curve, Plan, Point
from steadyarm.planning.question import Question
from steadyarm.plot.chart import Axis, Chart, Mark, Panel, Series, Table
from steadyarm.plot.charts.common import MOST, difference_axis, shown, split
from steadyarm.simulation import Results
from steadyarm.wording import (
    counted,
    difference,
    difference_reach,
    p_value,
    percent,
)

# What each item brings to the bundles it is in.


ITEMS = 40


def items(effects: Effects, rates: bool = False) -> Chart:
    """Items from the best to the worst; those of the recommended bundle are picked out."""
    main, chosen = effects.main, effects.chosen
    far = np.argsort([-abs(effect.difference) for effect in main], kind="stable")  # nan come last
    drawn = tuple(main[i] for i in sorted(far[:ITEMS].tolist()))
    cut = ""
    if len(drawn) < len(main):
        cut = f"Drawn are the {len(drawn)} of {len(main):,} items farthest from zero. "
    return Chart(
        "items",
        "What each item brings, on average over all bundles",
        _items_summary(effects, rates),
        (_items_panel(drawn, frozenset(chosen), rates),),
        Table.of(
            {"item": [effect.level for effect in main]}
            | _columns(effects, "mean with it", "difference from without it")
            | {"recommended": [e.level in chosen if chosen else None for e in main]}
        ),
        f"{cut}Zero: bundles with the item are as good as bundles without it, on average.",
        f"Lines are {percent(effects.level)} intervals. In {percent(effects.level)} of all tests "
        "those of all items contain the true differences, if you look once.",
    )


def _items_panel(drawn: tuple[Effect, ...], chosen: frozenset[str], rates: bool) -> Panel:
    names = tuple(effect.level for effect in drawn)
    inside = np.array([name in chosen for name in names])
    parts: dict[str, tuple[NDArray[np.bool_], int | None]] = {"item": (~inside, 0)}
    if chosen:
        parts = {"in the recommended bundle": (inside, 0), "not in it": (~inside, None)}
    more = difference_axis("reward with the item, minus reward without it", rates)
    series = split(_differences("", drawn, 0), parts)
    return Panel(Axis("", "label"), more, series, level=0.0, sideways=True)


def _differences(name: str, found: Sequence[Effect], color: int) -> Series:
    values = np.array([(effect.difference, effect.low, effect.high) for effect in found], float)
    levels, (y, low, high) = tuple(effect.level for effect in found), values.T
    return Series(name, levels, y, low, high, kind="points", color=color)


def _items_summary(effects: Effects, rates: bool) -> str:
    best = effects.main[0]
    if not np.isfinite(best.difference):
        return "Nothing is known of the items yet."
    clear = sum(effect.low > 0 or effect.high < 0 for effect in effects.main)
    return (
        f"The best item is {shown(best.level, 60)}: it changes the reward of a bundle by "
        f"{difference(best.difference, rates)} on average (interval "
        f"{difference_reach(best.low, best.high, rates)}). {clear:,} of {len(effects.main):,} "
        "items clearly raise or lower it."
    )


def _columns(effects: Effects, mean: str, difference: str) -> dict[str, list[Any]]:
    """What is known of each level or item, as columns of these names."""
    main = effects.main
    return {
        mean: [effect.mean for effect in main],
        difference: [effect.difference for effect in main],
        "low": [effect.low for effect in main],
        "high": [effect.high for effect in main],
    }


def effects(effects: Effects, rates: bool = False) -> Chart:
    """Main effects: one panel per factor, the distance of each level from their average.

    Of bundles one panel: items from the best to the worst.

    rates : whether rewards are yes or no, so that their means are shown in per cent
    """
    if effects.kind == "items":
        return items(effects, rates)
    return Chart(
        "effects",
        "What each level adds, on average over all others",
        _effects_summary(effects, rates),
        tuple(
            _effects_panel(effects, factor, i, rates) for i, factor in enumerate(effects.factors)
        ),
        Table.of(
            {
                "factor": [effect.factor for effect in effects.main],
                "level": [effect.level for effect in effects.main],
            }
            | _columns(effects, "mean", "difference from average")
        ),
        "Zero is the average over the factor's levels.",
        f"Lines are {percent(effects.level)} intervals. In {percent(effects.level)} of all tests "
        "those of all levels contain the true differences, if you look once.",
    )


def _effects_panel(effects: Effects, factor: str, color: int, rates: bool) -> Panel:
    found = [effect for effect in effects.main if effect.factor == factor]
    axis = difference_axis("difference from average", rates)
    series = _differences(factor, found, color)
    title = shown(factor)
    return Panel(Axis("", "label"), axis, (series,), title, level=0.0, sideways=True)


def _effects_summary(effects: Effects, rates: bool) -> str:
    known_ones = [effect for effect in effects.main if np.isfinite(effect.difference)]
    if not known_ones:
        return "Nothing is known of the factors yet."
    top = max(known_ones, key=lambda effect: abs(effect.difference))
    clear = sum(effect.low > 0 or effect.high < 0 for effect in effects.main)
    return (
        f"The largest effect is {shown(top.factor, 60)}: {shown(top.level, 60)}, which changes the "
        f"reward by {difference(top.difference, rates)} from the average (interval "
        f"{difference_reach(top.low, top.high, rates)}). {clear:,} of {len(effects.main):,} levels "
        "differ clearly from the average of their factor."
    )


# Does the effect of one factor depend on another?


PANELS = 4


def interactions(effects: Effects, rates: bool = False) -> Chart:
    """Mean rewards of the clearest pairs of factors; lines that are not parallel interact.

    rates : whether rewards are yes or no, so that their means are shown in per cent
    """
    if effects.kind == "items":
        raise InvalidInputError(
            "the test is of bundles; interactions are of the factors of ArmSet.factorial. What "
            "each item brings is drawn by effects."
        )
    if not effects.pairs:
        raise InvalidInputError(
            f"the test has {len(effects.factors)} factor(s) and no pair of them was measured; "
            "interactions need at least two factors."
        )
    seen = effects.pairs[:PANELS]
    keys = list(
        dict.fromkeys((pair.first, level) for pair in seen for level in effects.factors[pair.first])
    )
    color = {key: i % MOST for i, key in enumerate(keys)}
    more = len(effects.pairs) - len(seen)
    cut = f" The {len(seen)} clearest of {len(effects.pairs):,} pairs are drawn." if more else ""
    return Chart(
        "interactions",
        "Does the effect of one factor depend on another?",
        _interactions_summary(effects, rates),
        tuple(_interactions_panel(effects, pair, color, rates) for pair in seen),
        _interactions_table(effects),
        f"Parallel lines: the effect of one factor does not depend on the other.{cut}",
        f"Bars are {percent(effects.level)} intervals, each by itself. A pair is clear where lines "
        "so far from parallel come about by chance with a probability (p-value) below "
        f"{1 - effects.level:.2g}. Of many pairs some are clear by chance. The p-value of "
        f"{effects.pairs[0].first} and {effects.pairs[0].second} is "
        f"{p_value(effects.pairs[0].p_value)}; the table has those of all pairs.",
    )


def _interactions_panel(
    effects: Effects, pair: Interaction, color: dict[tuple[str, str], int], rates: bool
) -> Panel:
    reach = scipy.stats.norm.isf((1 - effects.level) / 2) * pair.errors
    x = tuple(effects.factors[pair.second])
    lines = tuple(
        Series(
            f"{pair.first}: {level}",
            x,
            pair.means[i],
            pair.means[i] - reach[i],
            pair.means[i] + reach[i],
            kind="points",
            color=color[pair.first, level],
        )
        for i, level in enumerate(effects.factors[pair.first])
    )
    clear = "clear" if pair.p_value < 1 - effects.level else "not clear"
    title = f"{shown(pair.first, 18)} and {shown(pair.second, 18)}: {clear}"
    reward = Axis("mean reward", percent=rates)
    return Panel(Axis(shown(pair.second), "label"), reward, lines, title)


def _interactions_summary(effects: Effects, rates: bool) -> str:
    top = effects.pairs[0]
    clear = sum(pair.p_value < 1 - effects.level for pair in effects.pairs)
    return (
        f"The clearest interaction is that of {shown(top.first, 60)} and {shown(top.second, 60)}: "
        f"together they depart by up to {difference(top.strength, rates)} from the sum of both "
        f"effects. {clear:,} of {len(effects.pairs):,} pairs are clear, each taken by itself."
    )


def _interactions_table(effects: Effects) -> Table:
    header = (
        "first factor", "its level", "second factor", "its level", "mean", "standard error",
        "strength of the pair", "p-value of the pair",
    )  # fmt: skip  # a table reads better so
    rows: list[tuple[Any, ...]] = []
    for pair in effects.pairs:
        first, second = effects.factors[pair.first], effects.factors[pair.second]
        cells = {"mean": pair.means, "error": pair.errors}
        both = {"strength": np.array(pair.strength), "p": np.array(pair.p_value)}
        own = Table.grid({"one": first}, {"two": second}, cells | both)
        rows += [(pair.first, one, pair.second, *others) for one, *others in own.rows]
    return Table(header, tuple(rows))


# How often each policy would be wrong, against the number of visits.


def plan(plan: Plan) -> Chart:
    """Error against budget for each policy, if nothing moves and with the rhythm, if there is one.

    Below, how often the answer is clear, in the world that was asked about. The lead of the best
    variant over the days of the test shows what the rhythm does.
    """
    panels = [_plan_panel(plan, "If nothing moves", moving=False)]
    if plan.moving:
        panels.append(_plan_panel(plan, "With this rhythm", moving=True))
    if plan.clear is not None:
        panels.append(_clear_panel(plan, plan.clear))
    if plan.moving:
        panels.append(_lead_panel(plan))
    trusting = any(not line.robust for line in plan.lines)
    star = "* trusts that nothing moves. " if trusting else ""
    strip = any(
        s.y.size and (s.y == 0).any()
        for panel in panels
        if panel.y.kind == "log"
        for s in panel.series
    )
    zero = " The grey strip at the bottom stands for no wrong pick at all." if strip else ""
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
        f"about {percent(plan.error)} wrong picks"
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
    visits, wrong = Axis("visits", "log"), Axis("wrong picks", "log", percent=True)
    return Panel(visits, wrong, tuple(series), title, marks, level=plan.error, height=1.2)


def _clear_panel(plan: Plan, wanted: float) -> Panel:
    """How often the answer is clear, against the budget."""
    series = []
    for i, line in enumerate(plan.lines):
        if line.clear is not None:
            points = _answers(line.clear)
            low, high = np.array([point.interval() for point in points]).T
            rates = np.array([point.rate for point in points])
            budgets = tuple(float(point.budget) for point in points)
            series.append(Series(line.name, budgets, rates, low, high, kind="points", color=i))
    marks: tuple[Mark, ...] = ()
    if plan.choice is not None and plan.clear_budget is not None:
        text = f"{plan.choice.label}: {plan.clear_budget:,}"
        marks = (Mark(float(plan.clear_budget), text),)
    title = "Clear answers" + (", with this rhythm" if plan.moving else "")
    clear = Axis("clear answers", percent=True)
    visits = Axis("visits", "log")
    return Panel(visits, clear, tuple(series), title, marks, level=wanted, y_range=(0.0, 1.0))


def _answers(found: Clear) -> list[Answers]:
    """By rising budget, each budget once, from as many tests as there were."""
    points = {point.budget: point for point in found.points}
    points |= {one.budget: one for one in (found.picked, found.check) if one is not None}
    return sorted(points.values(), key=lambda point: point.budget)


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
        f"about {percent(plan.error)} wrong picks; in simulated tests {percent(check.rate)} "
        f"were wrong (95 % interval {percent(low)} to {percent(high)})."
    ) + _clear_summary(plan)


def _clear_summary(plan: Plan) -> str:
    if plan.clear is None or plan.clear_budget is None:
        return ""
    days = counted(plan.clear_days or 0, "day")
    wanted = percent(plan.clear)
    return f" {wanted} clear answers take {plan.clear_budget:,} visits in {days}."


def _plan_table(plan: Plan) -> Table:
    header = (
        "world", "policy", "stays unbiased", "visits", "wrong", "simulated tests", "share wrong",
        "low", "high", "enough", "clear", "tests judged", "share clear", "mean visits",
    )  # fmt: skip  # a table reads better so
    rows = []
    for world, moving in (("nothing moves", False), ("with this rhythm", True)):
        for line in plan.lines:
            if (curve := line.moving if moving else line.calm) is None:
                continue
            points = {point.budget: point for point in _points(curve)}
            answers = {}
            if line.clear is not None and moving == plan.moving:
                answers = {one.budget: one for one in _answers(line.clear)}
            for budget in sorted(points.keys() | answers.keys()):
                point, one = points.get(budget), answers.get(budget)
                if point is None and one is not None:
                    point = Point(budget, one.errors, one.trials)
                assert point is not None
                counts = budget, point.errors, point.trials, point.rate, *point.interval()
                enough = curve.need.budget is not None and budget >= curve.need.budget
                clear = (
                    (None,) * 4 if one is None else (one.clear, one.trials, one.rate, one.visits)
                )
                rows.append((world, line.label, line.robust, *counts, enough, *clear))
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
    series = Series("wrong picks", names, rates, low, high, kind="points")
    trials = sorted({one.trials for one in found})
    often = f"{trials[0]:,}" if len(trials) == 1 else f"{trials[0]:,} to {trials[-1]:,}"
    wrong, ends = Axis("wrong picks", percent=True), (-0.02 * high.max(), 1.04 * high.max())
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
