"""Replay: a world whose rewards are drawn from a logged data set, period by period."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm import kernels
from steadyarm.arms import ArmSet
from steadyarm.environments.environment import World, played_by
from steadyarm.errors import InvalidInputError
from steadyarm.segments import Direction, Segment, SegmentStats
from steadyarm.validation import check_choice, whole_number


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
    rewards: NDArray[np.float64] = field(repr=False)
    offsets: NDArray[np.int64] = field(repr=False)
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
        reward : what it brought
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
    def period_of_round(self) -> NDArray[np.int64]:
        """(T,) period of each round; rounds are spread evenly."""
        return np.arange(self.budget, dtype=np.int64) * self.periods // self.budget

    @cached_property
    def period_means(self) -> NDArray[np.float64]:
        """(periods, K) mean logged reward."""
        sums = np.add.reduceat(self.rewards, self.offsets[:-1])
        return (sums / np.diff(self.offsets)).reshape(self.periods, self.arms.size)

    @property
    def means(self) -> NDArray[np.float64]:
        """(T, K) mean reward of every arm in every round."""
        return self.period_means[self.period_of_round]

    @cached_property
    def average(self) -> NDArray[np.float64]:
        """(K,) time-averaged mean of every arm."""
        rounds = np.bincount(self.period_of_round, minlength=self.periods)
        return np.asarray((rounds.astype(np.float64) @ self.period_means) / self.budget)

    def _play(
        self,
        segment: Segment,
        start: NDArray[np.int64],
        rng: np.random.Generator,
        squares: bool,
    ) -> SegmentStats:
        table = self.rewards, self.offsets, self.period_of_round * self.arms.size
        return played_by(kernels.play_pools, segment, start, rng, squares, *table)
