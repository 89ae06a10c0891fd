"""Worlds whose mean rewards follow a table over time, or a parameter, fixed before the test."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm import kernels
from steadyarm.arms import ArmSet
from steadyarm.errors import InvalidInputError
from steadyarm.kernels import row_dots
from steadyarm.segments import Direction, Segment, SegmentStats, columns_between
from steadyarm.validation import check_choice, not_negative, whole_number

if TYPE_CHECKING:
    from steadyarm.environments.covariate import CovariateEnvironment
    from steadyarm.environments.sources import CallableEnvironment

MOST_MEANS = 2**27  # 1 GB, the largest table of means
ROUNDS = 2**18  # numbers of features multiplied together

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class GaussianNoise:
    """Reward = mean + normal noise of standard deviation `sd`; the paper's experiments.

    Parameters
    ----------
    sd : standard deviation, at least 0

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B"])
    >>> sa.Environment.from_means(arms, [0.5, 0.3], sa.GaussianNoise(0.3), budget=100).noise
    GaussianNoise(sd=0.3)
    """

    sd: float = 1.0

    def __post_init__(self) -> None:
        not_negative(self.sd, "sd")


@dataclass(frozen=True)
class BoundedNoise:
    """Reward = mean + noise uniform on [-bound, bound]; with bound 1 the paper's assumption.

    Parameters
    ----------
    bound : largest size of the noise, at least 0

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B"])
    >>> sa.Environment.from_means(arms, [0.5, 0.3], sa.BoundedNoise(1.0), budget=100).noise
    BoundedNoise(bound=1.0)
    """

    bound: float = 1.0

    def __post_init__(self) -> None:
        not_negative(self.bound, "bound")


@dataclass(frozen=True)
class BernoulliReward:
    """Reward 1 with probability equal to the mean, else 0: clicks and conversions.

    All means must lie between 0 and 1.

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B"])
    >>> sa.Environment.from_means(arms, [0.05, 0.03], sa.BernoulliReward(), budget=100).noise
    BernoulliReward()
    """


Noise = GaussianNoise | BoundedNoise | BernoulliReward
"""How rewards scatter around their means: one of the three classes."""
KERNELS = {
    GaussianNoise: kernels.GAUSSIAN,
    BoundedNoise: kernels.BOUNDED,
    BernoulliReward: kernels.BERNOULLI,
}


def noise_scale(noise: object) -> float:
    """Standard deviation or bound of a noise, as kernels take it; 1 for clicks, which need none."""
    return float(getattr(noise, "sd", getattr(noise, "bound", 1.0)))


def noise_text(noise: object) -> str:
    """A noise in words, for captions; empty if it is none of the three.

    Examples
    --------
    >>> noise_text(GaussianNoise(0.3)), noise_text(BernoulliReward())
    ('Gaussian noise of sd 0.3', '0/1 rewards')
    """
    if isinstance(noise, GaussianNoise):
        return f"Gaussian noise of sd {noise.sd:g}"
    if isinstance(noise, BoundedNoise):
        return f"noise uniform within ±{noise.bound:g}"
    return "0/1 rewards" if isinstance(noise, BernoulliReward) else ""


def check_noise(noise: Noise) -> None:
    """Refuse what is none of the three."""
    if not isinstance(noise, Noise):
        raise InvalidInputError.of(
            "noise", noise, "GaussianNoise(…), BoundedNoise(…) or BernoulliReward()"
        )


class RewardSource(Protocol):
    """The interface that `simulate` needs of an environment: write a class with these five.

    If its units have covariates it also has ``play_with_covariates(segment, start, rng)``, which
    returns statistics with squares and the `Moments` of the covariates.

    Examples
    --------
    A world in which the arm's index is its reward:

    >>> import numpy as np
    >>> import steadyarm as sa
    >>> class Countdown:
    ...     arms, budget, best_arm = sa.ArmSet.one_hot(["A", "B"]), 100, 1
    ...     direction = "maximize"
    ...     def play(self, segment, start, rng, squares=False):
    ...         counts = rng.multinomial(segment.rounds, segment.weights)
    ...         sums = counts * np.arange(2.0)
    ...         return sa.SegmentStats(counts, sums, sums if squares else None)
    >>> sa.simulate(sa.GBAI(), Countdown(), trials=100, seed=1)
    Results(G-BAI: 0 errors in 100 trials)
    """

    @property
    def arms(self) -> ArmSet:
        """The variants."""

    @property
    def budget(self) -> int:
        """Number of rounds T."""

    @property
    def best_arm(self) -> int:
        """The arm whose choice is no error."""

    @property
    def direction(self) -> Direction:
        """Whether high or low rewards are wanted."""

    def play(
        self,
        segment: Segment,
        start: Integers,
        rng: np.random.Generator,
        squares: bool = False,
    ) -> SegmentStats:
        """Play each trial's segment from its round `start` (n,) on.

        Parameters
        ----------
        segment : the allocation of each trial and its number of rounds
        start : (n,) rounds played before, in each trial
        rng : from which all randomness comes
        squares : whether sums of squared rewards are asked for

        Returns
        -------
        SegmentStats : counts and sums per arm, (n, K) each
        """


class World(ABC):
    """The base of our environments: arms are compared by their means over all rounds."""

    arms: ArmSet
    budget: int
    direction: Direction

    @property
    @abstractmethod
    def average(self) -> Floats:
        """(K,) time-averaged mean of every arm: what a test is to compare."""

    @abstractmethod
    def _play(
        self, segment: Segment, start: Integers, rng: np.random.Generator, squares: bool
    ) -> SegmentStats:
        """Play a segment that keeps the budget."""

    def play(
        self,
        segment: Segment,
        start: Integers,
        rng: np.random.Generator,
        squares: bool = False,
    ) -> SegmentStats:
        """Play each trial's segment from its round `start` (n,) on.

        Parameters
        ----------
        segment : the allocation of each trial and its number of rounds
        start : (n,) rounds played before, in each trial
        rng : from which all randomness comes
        squares : whether to sum squared rewards, too

        Returns
        -------
        SegmentStats : counts and sums per arm
        """
        segment.check_within(start, self.budget)
        return self._play(segment, start, rng, squares)

    @property
    def target_average(self) -> Floats:
        """(M,) time-averaged mean of every arm that can be recommended."""
        self.arms.refuse_targets(type(self).__name__)
        return self.average

    @cached_property
    def _best(self) -> tuple[int, float]:
        values = self.target_average
        values = values if self.direction == "maximize" else -values
        second, first = np.sort(values)[-2:]
        return int(values.argmax()), float(first - second)

    @property
    def best_arm(self) -> int:
        """The arm with the best time-averaged mean."""
        return self._best[0]

    def regret(self, arms: Integers) -> Floats:
        """By how much the time-averaged means of these arms fall short of the best one's."""
        values = self.target_average
        values = values if self.direction == "maximize" else -values
        return shortfall(values[self.best_arm], values[arms], float(np.abs(values).max()))

    @property
    def gap(self) -> float:
        """By how much the best arm beats the second best, on average over time."""
        return self._best[1]


