"""Plan: the answer to a question, as numbers, as JSON and as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import inf, log10
from typing import Any

from steadyarm.inference.evidence import json_ready
from steadyarm.simulation import clopper_pearson
from steadyarm.wording import counted

ALIKE = 1.1  # budgets within this ratio are about the same
COUNTED = 10**12  # of larger numbers the text gives the order of magnitude alone


@dataclass(frozen=True)
class Point:
    """How often a policy was wrong in simulated tests with one budget."""

    budget: int
    errors: int
    trials: int

    @property
    def rate(self) -> float:
        """Share of wrong verdicts."""
        return self.errors / self.trials

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Exact interval for the probability of error."""
        return clopper_pearson(self.errors, self.trials, level)


@dataclass(frozen=True)
class Need:
    """What a policy needs for the wanted error.

    Attributes
    ----------
    budget : smallest budget that gives the wanted error; None if the most days are not enough
    low, high : 95 % interval of that budget, from the simulation's own noise; None if
        it is not known
    days : how long the test takes; None without a budget
    check : errors in fresh simulated tests with this budget, or with the largest possible one
    """

    budget: int | None
    low: int | None
    high: int | None
    days: int | None
    check: Point


@dataclass(frozen=True)
class Curve:
    """One policy in one kind of world: what it needs, and errors at several budgets."""

    need: Need
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Line:
    """The answer for one policy.

    Attributes
    ----------
    label, robust : of the candidate
    calm : if nothing moves
    moving : under the question's rhythm; None if it has none
    surprised : errors under the rhythm with the budget that is enough if nothing moves
    guarantee : budget for which a theorem promises the wanted error; None where none does
    """

    label: str
    robust: bool
    calm: Curve
    moving: Curve | None
    surprised: Point | None
    guarantee: int | None

    @property
    def name(self) -> str:
        """The label, with a star where the policy trusts that nothing moves."""
        return self.label + ("" if self.robust else " *")

    @property
    def asked(self) -> Curve:
        """Under the question's rhythm, whatever it is."""
        return self.calm if self.moving is None else self.moving


