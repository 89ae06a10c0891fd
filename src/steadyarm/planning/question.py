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

from steadyarm.arms import ArmSet
from steadyarm.environments import BernoulliReward, Environment, GaussianNoise
from steadyarm.environments.families import arms_from_settings
from steadyarm.errors import InvalidInputError
from steadyarm.inference import Looks
from steadyarm.inference.boundaries import SPENDING, Spending
from steadyarm.planning.candidates import Candidate, candidate_from_settings, default_candidates
from steadyarm.planning.effects import Effects, LogSummary, has_constant, read_log
from steadyarm.planning.worlds import CALM, KINDS, BatchWorld, Rhythm, check_word
from steadyarm.validation import check_fraction, check_positive, finite_number, whole_number
from steadyarm.wording import did_you_mean, strung

TOP = (
    "error", "clear", "control", "traffic_per_day", "most_days", "policies",
    "stop", "looks", "spending", "futility",
)  # fmt: skip  # the order in which people say it
TABLES = {
    "arms": None,  # checked where arms are built
    "effects": ("smallest_gap", "means", "spread", "range", "log", "indifference"),
    "rewards": ("rate", "sd", "mean", "conversions", "correlation", "delay"),
    "rhythm": ("kind", "strength", "lift", "starts", "week", "curve"),
}
MOST_VISITS = 10**12  # whoever has more mistyped
CLEAR = 0.8  # the usual chance of a clear answer
STOPS = ("when sure", "recommend")
RHYTHMS_OF_LOOKS = {"daily": 1, "weekly": 7}  # days
USUAL_LOOKS, MOST_LOOKS = 8, 60  # as a live test has them
STOPPING = ("stop", "looks", "spending", "futility")
OWN = ("error", "most_days", "control", *STOPPING)  # taken as they are
LACKING = {  # what to say where something is missing
    "effects": "say what the arms are worth, such as [effects] with smallest_gap = 0.01.",
    "arms": 'describe them, such as [arms] with one_hot = ["A", "B"].',
    "rewards": "say how rewards scatter, such as [rewards] with rate = 0.05, or with sd = 1.0.",
    "traffic_per_day": "say how many visits a day of the test can have.",
}


