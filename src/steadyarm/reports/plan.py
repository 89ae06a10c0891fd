"""The report on a plan: the question, the answer, and what was simulated for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from steadyarm import __version__
from steadyarm.files import toml_of
from steadyarm.planning.answer import Plan
from steadyarm.planning.text import both_cells, both_header, error_cell, need_cells
from steadyarm.plot import charts
from steadyarm.reports.document import (
    Block,
    Code,
    Document,
    Heading,
    Items,
    Lead,
    Paragraph,
    Picture,
    Table,
)
from steadyarm.wording import counted, percent

ACROSS = 5  # policies beside each other, as many as fit on paper


def plan_report(plan: Plan, command: str = "") -> Document:
    """The report on a plan.

    Parameters
    ----------
    plan : what `sa.plan` returned
    command : what was typed, to be shown

    Returns
    -------
    Document : for `write_report`

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
    >>> plan_report(found).title
    'How long the test must be'
    """
    answer, *reasons = plan.verdict.split("\n", 1)
    blocks: list[Block] = [
        Lead(answer),
        *(Paragraph(text.replace("\n", " ")) for text in reasons),
        Heading("The question"),
        Paragraph(plan.summary),
        Heading("What each policy needs"),
        *_both(plan),
        _needs(plan, moving=False),
    ]
    if plan.moving:
        blocks.append(_needs(plan, moving=True))
    if plan.remarks:
        blocks.append(Items(plan.remarks))
    blocks += [
        Heading(
            "Wrong picks and clear answers by budget" if plan.clear else "Wrong picks by budget"
        ),
        Picture(charts.plan(plan)),
        *_by_budget(plan, clear=False),
        *(_by_budget(plan, clear=True) if plan.clear else ()),
        Heading("What this rests on"),
        Items(_assumptions(plan)),
        Heading("The question as a file", 3),
        Paragraph(
            "steadyarm plan reads it, and gives the same answer with the same seed and trials."
        ),
        Code(toml_of(_known(plan.question)).strip(), "toml"),
    ]
    if command:
        blocks += [Heading("How to get this again", 3), Code(command)]
    foot = f"Written by SteadyArm {__version__}, seed {plan.seed}."
    return Document("How long the test must be", tuple(blocks), foot)


def _needs(plan: Plan, moving: bool) -> Table:
    rows = tuple(
        (line.name, *need_cells(plan, line.asked if moving else line.calm)) for line in plan.lines
    )
    where = "With this rhythm" if moving else "If nothing moves"
    caption = f"{where}: visits and days for {percent(plan.error)} wrong picks or fewer"
    header = ("policy", "visits", "95 % interval", "days", "wrong", "95 % interval of wrong")
    note = "* trusts that nothing moves." if not all(line.robust for line in plan.lines) else ""
    return Table(caption, header, "lrrrrr", rows, note)


def _both(plan: Plan) -> Iterator[Block]:
    if plan.clear is None:
        return
    where = "With this rhythm" if plan.moving else "If nothing moves"
    caption = (
        f"{where}: visits for {percent(plan.error)} wrong picks and for {percent(plan.clear)} "
        "clear answers"
    )
    header, rows = both_header(plan), [(line.name, *both_cells(plan, line)) for line in plan.lines]
    kept = len(header) if plan.stops else len(header) - 1
    cut = tuple(row[:kept] for row in rows)
    yield Table(caption, header[:kept], "l" + "r" * (kept - 1), cut)


def _by_budget(plan: Plan, clear: bool) -> Iterator[Block]:
    """Budgets below each other, policies beside each other, in as many tables as needed."""
    where = "with this rhythm" if plan.moving else "if nothing moves"
    what = "Clear answers" if clear else "Wrong picks"
    caption = f"{what} in % by budget, {where} (95 % interval)"
    for first in range(0, len(plan.lines), ACROSS):
        lines = plan.lines[first : first + ACROSS]
        points = [
            line.clear.points if clear and line.clear else line.asked.points for line in lines
        ]
        rows = tuple(
            (f"{budget:,}", *(error_cell(one[i]) for one in points))
            for i, budget in enumerate(plan.budgets)
        )
        header = ("visits", *(line.name for line in lines))
        yield Table(caption, header, "r" * len(header), rows)


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
