"""ParametricEnvironment: a world of many arms, whose means follow a parameter over time."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.arms import ArmSet
from steadyarm.compiled import normal
from steadyarm.environments.environment import Averaged, checked_table, hash_of
from steadyarm.environments.noise import (
    BernoulliReward,
    BoundedNoise,
    GaussianNoise,
    Noise,
    check_noise,
)
from steadyarm.errors import InvalidInputError
from steadyarm.linalg import matmul, row_dots
from steadyarm.segments import Direction, Segment, SegmentStats, columns_between
from steadyarm.validation import check_choice

ROUNDS = 2**18  # numbers of features looked at together

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ParametricEnvironment(Averaged):
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
        table = checked_table(self.thetas, self.arms.dimension, "thetas", "features", budget)
        table.setflags(write=False)
        object.__setattr__(self, "budget", self.budget or len(table))
        object.__setattr__(self, "thetas", table)

    @property
    def _table(self) -> Floats:
        """(T, d) parameters, or (1, d) if nothing moves."""
        return np.asarray(self.thetas)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of everything that makes this world."""
        text = f"{self.arms.fingerprint}{self.budget}{self.noise}{self.direction}"
        return hash_of(text, self._table)

    @cached_property
    def average(self) -> Floats:
        """(K,) time-averaged mean of every arm: what a test is to compare."""
        return self.arms.values(matmul(self._table.mean(axis=0), self.arms.basis))

    def means(self, arms: NDArray[np.int64], rounds: NDArray[np.int64]) -> Floats:
        """(m,) mean reward of an arm in a round, for m pairs of them."""
        out = np.empty(len(arms))
        present, place = np.unique(arms, return_inverse=True)
        X = self.arms.features_of(present)
        if len(self._table) == 1:
            return np.asarray(matmul(X, self._table[0])[place])
        step = max(ROUNDS // self.arms.dimension, 1)
        for start in range(0, len(arms), step):
            part = slice(start, start + step)
            out[part] = row_dots(X[place[part]], self._table[rounds[part]])
        return out

    def play(
        self,
        segment: Segment,
        start: NDArray[np.int64],
        rng: np.random.Generator,
        squares: bool = False,
    ) -> SegmentStats:
        """Play each trial's segment from its round `start` (n,) on, one after the other."""
        segment.check_within(start, self.budget)
        played = [
            self._play_one(segment.trial(i), start[i : i + 1], rng) for i in range(segment.trials)
        ]
        counts, sums, squared = (np.concatenate(part) for part in zip(*played, strict=True))
        return SegmentStats(counts, sums, squared if squares else None)

    def _play_one(
        self, segment: Segment, start: NDArray[np.int64], rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], Floats, Floats]:
        """(1, m) counts, sums and squares of a batch of one."""
        rounds = int(segment.rounds[0])
        columns = columns_between(segment, int(rng.integers(2**62)), 0, 0, rounds)
        arms = columns if segment.arms is None else segment.arms[columns]
        rewards = self._rewards(self.means(arms, int(start[0]) + np.arange(rounds)), rng)
        m = segment.columns
        counts = np.bincount(columns, minlength=m).astype(np.int64)
        sums, squared = (
            np.bincount(columns, values, minlength=m).astype(np.float64)
            for values in (rewards, rewards**2)
        )
        return counts[None], sums[None], squared[None]

    def _rewards(self, means: Floats, rng: np.random.Generator) -> Floats:
        if isinstance(self.noise, GaussianNoise):
            return means + self.noise.sd * normal(rng, means.size)
        if isinstance(self.noise, BoundedNoise):
            return means + self.noise.bound * (2.0 * rng.random(means.size) - 1.0)
        assert isinstance(self.noise, BernoulliReward)
        if not ((means >= 0) & (means <= 1)).all():
            raise InvalidInputError(
                f"means go from {means.min():g} to {means.max():g}; Bernoulli rewards need means "
                "between 0 and 1."
            )
        return (rng.random(means.size) < means).astype(np.float64)