@dataclass(frozen=True, eq=False)
class Question:
    """How long must a test be? Everything that has to be known to answer.

    Build one with `from_settings` (a dictionary) or `from_file` (the same as TOML).

    Attributes
    ----------
    arms : the variants
    effects : what they are worth
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
    spending : how the error probability is spread over the looks, "obrien-fleming" or "pocock"
    futility : smallest difference that matters, in units of the reward: the test also ends at a
        look, without a clear answer, when none can be shown any more. None for never

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
    effects: Effects
    noise: GaussianNoise | BernoulliReward
    level: float
    traffic_per_day: int
    candidates: tuple[Candidate, ...]
    rhythm: Rhythm = CALM
    error: float = 0.05
    most_days: int = 90
    clear: float | None = CLEAR
    control: str | None = None
    correlation: float = 0.0
    delay: float = 0.0
    stop: str | None = None
    looks: int | str | None = None
    spending: Spending = SPENDING[0]
    futility: float | None = None

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], folder: Path = Path()) -> Question:
        """The question that a dictionary asks; files it names are in `folder`.

        Parameters
        ----------
        settings : keys as in docs/plan.md
        folder : where files that it names are

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
        if "effects" not in settings:
            raise _lacking("effects")
        log = _log(given["effects"], folder)
        if given["arms"]:
            arms = arms_from_settings(given["arms"])
        elif log is not None:
            arms = ArmSet.one_hot(log.names)
        else:
            raise _lacking("arms")
        if log is None and "rewards" not in settings:
            raise _lacking("rewards")
        noise, level, effects = _rewards(arms, given["effects"], given["rewards"], log)
        correlation = check_correlation(given["rewards"].get("correlation", 0.0))
        if isinstance(noise, GaussianNoise):
            sd = noise.sd
        else:
            sd = float(np.sqrt(max(level * (1 - level), 1e-6)))
        sd *= float(np.sqrt(1 - correlation**2))
        policies = settings.get("policies")
        if policies is None:
            candidates = default_candidates(arms, sd)
        elif isinstance(policies, (list, tuple)) and policies:
            candidates = tuple(candidate_from_settings(entry, sd) for entry in policies)
        else:
            raise InvalidInputError.of(
                "policies", policies, 'a list of names such as ["steady", "p1-rage"]'
            )
        if "traffic_per_day" not in settings:
            raise _lacking("traffic_per_day")
        return cls(
            arms=arms,
            effects=effects,
            noise=noise,
            level=level,
            traffic_per_day=settings["traffic_per_day"],
            candidates=candidates,
            rhythm=_rhythm(given["rhythm"]),
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
            return cls.from_settings(settings, path.parent)
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
        shortest = self.rhythm.days(1, self.traffic_per_day)
        if self.most_days < self.days(1):
            wait = "" if not self.delay else f" and this delay of rewards ({self.delay:g} days)"
            raise InvalidInputError(
                f"most_days is {self.most_days}, but a test with this rhythm{wait} takes at least "
                f"{self.days(1)} days; make it longer or choose another rhythm."
            )
        if not has_constant(self.arms) and (
            self.level or self.rhythm.lift or sum(self.effects.range or (0.0,))
        ):
            raise InvalidInputError(
                "arms: the features cannot say a value that all arms share, but the rewards have "
                "one; add a feature that is 1 for every arm."
            )
        if isinstance(self.noise, BernoulliReward):  # no rate below 0 or above 1
            for days in {shortest, self.most_days - ceil(self.delay)}:
                rounds = days * self.traffic_per_day
                self.effects.check_within(*self._possible(self.rhythm, rounds))

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
        check_word(self.spending, "spending", SPENDING)
        if self.stop is not None:
            check_word(self.stop, "stop", STOPS)
        if self.futility is not None:
            check_positive(self.futility, "futility")
        spending = None if self.spending == SPENDING[0] else self.spending
        further = {"looks": self.looks, "spending": spending, "futility": self.futility}
        for key, given in further.items():
            if given is None or self.stop is not None:
                continue
            expected = 'nothing, unless the test may stop before its end (stop = "when sure")'
            raise InvalidInputError.of(key, given, expected)
        if self.stop is not None and self.clear is None:
            raise InvalidInputError(
                "stop is given, but a test stops when its answer is clear, which is not asked; "
                "say the wanted chance of it, such as clear = 0.8.",
                field="stop",
            )
        if isinstance(self.looks, str) and self.looks not in RHYTHMS_OF_LOOKS:
            raise InvalidInputError.of("looks", self.looks, "a whole number, daily or weekly")
        if isinstance(self.looks, str):
            return
        if self.looks is not None and whole_number(self.looks, "looks", least=1) > MOST_LOOKS:
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
            return Looks.equally(looks, self.spending)
        every = RHYTHMS_OF_LOOKS[looks] * ceil(days / (RHYTHMS_OF_LOOKS[looks] * MOST_LOOKS))
        return Looks((*(day / days for day in range(every, days, every)), 1.0), self.spending)

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

    def world(
        self, budget: int, rhythm: Rhythm, rng: np.random.Generator, trials: int
    ) -> BatchWorld:
        """A batch of worlds, each with effects of its own.

        Parameters
        ----------
        budget : rounds of the test
        rhythm : how effects move
        rng : from which all randomness comes
        trials : how many worlds
        """
        pieces = rhythm.pieces(budget, rhythm.days(budget, self.traffic_per_day))
        if isinstance(self.noise, BernoulliReward) and self.effects.drawn:
            low, high = self._possible(rhythm, budget)
            effects = self.effects.draw_within(rng, trials, low, high)
        else:
            effects = self.effects.draw(rng, trials)
        world = self.arms, budget, effects, self.level, pieces, self.noise
        return BatchWorld(*world, correlation=self.correlation)

    def environment(self, budget: int, rhythm: Rhythm | None = None, seed: int = 0) -> Environment:
        """One of the worlds as an `Environment`, for `simulate` and for looking at it.

        Parameters
        ----------
        budget : rounds of the test
        rhythm : how effects move; by default that of the question
        seed : of the effects, where these are drawn

        Returns
        -------
        Environment
        """
        rhythm = self.rhythm if rhythm is None else rhythm
        world = self.world(budget, rhythm, np.random.default_rng(seed), 1)
        p = world.pieces
        rows = p.swing[:, None] * world.effects + (self.level + p.level)[:, None]
        if len(rows) == 1:
            return Environment.from_means(self.arms, rows[0], self.noise, budget)
        table = np.repeat(rows, np.diff(p.ends, prepend=0), axis=0)
        return Environment.from_means(self.arms, table, self.noise)

    def to_dict(self) -> dict[str, Any]:
        """Settings from which `from_settings` makes the same question."""
        conversions = isinstance(self.noise, BernoulliReward)
        effects = self.effects.to_dict()
        if self.effects.means is not None:
            effects["means"] = [value + self.level for value in self.effects.means]
            rewards: dict[str, Any] = {"conversions": True} if conversions else {"sd": self.sd}
        else:
            rewards = {"rate": self.level} if conversions else {"sd": self.sd, "mean": self.level}
        if self.correlation:
            rewards["correlation"] = self.correlation
        if self.delay:
            rewards["delay"] = self.delay
        stopping = {name: getattr(self, name) for name in STOPPING}
        return {
            "error": self.error,
            "clear": False if self.clear is None else self.clear,
            **({} if self.control is None else {"control": self.control}),
            **({} if self.stop is None else stopping),
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
        rate = f"conversion rate {self.level:g}"
        if self.effects.means is not None:
            rate = "conversions"
        noise = rate if isinstance(self.noise, BernoulliReward) else f"noise of sd {self.sd:g}"
        control = "" if self.control is None else f", {self.control} is the control"
        more = []
        if self.correlation:
            more.append(f"Covariate: correlation {self.correlation:g} with rewards.")
        if self.delay:
            more.append(
                f"Rewards: known after {self.delay:g} {'day' if self.delay == 1 else 'days'}."
            )
        if self.stop is not None:
            what = "Stops when sure" if self.stop == "when sure" else "Says when to stop"
            futile = "" if self.futility is None else f", futility {self.futility:g}"
            more.append(f"{what}: looks {self.how_often()}, spending {self.spending}{futile}.")
        return (
            f"{self.arms.size} arms{control}, {self.effects.describe()}; {noise}; "
            f"{self.traffic_per_day:,} visits a day.\nRhythm: {self.rhythm.describe()}."
        ) + "".join(f"\n{line}" for line in more)

    def _possible(self, rhythm: Rhythm, budget: int) -> tuple[float, float]:
        """Least and largest effects for which every rate is between 0 and 1."""
        pieces = rhythm.pieces(budget, rhythm.days(budget, self.traffic_per_day))
        ends = [
            ((0.0 - self.level - pieces.level) / pieces.swing)[pieces.swing != 0],
            ((1.0 - self.level - pieces.level) / pieces.swing)[pieces.swing != 0],
        ]
        low, high = np.minimum(*ends), np.maximum(*ends)
        return float(low.max(initial=-1.0)), float(high.min(initial=1.0))


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


def _log(effects: dict[str, Any], folder: Path) -> LogSummary | None:
    name = effects.pop("log", None)
    if name is None:
        return None
    if not isinstance(name, str):
        raise InvalidInputError.of("effects.log", name, "the name of a CSV file")
    return read_log(folder / name)


def _lacking(key: str) -> InvalidInputError:
    name = f"[{key}]" if key in TABLES else key
    return InvalidInputError(f"{name} is missing; {LACKING[key]}")


def _rewards(
    arms: ArmSet, effects: dict[str, Any], rewards: dict[str, Any], log: LogSummary | None
) -> tuple[GaussianNoise | BernoulliReward, float, Effects]:
    """Noise, level and effects."""
    if log is not None:
        missing = [name for name in arms.names if name not in log.names]
        if missing:
            raise InvalidInputError(
                f"effects.log has no arm {missing[0]!r}; it has {strung(log.names, 8)}."
            )
        if more := [key for key in ("means", "smallest_gap", "spread", "range") if key in effects]:
            raise InvalidInputError(f"effects has log and {more[0]}; leave one of them out.")
        effects = effects | {"means": [log.means[log.names.index(name)] for name in arms.names]}
        if not {"rate", "sd", "conversions"} & rewards.keys():
            rewards = rewards | ({"conversions": True} if log.conversions else {"sd": log.sd})
    known = "means" in effects
    ways = [way for way in ("rate", "sd", "conversions") if way in rewards]
    allowed = ("sd", "conversions") if known else ("rate", "sd")
    if rewards.get("conversions", True) is not True:
        raise InvalidInputError.of(
            "rewards.conversions", rewards["conversions"], "true, or leave it out"
        )
    if len(ways) != 1 or ways[0] not in allowed:
        raise InvalidInputError(
            f"rewards says {', '.join(ways) or 'nothing'}; with "
            f"{'known means' if known else 'these effects'} expected exactly one of "
            f"{' = … or '.join(allowed)} = … (rate: conversions at that rate; sd: rewards with "
            "that standard deviation; conversions = true: the means are rates)."
        )
    noise: GaussianNoise | BernoulliReward
    if "sd" in rewards:
        sd = check_positive(rewards["sd"], "rewards.sd")
        noise, level = GaussianNoise(sd), finite_number(rewards.get("mean", 0.0), "rewards.mean")
    else:
        noise = BernoulliReward()
        level = check_fraction(rewards["rate"], "rewards.rate") if "rate" in rewards else 0.0
    if "mean" in rewards and ("sd" not in rewards or known):
        raise InvalidInputError(
            "rewards.mean goes with sd and effects other than known means; leave it out."
        )
    effects = {k: _plain(v, f"effects.{k}") for k, v in effects.items()}
    if known and has_constant(arms):  # effects are relative to the second best arm
        level = float(np.sort(effects["means"])[-2]) if len(effects["means"]) > 1 else 0.0
        effects["means"] = tuple(value - level for value in effects["means"])
    return noise, level, Effects(arms, **effects)


def _plain(value: Any, what: str) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(finite_number(x, what) for x in value)
    if what in ("effects.means", "effects.range"):
        raise InvalidInputError.of(what, value, "a list of numbers")
    return finite_number(value, what)


def _rhythm(settings: dict[str, Any]) -> Rhythm:
    if "curve" in settings:
        curve = settings["curve"]
        if not isinstance(curve, (list, tuple)):
            raise InvalidInputError.of("rhythm.curve", curve, "a list with one number per day")
        settings = {"kind": "curve"} | settings
        settings["curve"] = tuple(finite_number(x, "rhythm.curve") for x in curve)
    if settings and "kind" not in settings:
        raise InvalidInputError(
            f"rhythm has {', '.join(settings)} but no kind; expected none, weekend, promotion, "
            "trend or curve."
        )
    if settings:
        check_word(settings["kind"], "rhythm.kind", tuple(KINDS))
        idle = [key for key in settings if key not in ("kind", *KINDS[settings["kind"]])]
        if idle:
            kinds = [kind for kind, keys in KINDS.items() if idle[0] in keys]
            raise InvalidInputError(
                f'rhythm.{idle[0]} is given, but kind = "{settings["kind"]}" makes no use of it; '
                f"leave it out, or choose the kind {' or '.join(kinds)}."
            )
    if isinstance(settings.get("starts"), str):
        settings = settings | {"starts": settings["starts"].lower()}
    return Rhythm(**settings)
