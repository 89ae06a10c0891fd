"""Plan: the answer to a question, as numbers; `text.py` prints it and `draw.py` draws it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

from steadyarm.simulation import clopper_pearson

ALIKE = 1.1  # budgets within this ratio are about the same


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

    def to_dict(self) -> dict[str, Any]:
        """Counts, rate and interval."""
        return asdict(self) | {"rate": self.rate, "interval": list(self.interval())}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Point:
        """The point that `to_dict` wrote."""
        return cls(data["budget"], data["errors"], data["trials"])


@dataclass(frozen=True)
class Need:
    """What a policy needs for the wanted error.

    Attributes
    ----------
    budget : smallest budget that gives the wanted error; None if the most days are not enough
    low, high : 95 % interval of that budget, from the simulation's own noise; None if the
        simulation does not tell
    days : how long the test takes; None without a budget
    check : errors in fresh simulated tests with this budget, or with the largest possible one
    """

    budget: int | None
    low: int | None
    high: int | None
    days: int | None
    check: Point

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "budget": self.budget,
            "interval": None if self.low is None else [self.low, self.high],
            "days": self.days,
            "check": self.check.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Need:
        """What `to_dict` wrote."""
        low, high = data["interval"] or (None, None)
        return cls(data["budget"], low, high, data["days"], Point.from_dict(data["check"]))


@dataclass(frozen=True)
class Curve:
    """One policy in one kind of world: what it needs, and errors at several budgets."""

    need: Need
    points: tuple[Point, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"need": self.need.to_dict(), "points": [p.to_dict() for p in self.points]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Curve:
        """What `to_dict` wrote."""
        points = tuple(Point.from_dict(point) for point in data["points"])
        return cls(Need.from_dict(data["need"]), points)


@dataclass(frozen=True)
class Line:
    """All about one policy.

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
    def asked(self) -> Curve:
        """Under the question's rhythm, whatever it is."""
        return self.calm if self.moving is None else self.moving

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "policy": self.label,
            "robust": self.robust,
            "calm": self.calm.to_dict(),
            "moving": None if self.moving is None else self.moving.to_dict(),
            "surprised": None if self.surprised is None else self.surprised.to_dict(),
            "guarantee": self.guarantee,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Line:
        """What `to_dict` wrote."""
        moving, surprised = data["moving"], data["surprised"]
        return cls(
            data["policy"],
            data["robust"],
            Curve.from_dict(data["calm"]),
            None if moving is None else Curve.from_dict(moving),
            None if surprised is None else Point.from_dict(surprised),
            data["guarantee"],
        )


@dataclass(frozen=True)
class Theory:
    """What can be said without simulating; None where the theory is silent.

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

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "oracle": self.oracle,
            "floor": None if self.floor is None else list(self.floor),
            "bounds": {label: list(values) for label, values in self.bounds.items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Theory:
        """What `to_dict` wrote."""
        floor = data["floor"]
        bounds = {label: tuple(values) for label, values in data["bounds"].items()}
        return cls(data["oracle"], None if floor is None else tuple(floor), bounds)


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
        apart: what is less could be luck. If the question names no robust policy, all are
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
        """Those among which is chosen: robust ones that are enough."""
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
        return _fewest([line for line in self.lines if not line.robust], moving=False)

    @property
    def robustness_cost(self) -> float | None:
        """Budget of the choice over that of its rival, if nothing moves; None without both."""
        return _ratio(self.choice, self.rival, moving=False)

    @property
    def robustness_saving(self) -> float | None:
        """Budget of the best policy that trusts the world over that of the choice, as asked.

        Infinite if the most days are not enough for it; None if nothing moves in the question.
        """
        trusting = [line for line in self.lines if not line.robust]
        if self.choice is None or not trusting or self.choice.moving is None:
            return None
        best = _fewest(trusting, moving=True)
        return inf if best is None else _ratio(best, self.choice, moving=True)

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
            "policies": [line.to_dict() for line in self.lines],
            "theory": self.theory.to_dict(),
            "trials": self.trials,
            "seed": self.seed,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Plan:
        """The plan that `to_dict` wrote."""
        same = ("question", "summary", "error", "most_days", "most_rounds", "trials", "seed")
        return cls(
            **{key: data[key] for key in same},
            budgets=tuple(data["budgets"]),
            lines=tuple(Line.from_dict(line) for line in data["policies"]),
            theory=Theory.from_dict(data["theory"]),
        )

    def __str__(self) -> str:
        from steadyarm.planning.text import text_of  # the text needs the plan's class

        return text_of(self)

    def __repr__(self) -> str:
        found = "not within " + f"{self.most_days} days"
        if self.choice is not None:
            found = f"{self.choice.label}, {self.budget:,} rounds, {self.days} days"
        return f"Plan(error {self.error:g}: {found})"


def _beats(one: Line | None, other: Line | None) -> bool:
    """Whether one clearly needs fewer rounds than another, as asked."""
    if one is None or other is None:
        return False
    mine, its = one.asked.need, other.asked.need
    if mine.budget is None or its.budget is None or its.budget <= ALIKE * mine.budget:
        return False
    return mine.high is None or its.low is None or mine.high < its.low


def _fewest(lines: list[Line], moving: bool) -> Line | None:
    needs = [((line.asked if moving else line.calm).need.budget, line) for line in lines]
    enough = [(budget, line) for budget, line in needs if budget is not None]
    return min(enough, key=lambda pair: pair[0])[1] if enough else None


def _ratio(upper: Line | None, lower: Line | None, moving: bool) -> float | None:
    if upper is None or lower is None:
        return None
    above = (upper.asked if moving else upper.calm).need.budget
    below = (lower.asked if moving else lower.calm).need.budget
    return None if above is None or below is None else above / below
