"""Question: the test to plan, how its effects move, and the policies to compare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property, lru_cache
from math import ceil, sqrt
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.environments import BernoulliReward, GaussianNoise
from steadyarm.environments.environment import shortfall
from steadyarm.environments.families import arms_from_settings
from steadyarm.errors import InvalidInputError
from steadyarm.inference import Looks
from steadyarm.policies import named_policies, policy_from
from steadyarm.policies.base import Policy, Recommendations, TallyState, best_arm
from steadyarm.policies.fixed import ShuffledPlan
from steadyarm.policies.thompson import ThompsonPolicy
from steadyarm.segments import Direction, Segment, SegmentStats
from steadyarm.validation import (
    check_choice,
    check_fraction,
    check_positive,
    finite_number,
    whole_number,
)
from steadyarm.wording import did_you_mean, read_toml, strung

TOP = (
    "error", "clear", "control", "traffic_per_day", "most_days", "policies", "stop", "looks",
)  # fmt: skip  # the order in error messages
TABLES = {
    "arms": None,  # checked where arms are built
    "effects": ("smallest_gap",),
    "rewards": ("rate", "sd", "correlation", "delay"),
    "rhythm": ("kind", "strength"),
}
OWN = ("error", "most_days", "control", "stop", "looks")  # passed on unchanged
LACKING = {  # the hint for each missing key
    "effects": "state the effect that matters, such as [effects] with smallest_gap = 0.01.",
    "arms": 'describe them, such as [arms] with one_hot = ["A", "B"].',
    "rewards": "state how rewards vary: [rewards] with rate = 0.05 or with sd = 1.0, not both.",
    "traffic_per_day": "state how many visits a day the test can have.",
}
MOST_VISITS = 10**12  # more is a typing error
USUAL_CLEAR = 0.8  # the usual chance of a clear answer
STOPS = ("when sure", "recommend")
DAYS_BETWEEN = {"daily": 1, "weekly": 7}  # between interim analyses
USUAL_LOOKS, MOST_LOOKS = 8, 60  # as in live tests
MOST_LEADERS = 8  # arms that lead in turn in simulated tests
ROUNDING = 1e-12  # of rates
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


# How effects move in the course of a test, and the environment that plays it.

KINDS = ("none", "weekend", "trend")
STEPS = 56  # of a trend, at least


@dataclass(frozen=True, eq=False)
class Pieces:
    """The test, cut where its means change: the last round of each piece, and its swing.

    The swing multiplies the effects. Its average, weighted by the lengths of the pieces, is one.
    """

    ends: Integers
    swing: Floats


@dataclass(frozen=True)
class Rhythm:
    """How effects change during a test that starts on a Saturday.

    The effects in a question are averages over the test. The high of the rhythm is the weekend or
    the beginning of a trend. There every lead is smaller than at the low, by `strength` times its
    average. From a strength of about 2 the order of the arms reverses. A test with a weekend
    rhythm covers whole weeks. A smaller budget takes a smaller share of each day's traffic.

    Parameters
    ----------
    kind : none, weekend or trend
    strength : difference of a lead between low and high, as a multiple of its average

    Examples
    --------
    >>> weekend = Rhythm("weekend", strength=3.5)
    >>> weekend.days(budget=9000, traffic=1000)
    14
    >>> weekend.pieces(700, days=7).swing.tolist()
    [-1.5, 2.0]
    """

    kind: str = "none"
    strength: float = 3.0

    def __post_init__(self) -> None:
        check_choice(self.kind, "rhythm.kind", KINDS)
        if finite_number(self.strength, "rhythm.strength") < 0:
            raise InvalidInputError.of("rhythm.strength", self.strength, "a number of at least 0")

    @property
    def moves(self) -> bool:
        """Whether anything changes during a test."""
        return self.kind != "none"

    @property
    def weekly(self) -> bool:
        """Whether it takes whole weeks."""
        return self.kind == "weekend"

    def days(self, budget: int, traffic: int) -> int:
        """The fewest days that the traffic allows, in whole weeks if weekly."""
        cycle = 7 if self.weekly else 1
        return max(cycle * ceil(budget / (traffic * cycle)), cycle)

    def pieces(self, budget: int, days: int) -> Pieces:
        """The pieces of a test that spreads its budget evenly over the days."""
        steps = max(days, STEPS) if self.kind == "trend" else days
        ends = np.rint(np.linspace(0, budget, steps + 1)[1:]).astype(np.int64)
        day = np.arange(steps)
        heights = np.zeros(steps)
        if self.kind == "weekend":
            heights = (day % 7 < 2).astype(np.float64)
        elif self.kind == "trend":
            heights = 1.0 - (day + 0.5) / steps
        last = np.append(np.diff(heights) != 0.0, True)
        ends, heights = ends[last], heights[last]
        lengths = np.diff(ends, prepend=0)
        high = heights - float((heights * lengths).sum()) / budget
        real = lengths > 0
        return Pieces(ends[real], 1.0 - self.strength * high[real])

    def to_dict(self) -> dict[str, Any]:
        """The settings."""
        return asdict(self) if self.moves else {"kind": "none"}

    def describe(self) -> str:
        """The rhythm in a few words."""
        turn = f"leads differ by {self.strength:g} times their average"
        return {
            "none": "no drift",
            "weekend": f"between weekday and weekend {turn}; starts on a Saturday",
            "trend": f"from first to last round {turn}",
        }[self.kind]


CALM = Rhythm()


@dataclass(frozen=True, eq=False)
class PlannedWorld:
    """An environment for long tests, whose means are constant within each piece of the test.

    It draws the number of plays of each arm in a piece, and the sum of their rewards, at once. If a
    piece ends inside a block, the part before the cut is drawn as a block of that length.

    Attributes
    ----------
    arms, budget, direction : as for `Environment`
    effects : (K,) value of every arm, relative to the level
    level : average reward of an arm without effect
    pieces : how effects move
    noise : Gaussian or Bernoulli
    correlation : of rewards with a covariate. Rewards are adjusted with its true slope, which
        removes the noise that the covariate explains
    """

    arms: ArmSet
    budget: int
    effects: Floats = field(repr=False)
    level: float
    pieces: Pieces = field(repr=False)
    noise: GaussianNoise | BernoulliReward
    correlation: float = 0.0
    direction: Direction = "maximize"

    @property
    def best_arm(self) -> int:
        """The arm with the largest effect."""
        return int(self.effects.argmax())

    def regret(self, arms: Integers) -> Floats:
        """The difference between the best arm and these arms; exactly zero for ties."""
        size = float(np.abs(self.effects).max())
        return shortfall(self.effects.max(), self.effects[arms], size)

    def play(
        self, segment: Segment, start: Integers, rng: np.random.Generator, squares: bool = False
    ) -> SegmentStats:
        """Play each trial's segment from its round `start` (n,) on."""
        segment.check_within(start, self.budget)
        shape = segment.weights.shape
        counts, sums, squared = np.zeros(shape, dtype=np.int64), np.zeros(shape), np.zeros(shape)
        deck = segment.counts if segment.order == "shuffled" else None
        begin = np.append(0, self.pieces.ends[:-1])
        stop = start + segment.rounds
        for p, end in enumerate(self.pieces.ends):
            rounds = np.clip(np.minimum(stop, end) - np.maximum(start, begin[p]), 0, None)
            if not rounds.any():
                continue
            if deck is not None:
                here = _deal(deck, rounds, rng)
                deck = deck - here
            elif segment.order == "iid":
                here = rng.multinomial(rounds, _shares(segment.weights))
            else:
                whole, rest = np.divmod(rounds, segment.block)
                here = _block_sums(segment.weights, np.full_like(whole, segment.block), whole, rng)
                here += _block_sums(segment.weights, rest, np.ones_like(whole), rng)
            means = self.level + self.pieces.swing[p] * self.effects
            total, square = self._rewards(here, means, rng)
            counts, sums, squared = counts + here, sums + total, squared + square
        return SegmentStats(counts, sums, squared if squares else None)

    def _rewards(
        self, counts: Integers, means: Floats, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Sums of `counts` rewards, and of their squares."""
        left, some = sqrt(1.0 - self.correlation**2), np.maximum(counts, 1)
        if isinstance(self.noise, BernoulliReward):
            rates = np.clip(means, 0.0, 1.0)
            hits = rng.binomial(counts, rates)
            total = counts * rates + left * (hits - counts * rates)
            spread = left**2 * hits * (1.0 - hits / some)
        else:
            sd = self.noise.sd * left
            total = counts * means + sd * np.sqrt(counts) * rng.standard_normal(counts.shape)
            spread = sd**2 * np.where(counts > 1, rng.chisquare(np.maximum(some - 1, 1)), 0.0)
        return total, total**2 / some + spread


def _shares(weights: Floats) -> Floats:
    total = weights.sum(axis=1, keepdims=True)
    return np.where(total > 0, weights / np.where(total > 0, total, 1.0), 1 / weights.shape[1])


def _deal(deck: Integers, draws: Integers, rng: np.random.Generator) -> Integers:
    """(n, K) cards of each kind among the first `draws` (n,) cards of shuffled decks (n, K)."""
    here, left, draws = np.zeros_like(deck), deck.sum(axis=1), draws.copy()
    for k in range(deck.shape[1]):
        left = left - deck[:, k]
        here[:, k] = rng.hypergeometric(deck[:, k], left, draws)
        draws -= here[:, k]
    return here


def _block_sums(
    weights: Floats, size: Integers, blocks: Integers, rng: np.random.Generator
) -> Integers:
    """(n, K) plays in `blocks` (n,) systematic samples of `size` (n,) rounds.

    The counts of a block are a step function of its random start, so the numbers of starts on each
    step are multinomial.
    """
    ends = size[:, None] * np.cumsum(_shares(weights), axis=1)
    ends[:, -1] = size
    steps = np.sort(np.pad(ends[:, :-1] % 1.0, ((0, 0), (1, 1)), constant_values=(0.0, 1.0)))
    starts = (steps[:, 1:] + steps[:, :-1]) / 2
    upto = np.clip(np.ceil(ends[:, None, :] - starts[:, :, None]), 0, size[:, None, None])
    upto[:, :, -1] = size[:, None]
    counts = np.diff(upto, axis=2, prepend=0.0).astype(np.int64)
    hits = rng.multinomial(blocks, _shares(np.diff(steps, axis=1)))
    return np.asarray(np.einsum("ni,nik->nk", hits, counts))


# Candidates: the policies that a plan compares.

FEWEST, USUAL, MOST = 300, 2000, 8000  # simulated tests behind each error
RARE = 0.02  # below this error more tests are simulated
LEAST_WRONG = 5  # expected wrong picks below which their share cannot be measured
LARGE = 32  # arms; with more, a simulated test takes long, and fewer are simulated
SLOW = 4  # time of a test with Thompson sampling, relative to other policies
FEW_FEATURES = 8  # parameters; with more, tests of arms that share them take longer
JUDGED = 1000  # simulated tests that are checked for a clear answer, at most
ROOMY = 10  # parameters; with more, fewer tests are checked
MANY = 50  # arms; with more, Thompson sampling takes minutes and is compared only if named


@dataclass(frozen=True)
class EqualSplit(ShuffledPlan):
    """Play every arm equally often in one random order, and recommend the highest mean.

    This is the usual A/B/n test, for comparison. Features are ignored. Rounds that cannot be
    shared equally are not played. In a live test, plays whose reward never comes are repeated: if
    rewards are outstanding when the plan has been assigned, `ask` names them.

    Examples
    --------
    >>> policy = EqualSplit()
    >>> policy.next_segment(policy.start(ArmSet.one_hot(["A", "B"]), budget=101)).counts
    array([[50, 50]])
    """

    name: ClassVar[str] = "A/B-test"

    def plan(self, state: TallyState) -> NDArray[np.int64]:
        """An equal share of the budget for every arm."""
        return np.full((1, state.arms.size), state.budget // state.arms.size)

    def recommend(self, state: TallyState) -> Recommendations:
        """The arm with the highest mean."""
        means = state.sums / np.maximum(state.counts, 1)
        return Recommendations(best_arm(means, state.ties), means, None)


@dataclass(frozen=True)
class Candidate:
    """A policy and its name in the plan."""

    label: str
    policy: Policy[Any]

    @property
    def robust(self) -> bool:
        """Whether its estimates stay unbiased under drift."""
        return self.policy.unbiased or isinstance(self.policy, ShuffledPlan)

    def arms(self, arms: ArmSet) -> ArmSet:
        """The arms as the policy sees them: an A/B test ignores features."""
        if not isinstance(self.policy, EqualSplit) or arms.rank == arms.size:
            return arms
        return _separate(arms.names)

    def trials(self, arms: ArmSet, error: float) -> int:
        """Simulated tests behind each error, by default.

        There are more for small errors, and fewer if a test takes long to simulate.
        """
        wanted = min(USUAL * max(RARE / error, 1.0), MOST)
        affordable = USUAL * (LARGE / self.size(arms)) ** 2
        least = min(max(FEWEST, ceil(LEAST_WRONG / error)), MOST)
        return round(max(least, min(wanted, affordable)))

    def size(self, arms: ArmSet) -> float:
        """The number of arms without common features that take about as long to simulate."""
        size = float(arms.size)
        if arms.rank < arms.size:  # designs for subsets of the arms
            size *= max(arms.rank / FEW_FEATURES, 1.0)
        return size * SLOW if isinstance(self.policy, ThompsonPolicy) else size

    def count_judged(self, arms: ArmSet, trials: int) -> int:
        """The number of simulated tests that are checked for a clear answer.

        Few are checked for policies that are biased under drift: they are there for comparison.
        """
        if not self.robust:
            return min(trials, FEWEST)
        return min(trials, max(FEWEST, min(JUDGED, round(JUDGED * (ROOMY / arms.rank) ** 2))))


@lru_cache(maxsize=8)
def _separate(names: tuple[str, ...]) -> ArmSet:
    return ArmSet.one_hot(names)


def candidates_of(policies: Any, arms: ArmSet, sd: float) -> tuple[Candidate, ...]:
    """The candidates of a question: names, or tables with a name and settings.

    The default is Steady, P1-RAGE, an equal split, and two adaptive policies that assume a
    stationary world. Thompson sampling gets the noise's standard deviation unless `noise_sd` is
    set.

    Examples
    --------
    >>> settings = [{"name": "steady", "robustness": 0.8}, "steady", "top-two-thompson"]
    >>> candidates = candidates_of(settings, ArmSet.one_hot(["A", "B"]), sd=0.2)
    >>> [candidate.label for candidate in candidates], candidates[2].policy.noise_sd
    (['Steady (robustness=0.8)', 'Steady', 'Top-Two-Thompson'], 0.2)
    """
    if policies is None:
        eliminating = "Sequential-Halving" if arms.rank == arms.size else "OD-LinBAI"
        policies = ["Steady", "P1-RAGE", EqualSplit.name, eliminating]
        policies += ["Top-Two-Thompson"] * (arms.size <= MANY)
    if not isinstance(policies, (list, tuple)) or not policies:
        expected = 'a list of names such as ["steady", "p1-rage"]'
        raise InvalidInputError.of("policies", policies, expected)
    try:
        named = named_policies([_policy_from(entry, sd) for entry in policies])
    except InvalidInputError as error:
        raise InvalidInputError(str(error), field="policies") from None
    return tuple(Candidate(label, policy) for label, policy in named.items())


def _policy_from(entry: Any, sd: float) -> Policy[Any]:
    settings = dict(entry) if isinstance(entry, Mapping) else {"name": entry}
    if str(settings.get("name")).lower() in ("a/b-test", "ab-test"):
        return EqualSplit(**{key: value for key, value in settings.items() if key != "name"})
    policy = policy_from(settings)
    if "noise_sd" in {setting.name for setting in fields(policy)}:
        return policy_from({"noise_sd": sd} | settings)
    return policy


@dataclass(frozen=True, eq=False)
class Question:
    """The description of a test whose length is to be planned.

    Build one with `from_settings` (a dictionary) or `from_file` (the same as TOML).

    Attributes
    ----------
    arms : the variants
    noise : Gaussian, or Bernoulli for conversions
    level : average reward of an arm without effect
    traffic_per_day : visits that the test can have in a day
    candidates : the policies to compare
    smallest_gap : the lead of the best arm. The other arms differ as little as their features
        allow. Each arm leads in turn
    rhythm : how effects move
    error : the wanted probability of a wrong pick
    most_days : the longest acceptable test
    clear : the wanted probability of a clear answer. With a control, an answer is clear if the
        best variant is shown to beat the control, or if the control is best and kept. Without a
        control, all variants but the best must be ruled out. None to leave this out
    control : the variant that others are compared with, or None
    correlation : the correlation of rewards with a covariate
    delay : days until a reward is known: the reward window of a live test and the grace after it.
        The grace is as long as the window by default, at most a week
    stop : "when sure" or "recommend" for a test that may stop at an interim analysis, or None
    looks : number of equally spaced interim analyses, or "daily" or "weekly"; the default is
        weekly for a weekly rhythm, else eight

    Examples
    --------
    >>> question = Question.from_settings({
    ...     "traffic_per_day": 2000,
    ...     "arms": {"one_hot": ["A", "B", "C"]},
    ...     "effects": {"smallest_gap": 0.01},
    ...     "rewards": {"rate": 0.05},
    ... })
    >>> question.environment(budget=1000).effects.round(3).tolist()
    [0.01, 0.0, 0.0]
    """

    arms: ArmSet
    noise: GaussianNoise | BernoulliReward
    level: float
    traffic_per_day: int
    candidates: tuple[Candidate, ...]
    smallest_gap: float
    rhythm: Rhythm = CALM
    error: float = 0.05
    most_days: int = 90
    clear: float | None = USUAL_CLEAR
    control: str | None = None
    correlation: float = 0.0
    delay: float = 0.0
    stop: str | None = None
    looks: int | str | None = None

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Question:
        """Read a question from a dictionary.

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
        effects, rewards = settings["effects"], settings["rewards"]
        if "smallest_gap" not in effects:
            raise _lacking("effects")
        if ("rate" in rewards) == ("sd" in rewards):
            raise _lacking("rewards")
        noise: GaussianNoise | BernoulliReward = BernoulliReward()
        level = 0.0
        if "sd" in rewards:
            noise = GaussianNoise(check_positive(rewards["sd"], "rewards.sd"))
        else:
            level = check_fraction(rewards["rate"], "rewards.rate")
        arms = arms_from_settings(settings["arms"])
        correlation = check_correlation(rewards.get("correlation", 0.0))
        sd = _reward_sd(noise, level) * sqrt(1 - correlation**2)
        return cls(
            arms=arms,
            noise=noise,
            level=level,
            traffic_per_day=settings["traffic_per_day"],
            candidates=candidates_of(settings.get("policies"), arms, sd),
            smallest_gap=check_positive(effects["smallest_gap"], "effects.smallest_gap"),
            rhythm=Rhythm(**settings.get("rhythm", {})),
            correlation=correlation,
            delay=rewards.get("delay", 0.0),
            clear=_clear(settings.get("clear", USUAL_CLEAR)),
            **{key: settings[key] for key in OWN if settings.get(key) is not None},
        )

    @classmethod
    def from_file(cls, path: Path) -> Question:
        """Read a question from a TOML file.

        Parameters
        ----------
        path : a TOML file with the keys of `from_settings`

        Returns
        -------
        Question
        """
        settings = read_toml(path)
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
        if self.most_days < self.days(1):
            wait = "" if not self.delay else f" and this delay of rewards ({self.delay:g} days)"
            raise InvalidInputError(
                f"most_days is {self.most_days}, but a test with this rhythm{wait} takes at least "
                f"{self.days(1)} days; make it longer or choose another rhythm."
            )
        if isinstance(self.noise, BernoulliReward):
            self._check_rates()

    def _check_rates(self) -> None:
        """Refuse rates below 0 or above 1."""
        if not has_constant(self.arms):
            raise InvalidInputError(
                "arms: rewards have a common level that the features cannot express. Add a "
                "feature that is 1 for every arm."
            )
        shortest = self.rhythm.days(1, self.traffic_per_day)
        for days in {shortest, self.most_days - ceil(self.delay)}:
            pieces = self.rhythm.pieces(days * self.traffic_per_day, days)
            rates = self.level + pieces.swing[:, None, None] * self.shapes
            if rates.min() < -ROUNDING or rates.max() > 1 + ROUNDING:
                raise InvalidInputError(
                    "with this rate and rhythm some arm converts at a rate below 0 or above 1; "
                    "make the gap, or the rhythm's strength, smaller.",
                    field="effects.smallest_gap",
                )

    def _check_answers(self) -> None:
        """Check the settings of clear answers, rewards and stopping."""
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
                "stop needs the wanted probability of a clear answer, such as clear = 0.8.",
                field="stop",
            )
        if isinstance(self.looks, str):
            check_choice(self.looks, "looks", (*DAYS_BETWEEN, "or a whole number"))
        elif self.looks is not None and whole_number(self.looks, "looks", least=1) > MOST_LOOKS:
            raise InvalidInputError.of("looks", self.looks, f"at most {MOST_LOOKS}")

    def days(self, budget: int, rhythm: Rhythm | None = None, waits: int = 0) -> int:
        """The days of a test, including the wait for the last rewards.

        Parameters
        ----------
        budget : rounds of the test
        rhythm : how effects move; by default that of the question
        waits : how often the policy waits for rewards before it continues
        """
        rhythm = self.rhythm if rhythm is None else rhythm
        visits = rhythm.days(budget, self.traffic_per_day)
        return visits + ceil(self.delay * (1 + waits))

    def lag(self, budget: int, rhythm: Rhythm) -> int:
        """The number of visits during the delay of a reward.

        Parameters
        ----------
        budget : rounds of the test
        rhythm : how effects move
        """
        return round(self.delay * budget / rhythm.days(budget, self.traffic_per_day))

    @property
    def how_often(self) -> int | str:
        """The number or interval of the interim analyses."""
        if self.looks is not None:
            return self.looks
        return "weekly" if self.rhythm.weekly else USUAL_LOOKS

    def planned_looks(self, budget: int) -> Looks:
        """The interim analyses of a test with this budget.

        Parameters
        ----------
        budget : rounds of the test
        """
        looks, days = self.how_often, self.rhythm.days(budget, self.traffic_per_day)
        if not isinstance(looks, str):
            return Looks.equally(looks)
        every = DAYS_BETWEEN[looks] * ceil(days / (DAYS_BETWEEN[looks] * MOST_LOOKS))
        return Looks((*(day / days for day in range(every, days, every)), 1.0))

    @property
    def scatter(self) -> float:
        """Standard deviation of a reward after adjustment for the covariate."""
        return self.sd * sqrt(1 - self.correlation**2)

    @property
    def sd(self) -> float:
        """Standard deviation of a reward, for conversions at the level."""
        return _reward_sd(self.noise, self.level)

    @cached_property
    def most_rounds(self) -> int:
        """The largest budget that the traffic allows, in whole cycles of the rhythm."""
        days = self.most_days - ceil(self.delay)
        while self.days(days * self.traffic_per_day) > self.most_days:
            days -= 1
        return days * self.traffic_per_day

    @cached_property
    def shapes(self) -> Floats:
        """(M, K) effects of the worlds, which simulated tests take in turn."""
        K = self.arms.size
        leaders = np.unique(np.linspace(0, K - 1, min(K, MOST_LEADERS)).astype(int))
        if np.array_equal(self.arms.features, np.eye(K)):
            return np.asarray(self.smallest_gap * np.eye(K)[leaders])
        shapes = [flattest(self.arms, int(k), self.smallest_gap) for k in leaders]
        possible = [shape for shape in shapes if shape is not None]
        if not possible:
            raise InvalidInputError("no arm can be the best of all; check the features.")
        return np.array(possible)

    def environment(
        self, budget: int, rhythm: Rhythm | None = None, leader: int = 0
    ) -> PlannedWorld:
        """One of the worlds, for `simulate`.

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
        """Settings from which `from_settings` builds the same question."""
        conversions = isinstance(self.noise, BernoulliReward)
        rewards = {"rate": self.level} if conversions else {"sd": self.sd}
        rewards |= {"correlation": self.correlation} if self.correlation else {}
        rewards |= {"delay": self.delay} if self.delay else {}
        optional = {"control": self.control, "stop": self.stop, "looks": self.looks}
        return {
            "error": self.error,
            "clear": False if self.clear is None else self.clear,
            **{key: value for key, value in optional.items() if value is not None},
            "traffic_per_day": self.traffic_per_day,
            "most_days": self.most_days,
            "policies": [candidate.policy.to_dict() for candidate in self.candidates],
            "arms": self.arms.to_dict(),
            "effects": {"smallest_gap": self.smallest_gap},
            "rewards": rewards,
            "rhythm": self.rhythm.to_dict(),
        }

    def describe(self) -> str:
        """The question in one or two lines."""
        noise = f"noise of sd {self.sd:g}"
        if isinstance(self.noise, BernoulliReward):
            noise = f"conversion rate {self.level:g}"
        control = "" if self.control is None else f", {self.control} is the control"
        lines = [
            f"{self.arms.size} arms{control}, one arm leads the others by {self.smallest_gap:g}; "
            f"{noise}; {self.traffic_per_day:,} visits a day.",
            f"Rhythm: {self.rhythm.describe()}.",
        ]
        if self.correlation:
            lines.append(f"Covariate: correlation {self.correlation:g} with rewards.")
        if self.delay:
            unit = "day" if self.delay == 1 else "days"
            lines.append(f"Rewards: known after {self.delay:g} {unit}.")
        if self.stop is not None:
            what = "Stops when sure" if self.stop == "when sure" else "Says when to stop"
            lines.append(f"{what}: looks {self.how_often}.")
        return "\n".join(lines)


def check_correlation(value: Any) -> float:
    """Refuse numbers that are not a correlation."""
    correlation = finite_number(value, "rewards.correlation")
    if not -1 < correlation < 1:
        raise InvalidInputError.of(
            "rewards.correlation", value, "a number above -1 and below 1; 0 without a covariate"
        )
    return correlation


def _reward_sd(noise: GaussianNoise | BernoulliReward, level: float) -> float:
    return noise.sd if isinstance(noise, GaussianNoise) else sqrt(level * (1 - level))


def _clear(value: Any) -> float | None:
    if value is None or value is False:
        return None
    if value is True:
        raise InvalidInputError.of("clear", value, "a chance such as 0.8, or false")
    return finite_number(value, "clear")


def _check_keys(settings: Any) -> None:
    """Refuse settings that are not a mapping, and keys that are unknown or missing."""
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
    for key in LACKING:
        if key not in settings:
            raise _lacking(key)


def _check_known(settings: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in settings:
        if key not in known:
            raise InvalidInputError(
                f"{where} has the key {key!r}; expected some of {', '.join(known)}"
                f"{did_you_mean(str(key), known)}"
            )


def _lacking(key: str) -> InvalidInputError:
    name = f"[{key}]" if key in TABLES else key
    return InvalidInputError(f"{name} is missing or incomplete; {LACKING[key]}")


def flattest(arms: ArmSet, best: int, gap: float) -> Floats | None:
    """The (K,) values of least variance for which arm `best` leads all others by `gap`.

    The second best is at zero. None if the features allow no world with this best arm. This is a
    least distance problem, solved by Lawson and Hanson's non-negative least squares. If the
    features cannot express a constant, the sum of squares is minimized and nothing is shifted.

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
    weights, residual = scipy.optimize.nnls(np.vstack([lead.T, np.ones(len(lead))]), target)
    if residual < 1e-9:
        return None
    miss = np.append(weights @ lead, weights.sum() - 1.0)
    values = basis @ (-miss[:-1] / miss[-1])
    values /= values[best] - values[others].max()
    values = gap * values
    return np.asarray(values - values[others].max() if constant else values)


def has_constant(arms: ArmSet) -> bool:
    """Whether the features can express the same non-zero value for all arms."""
    ones = np.ones(arms.size)
    basis = _orthonormal(arms.coordinates)
    fitted = basis @ (basis.T @ ones)
    return bool(np.abs(fitted - 1.0).max() < 1e-8)


def _orthonormal(X: Floats) -> Floats:
    left, singular, _ = np.linalg.svd(X, full_matrices=False)
    return np.asarray(left[:, singular > singular[0] * 1e-10])
