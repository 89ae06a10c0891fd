"""Question: the validated description of a test that is to be planned."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from steadyarm.arms import ArmSet
from steadyarm.environments import BernoulliReward, Environment, GaussianNoise
from steadyarm.environments.families import arms_from_settings
from steadyarm.errors import InvalidInputError
from steadyarm.planning.candidates import Candidate, candidate_from_settings, default_candidates
from steadyarm.planning.effects import Effects, LogSummary, has_constant, read_log
from steadyarm.planning.worlds import CALM, KINDS, BatchWorld, Rhythm, check_word
from steadyarm.validation import check_fraction, check_positive, finite_number, whole_number
from steadyarm.wording import did_you_mean, strung

TOP = ("error", "traffic_per_day", "most_days", "policies")
TABLES = {
    "arms": None,  # checked where arms are built
    "effects": ("smallest_gap", "means", "spread", "range", "log", "indifference"),
    "rewards": ("rate", "sd", "mean", "conversions"),
    "rhythm": ("kind", "strength", "lift", "starts", "week", "curve"),
}
MOST_VISITS = 10**12  # whoever has more mistyped
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
    error : the wanted probability of a wrong verdict
    rhythm : how effects move
    candidates : the policies to compare
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

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], folder: Path = Path()) -> Question:
        """The question that a dictionary asks; files it names are in `folder`.

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
        if isinstance(noise, GaussianNoise):
            sd = noise.sd
        else:
            sd = float(np.sqrt(max(level * (1 - level), 1e-6)))
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
            **{key: settings[key] for key in ("error", "most_days") if key in settings},
        )

    @classmethod
    def from_file(cls, path: Path) -> Question:
        """The question in a TOML file."""
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
        labels = [candidate.label for candidate in self.candidates]
        for label in labels:
            if labels.count(label) > 1:
                raise InvalidInputError(
                    f"policies has {label!r} twice; give one of them a label of its own."
                )
        shortest = self.rhythm.days(1, self.traffic_per_day)
        if self.most_days < shortest:
            raise InvalidInputError(
                f"most_days is {self.most_days}, but a test with this rhythm takes at least "
                f"{shortest} days; make it longer or choose another rhythm."
            )
        if not has_constant(self.arms) and (
            self.level or self.rhythm.lift or sum(self.effects.range or (0.0,))
        ):
            raise InvalidInputError(
                "arms: the features cannot say a value that all arms share, but the rewards have "
                "one; add a feature that is 1 for every arm."
            )
        if isinstance(self.noise, BernoulliReward):  # no rate below 0 or above 1
            for days in {shortest, self.most_days}:
                rounds = days * self.traffic_per_day
                self.effects.check_within(*self._possible(self.rhythm, rounds))

    @property
    def sd(self) -> float:
        """Standard deviation of a reward, for conversions at the level."""
        if isinstance(self.noise, GaussianNoise):
            return self.noise.sd
        return float(np.sqrt(self.level * (1 - self.level)))

    @cached_property
    def most_rounds(self) -> int:
        """The largest budget that the traffic allows, in whole cycles of the rhythm."""
        days = self.most_days
        while self.rhythm.days(days * self.traffic_per_day, self.traffic_per_day) > self.most_days:
            days -= 1
        return days * self.traffic_per_day

    def world(
        self, budget: int, rhythm: Rhythm, rng: np.random.Generator, trials: int
    ) -> BatchWorld:
        """A batch of worlds, each with effects of its own."""
        pieces = rhythm.pieces(budget, rhythm.days(budget, self.traffic_per_day))
        if isinstance(self.noise, BernoulliReward) and self.effects.drawn:
            low, high = self._possible(rhythm, budget)
            effects = self.effects.draw_within(rng, trials, low, high)
        else:
            effects = self.effects.draw(rng, trials)
        return BatchWorld(self.arms, budget, effects, self.level, pieces, self.noise)

    def environment(self, budget: int, rhythm: Rhythm | None = None, seed: int = 0) -> Environment:
        """One of the worlds as an `Environment`, for `simulate` and for looking at it."""
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
        return {
            "error": self.error,
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
        return (
            f"{self.arms.size} arms, {self.effects.describe()}; {noise}; "
            f"{self.traffic_per_day:,} visits a day.\nRhythm: {self.rhythm.describe()}."
        )

    def _possible(self, rhythm: Rhythm, budget: int) -> tuple[float, float]:
        """Least and largest effects for which every rate is between 0 and 1."""
        pieces = rhythm.pieces(budget, rhythm.days(budget, self.traffic_per_day))
        ends = [
            ((0.0 - self.level - pieces.level) / pieces.swing)[pieces.swing != 0],
            ((1.0 - self.level - pieces.level) / pieces.swing)[pieces.swing != 0],
        ]
        low, high = np.minimum(*ends), np.maximum(*ends)
        return float(low.max(initial=-1.0)), float(high.min(initial=1.0))


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
        if not rewards:
            rewards = {"conversions": True} if log.conversions else {"sd": log.sd}
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
