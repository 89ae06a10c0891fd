"""The report on a plan: the question, the answer, and what was simulated for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from steadyarm.planning.answer import Plan
from steadyarm.planning.text import both_cells, both_header, error_cell, need_cells
from steadyarm.plot import sweeps
from steadyarm.reports.render import render
from steadyarm.wording import counted, percent, toml_of

ACROSS = 5  # policies beside each other, as many as fit on paper
Table = tuple[str, tuple[str, ...], list[tuple[str, ...]]]  # caption, header, rows


def plan_report(plan: Plan, command: str = "") -> str:
    """The report on a plan, as a page.

    Parameters
    ----------
    plan : what `sa.plan` returned
    command : what was typed, to be shown

    Returns
    -------
    str : HTML, for `write_report`

    Examples
    --------
    >>> import steadyarm as sa
    >>> found = sa.plan({
    ...     "traffic_per_day": 200,
    ...     "arms": {"one_hot": ["A", "B"]},
    ...     "effects": {"smallest_gap": 0.5},
    ...     "rewards": {"sd": 1.0},
    ...     "policies": ["a/b-test"],
    ... }, trials=300)
    >>> "<h1>How long the test must be</h1>" in plan_report(found)
    True
    """
    answer, *reasons = plan.verdict.split("\n", 1)
    kinds = (False, True) if plan.clear else (False,)
    return render(
        "plan.html",
        title="How long the test must be",
        plan=plan,
        command=command,
        answer=answer,
        reasons=[text.replace("\n", " ") for text in reasons],
        needs=[*_both(plan), *(_needs(plan, moving) for moving in {False, plan.moving})],
        charts=[sweeps.plan(plan, clear) for clear in kinds],
        budgets=[table for clear in kinds for table in _by_budget(plan, clear)],
        assumptions=_assumptions(plan),
        question=toml_of(_known(plan.question)).strip(),
    )


def _needs(plan: Plan, moving: bool) -> Table:
    where = "With this rhythm" if moving else "If nothing moves"
    star = "" if all(line.robust for line in plan.lines) else " (* trusts that nothing moves)"
    return (
        f"{where}: visits and days for {percent(plan.error)} wrong picks or fewer{star}",
        ("policy", "visits", "95 % interval", "days", "wrong", "95 % interval of wrong"),
        [
            (line.name, *need_cells(plan, line.asked if moving else line.calm))
            for line in plan.lines
        ],
    )


def _both(plan: Plan) -> Iterator[Table]:
    if plan.clear is None:
        return
    where = "With this rhythm" if plan.moving else "If nothing moves"
    header, rows = both_header(plan), [(line.name, *both_cells(plan, line)) for line in plan.lines]
    kept = len(header) if plan.stops else len(header) - 1
    yield (
        f"{where}: visits for {percent(plan.error)} wrong picks and for {percent(plan.clear)} "
        "clear answers",
        tuple(header[:kept]),
        [tuple(row[:kept]) for row in rows],
    )


def _by_budget(plan: Plan, clear: bool) -> Iterator[Table]:
    """Budgets below each other, policies beside each other, in as many tables as needed."""
    where = "with this rhythm" if plan.moving else "if nothing moves"
    what = "Clear answers" if clear else "Wrong picks"
    for first in range(0, len(plan.lines), ACROSS):
        lines = plan.lines[first : first + ACROSS]
        points = [
            line.clear.points if clear and line.clear else line.asked.points for line in lines
        ]
        yield (
            f"{what} in % by budget, {where} (95 % interval)",
            ("visits", *(line.name for line in lines)),
            [
                (f"{budget:,}", *(error_cell(one[i]) for one in points))
                for i, budget in enumerate(plan.budgets)
            ],
        )


def _assumptions(plan: Plan) -> tuple[str, ...]:
    trials = [point.trials for line in plan.lines for point in line.asked.points]
    few, most = f"{min(trials):,}", f"{max(trials):,}"
    simulated = few if few == most else f"{few} to {most}"
    world = (
        "The world moves as the rhythm of the question says; another rhythm needs other budgets."
        if plan.moving
        else "Nothing moves during the test. Give the question a rhythm to see what drift does."
    )
    return (
        "Effects, noise and traffic are those of the question; a smaller effect needs more visits.",
        world,
        f"Errors are counted in {simulated} simulated tests for each policy and budget; intervals "
        "are exact (Clopper and Pearson) and hold for each number by itself.",
        "A pick is wrong if it names a variant that is not the best on average over the test.",
        *(
            ["Answers are judged as the verdict of a live test is, at its end."]
            if plan.clear
            else []
        ),
        f"Seed {plan.seed}; budgets up to {plan.most_rounds:,} visits in "
        f"{counted(plan.most_days, 'day')} were tried.",
    )


def _known(value: Any) -> Any:
    """The settings without those that are None, as usual ones of policies are."""
    if isinstance(value, Mapping):
        return {key: _known(entry) for key, entry in value.items() if entry is not None}
    return list(map(_known, value)) if isinstance(value, (list, tuple)) else value
