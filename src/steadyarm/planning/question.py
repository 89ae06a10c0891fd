"""Question: the validated description of a test that is to be planned."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.environments import BernoulliReward, GaussianNoise
from steadyarm.environments.families import arms_from_settings
from steadyarm.errors import InvalidInputError
from steadyarm.inference import Looks
from steadyarm.planning.candidates import Candidate, candidate_from_settings, default_candidates
from steadyarm.planning.worlds import CALM, PlannedWorld, Rhythm
from steadyarm.validation import (
    check_choice,
    check_fraction,
    check_positive,
    finite_number,
    whole_number,
)
from steadyarm.wording import did_you_mean, strung

TOP = (
    "error", "clear", "control", "traffic_per_day", "most_days", "policies", "stop", "looks",
)  # fmt: skip  # the order in which people say it
TABLES = {
    "arms": None,  # checked where arms are built
    "effects": ("smallest_gap", "means"),
    "rewards": ("rate", "sd", "mean", "correlation", "delay"),
    "rhythm": ("kind", "strength"),
}
MOST_VISITS = 10**12  # whoever has more mistyped
CLEAR = 0.8  # the usual chance of a clear answer
STOPS = ("when sure", "recommend")
RHYTHMS_OF_LOOKS = {"daily": 1, "weekly": 7}  # days
USUAL_LOOKS, MOST_LOOKS = 8, 60  # as a live test has them
MOST_LEADERS = 8  # arms that lead in turn in simulated tests
TINY = 1e-12
OWN = ("error", "most_days", "control", "stop", "looks")  # taken as they are
LACKING = {  # what to say where something is missing
    "effects": "say what the arms are worth, such as [effects] with smallest_gap = 0.01.",
    "arms": 'describe them, such as [arms] with one_hot = ["A", "B"].',
    "rewards": "say how rewards scatter, such as [rewards] with rate = 0.05, or with sd = 1.0.",
    "traffic_per_day": "say how many visits a day of the test can have.",
}
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Question:
    """How long must a test be? Everything that has to be known to answer.

    Build one with `from_settings` (a dictionary) or `from_file` (the same as TOML).

    Attributes
    ----------
    arms : the variants
    smallest_gap : by how much one arm leads all others, which apart from that differ as little as
        their features allow; the arms lead in turn. None if means are known
    means : (K,) known values of the arms, such as those of an earlier test; None with a gap
    noise : Gaussian, or Bernoulli for conversions
    level : average reward of an arm without effect
    traffic_per_day : visits that a day of the test can have
    most_days : how long a test may take
    error : the wanted probability of a wrong pick
    rhythm : how effects move
    candidates : the policies to compare
    clear : the wanted chance of a clear answer: with a control, that the best variant is shown to
        beat it, or that it is kept if it is the best; without, that all variants but the best are
        ruled out. None if that is not asked
    control : name of the variant that others are compared with; None for none
    correlation : of rewards with what is known of a unit before it is assigned, a covariate
    delay : days until a reward is known: the reward window of a live test and the grace after it,
        by default as long again, but a week at most
    stop : "when sure" or "recommend" for a test that may end at one of its looks; None for none
    looks : how many looks at equal distances, or "daily" or "weekly"; None for weekly ones if the
        rhythm is weekly, else for eight

    Examples
    --------
    >>> question = Question.from_settings({
    ...     "traffic_per_day": 2000,
    ...     "arms": {"one_hot": ["A", "B", "C"]},
    ...     "effects": {"smallest_gap": 0.01},
    ...     "rewards": {"rate": 0.05},
    ... })
    >>> round(question.environment(budget=1000).gap, 6)
    0.01
    """

    arms: ArmSet
    noise: GaussianNoise | BernoulliReward
    level: float
    traffic_per_day: int
    candidates: tuple[Candidate, ...]
    smallest_gap: float | None = None
    means: tuple[float, ...] | None = None
    rhythm: Rhythm = CALM
    error: float = 0.05
    most_days: int = 90
    clear: float | None = CLEAR
    control: str | None = None
    correlation: float = 0.0
    delay: float = 0.0
    stop: str | None = None
    looks: int | str | None = None

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Question:
        """The question that a dictionary asks.

        Parameters
        ----------
        settings : keys as in docs/run/plan.md

        Returns
        -------
        Question

        Examples
        --------
        >>> question = Question.from_settings({
        ...     "traffic_per_day": 2000,
        ...     "arms": {"one_hot": ["A", "B", "C"]},
        ...     "effects": {"smallest_gap": 0.01},
        ...     "rewards": {"rate": 0.05},
        ...     "rhythm": {"kind": "weekend"},
        ... })
        >>> round(question.sd, 3), question.rhythm.days(20_000, question.traffic_per_day)
        (0.218, 14)
        """
        _check_keys(settings)
        given = {table: dict(settings.get(table, {})) for table in TABLES}
        for key in ("effects", "arms", "traffic_per_day"):
            if key not in settings:
                raise _lacking(key)
        gap, means = _effects(given["effects"])
        if means is None and "rewards" not in settings:
            raise _lacking("rewards")
        arms = arms_from_settings(given["arms"])
        noise, level = _rewards(given["rewards"], means)
        correlation = check_correlation(given["rewards"].get("correlation", 0.0))
        variance = noise.sd**2 if isinstance(noise, GaussianNoise) else max(level - level**2, 1e-6)
        sd = float(np.sqrt(variance * (1 - correlation**2)))
        policies = settings.get("policies")
        if policies is None:
            candidates = default_candidates(arms, sd)
        elif isinstance(policies, (list, tuple)) and policies:
            candidates = tuple(candidate_from_settings(entry, sd) for entry in policies)
        else:
            raise InvalidInputError.of(
                "policies", policies, 'a list of names such as ["steady", "p1-rage"]'
            )
        return cls(
            arms=arms,
            noise=noise,
            level=level,
            traffic_per_day=settings["traffic_per_day"],
            candidates=candidates,
            smallest_gap=gap,
            means=means,
            rhythm=Rhythm(**given["rhythm"]),
            correlation=correlation,
            delay=given["rewards"].get("delay", 0.0),
            **{key: settings[key] for key in OWN if settings.get(key) is not None},
            clear=_clear(settings.get("clear", CLEAR)),
        )

    @classmethod
    def from_file(cls, path: Path) -> Question:
        """The question in a TOML file.

        Parameters
        ----------
        path : a TOML file with the keys of `from_settings`

        Returns
        -------
        Question
        """
        try:
            settings = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InvalidInputError(
                f"{path} does not exist; give a TOML file that asks the question."
            ) from None
        except OSError as error:
            raise InvalidInputError(f"{path} cannot be read: {error.strerror}.") from None
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InvalidInputError(f"{path} cannot be read as TOML: {error}") from None
        try:
            return cls.from_settings(settings)
        except InvalidInputError as error:
            raise InvalidInputError(f"{path}: {error}") from None

    def __post_init__(self) -> None:
        guessing = 1 - 1 / self.arms.size
        if check_fraction(self.error, "error") >= guessing:
            expected = (
                f"less than {guessing:.3g}, the error of guessing among {self.arms.size} arms"
            )
            raise InvalidInputError.of("error", self.error, expected)
        whole_number(self.traffic_per_day, "traffic_per_day", least=1)
        whole_number(self.most_days, "most_days", least=1)
        if self.traffic_per_day * self.most_days > MOST_VISITS:
            raise InvalidInputError(
                f"traffic_per_day is {self.traffic_per_day:.3g} and most_days {self.most_days}; "
                f"expected no more than {MOST_VISITS:.0e} visits in all."
            )
        self._check_answers()
        labels = [candidate.label for candidate in self.candidates]
        for label in labels:
            if labels.count(label) > 1:
                raise InvalidInputError(
                    f"policies has {label!r} twice; give one of them a label of its own."
                )
        if self.most_days < self.days(1):
            wait = "" if not self.delay else f" and this delay of rewards ({self.delay:g} days)"
            raise InvalidInputError(
                f"most_days is {self.most_days}, but a test with this rhythm{wait} takes at least "
                f"{self.days(1)} days; make it longer or choose another rhythm."
            )
        if self.means is not None and len(self.means) != self.arms.size:
            raise InvalidInputError(
                f"effects.means has {len(self.means)} values; expected {self.arms.size}, one per "
                "arm in the order of the arms."
            )
        if self.means is not None and self.gap <= 0:
            raise InvalidInputError(
                "effects.means has no arm that leads; leave out arms that are equal."
            )
        if self.level and not has_constant(self.arms):
            raise InvalidInputError(
                "arms: the features cannot say a value that all arms share, but the rewards have "
                "one; add a feature that is 1 for every arm."
            )
        if isinstance(self.noise, BernoulliReward):
            self._check_rates()

    def _check_rates(self) -> None:
        """Refuse rates below 0 or above 1."""
        shortest = self.rhythm.days(1, self.traffic_per_day)
        for days in {shortest, self.most_days - ceil(self.delay)}:
            pieces = self.rhythm.pieces(days * self.traffic_per_day, days)
            rates = self.level + pieces.swing[:, None, None] * self.shapes
            if rates.min() < -TINY or rates.max() > 1 + TINY:
                raise InvalidInputError(
                    "with this rate and rhythm some arm converts at a rate below 0 or above 1; "
                    "make the gap, or the rhythm's strength, smaller.",
                    field="effects.smallest_gap",
                )

    def _check_answers(self) -> None:
        """Check what is asked about clear answers, and how rewards come."""
        if self.clear is not None:
            check_fraction(self.clear, "clear")
        if self.control is not None and self.control not in self.arms.names:
            raise InvalidInputError.of(
                "control", self.control, f"one of the arms, {strung(self.arms.names, 8)}"
            )
        check_correlation(self.correlation)
        if finite_number(self.delay, "rewards.delay") < 0:
            raise InvalidInputError.of("rewards.delay", self.delay, "a number of days, at least 0")
        if self.stop is None:
            if self.looks is not None:
                expected = 'nothing, unless the test may stop before its end (stop = "when sure")'
                raise InvalidInputError.of("looks", self.looks, expected)
            return
        check_choice(self.stop, "stop", STOPS)
        if self.clear is None:
            raise InvalidInputError(
                "stop is given, but a test stops when its answer is clear, which is not asked; "
                "say the wanted chance of it, such as clear = 0.8.",
                field="stop",
            )
        if isinstance(self.looks, str):
            check_choice(self.looks, "looks", (*RHYTHMS_OF_LOOKS, "or a whole number"))
        elif self.looks is not None and whole_number(self.looks, "looks", least=1) > MOST_LOOKS:
            raise InvalidInputError.of("looks", self.looks, f"at most {MOST_LOOKS}")

    def days(self, budget: int, rhythm: Rhythm | None = None, waits: int = 0) -> int:
        """How many days a test takes, with the wait for the last rewards.

        Parameters
        ----------
        budget : rounds of the test
        rhythm : how effects move; by default that of the question
        waits : how often a policy waits for rewards before it goes on
        """
        rhythm = self.rhythm if rhythm is None else rhythm
        visits = rhythm.days(budget, self.traffic_per_day)
        return visits + ceil(self.delay * (1 + waits))

    def lag(self, budget: int, rhythm: Rhythm) -> int:
        """How many visits a test has while a reward is on its way.

        Parameters
        ----------
        budget : rounds of the test
        rhythm : how effects move
        """
        return round(self.delay * budget / rhythm.days(budget, self.traffic_per_day))

    def how_often(self, rhythm: Rhythm | None = None) -> int | str:
        """How often a test that may stop is looked at: weekly if the rhythm is, else eight times.

        Parameters
        ----------
        rhythm : how effects move; by default that of the question
        """
        if self.looks is not None:
            return self.looks
        return "weekly" if (rhythm or self.rhythm).weekly else USUAL_LOOKS

    def planned_looks(self, budget: int, rhythm: Rhythm) -> Looks:
        """When a test that may stop is looked at.

        Parameters
        ----------
        budget : rounds of the test
        rhythm : how effects move
        """
        days, looks = rhythm.days(budget, self.traffic_per_day), self.how_often(rhythm)
        if not isinstance(looks, str):
            return Looks.equally(looks)
        every = RHYTHMS_OF_LOOKS[looks] * ceil(days / (RHYTHMS_OF_LOOKS[looks] * MOST_LOOKS))
        return Looks((*(day / days for day in range(every, days, every)), 1.0))

    @property
    def scatter(self) -> float:
        """Standard deviation of a reward that is adjusted for the covariate."""
        return self.sd * float(np.sqrt(1 - self.correlation**2))

    @property
    def sd(self) -> float:
        """Standard deviation of a reward, for conversions at the level."""
        if isinstance(self.noise, GaussianNoise):
            return self.noise.sd
        return float(np.sqrt(self.level * (1 - self.level)))

    @cached_property
    def most_rounds(self) -> int:
        """The largest budget that the traffic allows, in whole cycles of the rhythm."""
        days = self.most_days - ceil(self.delay)
        while self.days(days * self.traffic_per_day) > self.most_days:
            days -= 1
        return days * self.traffic_per_day

    @cached_property
    def shapes(self) -> Floats:
        """(M, K) effects of the worlds that simulated tests have in turn."""
        if self.means is not None:
            basis = _orthonormal(self.arms.coordinates)
            return np.array([basis @ (basis.T @ (np.array(self.means) - self.level))])
        gap, K = self.smallest_gap or 0.0, self.arms.size
        leaders = np.unique(np.linspace(0, K - 1, min(K, MOST_LEADERS)).astype(int))
        if np.array_equal(self.arms.features, np.eye(K)):
            return np.asarray(gap * np.eye(K)[leaders])
        shapes = [flattest(self.arms, int(k), gap) for k in leaders]
        possible = [shape for shape in shapes if shape is not None]
        if not possible:
            raise InvalidInputError("no arm can be the best of all; check the features.")
        return np.array(possible)

    @property
    def gap(self) -> float:
        """By how much the best arm leads."""
        if self.means is None:
            return self.smallest_gap or 0.0
        second, first = np.sort(self.shapes[0])[-2:]
        return float(first - second)

    def environment(
        self, budget: int, rhythm: Rhythm | None = None, leader: int = 0
    ) -> PlannedWorld:
        """One of the worlds, for `simulate` and for looking at it.

        Parameters
        ----------
        budget : rounds of the test
        rhythm : how effects move; by default that of the question
        leader : which of the worlds, counted from 0

        Returns
        -------
        PlannedWorld
        """
        rhythm = self.rhythm if rhythm is None else rhythm
        pieces = rhythm.pieces(budget, rhythm.days(budget, self.traffic_per_day))
        effects = self.shapes[leader % len(self.shapes)]
        world = self.arms, budget, effects, self.level, pieces, self.noise
        return PlannedWorld(*world, correlation=self.correlation)

    def to_dict(self) -> dict[str, Any]:
        """Settings from which `from_settings` makes the same question."""
        conversions = isinstance(self.noise, BernoulliReward)
        rewards: dict[str, Any] = {} if conversions else {"sd": self.sd}
        effects: dict[str, Any] = {"smallest_gap": self.smallest_gap}
        if self.means is not None:
            effects = {"means": list(self.means)}
        else:
            rewards |= {"rate": self.level} if conversions else {"mean": self.level}
        rewards |= {"correlation": self.correlation} if self.correlation else {}
        rewards |= {"delay": self.delay} if self.delay else {}
        optional = {"control": self.control, "stop": self.stop, "looks": self.looks}
        return {
            "error": self.error,
            "clear": False if self.clear is None else self.clear,
            **{key: value for key, value in optional.items() if value is not None},
            "traffic_per_day": self.traffic_per_day,
            "most_days": self.most_days,
            "policies": [candidate.to_dict() for candidate in self.candidates],
            "arms": self.arms.to_dict(),
            "effects": effects,
            "rewards": rewards,
            "rhythm": self.rhythm.to_dict(),
        }

    def describe(self) -> str:
        """The question in one or two lines."""
        if self.means is not None:
            effects, rate = f"known means, smallest lead {self.gap:.3g}", "conversions"
        else:
            effects = f"one arm leads the others by {self.gap:g}"
            rate = f"conversion rate {self.level:g}"
        noise = rate if isinstance(self.noise, BernoulliReward) else f"noise of sd {self.sd:g}"
        control = "" if self.control is None else f", {self.control} is the control"
        lines = [
            f"{self.arms.size} arms{control}, {effects}; {noise}; "
            f"{self.traffic_per_day:,} visits a day.",
            f"Rhythm: {self.rhythm.describe()}.",
        ]
        if self.correlation:
            lines.append(f"Covariate: correlation {self.correlation:g} with rewards.")
        if self.delay:
            unit = "day" if self.delay == 1 else "days"
            lines.append(f"Rewards: known after {self.delay:g} {unit}.")
        if self.stop is not None:
            what = "Stops when sure" if self.stop == "when sure" else "Says when to stop"
            lines.append(f"{what}: looks {self.how_often()}.")
        return "\n".join(lines)


def check_correlation(value: Any) -> float:
    """Refuse what is no correlation of rewards with a covariate."""
    given = finite_number(value, "rewards.correlation")
    if not -1 < given < 1:
        raise InvalidInputError.of(
            "rewards.correlation", value, "above -1 and below 1; 0 without a covariate"
        )
    return given


def _clear(value: Any) -> float | None:
    if value is None or value is False:
        return None
    if value is True:
        raise InvalidInputError.of("clear", value, "a chance such as 0.8, or false")
    return finite_number(value, "clear")


def _check_keys(settings: Any) -> None:
    if not isinstance(settings, Mapping):
        raise InvalidInputError(
            f"the question is {settings!r}; expected a Question, a dictionary or a TOML file."
        )
    _check_known(settings, (*TOP, *TABLES), "the question")
    for table, keys in TABLES.items():
        value = settings.get(table, {})
        if not isinstance(value, Mapping):
            raise InvalidInputError.of(table, value, f"a table [{table}]")
        if keys is not None:
            _check_known(value, keys, f"[{table}]")


def _check_known(settings: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in settings:
        if key not in known:
            raise InvalidInputError(
                f"{where} has the key {key!r}; expected some of {', '.join(known)}"
                f"{did_you_mean(str(key), known)}"
            )


def _lacking(key: str) -> InvalidInputError:
    name = f"[{key}]" if key in TABLES else key
    return InvalidInputError(f"{name} is missing; {LACKING[key]}")


def _effects(given: Mapping[str, Any]) -> tuple[float | None, tuple[float, ...] | None]:
    """The smallest gap, or known means."""
    if len(given) != 1:
        raise InvalidInputError(
            f"effects has {strung(list(given)) or 'none of its keys'}; expected exactly one of "
            "smallest_gap or means."
        )
    if "smallest_gap" in given:
        return check_positive(given["smallest_gap"], "effects.smallest_gap"), None
    if not isinstance(given["means"], (list, tuple)):
        raise InvalidInputError.of("effects.means", given["means"], "a list of one number per arm")
    return None, tuple(finite_number(value, "effects.means") for value in given["means"])


def _rewards(
    rewards: Mapping[str, Any], means: tuple[float, ...] | None
) -> tuple[GaussianNoise | BernoulliReward, float]:
    """Noise and level; known means without an sd are rates, and the level is the second best."""
    if "sd" in rewards and "rate" in rewards:
        raise InvalidInputError("rewards has rate and sd; leave one of them out.")
    if means is not None and {"rate", "mean"} & rewards.keys():
        raise InvalidInputError("rewards: known means say the level; leave out rate and mean.")
    if "rate" in rewards and "mean" in rewards:
        raise InvalidInputError("rewards.mean goes with sd; leave it out.")
    if "sd" not in rewards and "rate" not in rewards and means is None:
        raise InvalidInputError(f"rewards: {LACKING['rewards']}")
    noise: GaussianNoise | BernoulliReward = BernoulliReward()
    if "sd" in rewards:
        noise = GaussianNoise(check_positive(rewards["sd"], "rewards.sd"))
    if means is not None:
        return noise, sorted(means)[-2] if len(means) > 1 else 0.0
    if "rate" in rewards:
        return noise, check_fraction(rewards["rate"], "rewards.rate")
    return noise, finite_number(rewards.get("mean", 0.0), "rewards.mean")


def flattest(arms: ArmSet, best: int, gap: float) -> Floats | None:
    """(K,) values with the least variance of which arm `best` leads all others by `gap`.

    The second best is at zero. None if the features let no world have this best arm. A least
    distance problem, solved by Lawson and Hanson's non-negative least squares. Without a constant
    among what the features can say, the sum of squares is least and nothing is shifted.

    Examples
    --------
    >>> (flattest(ArmSet.one_hot(["A", "B", "C"]), best=1, gap=0.1).round(3) + 0.0).tolist()
    [0.0, 0.1, 0.0]
    >>> pages = ArmSet.factorial({"a": ["0", "1"], "b": ["0", "1"]}, interactions=1)
    >>> (flattest(pages, best=3, gap=0.1).round(3) + 0.0).tolist()
    [-0.1, 0.0, 0.0, 0.1]
    """
    X = arms.coordinates
    constant = has_constant(arms)
    basis = _orthonormal(X - X.mean(axis=0) if constant else X)
    others = np.arange(arms.size) != best
    lead = basis[best] - basis[others]
    target = np.zeros(basis.shape[1] + 1)
    target[-1] = 1.0
    found, residual = scipy.optimize.nnls(np.vstack([lead.T, np.ones(len(lead))]), target)
    if residual < 1e-9:
        return None
    miss = np.append(found @ lead, found.sum() - 1.0)
    values = basis @ (-miss[:-1] / miss[-1])
    values /= values[best] - values[others].max()
    values = gap * values
    return np.asarray(values - values[others].max() if constant else values)


def has_constant(arms: ArmSet) -> bool:
    """Whether all arms can have the same value, other than zero."""
    ones = np.ones(arms.size)
    basis = _orthonormal(arms.coordinates)
    fitted = basis @ (basis.T @ ones)
    return bool(np.abs(fitted - 1.0).max() < 1e-8)


def _orthonormal(X: Floats) -> Floats:
    left, singular, _ = np.linalg.svd(X, full_matrices=False)
    return np.asarray(left[:, singular > singular[0] * 1e-10])