def shortfall(best: float | Floats, values: Floats, size: float) -> Floats:
    """By how much values fall short of the best one, to twelve digits of the size of all means.

    What is beyond comes from rounding: equal means have no regret, and 10000.4 - 10000.3 is 0.1.
    """
    behind = np.asarray(best - values)
    if not 1e-200 < size < np.inf:  # nothing to round by
        return behind
    return np.asarray(np.round(behind, 12 - math.ceil(math.log10(size))))


def play_by(
    kernel: Callable[..., None],
    segment: Segment,
    start: Integers,
    rng: np.random.Generator,
    squares: bool,
    *table: object,
) -> SegmentStats:
    """The statistics that a kernel draws from its table."""
    shape = segment.weights.shape
    counts, sums = np.zeros(shape, dtype=np.int64), np.zeros(shape)
    squared = np.zeros(shape if squares else (0, 0))
    drawn = segment.weights, segment.planned, segment.block_code, start, rng
    kernel(*table, *drawn, counts, sums, squared)
    return SegmentStats(counts, sums, squared if squares else None)


@dataclass(frozen=True, eq=False)
class Environment(World):
    """Rewards around a table of means; the world does not react to what is played.

    Build one with `from_parameters` or `from_means`.

    Attributes
    ----------
    arms : the variants
    budget : number of rounds T
    table : (T, K) mean reward of every arm in every round, or (1, K) if nothing moves
    noise : how rewards scatter around their means
    direction : whether high or low rewards are wanted
    target_means : (M,) time-averaged mean of every target, if the arms have targets

    Examples
    --------
    >>> import numpy as np
    >>> arms = ArmSet.one_hot(["A", "B"])
    >>> sale = np.where(np.arange(1000)[:, None] < 300, [0.1, 0.5], [0.4, 0.3])
    >>> world = Environment.from_means(arms, sale, noise=GaussianNoise(0.3))
    >>> world.best_arm, round(world.gap, 3)
    (1, 0.05)
    """

    arms: ArmSet
    budget: int
    table: NDArray[np.float64] = field(repr=False)
    noise: Noise = field(default_factory=GaussianNoise)
    direction: Direction = "maximize"
    target_means: Floats | None = field(default=None, repr=False)

    @classmethod
    def from_parameters(
        cls,
        arms: ArmSet,
        thetas: ArrayLike,
        noise: Noise | None = None,
        budget: int | None = None,
        direction: Direction = "maximize",
    ) -> Environment:
        """Means x'θ_t from parameters in the user's features: (T, d), or (d,) with a budget.

        Parameters
        ----------
        arms : the variants
        thetas : (T, d) one parameter a round, or (d,) the same in every round
        noise : how rewards scatter around their means; by default normal with sd 1
        budget : rounds of the test, if `thetas` is one parameter

        Returns
        -------
        Environment
        """
        parameters = validate_table(thetas, arms.dimension, "thetas", "features", budget)
        if not arms.large:
            means, targets = parameters @ arms.features.T, None
            if arms.targets is not None:
                targets = arms.targets.features @ parameters.mean(axis=0)
            return cls._build(arms, means, noise, budget, direction, targets)
        if len(parameters) * arms.size > MOST_MEANS:
            raise InvalidInputError(
                f"a table of means of {arms.size:,} arms in {len(parameters):,} rounds does not "
                "fit in memory; use ParametricEnvironment(arms, thetas), which needs none."
            )
        means = np.stack([arms.values(theta @ arms.basis) for theta in parameters])
        return cls._build(arms, means, noise, budget, direction)

    @classmethod
    def from_means(
        cls,
        arms: ArmSet,
        means: ArrayLike,
        noise: Noise | None = None,
        budget: int | None = None,
        direction: Direction = "maximize",
    ) -> Environment:
        """Means given directly: (T, K), or (K,) with a budget.

        Parameters
        ----------
        arms : the variants
        means : (T, K) one row a round, or (K,) the same in every round
        noise : how rewards scatter around their means; by default normal with sd 1
        budget : rounds of the test, if `means` is one row

        Returns
        -------
        Environment
        """
        table = validate_table(means, arms.size, "means", "arms", budget)
        return cls._build(arms, table, noise, budget, direction)

    def __post_init__(self) -> None:
        whole_number(self.budget, "budget", least=1)
        check_choice(self.direction, "direction", ("maximize", "minimize"))
        check_noise(self.noise)
        if self.target_means is None:
            self.arms.refuse_targets("a table of means of arms")
        if self.table.shape not in ((self.budget, self.arms.size), (1, self.arms.size)):
            raise InvalidInputError(
                f"the table of means has shape {self.table.shape}; expected one row for each of "
                f"the {self.budget} rounds, or one for all, and {self.arms.size} columns."
            )
        if isinstance(self.noise, BernoulliReward):
            _check_probabilities(self.table, self.arms)

    @classmethod
    def _build(
        cls,
        arms: ArmSet,
        table: NDArray[np.float64],
        noise: Noise | None,
        budget: int | None,
        direction: Direction,
        target_means: Floats | None = None,
    ) -> Environment:
        noise = GaussianNoise() if noise is None else noise
        if isinstance(noise, BernoulliReward):  # means of 1 + 2e-16 are sums that were rounded
            table = np.where(np.abs(table - 0.5) < 0.5 + 1e-12, table.clip(0.0, 1.0), table)
        table = np.ascontiguousarray(table)
        table.setflags(write=False)
        budget = len(table) if budget is None else budget
        return cls(arms, budget, table, noise, direction, target_means)

    @staticmethod
    def from_callable(
        arms: ArmSet,
        reward: Callable[[Integers, Integers, np.random.Generator], ArrayLike],
        budget: int,
        average: ArrayLike | None = None,
        direction: Direction = "maximize",
    ) -> CallableEnvironment:
        """Rewards from a function of yours, of any distribution.

        Parameters
        ----------
        arms : the variants
        reward : called as ``reward(arms, rounds, rng)`` with two arrays of the same length, which
            arm is played and in which round, counted from 0; returns as many rewards. Draw all that
            is random from `rng`
        budget : number of rounds T
        average : (K,) mean reward of every arm over all rounds, which says which one is the best;
            if it is left out, they are estimated from a million rewards of each arm, and gap,
            regret and `good_rate` are estimates, too
        direction : whether high or low rewards are wanted

        Returns
        -------
        CallableEnvironment : a world for `simulate` and `compare`

        Examples
        --------
        Waiting times with a long tail, of which the second setting is slow in the first half:

        >>> import steadyarm as sa
        >>> def seconds(arms, rounds, rng):
        ...     mean = np.where((arms == 1) & (rounds < 500), 2.0, np.array([1.0, 0.5, 1.5])[arms])
        ...     return mean * rng.exponential(size=len(arms))
        >>> arms = sa.ArmSet.one_hot(["plain", "cached", "more threads"])
        >>> world = sa.Environment.from_callable(arms, seconds, 1000, [1.0, 1.25, 1.5], "minimize")
        >>> world.best_arm, sa.simulate(sa.Steady(), world, trials=100).errors < 20
        (0, True)
        """
        from steadyarm.environments.sources import CallableEnvironment

        return CallableEnvironment.build(arms, reward, budget, average, direction)

    def with_covariate(self, correlation: float) -> CovariateEnvironment:
        """The same world, with a covariate of every unit that `simulate` lets policies use.

        correlation : of the covariate with the noise of the reward, see `CovariateEnvironment`
        """
        from steadyarm.environments.covariate import CovariateEnvironment

        return CovariateEnvironment(self, correlation)

    @property
    def is_stationary(self) -> bool:
        """Whether one row of means stands for all rounds."""
        return len(self.table) == 1

    @property
    def means(self) -> Floats:
        """(T, K) mean reward of every arm in every round (a view, also if nothing moves)."""
        return np.broadcast_to(self.table, (self.budget, self.arms.size))

    @cached_property
    def average(self) -> NDArray[np.float64]:
        """(K,) time-averaged mean of every arm: what a test is to compare."""
        return np.asarray(self.table.mean(axis=0))

    @property
    def target_average(self) -> Floats:
        """(M,) time-averaged mean of every arm that can be recommended."""
        return self.average if self.target_means is None else self.target_means

    def _play(
        self, segment: Segment, start: Integers, rng: np.random.Generator, squares: bool
    ) -> SegmentStats:
        """Draw the number of plays instead of every round, where nothing moves.

        Without squares, Gaussian noise is drawn once per arm and segment, as its sum.
        """
        noise, means = self.noise, self.table
        if segment.arms is not None:
            means = means[:, segment.arms]
        exact = isinstance(noise, GaussianNoise) and not squares
        still = self.is_stationary and segment.order != "blocks"
        if squares or isinstance(noise, BoundedNoise) or not still:
            kind, scale = KERNELS[type(noise)], noise_scale(noise)
            table = means, kernels.EXACT if exact else kind, scale
            stats = play_by(kernels.play_table, segment, start, rng, squares, *table)
        else:
            counts = segment.counts
            if segment.order == "iid":
                counts = rng.multinomial(segment.rounds, segment.weights)
            sums = counts * means if exact else rng.binomial(counts, means).astype(np.float64)
            stats = SegmentStats(counts, sums)
        if isinstance(noise, GaussianNoise) and exact:
            spread = noise.sd * np.sqrt(stats.counts)
            return replace(stats, sums=stats.sums + spread * rng.standard_normal(spread.shape))
        return stats


