"""Environments whose rewards a function of yours draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm import kernels
from steadyarm.arms import ArmSet
from steadyarm.environments.environment import (
    World,
)
from steadyarm.errors import InvalidInputError
from steadyarm.segments import Direction, Segment, SegmentStats
from steadyarm.validation import check_choice, whole_number

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Reward = Callable[[Integers, Integers, np.random.Generator], ArrayLike]

ROUNDS = 2**19  # rounds for which a function is called at once
DRAWS = 2**15  # rewards of each arm that are drawn at a time to find the best one
MOST_DRAWS = 2**22  # after which the best arm has to be named
PRECISE = 0.01  # standard errors of the gaps that are wanted, relative to the gaps
ENOUGH = 2**20  # draws after which they may be larger
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
    """What the function returns, if it is a finite reward for each round."""
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
    """Means over random rounds, drawn until the best arm is beyond doubt and gaps are precise."""
    rng = np.random.default_rng(0)
    sums, squares, drawn = np.zeros(arms.size), np.zeros(arms.size), 0
    while drawn < MOST_DRAWS:
        for k in range(arms.size):
            rounds = rng.integers(budget, size=DRAWS)
            rewards = called(reward, np.full(DRAWS, k), rounds, rng)
            sums[k] += rewards.sum()
            squares[k] += (rewards * rewards).sum()
        drawn += DRAWS
        means = sums / drawn
        variances = np.maximum(squares / drawn - means * means, 0.0) / drawn
        values = means if direction == "maximize" else -means
        best = int(values.argmax())
        errors = np.sqrt(variances + variances[best])
        gaps, errors = (np.delete(x, best) for x in (values[best] - values, errors))
        clear, precise = gaps > CLEAR * errors, errors <= PRECISE * gaps
        if clear.all() and (precise.all() or drawn >= ENOUGH):
            return np.asarray(means)
    raise InvalidInputError(
        f"after {drawn:,} rewards of each arm it is not clear which one is the best: "
        f"{arms.names[best]!r} leads by less than {CLEAR:g} standard errors. Give the means over "
        "all rounds with average=[…]."
    )
