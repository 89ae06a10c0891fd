"""Plan: the result of planning, as numbers, JSON and text."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

from steadyarm.inference.evidence import json_ready
from steadyarm.planning.question import Question
from steadyarm.simulation import clopper_pearson
from steadyarm.wording import align_columns, counted

HARDLY = 0.95  # share of the budget above which stopping early hardly saves visits
ALIKE = 1.1  # ratio of budgets that count as about the same


@dataclass(frozen=True)
class Share:
    """A share of simulated tests, with an exact 95 % interval.

    Examples
    --------
    >>> Share.of(5, 100).rate
    0.05
    """

    count: int
    trials: int
    rate: float
    low: float
    high: float

    @classmethod
    def of(cls, count: int, trials: int) -> Share:
        """The share of a count."""
        return cls(count, trials, count / trials, *clopper_pearson(count, trials))

    @property
    def rest(self) -> Share:
        """The share of the other tests."""
        return Share.of(self.trials - self.count, self.trials)


@dataclass(frozen=True)
class Point:
    """The results of simulated tests with one budget.

    Attributes
    ----------
    budget : the budget of every test
    wrong : tests that pick a wrong variant at the end of the budget, clear or not
    clear : tests that decide for the best variant: all others are ruled out or, with a control, it
        is shown to beat the control or is the control and kept. None if that was not asked for
    visits : mean number of visits of tests that stop when sure; None without stopping
    """

    budget: int
    wrong: Share
    clear: Share | None = None
    visits: float | None = None


@dataclass(frozen=True)
class Need:
    """The budget of a policy for the wanted share of wrong picks or of clear answers.

    Attributes
    ----------
    budget : the smallest budget that suffices; None if the longest acceptable test does not
    low, high : 95 % interval of that budget, from the noise of the simulation and the misfit of
        the curve. It contains `budget`. None if unknown
    days : length of the test; None without a budget
    check : fresh simulated tests with this budget, or with the largest possible one
    """

    budget: int | None
    low: int | None
    high: int | None
    days: int | None
    check: Point

    @property
    def stopping_pays(self) -> bool:
        """Whether stopping when sure saves a relevant number of visits."""
        if self.budget is None or self.check.visits is None:
            return False
        return self.check.visits <= HARDLY * self.budget


@dataclass(frozen=True)
class Line:
    """The plan for one policy.

    Attributes
    ----------
    label, robust : of the candidate
    calm : the need of right picks without drift
    moving : the same under the question's rhythm; None if it has none
    points : tests at the plan's budgets, under the question's rhythm
    clear : the need of clear answers under the question's rhythm; None if not asked for
    picked : tests with the budget that suffices for right picks; None if no budget does, or if
        clear answers are not asked for
    """

    label: str
    robust: bool
    calm: Need
    moving: Need | None
    points: tuple[Point, ...]
    clear: Need | None = None
    picked: Point | None = None

    @property
    def name(self) -> str:
        """The label, with a star if the policy assumes that nothing changes."""
        return self.label + ("" if self.robust else " *")

    @property
    def asked(self) -> Need:
        """The need of right picks under the question's rhythm, if it has one."""
        return self.calm if self.moving is None else self.moving


