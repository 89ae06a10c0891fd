"""Environment: arms whose mean rewards follow a table over time, fixed before the test starts."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.arms import ArmSet
from steadyarm.compiled import normal
from steadyarm.environments import kernels
from steadyarm.environments.noise import (
    BernoulliReward,
    BoundedNoise,
    GaussianNoise,
    Noise,
    check_noise,
)
from steadyarm.errors import InvalidInputError
from steadyarm.linalg import matmul
from steadyarm.segments import Direction, Segment, SegmentStats
from steadyarm.validation import check_choice, whole_number

# Averaged: what the worlds here share. The best arm is that of the time-averaged means.


class Averaged(ABC):
    """A world whose arms are compared by their means over all rounds."""

    direction: Direction

    @property
    @abstractmethod
    def average(self) -> NDArray[np.float64]:
        """(K,) time-averaged mean of every arm: what a test is to compare."""

    @cached_property
    def _best(self) -> tuple[int, float]:
        values = self.average if self.direction == "maximize" else -self.average
        second, first = np.sort(values)[-2:]
        return int(values.argmax()), float(first - second)

    @property
    def best_arm(self) -> int:
        """The arm with the best time-averaged mean."""
        return self._best[0]

    @property
    def gap(self) -> float:
        """By how much the best arm beats the second best, on average over time."""
        return self._best[1]


def hash_of(text: str, *tables: NDArray[np.float64] | NDArray[np.int64]) -> str:
    """Of all that makes a world: its settings as text, then its tables."""
    digest = hashlib.sha256(text.encode())
    for table in tables:
        digest.update(table.tobytes())
    return digest.hexdigest()


MOST_MEANS = 2**27  # 1 GB, that a table of means may have


class RewardSource(Protocol):
    """What `simulate` needs of an environment; write your own class with these five."""

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
        start: NDArray[np.int64],
        rng: np.random.Generator,
        squares: bool = False,
    ) -> SegmentStats:
        """Play each trial's segment from its round `start` (n,) on."""


