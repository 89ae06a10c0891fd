"""The report on a plan: the question, the answer, and what was simulated for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steadyarm import __version__
from steadyarm.files import toml_of
from steadyarm.planning.answer import Line, Plan, Point
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
from steadyarm.wording import percent

ACROSS = 5  # policies beside each other, as many as fit on paper


def plan_report(plan: Plan, command: str = "") -> Document:
    """The report on a plan; `command` is what was typed."""
    moving = plan.lines[0].moving is not None
    parts = str(plan).split("\n\n")  # the question, the answer, tables, remarks
    answer, *reasons = parts[1].split("\n", 1)
    blocks: list[Block] = [
        Lead(answer),
        *(Paragraph(" ".join(text.split("\n"))) for text in reasons),
        Heading("The question"),
        Paragraph(plan.summary),
        Heading("What each policy needs"),
        _needs(plan, moving=False),
    ]
    if moving:
        blocks.append(_needs(plan, moving=True))
    if "\n  " not in parts[-1]:  # no table
        blocks.append(Items(tuple(parts[-1].split("\n"))))
    blocks += [Heading("Wrong verdicts by budget"), Picture(charts.plan(plan))]
    blocks += _errors(plan, moving)
    blocks += [
        Heading("What this rests on"),
        Items(_assumptions(plan, moving)),
        Heading("The question as a file", 3),
        Paragraph(
            "steadyarm plan reads it, and gives the same answer with the same seed and trials."
        ),
        Code(_file(plan), "toml"),
    ]
    if command:
        blocks += [Heading("How to get this again", 3), Code(command)]
    return Document("How long the test must be", tuple(blocks), _foot(plan))


def _needs(plan: Plan, moving: bool) -> Table:
    rows = []
    for line in plan.lines:
        need = (line.calm if line.moving is None or not moving else line.moving).need
        visits = f"> {plan.most_rounds:,}" if need.budget is None else f"{need.budget:,}"
        known = need.low is not None and need.high is not None
        between = f"{need.low:,} to {need.high:,}" if known else "unclear"
        days = f"> {plan.most_days:,}" if need.days is None else f"{need.days:,}"
        rows.append(
            (
                _name(line),
                visits,
                "" if need.budget is None else between,
                days,
                percent(need.check.rate),
                _interval(need.check),
            )
        )
    where = "With this rhythm" if moving else "If nothing moves"
    caption = f"{where}: visits and days for {percent(plan.error)} wrong verdicts or fewer"
    header = ("policy", "visits", "95 % interval", "days", "wrong", "95 % interval of wrong")
    note = "* trusts that nothing moves." if not all(line.robust for line in plan.lines) else ""
    return Table(caption, header, "lrrrrr", tuple(rows), note)


def _errors(plan: Plan, moving: bool) -> list[Block]:
    """Budgets below each other, policies beside each other, in as many tables as needed."""
    where = "with this rhythm" if moving else "if nothing moves"
    caption = f"Wrong verdicts by budget, {where} (95 % interval)"
    blocks: list[Block] = []
    for first in range(0, len(plan.lines), ACROSS):
        lines = plan.lines[first : first + ACROSS]
        rows = tuple(
            (
                f"{budget:,}",
                *(
                    f"{percent(line.asked.points[i].rate)} ({_interval(line.asked.points[i])})"
                    for line in lines
                ),
            )
            for i, budget in enumerate(plan.budgets)
        )
        header = ("visits", *map(_name, lines))
        blocks.append(Table(caption, header, "r" * len(header), rows))
    return blocks


def _assumptions(plan: Plan, moving: bool) -> tuple[str, ...]:
    trials = [point.trials for line in plan.lines for point in line.asked.points]
    simulated = (
        f"{min(trials):,}"
        if min(trials) == max(trials)
        else (f"{min(trials):,} to {max(trials):,}")
    )
    world = (
        "The world moves as the rhythm of the question says; another rhythm needs other budgets."
        if moving
        else "Nothing moves during the test. Give the question a rhythm to see what drift does."
    )
    return (
        "Effects, noise and traffic are those of the question; a smaller effect needs more visits.",
        world,
        f"Errors are counted in {simulated} simulated tests for each policy and budget; intervals "
        "are exact (Clopper and Pearson) and hold for each number by itself.",
        "A verdict is wrong if it names a variant that is not the best on average over the test.",
        f"Seed {plan.seed}; budgets up to {plan.most_rounds:,} visits in {plan.most_days:,} days "
        "were tried.",
    )


def _interval(point: Point) -> str:
    low, high = point.interval()
    return f"{percent(low).removesuffix(' %')} to {percent(high)}"


def _name(line: Line) -> str:
    return line.label + ("" if line.robust else " *")


def _file(plan: Plan) -> str:
    """The question in TOML; a question has no name."""
    return toml_of(_known(plan.question)).strip()


def _known(value: Any) -> Any:
    """The settings without those that are None, as usual ones of policies are."""
    if isinstance(value, Mapping):
        return {key: _known(entry) for key, entry in value.items() if entry is not None}
    return list(map(_known, value)) if isinstance(value, (list, tuple)) else value


def _foot(plan: Plan) -> str:
    return f"Written by SteadyArm {__version__}, seed {plan.seed}."