@dataclass(frozen=True)
class Plan:
    """The length of the test with each policy.

    Attributes
    ----------
    question : the question
    budgets : the budgets at which every policy was simulated
    lines : one per policy
    oracle : the budget of the best fixed design for known means without drift, or None
    trials, seed : the arguments of `plan`, to compute the same plan again

    Examples
    --------
    >>> import steadyarm as sa
    >>> plan = sa.plan({
    ...     "traffic_per_day": 200,
    ...     "arms": {"one_hot": ["A", "B"]},
    ...     "effects": {"smallest_gap": 0.5},
    ...     "rewards": {"sd": 1.0},
    ...     "policies": ["a/b-test"],
    ... }, trials=300)
    >>> plan.choice.label, plan.days
    ('A/B-test', 1)
    """

    question: Question
    budgets: tuple[int, ...]
    lines: tuple[Line, ...]
    oracle: int | None
    trials: int | None
    seed: int

    def line(self, label: str) -> Line:
        """The line of one policy.

        Parameters
        ----------
        label : name of the policy, such as "Steady"

        Returns
        -------
        Line : its needs and errors
        """
        return next(line for line in self.lines if line.label == label)

    @property
    def choice(self) -> Line | None:
        """The first robust policy in the list that no other robust policy clearly beats.

        A policy clearly beats another if it needs over a tenth fewer rounds and the intervals do
        not overlap. If the question names no robust policy, all are compared. None if no policy
        suffices.
        """
        pool = self._pool
        unbeaten = (line for line in pool if not any(_beats(other, line) for other in pool))
        return next(unbeaten, None)

    @property
    def alike(self) -> tuple[Line, ...]:
        """The policies compared with the choice that need about as many rounds as it does."""
        chosen = self.choice
        if chosen is None:
            return ()
        return tuple(
            line
            for line in self._pool
            if line != chosen and not _beats(chosen, line) and not _beats(line, chosen)
        )

    @property
    def _pool(self) -> list[Line]:
        """The policies to choose from: robust ones that suffice."""
        pool = [line for line in self.lines if line.robust] or list(self.lines)
        return [line for line in pool if line.asked.budget is not None]

    @property
    def budget(self) -> int | None:
        """The chosen policy's budget."""
        return None if self.choice is None else self.choice.asked.budget

    @property
    def days(self) -> int | None:
        """The days of a test with that budget."""
        return None if self.choice is None else self.choice.asked.days

    @property
    def clear_budget(self) -> int | None:
        """The chosen policy's budget for the wanted chance of a clear answer."""
        return None if self._answers is None else self._answers.budget

    @property
    def clear_days(self) -> int | None:
        """The days of a test with that budget."""
        return None if self._answers is None else self._answers.days

    @property
    def expected_visits(self) -> float | None:
        """Mean visits of that test if it stops when sure; None if it does not stop."""
        if self._answers is None or self._answers.budget is None:
            return None
        return self._answers.check.visits

    @property
    def _answers(self) -> Need | None:
        line = self.choice or next((line for line in self.lines if line.robust), self.lines[0])
        return line.clear

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: the question, the simulations and the plan."""
        return {
            "question": self.question.to_dict(),
            "summary": self.question.describe(),
            "choice": None if self.choice is None else self.choice.label,
            "about_the_same": [line.label for line in self.alike],
            "budget": self.budget,
            "days": self.days,
            "clear_budget": self.clear_budget,
            "clear_days": self.clear_days,
            "expected_visits": self.expected_visits,
            "most_rounds": self.question.most_rounds,
            "budgets": list(self.budgets),
            "policies": json_ready(self.lines),
            "oracle": self.oracle,
            "trials": self.trials,
            "seed": self.seed,
        }

    @property
    def answer(self) -> str:
        """The recommendation in one sentence."""
        if self.choice is None:
            question = self.question
            most = f"{question.most_rounds:,} visits in {counted(question.most_days, 'day')}"
            who = "robust policy" if any(line.robust for line in self.lines) else "policy"
            return f"No {who} gets down to {100 * question.error:g} % wrong picks within {most}."
        return f"Take {self.choice.label}: {_needs(self.choice)}."

    @property
    def verdict(self) -> str:
        """The recommendation and its reasons, in a few lines."""
        choice = self.choice
        if choice is None:
            advice = "Allow more days, a larger error, or look for larger effects only."
            return f"{self.answer}\n{advice}"
        wrong = choice.asked.check.wrong
        said = [
            self.answer,
            f"In simulation {_percent(wrong.rate)} (95 % interval {_interval(wrong, ' to ')} %) of "
            "the picks are wrong.",
            *_answer_sentences(self, choice),
        ]
        if self.alike:
            others = " and ".join(f"{line.label} ({_needs(line)})" for line in self.alike)
            said.append(f"That is about the same as {others}.")
        return "\n".join(said + _reasons(self, choice))

    @property
    def remarks(self) -> tuple[str, ...]:
        """The meaning of clear, the policies that assume no drift, and the theoretical bound."""
        said = _meaning(self)
        if any(not line.robust for line in self.lines):
            said.append("* assumes no drift; the estimates of the others are unbiased under drift.")
        if self.oracle is not None:
            said.append(
                f"An oracle that knows all means needs {self.oracle:,} visits without drift."
            )
        return tuple(said)

    def __str__(self) -> str:
        tables = [str(table) for table in (*need_tables(self), *budget_tables(self))]
        return "\n\n".join(
            [self.question.describe(), self.verdict, *tables, "\n".join(self.remarks)]
        )

    def __repr__(self) -> str:
        text = f"not within {counted(self.question.most_days, 'day')}"
        if self.choice is not None:
            days = counted(self.days or 0, "day")
            text = f"{self.choice.label}, {self.budget:,} rounds, {days}"
        return f"Plan(error {self.question.error:g}: {text})"


def _beats(line: Line, other: Line) -> bool:
    """Whether a policy clearly needs fewer rounds than another."""
    mine, its = line.asked, other.asked
    if mine.budget is None or its.budget is None or its.budget <= ALIKE * mine.budget:
        return False
    return mine.high is None or its.low is None or mine.high < its.low


# The plan in words.


def _answer_sentences(plan: Plan, line: Line) -> list[str]:
    """The share of clear answers with one policy, and the budget of a clear answer."""
    need, said = line.clear, []
    if plan.question.clear is None or need is None or need.check.clear is None:
        return []
    if line.picked is not None and line.picked.clear is not None:
        proof = (
            "you can also prove it" if plan.question.control is None else "the answer is also clear"
        )
        said.append(
            f"At {line.picked.budget:,} visits the best is picked in "
            f"{_percent(1 - line.asked.check.wrong.rate)} of tests, and in "
            f"{_percent(line.picked.clear.rate)} of tests {proof}."
        )
    wanted = f"For a clear answer in {100 * (plan.question.clear or 0):g} % of tests"
    if need.budget is None:
        return [
            *said,
            f"{wanted} {counted(plan.question.most_days, 'day is', 'days are')} not enough: at "
            f"{need.check.budget:,} visits {_percent(need.check.clear.rate)} of the answers are "
            "clear.",
        ]
    said.append(f"{wanted} it needs {need.budget:,} visits in {counted(need.days or 0, 'day')}.")
    if need.check.visits is not None:
        mean = f"{round(need.check.visits):,} visits on average"
        share = _percent(need.check.visits / need.budget)
        said.append(
            f"A test of that size that stops when sure ends after {mean}, {share} of them."
            if need.stopping_pays
            else f"Stopping when sure hardly saves visits: such a test ends after {mean}."
        )
    return said


def _reasons(plan: Plan, choice: Line) -> list[str]:
    """The reasons for this policy."""
    if not choice.robust:
        return ["Every policy here assumes no drift (*); add one that does not."]
    said = []
    if sum(line.robust for line in plan.lines) > 1:
        said.append(
            "Chosen: the first policy in the list that is unbiased under drift (no *), unless "
            f"another one needs\nover {100 * (ALIKE - 1):.0f} % fewer visits and the intervals do "
            "not overlap."
        )
    fewer = [
        line.name
        for line in plan.lines
        if not line.robust and (line.asked.budget or inf) < (choice.asked.budget or 0)
    ]
    if fewer:
        verb, are = ("need", "are") if len(fewer) > 1 else ("needs", "is")
        said.append(
            f"{' and '.join(fewer)} {verb} fewer visits here, but can pick a wrong variant if "
            f"rewards drift, and {are} not chosen."
        )
    return said


def _meaning(plan: Plan) -> list[str]:
    """The meaning of days, clear answers and stopping."""
    said = []
    if plan.question.clear is not None:
        control, meaning = plan.question.control, "all variants but the best are ruled out."
        if control is not None:
            meaning = (
                f"the best variant is shown to beat {control}, or {control} is kept if it is the "
                "best."
            )
        said.append(f"Clear: at 95 % confidence {meaning}")
    if plan.question.stop is not None:
        said.append(
            "With stopping: mean visits of a test that ends at a look when its answer is clear, "
            "with the visits whose rewards\nare still on their way then; n/a where a policy has no "
            "intervals that hold at looks."
        )
    if plan.question.delay:
        said.append(f"Days include {plan.question.delay:g} for the last rewards.")
    return said


# Tables, for the text and for reports.

Row = tuple[str, ...]


class Table(NamedTuple):
    """A table with a row for each policy."""

    caption: str
    header: Row
    rows: list[Row]

    def __str__(self) -> str:
        lines = align_columns([self.header, *self.rows])
        return "\n".join([self.caption, *(f"  {line}" for line in lines)])


def need_tables(plan: Plan) -> list[Table]:
    """The needs of each policy for right picks, with and without drift, and for clear answers."""
    question, moves = plan.question, plan.question.rhythm.moves
    fewer = f"about {100 * question.error:g} % wrong picks or fewer need"
    needs = {f"Without drift, {fewer}": [line.calm for line in plan.lines]}
    if moves:
        needs[f"With this rhythm, {fewer}"] = [line.asked for line in plan.lines]
    tables = []
    for caption, column in needs.items():
        wrong = [_share(need.check.wrong, " to ") for need in column]
        tables.append(_needs_table(plan, caption, column, {"wrong in % (interval)": wrong}))
    clear = [line.clear for line in plan.lines if line.clear is not None]
    if question.clear is not None:
        shares = [need.check.clear for need in clear]
        more = {"clear in % (interval)": [_share(share, " to ") for share in shares if share]}
        more["clear with right picks"] = [
            _percent(picked.clear.rate) if picked and picked.clear else ""
            for picked in (line.picked for line in plan.lines)
        ]
        if question.stop is not None:
            means = [need.check.visits if need.budget else None for need in clear]
            more["with stopping"] = ["n/a" if n is None else f"{round(n):,}" for n in means]
        caption = f"{_where(moves)}, {100 * question.clear:g} % clear answers need"
        tables.append(_needs_table(plan, caption, clear, more))
    return tables


def _needs_table(plan: Plan, caption: str, needs: list[Need], more: dict[str, list[str]]) -> Table:
    question, rows = plan.question, []
    for line, need, *cells in zip(plan.lines, needs, *more.values(), strict=True):
        visits, budgets, days = f"> {question.most_rounds:,}", "", f"> {question.most_days}"
        if need.budget is not None:
            visits, budgets, days = f"{need.budget:,}", "unclear", f"{need.days:,}"
        if need.low is not None and need.high is not None:
            budgets = f"{need.low:,} to {need.high:,}"
        rows.append((line.name, visits, budgets, days, *cells))
    return Table(caption, ("policy", "visits", "95 % interval", "days", *more), rows)


def budget_tables(plan: Plan) -> list[Table]:
    """Wrong picks, and clear answers, of each policy at each budget."""
    where = _where(plan.question.rhythm.moves)
    by_budget = f"in % (95 % interval) by budget, {where[0].lower()}{where[1:]}"
    header = ("visits", *(f"{budget:,}" for budget in plan.budgets))
    wrong = [(line.name, *(_share(point.wrong) for point in line.points)) for line in plan.lines]
    tables = [Table(f"Wrong picks {by_budget}", header, wrong)]
    if plan.question.clear is not None:
        clear = [
            (line.name, *(_share(point.clear) for point in line.points if point.clear))
            for line in plan.lines
        ]
        tables.append(Table(f"Clear answers {by_budget}", header, clear))
    return tables


def _where(moving: bool) -> str:
    return "With this rhythm" if moving else "Without drift"


def _share(share: Share, between: str = "-") -> str:
    return f"{_number(share.rate)} ({_interval(share, between)})"


def _needs(line: Line) -> str:
    return f"{line.asked.budget:,} visits in {counted(line.asked.days or 0, 'day')}"


def _interval(share: Share, between: str) -> str:
    return f"{_number(share.low)}{between}{_number(share.high)}"


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
