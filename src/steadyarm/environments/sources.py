"""Worlds whose rewards come from a function of yours or from a logged data set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm import kernels
from steadyarm.arms import ArmSet
from steadyarm.environments.environment import World, play_by
from steadyarm.errors import InvalidInputError
from steadyarm.segments import Direction, Segment, SegmentStats
from steadyarm.validation import check_choice, whole_number

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Reward = Callable[[Integers, Integers, np.random.Generator], ArrayLike]

ROUNDS = 2**19  # rounds for which a function is called at once
DRAWS = 2**20  # rewards of each arm that are drawn to find the best one
CLEAR = 6.0  # standard errors by which the best arm found by draws leads


@dataclass(frozen=True, eq=False)
class CallableEnvironment(World):
    """Rewards from a function of yours, which does not react to what is played.

    `Environment.from_callable` makes one.

    Attributes
    ----------
    arms : the variants
    budget : number of rounds T
    reward : called as ``reward(arms, rounds, rng)`` with two arrays of the same length, the arm
        that is played and the round it is played in, counted from 0; returns as many rewards.
        Draw all that is random from `rng`
    expected : (K,) time-averaged mean of every arm
    direction : whether high or low rewards are wanted

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B"])
    >>> def reward(arms, rounds, rng):
    ...     return rng.exponential(1.0 + 0.5 * arms)
    >>> world = sa.Environment.from_callable(arms, reward, budget=200, average=[1.0, 1.5])
    >>> type(world).__name__, world.best_arm
    ('CallableEnvironment', 1)
    """

    scatter: ClassVar[str] = "rewards of an own distribution"  # in captions

    arms: ArmSet
    budget: int
    reward: Reward = field(repr=False)
    expected: Floats = field(repr=False)
    direction: Direction = "maximize"

    @classmethod
    def build(
        cls,
        arms: ArmSet,
        reward: Reward,
        budget: int,
        average: ArrayLike | None = None,
        direction: Direction = "maximize",
    ) -> CallableEnvironment:
        """See `Environment.from_callable`.

        Parameters
        ----------
        arms, reward, budget, average, direction : as for `Environment.from_callable`

        Returns
        -------
        CallableEnvironment
        """
        budget = whole_number(budget, "budget", least=1)
        check_choice(direction, "direction", ("maximize", "minimize"))
        if not callable(reward):
            raise InvalidInputError.of(
                "reward", reward, "a function of (arms, rounds, rng) that returns rewards"
            )
        if average is None:
            found = _average_by_draws(arms, reward, budget, direction)
        else:
            found = np.array(average, dtype=np.float64)  # a copy: it is made read-only
        if found.shape != (arms.size,) or not np.isfinite(found).all():
            raise InvalidInputError.of(
                "average", average, f"{arms.size} finite numbers, one for each arm"
            )
        found.setflags(write=False)
        return cls(arms, budget, reward, found, direction)

    @property
    def average(self) -> Floats:
        """(K,) time-averaged mean of every arm: what a test is to compare."""
        return self.expected

    def _play(
        self, segment: Segment, start: Integers, rng: np.random.Generator, squares: bool
    ) -> SegmentStats:
        shape = segment.weights.shape
        counts, sums = np.zeros(shape, dtype=np.int64), np.zeros(shape)
        squared = np.zeros(shape if squares else (0, 0))
        for part in _parts(segment.rounds):
            rounds = segment.rounds[part]
            columns = drawn_columns(segment, rng, part)
            before = np.repeat(np.cumsum(rounds) - rounds - start[part], rounds)
            played = columns if segment.arms is None else segment.arms[columns]
            rewards = called(
                self.reward, played.astype(np.int64), np.arange(len(columns)) - before, rng
            )
            rows = squared[part] if squares else squared
            kernels.add_rewards(columns, rewards, rounds, counts[part], sums[part], rows)
        return SegmentStats(counts, sums, squared if squares else None)


def drawn_columns(segment: Segment, rng: np.random.Generator, part: slice) -> NDArray[np.int32]:
    """Columns of the arms that some trials play, in order, one trial after the other."""
    columns = np.empty(int(segment.rounds[part].sum()), dtype=np.int32)
    weights, planned = segment.weights[part], segment.planned[part]
    kernels.draw_columns(weights, planned, segment.block_code, rng, columns)
    return columns


def called(reward: Reward, arms: Integers, rounds: Integers, rng: np.random.Generator) -> Floats:
    """The value of the function, if it is a finite reward for each round."""
    rewards = np.ascontiguousarray(reward(arms, rounds, rng), dtype=np.float64)
    if rewards.shape != arms.shape or not np.isfinite(rewards).all():
        raise InvalidInputError(
            f"the reward function returned an array of shape {rewards.shape}"
            + ("" if np.isfinite(rewards).all() else " with numbers that are not finite")
            + f"; expected {len(arms)} finite rewards, one for each of the arms it was given."
        )
    return rewards


def _parts(rounds: Integers) -> Iterator[slice]:
    """Trials that are played together: with about `ROUNDS` rounds, one at least."""
    ends = np.cumsum(rounds)
    first = 0
    while first < len(rounds):
        played = ends[first - 1] if first else 0
        last = max(int(np.searchsorted(ends, played + ROUNDS, side="right")), first + 1)
        yield slice(first, last)
        first = last


def _average_by_draws(arms: ArmSet, reward: Reward, budget: int, direction: Direction) -> Floats:
    """Means over a million random rounds of each arm; they must name the best one."""
    rng = np.random.default_rng(0)
    means, variances = np.empty((2, arms.size))
    for k in range(arms.size):
        rounds = rng.integers(budget, size=DRAWS)
        rewards = called(reward, np.full(DRAWS, k), rounds, rng)
        means[k], variances[k] = rewards.mean(), rewards.var() / DRAWS
    values = means if direction == "maximize" else -means
    best = int(values.argmax())
    behind = CLEAR * np.sqrt(variances + variances[best]) < values[best] - values
    if not np.delete(behind, best).all():
        raise InvalidInputError(
            f"after {DRAWS:,} rewards of each arm it is not clear which one is the best: "
            f"{arms.names[best]!r} leads by less than {CLEAR:g} standard errors. Give the means "
            "over all rounds with average=[…]."
        )
    return means


# Logged data


@dataclass(frozen=True, eq=False)
class Replay(World):
    """Rewards drawn with replacement from those logged for the same arm in the same period.

    The budget is spread evenly over the periods of the log, so drift from period to period is the
    log's own. Build one with `from_log`.

    Attributes
    ----------
    arms, budget, direction : as for `Environment`
    rewards : all logged rewards, sorted by period and arm
    offsets : (periods * K + 1,) where each pool of rewards begins

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B"])
    >>> log = {"period": [1, 1, 2, 2], "arm": [0, 1, 0, 1], "reward": [0.2, 0.9, 0.6, 0.5]}
    >>> world = sa.Replay.from_log(arms, **log, budget=100)
    >>> sa.simulate(sa.GBAI(), world, trials=100, seed=1)
    Results(G-BAI: 0 errors in 100 trials)
    """

    arms: ArmSet
    budget: int
    rewards: Floats = field(repr=False)
    offsets: Integers = field(repr=False)
    direction: Direction = "maximize"

    @classmethod
    def from_log(
        cls,
        arms: ArmSet,
        period: ArrayLike,
        arm: ArrayLike,
        reward: ArrayLike,
        budget: int,
        direction: Direction = "maximize",
    ) -> Replay:
        """One entry per logged row: its period (any sortable values), arm index and reward.

        Parameters
        ----------
        arms : the variants
        period : when each row was logged, such as its day
        arm : index of the arm that was shown
        reward : its reward
        budget : rounds of the test
        direction : whether high or low rewards are wanted

        Returns
        -------
        Replay

        Examples
        --------
        >>> arms = ArmSet.one_hot(["A", "B"])
        >>> world = Replay.from_log(
        ...     arms, period=[1, 1, 1, 2, 2], arm=[0, 0, 1, 0, 1], reward=[1, 0, 1, 0, 1], budget=10
        ... )
        >>> world.average.tolist(), world.best_arm
        ([0.25, 1.0], 1)
        """
        budget = whole_number(budget, "budget", least=1)
        check_choice(direction, "direction", ("maximize", "minimize"))
        try:
            periods, index = np.unique(np.asarray(period), return_inverse=True)
            arm_of, values = np.asarray(arm), np.asarray(reward, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"the log cannot be read ({error}); expected periods that can be sorted and "
                "rewards that are numbers."
            ) from None
        if not index.shape == arm_of.shape == values.shape or index.ndim != 1 or not index.size:
            raise InvalidInputError(
                f"period, arm and reward have shapes {np.shape(period)}, {arm_of.shape} and "
                f"{values.shape}; expected three columns of the same length, at least 1."
            )
        if (
            not np.issubdtype(arm_of.dtype, np.integer)
            or not ((arm_of >= 0) & (arm_of < arms.size)).all()
        ):
            raise InvalidInputError(f"arm holds other values than indices 0 to {arms.size - 1}.")
        if not np.isfinite(values).all():
            row = int(np.flatnonzero(~np.isfinite(values))[0])
            raise InvalidInputError(f"the reward in row {row} is {values[row]}; expected a number.")
        if budget < len(periods):
            raise InvalidInputError(
                f"budget is {budget} for {len(periods)} periods; every period needs a round."
            )
        pool = index * arms.size + arm_of
        counts = np.bincount(pool, minlength=len(periods) * arms.size)
        if not counts.all():
            where, k = divmod(int(np.flatnonzero(counts == 0)[0]), arms.size)
            raise InvalidInputError(
                f"arm {arms.names[k]!r} has no reward in period {periods[where]}; merge periods "
                "or leave the arm out, so that every arm could have been played throughout."
            )
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return cls(arms, budget, values[np.argsort(pool, kind="stable")], offsets, direction)

    @property
    def periods(self) -> int:
        """Number of periods in the log."""
        return (len(self.offsets) - 1) // self.arms.size

    @cached_property
    def period_of_round(self) -> Integers:
        """(T,) period of each round; rounds are spread evenly."""
        return np.arange(self.budget, dtype=np.int64) * self.periods // self.budget

    @cached_property
    def period_means(self) -> Floats:
        """(periods, K) mean logged reward."""
        sums = np.add.reduceat(self.rewards, self.offsets[:-1])
        return (sums / np.diff(self.offsets)).reshape(self.periods, self.arms.size)

    @property
    def means(self) -> Floats:
        """(T, K) mean reward of every arm in every round."""
        return self.period_means[self.period_of_round]

    @cached_property
    def average(self) -> Floats:
        """(K,) time-averaged mean of every arm."""
        rounds = np.bincount(self.period_of_round, minlength=self.periods)
        return np.asarray((rounds.astype(np.float64) @ self.period_means) / self.budget)

    def _play(
        self,
        segment: Segment,
        start: Integers,
        rng: np.random.Generator,
        squares: bool,
    ) -> SegmentStats:
        table = self.rewards, self.offsets, self.period_of_round * self.arms.size
        return play_by(kernels.play_pools, segment, start, rng, squares, *table)
