"""The plan in words: what to do, tables, and what speaks for it."""

from __future__ import annotations

from math import inf, log10
from typing import TYPE_CHECKING, NamedTuple

from steadyarm.wording import counted

if TYPE_CHECKING:
    from steadyarm.planning.answer import Answers, Line, Need, Plan, Point

ALIKE = 1.1  # budgets within this ratio are about the same
COUNTED = 10**12  # of larger numbers the text gives the order of magnitude alone

Row = tuple[str, ...]


class Table(NamedTuple):
    """Numbers of a plan, with a row for each policy."""

    caption: str
    header: Row
    rows: list[Row]

    def __str__(self) -> str:
        lines = [self.header, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = [
            f"  {line[0].ljust(widths[0])}"
            + "".join(f"  {cell.rjust(w)}" for cell, w in zip(line[1:], widths[1:], strict=True))
            for line in lines
        ]
        return "\n".join([self.caption, *text])


def whole(plan: Plan) -> str:
    """All that there is to say."""
    tables = [*need_tables(plan), *budget_tables(plan)]
    return "\n\n".join([plan.summary, plan.verdict, *map(str, tables), "\n".join(plan.remarks)])


def remarks(plan: Plan) -> tuple[str, ...]:
    """What clear means, what robustness costs and saves, what the theory says, a sentence each."""
    return (*_meaning(plan), *_robustness(plan), *_theory(plan))


def verdict(plan: Plan) -> str:
    """What to do and why, in a few lines."""
    choice = plan.choice
    if choice is None:
        most = f"{_count(plan.most_rounds)} visits in {counted(plan.most_days, 'day')}"
        who = "robust policy" if any(line.robust for line in plan.lines) else "policy"
        return (
            f"No {who} gets down to {100 * plan.error:g} % wrong picks within {most}.\n"
            "Allow more days, a larger error, or look for larger effects only."
        )
    check = choice.asked.need.check
    said = [
        f"Take {choice.label}: {_needs(choice)}, "
        f"{100 * (plan.traffic_share or 0):.0f} % of the traffic.",
        f"In simulation {_percent(check.rate)} (95 % interval {_interval(check, ' to ')} %) of the "
        "picks are wrong.",
        *_answer_sentences(plan, choice),
    ]
    if plan.alike:
        others = " and ".join(f"{line.label} ({_needs(line)})" for line in plan.alike)
        said.append(f"That is about the same as {others}.")
    return "\n".join(said + _reasons(plan, choice))


def _reasons(plan: Plan, choice: Line) -> list[str]:
    """Why this policy and no other."""
    if not choice.robust:
        return ["Every policy here trusts that nothing moves (*); add one that does not."]
    among = sum(line.robust for line in plan.lines)
    said = []
    if among > 1:
        said.append(
            "Chosen: the first in the list that stays unbiased whatever moves (no *) and that no "
            f"other such policy\nclearly beats: over {100 * (ALIKE - 1):.0f} % fewer visits, "
            "intervals apart."
        )
    fewer = [
        line
        for line in plan.lines
        if not line.robust and (line.asked.need.budget or inf) < (choice.asked.need.budget or 0)
    ]
    if fewer:
        names = " and ".join(line.name for line in fewer)
        verb, are = ("need", "are") if len(fewer) > 1 else ("needs", "is")
        said.append(
            f"{names} {verb} fewer visits here, but can be misled where rewards drift, and {are} "
            "not taken."
        )
    return said


def need_tables(plan: Plan) -> list[Table]:
    """What each policy needs: for right picks and clear answers, and in each kind of world."""
    kinds = (False, True) if plan.moving else (False,)
    needs = [_needs_table(plan, moving) for moving in kinds]
    return needs if plan.clear is None else [_both_table(plan, plan.clear), *needs]


def _needs_table(plan: Plan, moving: bool) -> Table:
    header: Row = (
        "policy",
        "visits",
        "95 % interval",
        "days",
        "wrong",
        "95 % interval",
        "guaranteed",
    )
    rows: list[Row] = []
    for line in plan.lines:
        need = line.asked.need if moving else line.calm.need
        visits, days = _need(plan, need)
        wrong = _percent(need.check.rate), f"{_interval(need.check, ' to ')} %"
        proof = "n/a" if line.guarantee is None else _count(line.guarantee)
        rows.append((line.name, visits, _reach(need), days, *wrong, proof))
    if all(line.guarantee is None for line in plan.lines):
        header, rows = header[:-1], [row[:-1] for row in rows]
    return Table(
        f"{_where(moving)}, about {100 * plan.error:g} % wrong picks or fewer need", header, rows
    )


def _both_table(plan: Plan, clear: float) -> Table:
    """What right picks and clear answers need, side by side."""
    wrong, proven = f"{100 * plan.error:g} % wrong", f"{100 * clear:g} % clear"
    header: Row = (
        "policy",
        wrong,
        "days",
        "clear then",
        proven,
        "95 % interval",
        "days",
        "with stopping",
    )
    rows: list[Row] = []
    for line in plan.lines:
        assert line.clear is not None
        picked, need, visits = line.clear.picked, line.clear.need, line.clear.check.visits
        then = "" if picked is None else _percent(picked.rate)
        stopping = "n/a" if visits is None else f"{round(visits):,}"
        budget, days = _need(plan, need)
        answers = budget, _reach(need), days, "" if need.budget is None else stopping
        rows.append((line.name, *_need(plan, line.asked.need), then, *answers))
    if not plan.stops:
        header, rows = header[:-1], [row[:-1] for row in rows]
    return Table(
        f"{_where(plan.moving)}, visits for {100 * plan.error:g} % wrong picks and for "
        f"{100 * clear:g} % clear answers",
        header,
        rows,
    )


def budget_tables(plan: Plan) -> list[Table]:
    """Wrong picks, and clear answers, of each policy at each budget."""
    where = _where(plan.moving)
    where, header = where[0].lower() + where[1:], ("visits", *(f"{b:,}" for b in plan.budgets))
    wrong = [(line.name, *map(_error, line.asked.points)) for line in plan.lines]
    if plan.theory.floor is not None:
        wrong.append(("oracle, calm", *map(_number, plan.theory.floor)))
    tables = [Table(f"Wrong picks in % (95 % interval) by budget, {where}", header, wrong)]
    clear = [
        (line.name, *map(_error, line.clear.points))
        for line in plan.lines
        if line.clear is not None
    ]
    if clear:
        tables.append(
            Table(f"Clear answers in % (95 % interval) by budget, {where}", header, clear)
        )
    return tables


def _where(moving: bool) -> str:
    return "With this rhythm" if moving else "If nothing moves"


def _error(point: Point | Answers) -> str:
    return f"{_number(point.rate)} ({_interval(point, '-')})"


def _answer_sentences(plan: Plan, line: Line) -> list[str]:
    """How often the answer is clear with one policy, and what a clear answer takes."""
    if plan.clear is None or line.clear is None:
        return []
    found, need, said = line.clear, line.clear.need, []
    proof = "you can also prove it" if plan.control is None else "the answer is also clear"
    if found.picked is not None:
        said.append(
            f"At {found.picked.budget:,} visits the best is picked in "
            f"{_percent(1 - line.asked.need.check.rate)} of tests, and in "
            f"{_percent(found.picked.rate)} of tests {proof}."
        )
    wanted = f"For a clear answer in {100 * plan.clear:g} % of tests"
    if need.budget is None:
        return [
            *said,
            f"{wanted} {counted(plan.most_days, 'day is', 'days are')} not enough: at "
            f"{need.check.budget:,} visits {_percent(found.check.rate)} of the answers are clear.",
        ]
    said.append(f"{wanted} it needs {need.budget:,} visits in {counted(need.days or 0, 'day')}.")
    if found.check.visits is not None and found.share is not None:
        mean = f"{round(found.check.visits):,} visits on average"
        share = _percent(found.share)
        said.append(
            f"A test of that size that stops when sure ends after {mean}, {share} of them."
            if found.stopping_pays
            else f"Stopping when sure hardly saves visits: such a test ends after {mean}."
        )
    return said


def _need(plan: Plan, need: Need) -> tuple[str, str]:
    if need.budget is None:
        return f"> {_count(plan.most_rounds)}", f"> {plan.most_days}"
    return f"{need.budget:,}", f"{need.days:,}"


def _reach(need: Need) -> str:
    if need.budget is None:
        return ""
    known = need.low is not None and need.high is not None
    return f"{need.low:,} to {need.high:,}" if known else "unclear"


def _meaning(plan: Plan) -> list[str]:
    """What days, clear answers and stopping are."""
    wait = [f"Days include {plan.delay:g} for the last rewards."] if plan.delay else []
    if plan.clear is None:
        return wait
    if plan.control is None:
        said = ["Clear: at 95 % confidence all variants but the best are ruled out."]
    else:
        said = [
            f"Clear: at 95 % confidence the best variant is shown to beat {plan.control}, or "
            f"{plan.control} is kept if it is the best."
        ]
    if plan.stops:
        said.append(
            "With stopping: mean visits of a test that ends at a look when its answer is clear, "
            "with the visits whose rewards\nare still on their way then; n/a where a policy has no "
            "intervals that hold at looks."
        )
    return said + wait


def _robustness(plan: Plan) -> list[str]:
    choice, rival = plan.choice, plan.rival
    if choice is None or not choice.robust:
        return []
    said = []
    if all(line.robust for line in plan.lines):
        return ["No policy here trusts that nothing moves, so robustness has nothing to cost."]
    cost = plan.robustness_cost
    if rival is not None and cost is not None:
        little = "costs nothing:" if cost * ALIKE < 1 else "costs about nothing:"
        verb = "costs" if cost > ALIKE else little
        said.append(
            f"Robustness {verb} {cost:.2f} times the visits if nothing moves "
            f"({choice.label} against {rival.name})."
        )
    saving = plan.robustness_saving
    if saving == inf:
        worst = [line.asked.need.check for line in plan.lines if not line.robust]
        least = min(worst, key=lambda point: point.rate)
        said.append(
            f"With this rhythm no policy marked * is enough: still {_percent(least.rate)} wrong "
            f"after {counted(plan.most_days, 'day')}."
        )
    elif saving is not None:
        said.append(
            f"With this rhythm the best policy marked * needs {saving:.2f} times the visits of "
            f"{choice.label}."
        )
    if rival is not None and rival.surprised is not None:
        mine = choice.surprised
        beside = "" if mine is None else f", {choice.label} in {_percent(mine.rate)}"
        said.append(
            f"Planned as if nothing moved, {rival.label} is then wrong in "
            f"{_percent(rival.surprised.rate)} of tests{beside}."
        )
    if choice.moving is None:
        said.append("To see what robustness saves if something moves, give a [rhythm].")
    return said


def _theory(plan: Plan) -> list[str]:
    said = []
    if not all(line.robust for line in plan.lines):
        said.append("* trusts that nothing moves; the others stay unbiased however rewards drift.")
    if plan.theory.oracle is not None:
        needed = _count(plan.theory.oracle)
        said.append(f"An oracle that knows all means needs {needed} visits if nothing moves.")
    if any(line.guarantee is not None for line in plan.lines):
        said.append("Guaranteed: what a theorem proves to be enough, whatever moves.")
    return said


def _needs(line: Line) -> str:
    need = line.asked.need
    return f"{need.budget:,} visits in {counted(need.days or 0, 'day')}"


def _count(number: int) -> str:
    return f"{number:,}" if number < COUNTED else f"more than 10^{int(log10(number))}"


def _interval(point: Point | Answers, between: str) -> str:
    low, high = point.interval()
    return f"{_number(low)}{between}{_number(high)}"


def _number(rate: float) -> str:
    """In percent, with two digits down to hundredths."""
    value = 100 * rate
    if value >= 9.95:
        return f"{value:.0f}"
    if value >= 0.995:
        return f"{value:.1f}"
    if value >= 0.005:
        return f"{value:.2f}"
    return "0" if value == 0 else "<0.01"


def _percent(rate: float) -> str:
    return f"{_number(rate)} %"