@dataclass(frozen=True)
class Theory:
    """What is known without simulation; None where the theory is silent.

    Attributes
    ----------
    oracle : budget with which a fixed design that knows all means reaches the wanted error, if
        nothing moves
    floor : its error at the plan's budgets
    bounds : per policy, errors that a theorem promises not to exceed, at the plan's budgets
    """

    oracle: int | None
    floor: tuple[float, ...] | None
    bounds: dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class Plan:
    """The answer: how long the test must be, with each policy.

    Attributes
    ----------
    question : its settings, as `Question.to_dict` writes them
    summary : the question in words
    error : the wanted probability of error
    most_days : how long a test may take
    most_rounds : the largest budget that was tried
    budgets : at which every policy was simulated
    lines : one per policy
    theory : bounds beside the simulation
    trials, seed : as asked, to get the same plan again
    """

    question: dict[str, Any]
    summary: str
    error: float
    most_days: int
    most_rounds: int
    budgets: tuple[int, ...]
    lines: tuple[Line, ...]
    theory: Theory
    trials: int | None
    seed: int

    def line(self, label: str) -> Line:
        """The line of one policy."""
        return next(line for line in self.lines if line.label == label)

    @property
    def choice(self) -> Line | None:
        """The first robust policy in the list that no other robust one clearly beats, as asked.

        To beat clearly is to need more than a tenth fewer rounds, with an interval that lies
        apart: less could be chance. If the question names no robust policy, all are
        compared; None if none is enough.
        """
        pool = self._pool
        unbeaten = (line for line in pool if not any(_beats(other, line) for other in pool))
        return next(unbeaten, None)

    @property
    def alike(self) -> tuple[Line, ...]:
        """The policies compared with the choice that need about as many rounds as it does."""
        chosen = self.choice
        return tuple(
            line
            for line in self._pool
            if chosen not in (None, line) and not _beats(chosen, line) and not _beats(line, chosen)
        )

    @property
    def _pool(self) -> list[Line]:
        """The policies to choose among: robust ones that are enough."""
        pool = [line for line in self.lines if line.robust] or list(self.lines)
        return [line for line in pool if line.asked.need.budget is not None]

    @property
    def budget(self) -> int | None:
        """The chosen policy's budget."""
        return None if self.choice is None else self.choice.asked.need.budget

    @property
    def days(self) -> int | None:
        """How long that takes."""
        return None if self.choice is None else self.choice.asked.need.days

    @property
    def traffic_share(self) -> float | None:
        """Which share of the traffic of those days the test takes."""
        if self.budget is None or self.days is None:
            return None
        return float(self.budget / (self.days * self.question["traffic_per_day"]))

    @property
    def rival(self) -> Line | None:
        """The policy that trusts the world and needs the fewest rounds if nothing moves."""
        enough = [line for line in self._trusting if line.calm.need.budget is not None]
        return min(enough, key=lambda line: line.calm.need.budget or inf, default=None)

    @property
    def robustness_cost(self) -> float | None:
        """Budget of the choice over that of its rival, if nothing moves; None without both."""
        if self.choice is None or self.rival is None:
            return None
        mine, its = self.choice.calm.need.budget, self.rival.calm.need.budget
        return None if mine is None or its is None else mine / its

    @property
    def robustness_saving(self) -> float | None:
        """Budget of the best policy that trusts the world over that of the choice, as asked.

        Infinite if the most days are not enough for it; None if nothing moves in the question.
        """
        if self.budget is None or self.choice is None or self.choice.moving is None:
            return None
        needs = [line.asked.need.budget for line in self._trusting]
        enough = [budget for budget in needs if budget is not None]
        if not needs:
            return None
        return min(enough) / self.budget if enough else inf

    @property
    def _trusting(self) -> list[Line]:
        return [line for line in self.lines if not line.robust]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; `from_dict` reads them back."""
        saving = self.robustness_saving
        return {
            "question": self.question,
            "summary": self.summary,
            "error": self.error,
            "most_days": self.most_days,
            "most_rounds": self.most_rounds,
            "choice": None if self.choice is None else self.choice.label,
            "about_the_same": [line.label for line in self.alike],
            "budget": self.budget,
            "days": self.days,
            "traffic_share": self.traffic_share,
            "robustness": {
                "cost": self.robustness_cost,
                "saving": "infinite" if saving == inf else saving,
            },
            "budgets": list(self.budgets),
            "policies": [_write_line(line) for line in self.lines],
            "theory": json_ready(self.theory),
            "trials": self.trials,
            "seed": self.seed,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Plan:
        """The plan that `to_dict` wrote."""
        same = ("question", "summary", "error", "most_days", "most_rounds", "trials", "seed")
        oracle, floor, bounds = (data["theory"][key] for key in ("oracle", "floor", "bounds"))
        promised = {name: tuple(values) for name, values in bounds.items()}
        return cls(
            **{key: data[key] for key in same},
            budgets=tuple(data["budgets"]),
            lines=tuple(_read_line(line) for line in data["policies"]),
            theory=Theory(oracle, None if floor is None else tuple(floor), promised),
        )

    @property
    def moving(self) -> bool:
        """Whether the question has a rhythm."""
        return self.lines[0].moving is not None

    @property
    def verdict(self) -> str:
        """What to do and why, in a few lines."""
        return _verdict(self)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What robustness costs and saves, and what the theory says, a sentence each."""
        return (*_robustness(self), *_theory(self))

    def __str__(self) -> str:
        needs = [_budgets(self, moving) for moving in ((False, True) if self.moving else (False,))]
        parts = [self.summary, self.verdict, *needs, _errors(self), "\n".join(self.remarks)]
        return "\n\n".join(filter(None, parts))

    def __repr__(self) -> str:
        found = f"not within {counted(self.most_days, 'day')}"
        if self.choice is not None:
            days = counted(self.days or 0, "day")
            found = f"{self.choice.label}, {self.budget:,} rounds, {days}"
        return f"Plan(error {self.error:g}: {found})"


def _beats(one: Line | None, other: Line | None) -> bool:
    """Whether one clearly needs fewer rounds than another, as asked."""
    if one is None or other is None:
        return False
    mine, its = one.asked.need, other.asked.need
    if mine.budget is None or its.budget is None or its.budget <= ALIKE * mine.budget:
        return False
    return mine.high is None or its.low is None or mine.high < its.low


def _write_point(point: Point) -> dict[str, Any]:
    return asdict(point) | {"rate": point.rate, "interval": list(point.interval())}


def _read_point(data: Mapping[str, Any]) -> Point:
    return Point(data["budget"], data["errors"], data["trials"])


def _write_curve(curve: Curve) -> dict[str, Any]:
    need = asdict(curve.need) | {"check": _write_point(curve.need.check)}
    low, high = need.pop("low"), need.pop("high")
    need["interval"] = None if low is None else [low, high]
    return {"need": need, "points": [_write_point(point) for point in curve.points]}


