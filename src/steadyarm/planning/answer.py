"""Plan: the answer to a question, as numbers and as JSON; `text.py` says it in words."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import ceil, inf
from typing import Any

from steadyarm.inference.evidence import json_ready
from steadyarm.planning import text
from steadyarm.planning.text import ALIKE
from steadyarm.simulation import clopper_pearson
from steadyarm.wording import counted

HARDLY = 0.95  # share of its budget beyond which a test that stops early hardly saves visits


@dataclass(frozen=True)
class Point:
    """How often a policy failed in simulated tests with one budget.

    To fail is to pick a wrong variant or, where clear answers are wanted, to give none.
    """

    budget: int
    errors: int
    trials: int

    @property
    def rate(self) -> float:
        """Share of the tests that failed."""
        return self.errors / self.trials

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Exact interval for the probability of failure."""
        return clopper_pearson(self.errors, self.trials, level)


@dataclass(frozen=True)
class Answers:
    """How often the answer was clear, and right, in simulated tests with one budget.

    Attributes
    ----------
    budget : of every test
    clear : tests that decide for the best variant: all others are ruled out or, with a control, it
        is shown to beat the control, which is kept if it is the best
    errors : tests that pick a wrong variant at the end of the budget, whether sure or not
    trials : simulated tests
    visits : mean number of visits of tests that stop when sure; None for those that do not
    """

    budget: int
    clear: int
    errors: int
    trials: int
    visits: float | None = None

    @property
    def rate(self) -> float:
        """Share of clear answers."""
        return self.clear / self.trials

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Exact interval for the chance of a clear answer."""
        return clopper_pearson(self.clear, self.trials, level)


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
class Clear:
    """Clear answers of one policy, in the world that was asked about.

    Attributes
    ----------
    need : the smallest budget for the wanted chance of a clear answer; to fail is to give none
    check : answers in the tests that `need` was checked with
    picked : answers with the budget that is enough to pick the best; None if none is
    points : answers at the plan's budgets
    """

    need: Need
    check: Answers
    picked: Answers | None
    points: tuple[Answers, ...]

    @property
    def share(self) -> float | None:
        """Mean visits of a test that stops when sure, over its budget; None if none does."""
        if self.need.budget is None or self.check.visits is None:
            return None
        return self.check.visits / self.need.budget

    @property
    def stopping_pays(self) -> bool:
        """Whether stopping when sure saves visits that are worth it."""
        return self.share is not None and self.share <= HARDLY


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
    clear : how often the answer is clear, under the question's rhythm; None if that is not asked
    """

    label: str
    robust: bool
    calm: Curve
    moving: Curve | None
    surprised: Point | None
    guarantee: int | None
    clear: Clear | None = None

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
    """

    oracle: int | None
    floor: tuple[float, ...] | None


@dataclass(frozen=True)
class Plan:
    """The answer: how long the test must be, with each policy.

    Attributes
    ----------
    question : its settings, as `Question.to_dict` writes them
    summary : the question in words
    error : the wanted probability of a wrong pick
    clear : the wanted chance of a clear answer; None if that is not asked
    most_days : how long a test may take
    most_rounds : the largest budget that was tried
    budgets : at which every policy was simulated
    lines : one per policy
    theory : bounds beside the simulation
    trials, seed : as asked, to get the same plan again

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
    >>> found.choice.label, found.days
    ('A/B-test', 1)
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
    clear: float | None = None

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
    def clear_budget(self) -> int | None:
        """The chosen policy's budget for the wanted chance of a clear answer."""
        return None if self._answers is None else self._answers.need.budget

    @property
    def clear_days(self) -> int | None:
        """How long that takes."""
        return None if self._answers is None else self._answers.need.days

    @property
    def expected_visits(self) -> float | None:
        """Mean visits of that test if it stops when sure; None if it does not stop."""
        if self.clear_budget is None or self._answers is None:
            return None
        return self._answers.check.visits

    @property
    def _answers(self) -> Clear | None:
        line = self.choice or next((line for line in self.lines if line.robust), self.lines[0])
        return line.clear

    @property
    def traffic_share(self) -> float | None:
        """Which share of the traffic the test takes, on the days on which it has visits."""
        if self.budget is None or self.days is None:
            return None
        days = max(self.days - ceil(self.delay), 1)
        return min(float(self.budget / (days * self.question["traffic_per_day"])), 1.0)

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
        """Plain values, for JSON."""
        saving = self.robustness_saving
        return {
            "question": self.question,
            "summary": self.summary,
            "error": self.error,
            "clear": self.clear,
            "most_days": self.most_days,
            "most_rounds": self.most_rounds,
            "choice": None if self.choice is None else self.choice.label,
            "about_the_same": [line.label for line in self.alike],
            "budget": self.budget,
            "days": self.days,
            "traffic_share": self.traffic_share,
            "clear_budget": self.clear_budget,
            "clear_days": self.clear_days,
            "expected_visits": self.expected_visits,
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

    @property
    def control(self) -> str | None:
        """The variant that others are compared with."""
        control: str | None = self.question.get("control")
        return control

    @property
    def delay(self) -> float:
        """Days until a reward is known."""
        return float(self.question.get("rewards", {}).get("delay", 0.0))

    @property
    def stops(self) -> bool:
        """Whether tests may stop before their end."""
        return self.question.get("stop") is not None

    @property
    def moving(self) -> bool:
        """Whether the question has a rhythm."""
        return self.lines[0].moving is not None

    @property
    def verdict(self) -> str:
        """What to do and why, in a few lines."""
        return text.verdict(self)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What clear means, what robustness costs and saves, what the theory says."""
        return text.remarks(self)

    def __str__(self) -> str:
        return text.whole(self)

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


def _write_point(point: Point | Answers) -> dict[str, Any]:
    return asdict(point) | {"rate": point.rate, "interval": list(point.interval())}


def _write_need(need: Need) -> dict[str, Any]:
    values = asdict(need) | {"check": _write_point(need.check)}
    low, high = values.pop("low"), values.pop("high")
    return values | {"interval": None if low is None else [low, high]}


def _write_curve(curve: Curve | Clear) -> dict[str, Any]:
    points = [_write_point(point) for point in curve.points]
    return {"need": _write_need(curve.need), "points": points}


def _write_clear(clear: Clear) -> dict[str, Any]:
    picked = clear.picked and _write_point(clear.picked)
    return {**_write_curve(clear), "check": _write_point(clear.check), "picked": picked}


def _write_line(line: Line) -> dict[str, Any]:
    return {
        "policy": line.label,
        "robust": line.robust,
        "calm": _write_curve(line.calm),
        "moving": line.moving and _write_curve(line.moving),
        "surprised": line.surprised and _write_point(line.surprised),
        "guarantee": line.guarantee,
        "clear": line.clear and _write_clear(line.clear),
    }