@dataclass(frozen=True, eq=False)
class ParametricEnvironment(World):
    """Rewards around x'θ_t; means are computed for the arms that are played, never for all.

    What `Environment.from_parameters` is for few arms.

    Parameters
    ----------
    arms : the variants
    thetas : (T, d) parameters in the user's features, or (d,) with a budget if nothing moves
    noise : how rewards scatter around their means
    budget : number of rounds T
    direction : whether high or low rewards are wanted

    Examples
    --------
    >>> arms = ArmSet.factorial({f"slot {i}": ["off", "on"] for i in range(16)})
    >>> theta = np.zeros(arms.dimension)
    >>> theta[1:17] = 0.1
    >>> world = ParametricEnvironment(arms, theta, budget=1000)
    >>> world.best_arm, round(world.gap, 3)
    (65535, 0.2)
    """

    arms: ArmSet
    thetas: ArrayLike = field(repr=False)
    noise: Noise = field(default_factory=GaussianNoise)
    budget: int = 0
    direction: Direction = "maximize"

    def __post_init__(self) -> None:
        check_choice(self.direction, "direction", ("maximize", "minimize"))
        check_noise(self.noise)
        budget = self.budget or None
        table = validate_table(self.thetas, self.arms.dimension, "thetas", "features", budget)
        table.setflags(write=False)
        object.__setattr__(self, "budget", self.budget or len(table))
        object.__setattr__(self, "thetas", table)

    @property
    def _table(self) -> Floats:
        """(T, d) parameters, or (1, d) if nothing moves."""
        return np.asarray(self.thetas)

    @cached_property
    def average(self) -> Floats:
        """(K,) time-averaged mean of every arm: what a test is to compare."""
        return self.arms.values(self._table.mean(axis=0) @ self.arms.basis)

    def means(self, arms: NDArray[np.int64], rounds: NDArray[np.int64]) -> Floats:
        """(m,) mean reward of an arm in a round, for m pairs of them.

        Parameters
        ----------
        arms : (m,) indices of arms
        rounds : (m,) rounds, counted from 0
        """
        out = np.empty(len(arms))
        present, place = np.unique(arms, return_inverse=True)
        X = self.arms.features_of(present)
        if len(self._table) == 1:
            return np.asarray((X @ self._table[0])[place])
        step = max(ROUNDS // self.arms.dimension, 1)
        for start in range(0, len(arms), step):
            part = slice(start, start + step)
            out[part] = row_dots(X[place[part]], self._table[rounds[part]])
        return out

    def _play(
        self, segment: Segment, start: Integers, rng: np.random.Generator, squares: bool
    ) -> SegmentStats:
        """One trial after the other."""
        shape = segment.weights.shape
        counts, (sums, squared) = np.zeros(shape, dtype=np.int64), np.zeros((2, *shape))
        for i in range(segment.trials):
            rounds = int(segment.rounds[i])
            columns = columns_between(segment.trial(i), int(rng.integers(2**62)), 0, 0, rounds)
            arms = columns if segment.arms is None else segment.arms[columns]
            means = self.means(arms, int(start[i]) + np.arange(rounds))
            rewards = drawn_rewards(self.noise, means, rng)
            counts[i] = np.bincount(columns, minlength=segment.columns)
            sums[i] = np.bincount(columns, rewards, minlength=segment.columns)
            squared[i] = np.bincount(columns, rewards**2, minlength=segment.columns)
        return SegmentStats(counts, sums, squared if squares else None)


def drawn_rewards(noise: Noise, means: Floats, rng: np.random.Generator) -> Floats:
    """Rewards around these means."""
    if isinstance(noise, GaussianNoise):
        return means + noise.sd * rng.standard_normal(means.size)
    if isinstance(noise, BoundedNoise):
        return means + noise.bound * (2.0 * rng.random(means.size) - 1.0)
    if not ((means >= 0) & (means <= 1)).all():
        raise InvalidInputError(
            f"means go from {means.min():g} to {means.max():g}; Bernoulli rewards need means "
            "between 0 and 1."
        )
    return (rng.random(means.size) < means).astype(np.float64)


def _check_probabilities(table: NDArray[np.float64], arms: ArmSet) -> None:
    if not ((table >= 0) & (table <= 1)).all():
        t, k = np.argwhere(~((table >= 0) & (table <= 1)))[0]
        raise InvalidInputError(
            f"the mean of arm {arms.names[k]!r} in round {t} is {table[t, k]:g}; "
            "Bernoulli rewards need means between 0 and 1."
        )


def validate_table(
    values: ArrayLike, columns: int, what: str, of: str, budget: int | None
) -> NDArray[np.float64]:
    """Checked (T, columns) table, or (1, columns) if one row stands for `budget` rounds."""
    try:
        table = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{what} is not a table of numbers ({error}).") from None
    if table.ndim not in (1, 2) or table.shape[-1] != columns or not table.size:
        raise InvalidInputError(
            f"{what} has shape {table.shape}; expected (T, {columns}), one row per round and one "
            f"column for each of the {columns} {of}, or ({columns},) if nothing moves."
        )
    if not np.isfinite(table).all():
        where = np.argwhere(~np.isfinite(table))[0].tolist()
        raise InvalidInputError(f"{what}{where} is not a finite number.")
    if table.ndim == 1:
        if budget is None:
            raise InvalidInputError(
                f"{what} is one row, so nothing moves; say for how many rounds with budget=…"
            )
        table = table[None, :]
    elif budget is not None and len(table) != budget:
        raise InvalidInputError(
            f"{what} has {len(table)} rows but budget is {budget}; leave budget out or make "
            "them agree."
        )
    return table
