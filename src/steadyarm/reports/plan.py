"""The report on a plan: the question, the answer, and what was simulated for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from steadyarm.planning.answer import Plan, Table, budget_tables, need_tables
from steadyarm.plot import sweeps
from steadyarm.reports.render import render
from steadyarm.wording import counted, toml_of

ACROSS = 5  # policies beside each other, as many as fit on paper


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
        budgets=[turned for table in budget_tables(plan) for turned in _turned(table)],
        assumptions=_assumptions(plan),
        question=toml_of(_known(plan.question.to_dict())).strip(),
    )


def _turned(table: Table) -> Iterator[Table]:
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