@dataclass(frozen=True, eq=False)
class Environment(Averaged):
    """Rewards around a table of means; the world does not react to what is played.

    Build one with `from_parameters` or `from_means`.

    Attributes
    ----------
    arms : the variants
    budget : number of rounds T
    table : (T, K) mean reward of every arm in every round, or (1, K) if nothing moves
    noise : how rewards scatter around their means
    direction : whether high or low rewards are wanted

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

    @classmethod
    def from_parameters(
        cls,
        arms: ArmSet,
        thetas: ArrayLike,
        noise: Noise | None = None,
        budget: int | None = None,
        direction: Direction = "maximize",
    ) -> Environment:
        """Means x'θ_t from parameters in the user's features: (T, d), or (d,) with a budget."""
        parameters = checked_table(thetas, arms.dimension, "thetas", "features", budget)
        if not arms.large:
            return cls._build(arms, matmul(parameters, arms.features.T), noise, budget, direction)
        if len(parameters) * arms.size > MOST_MEANS:
            raise InvalidInputError(
                f"a table of means of {arms.size:,} arms in {len(parameters):,} rounds does not "
                "fit in memory; use ParametricEnvironment(arms, thetas), which needs none."
            )
        means = np.stack([arms.values(matmul(theta, arms.basis)) for theta in parameters])
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
        """Means given directly: (T, K), or (K,) with a budget."""
        table = checked_table(means, arms.size, "means", "arms", budget)
        return cls._build(arms, table, noise, budget, direction)

    def __post_init__(self) -> None:
        whole_number(self.budget, "budget", least=1)
        check_choice(self.direction, "direction", ("maximize", "minimize"))
        check_noise(self.noise)
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
    ) -> Environment:
        noise = GaussianNoise() if noise is None else noise
        if isinstance(noise, BernoulliReward):  # means of 1 + 2e-16 are sums that were rounded
            table = np.where(np.abs(table - 0.5) < 0.5 + 1e-12, table.clip(0.0, 1.0), table)
        table = np.ascontiguousarray(table)
        table.setflags(write=False)
        return cls(arms, len(table) if budget is None else budget, table, noise, direction)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of everything that makes this world."""
        text = f"{self.arms.fingerprint}{self.budget}{self.noise}{self.direction}"
        return hash_of(text, self.table)

    @property
    def is_stationary(self) -> bool:
        """Whether one row of means stands for all rounds."""
        return len(self.table) == 1

    @property
    def means(self) -> NDArray[np.float64]:
        """(T, K) mean reward of every arm in every round (a view, also if nothing moves)."""
        return np.broadcast_to(self.table, (self.budget, self.arms.size))

    @cached_property
    def average(self) -> NDArray[np.float64]:
        """(K,) time-averaged mean of every arm: what a test is to compare."""
        return np.asarray(self.table.mean(axis=0))

    def play(
        self,
        segment: Segment,
        start: NDArray[np.int64],
        rng: np.random.Generator,
        squares: bool = False,
    ) -> SegmentStats:
        """Play each trial's segment from its round `start` (n,) on.

        Without squares, Gaussian noise is drawn once per arm and segment, as its sum, and where
        nothing moves only the number of plays is drawn.
        """
        segment.check_within(start, self.budget)
        if squares or isinstance(self.noise, BoundedNoise):
            return self._play_rounds(segment, start, self.noise.kind, squares, rng)
        if self.is_stationary and segment.order != "blocks":
            stats = self._play_still(segment, rng)
        elif isinstance(self.noise, GaussianNoise):
            stats = self._play_rounds(segment, start, kernels.EXACT, False, rng)
        else:
            return self._play_rounds(segment, start, self.noise.kind, False, rng)
        if isinstance(self.noise, BernoulliReward):
            return stats
        spread = self.noise.sd * np.sqrt(stats.counts)
        return replace(stats, sums=stats.sums + spread * normal(rng, spread.shape))

    def _means_of(self, segment: Segment) -> NDArray[np.float64]:
        """(T, m) or (1, m) means of the segment's arms."""
        return self.table if segment.arms is None else self.table[:, segment.arms]

    def _play_still(self, segment: Segment, rng: np.random.Generator) -> SegmentStats:
        """Nothing moves: the numbers of plays are enough, drawn or planned."""
        means = self._means_of(segment)
        if segment.order == "shuffled":
            counts = segment.counts
        else:
            counts = rng.multinomial(segment.rounds, segment.weights)
        if isinstance(self.noise, BernoulliReward):
            return SegmentStats(counts, rng.binomial(counts, means).astype(np.float64))
        return SegmentStats(counts, counts * means)

    def _play_rounds(
        self,
        segment: Segment,
        start: NDArray[np.int64],
        kind: int,
        squares: bool,
        rng: np.random.Generator,
    ) -> SegmentStats:
        shape = segment.weights.shape
        counts = np.zeros(shape, dtype=np.int64)
        sums, squared = np.zeros(shape), np.zeros(shape if squares else (0, 0))
        kernels.play_table(
            self._means_of(segment),
            segment.weights,
            segment.planned,
            segment.block_code,
            start,
            kind,
            self.noise.scale,
            squares,
            rng,
            counts,
            sums,
            squared,
        )
        return SegmentStats(counts, sums, squared if squares else None)


def _check_probabilities(table: NDArray[np.float64], arms: ArmSet) -> None:
    if not ((table >= 0) & (table <= 1)).all():
        t, k = np.argwhere(~((table >= 0) & (table <= 1)))[0]
        raise InvalidInputError(
            f"the mean of arm {arms.names[k]!r} in round {t} is {table[t, k]:g}; "
            "Bernoulli rewards need means between 0 and 1."
        )


def checked_table(
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