def _read_curve(data: Mapping[str, Any]) -> Curve:
    need = data["need"]
    low, high = need["interval"] or (None, None)
    found = Need(need["budget"], low, high, need["days"], _read_point(need["check"]))
    return Curve(found, tuple(_read_point(point) for point in data["points"]))


def _write_line(line: Line) -> dict[str, Any]:
    return {
        "policy": line.label,
        "robust": line.robust,
        "calm": _write_curve(line.calm),
        "moving": line.moving and _write_curve(line.moving),
        "surprised": line.surprised and _write_point(line.surprised),
        "guarantee": line.guarantee,
    }


def _read_line(data: Mapping[str, Any]) -> Line:
    return Line(
        data["policy"],
        data["robust"],
        _read_curve(data["calm"]),
        data["moving"] and _read_curve(data["moving"]),
        data["surprised"] and _read_point(data["surprised"]),
        data["guarantee"],
    )


# The plan as text.


def _verdict(plan: Plan) -> str:
    choice = plan.choice
    if choice is None:
        most = f"{_count(plan.most_rounds)} visits in {counted(plan.most_days, 'day')}"
        who = "robust policy" if any(line.robust for line in plan.lines) else "policy"
        return (
            f"No {who} gets down to {100 * plan.error:g} % wrong verdicts within {most}.\n"
            "Allow more days, a larger error, or look for larger effects only."
        )
    check = choice.asked.need.check
    said = [
        f"Take {choice.label}: {_needs(choice)}, "
        f"{100 * (plan.traffic_share or 0):.0f} % of the traffic.",
        f"In simulation {_percent(check.rate)} (95 % interval {_interval(check, ' to ')} %) of the "
        "verdicts are wrong.",
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


def _budgets(plan: Plan, moving: bool) -> str:
    head = "With this rhythm" if moving else "If nothing moves"
    proven = any(line.guarantee is not None for line in plan.lines)
    rows: list[tuple[str, ...]] = [
        ("policy", "visits", "95 % interval", "days", "wrong", "95 % interval", "guaranteed")
    ]
    for line in plan.lines:
        curve = line.moving if moving else line.calm
        assert curve is not None
        proof = "n/a" if line.guarantee is None else _count(line.guarantee)
        rows.append((line.name, *need_cells(plan, curve), proof if proven else ""))
    return f"{head}, about {100 * plan.error:g} % wrong verdicts or fewer need\n{_table(rows)}"


def need_cells(plan: Plan, curve: Curve) -> tuple[str, ...]:
    """What a policy needs: visits, days and the share of wrong verdicts, with intervals."""
    need = curve.need
    wrong = (_percent(need.check.rate), f"{_interval(need.check, ' to ')} %")
    if need.budget is None:
        return (f"> {_count(plan.most_rounds)}", "", f"> {plan.most_days}", *wrong)
    known = need.low is not None and need.high is not None
    interval = f"{need.low:,} to {need.high:,}" if known else "unclear"
    return (f"{need.budget:,}", interval, f"{need.days:,}", *wrong)


def error_cell(point: Point) -> str:
    """The share of wrong verdicts in percent, with its interval."""
    return f"{_number(point.rate)} ({_interval(point, '-')})"


def _errors(plan: Plan) -> str:
    rows = [("visits", *(f"{budget:,}" for budget in plan.budgets))]
    for line in plan.lines:
        rows.append((line.name, *map(error_cell, line.asked.points)))
    if plan.theory.floor is not None:
        rows.append(("oracle, calm", *(_number(value) for value in plan.theory.floor)))
    for label, values in plan.theory.bounds.items():
        if min(values) < 0.995:  # a bound of 100 % says nothing
            rows.append((f"bound, {label}", *(_number(value) for value in values)))
    where = "with this rhythm" if plan.moving else "if nothing moves"
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


def _table(rows: list[tuple[str, ...]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    keep = [i for i in range(len(widths)) if i == 0 or any(row[i] for row in rows[1:])]
    return "\n".join(
        "  "
        + "  ".join(row[i].ljust(widths[i]) if i == 0 else row[i].rjust(widths[i]) for i in keep)
        for row in rows
    )


def _needs(line: Line) -> str:
    need = line.asked.need
    return f"{need.budget:,} visits in {counted(need.days or 0, 'day')}"


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


def _percent(rate: float) -> str:
    return f"{_number(rate)} %"
