"""A plan as text that an experimenter can read."""

from __future__ import annotations

from math import inf, log10

from steadyarm.planning.answer import ALIKE, Curve, Line, Plan, Point

COUNTED = 10**12  # numbers from here on are said by their order alone


def text_of(plan: Plan) -> str:
    """Verdict, budgets, errors by budget, what robustness costs and saves, theory."""
    moving = plan.lines[0].moving is not None
    parts = [plan.summary, _verdict(plan), _budgets(plan, False)]
    if moving:
        parts.append(_budgets(plan, True))
    parts.append(_errors(plan, moving))
    said = [*_robustness(plan), *_theory(plan)]
    parts.append("\n".join(said))
    return "\n\n".join(part for part in parts if part)


def _verdict(plan: Plan) -> str:
    choice = plan.choice
    if choice is None:
        most = f"{_count(plan.most_rounds)} visits in {plan.most_days} days"
        who = "robust policy" if any(line.robust for line in plan.lines) else "policy"
        return (
            f"No {who} gets down to {100 * plan.error:g} % wrong verdicts within {most}.\n"
            "Allow more days, a larger error, or look for larger effects only."
        )
    said = [
        f"Take {choice.label}: {_needs(choice)}, "
        f"{100 * (plan.traffic_share or 0):.0f} % of the traffic.",
        f"In simulation {_rate(choice.asked.need.check)} of the verdicts are wrong.",
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
        names = " and ".join(f"{line.label} *" for line in fewer)
        verb, are = ("need", "are") if len(fewer) > 1 else ("needs", "is")
        said.append(
            f"{names} {verb} fewer visits here, but can be misled where rewards drift, and {are} "
            "not taken."
        )
    return said


def _budgets(plan: Plan, moving: bool) -> str:
    head = "With this rhythm" if moving else "If nothing moves"
    proven = any(line.guarantee is not None for line in plan.lines)
    rows: list[tuple[str, ...]] = [
        ("policy", "visits", "95 % interval", "days", "wrong", "95 % interval", "guaranteed")
    ]
    for line in plan.lines:
        curve = line.moving if moving else line.calm
        assert curve is not None
        rows.append((_name(line), *_need(plan, curve), _proof(line) if proven else ""))
    return f"{head}, about {100 * plan.error:g} % wrong verdicts or fewer need\n{_table(rows)}"


def _need(plan: Plan, curve: Curve) -> tuple[str, ...]:
    need = curve.need
    wrong = (_percent(need.check.rate), f"{_interval(need.check, ' to ')} %")
    if need.budget is None:
        return (f"> {_count(plan.most_rounds)}", "", f"> {plan.most_days}", *wrong)
    known = need.low is not None and need.high is not None
    interval = f"{need.low:,} to {need.high:,}" if known else "unclear"
    return (f"{need.budget:,}", interval, f"{need.days:,}", *wrong)


def _proof(line: Line) -> str:
    return "n/a" if line.guarantee is None else _count(line.guarantee)


def _errors(plan: Plan, moving: bool) -> str:
    rows = [("visits", *(f"{budget:,}" for budget in plan.budgets))]
    for line in plan.lines:
        points = line.asked.points
        cells = (f"{_number(point.rate)} ({_interval(point, '-')})" for point in points)
        rows.append((_name(line), *cells))
    if plan.theory.floor is not None:
        rows.append(("oracle, calm", *(_number(value) for value in plan.theory.floor)))
    for label, values in plan.theory.bounds.items():
        if min(values) < 0.995:  # a bound of 100 % says nothing
            rows.append((f"bound, {label}", *(_number(value) for value in values)))
    where = "with this rhythm" if moving else "if nothing moves"
    return f"Wrong verdicts in % (95 % interval) by budget, {where}\n{_table(rows)}"


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
            f"Robustness {verb} {_times(cost)} the visits if nothing moves "
            f"({choice.label} against {rival.label} *)."
        )
    saving = plan.robustness_saving
    if saving == inf:
        worst = [line.asked.need.check for line in plan.lines if not line.robust]
        least = min(worst, key=lambda point: point.rate)
        said.append(
            f"With this rhythm no policy marked * is enough: still {_percent(least.rate)} wrong "
            f"after {plan.most_days} days."
        )
    elif saving is not None:
        said.append(
            f"With this rhythm the best policy marked * needs {_times(saving)} the visits of "
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


def _table(rows: list[tuple[str, ...]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    keep = [i for i in range(len(widths)) if i == 0 or any(row[i] for row in rows[1:])]
    return "\n".join(
        "  "
        + "  ".join(row[i].ljust(widths[i]) if i == 0 else row[i].rjust(widths[i]) for i in keep)
        for row in rows
    )


def _name(line: Line) -> str:
    return line.label + ("" if line.robust else " *")


def _needs(line: Line) -> str:
    need = line.asked.need
    return f"{need.budget:,} visits in {_days(need.days)}"


def _count(number: int) -> str:
    return f"{number:,}" if number < COUNTED else f"more than 10^{int(log10(number))}"


def _interval(point: Point, between: str) -> str:
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


def _days(days: int | None) -> str:
    return "1 day" if days == 1 else f"{days:,} days"


def _percent(rate: float) -> str:
    return f"{_number(rate)} %"


def _times(ratio: float) -> str:
    return f"{ratio:.2f} times"


def _rate(point: Point) -> str:
    return f"{_percent(point.rate)} (95 % interval {_interval(point, ' to ')} %)"
