"""A plan as text that an experimenter can read."""

from __future__ import annotations

from steadyarm.planning.answer import Curve, Line, Plan, Point

__all__ = ["text_of"]


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
        most = f"{plan.most_rounds:,} visits in {plan.most_days} days"
        return (
            f"No robust policy gets down to {100 * plan.error:g} % wrong verdicts within {most}.\n"
            "Allow more days, a larger error, or look for larger effects only."
        )
    need = choice.asked.need
    return (
        f"Take {choice.label}: {need.budget:,} visits in {_days(need.days)}, "
        f"{100 * (plan.traffic_share or 0):.0f} % of the traffic.\n"
        f"In simulation {_rate(need.check)} of the verdicts are wrong."
    )


def _budgets(plan: Plan, moving: bool) -> str:
    head = "With this rhythm" if moving else "If nothing moves"
    rows: list[tuple[str, ...]] = [
        ("policy", "visits", "95 % interval", "days", "wrong", "95 % interval", "guaranteed")
    ]
    for line in plan.lines:
        curve = line.moving if moving else line.calm
        assert curve is not None
        rows.append((_name(line), *_need(plan, curve), _proof(line)))
    return f"{head}, {100 * plan.error:g} % wrong verdicts need\n{_table(rows)}"


def _need(plan: Plan, curve: Curve) -> tuple[str, ...]:
    need = curve.need
    low, high = need.check.interval()
    wrong = (_percent(need.check.rate), f"{100 * low:.1f} to {100 * high:.1f} %")
    if need.budget is None:
        return (f"> {plan.most_rounds:,}", "", f"> {plan.most_days}", *wrong)
    return (f"{need.budget:,}", f"{need.low:,} to {need.high:,}", f"{need.days:,}", *wrong)


def _proof(line: Line) -> str:
    return "n/a" if line.guarantee is None else f"{line.guarantee:,}"


def _errors(plan: Plan, moving: bool) -> str:
    rows = [("visits", *(f"{budget:,}" for budget in plan.budgets))]
    for line in plan.lines:
        rows.append((_name(line), *(_with_interval(point) for point in line.asked.points)))
    if plan.theory.floor is not None:
        rows.append(("oracle, calm", *(_number(value) for value in plan.theory.floor)))
    for label, values in plan.theory.bounds.items():
        rows.append((f"bound, {label}", *(_number(value) for value in values)))
    where = "with this rhythm" if moving else "if nothing moves"
    return f"Wrong verdicts in % (95 % interval) by budget, {where}\n{_table(rows)}"


def _robustness(plan: Plan) -> list[str]:
    choice, rival = plan.choice, plan.rival
    if choice is None:
        return []
    said = []
    if all(line.robust for line in plan.lines):
        return ["No policy here trusts that nothing moves, so robustness has nothing to cost."]
    cost = plan.robustness_cost
    if rival is not None and cost is not None:
        verb = "costs" if cost > 1 else "costs nothing:"
        said.append(
            f"Robustness {verb} {_times(cost)} the visits if nothing moves "
            f"({choice.label} against {rival.label} *)."
        )
    saving = plan.robustness_saving
    if saving == float("inf"):
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
        said.append(
            f"An oracle that knows all means needs {plan.theory.oracle:,} visits if nothing moves."
        )
    if any(line.guarantee is not None for line in plan.lines):
        said.append("Guaranteed: what a theorem proves to be enough, whatever moves.")
    return said


def _table(rows: list[tuple[str, ...]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    keep = [i for i, width in enumerate(widths) if i == 0 or any(row[i] for row in rows[1:])]
    return "\n".join(
        "  "
        + "  ".join(row[i].ljust(widths[i]) if i == 0 else row[i].rjust(widths[i]) for i in keep)
        for row in rows
    )


def _name(line: Line) -> str:
    return line.label + ("" if line.robust else " *")


def _with_interval(point: Point) -> str:
    low, high = point.interval()
    return f"{_number(point.rate)} ({_number(low)}-{_number(high)})"


def _number(rate: float) -> str:
    """In percent, with two digits."""
    value = 100 * rate
    if value >= 9.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 0.05 or value == 0 else "<0.1"


def _days(days: int | None) -> str:
    return "1 day" if days == 1 else f"{days:,} days"


def _percent(rate: float) -> str:
    return f"{_number(rate)} %"


def _times(ratio: float) -> str:
    return f"{ratio:.2f} times"


def _rate(point: Point) -> str:
    low, high = point.interval()
    return f"{_percent(point.rate)} (95 % interval {_number(low)} to {_number(high)} %)"
