"""Worlds that a function of yours describes: rewards of any kind, and an adaptive adversary."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.arms import ArmSet
from steadyarm.environments import kernels
from steadyarm.environments.environment import (
    GaussianNoise,
    Noise,
    World,
    check_noise,
    drawn_rewards,
    shortfall,
)
from steadyarm.errors import InvalidInputError
from steadyarm.fingerprints import content_of
from steadyarm.segments import Direction, Segment, SegmentStats
from steadyarm.validation import check_choice, whole_number

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Reward = Callable[[Integers, Integers, np.random.Generator], ArrayLike]
Means = Callable[[Integers, Integers], ArrayLike]

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

    @cached_property
    def fingerprint(self) -> str:
        """Hash of everything that makes this world, with its function and what that refers to.

        Empty where the function holds something that cannot be compared, such as an open file.
        """
        return fingerprint_of(self, self.reward, self.expected)

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


def fingerprint_of(world: Any, function: Callable[..., Any], *tables: Floats) -> str:
    """Hash of a world that a function describes, with all that the function refers to.

    Empty where the function holds something that cannot be compared, such as an open file.
    """
    found = content_of(function).fingerprint
    if not found:
        return ""
    noise = getattr(world, "noise", "")
    digest = hashlib.sha256(
        f"{world.arms.fingerprint}{world.budget}{noise}{world.direction}{found}".encode()
    )
    for table in tables:
        digest.update(table.tobytes())
    return digest.hexdigest()


# An adversary that reacts: nothing that is proven here holds against it.


@dataclass(frozen=True, eq=False)
class AdaptiveAdversary:
    """A world that sees which arms were played so far, and chooses its means accordingly.

    The guarantees of this package, and of the paper, are for worlds that are fixed before the test
    or move on their own. They do **not** cover this adversary; it is here to try what happens.
    The best arm of a trial is the one whose means were best in that very trial, so trials may
    differ in it; means and regret are over the rounds that were played. Permuted blocks (`Steady`)
    can be predicted from the plays of a block; ``Steady(order="iid")`` cannot.

    Parameters
    ----------
    arms : the variants
    means : called as ``means(rounds, plays)`` before every round, for n trials at once: `rounds`
        (n,) says which round it is, counted from 0, and `plays` (n, K) how often each arm was
        played before it; returns the means (n, K) of that round
    budget : number of rounds T
    noise : how rewards scatter around their means
    direction : whether high or low rewards are wanted

    Examples
    --------
    An adversary that lets down whichever arm was played most:

    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B", "C"])
    >>> def spoil(rounds, plays):
    ...     most = plays == plays.max(axis=1, keepdims=True)
    ...     return [0.5, 0.4, 0.3] - 0.5 * most
    >>> world = sa.AdaptiveAdversary(arms, spoil, budget=600, noise=sa.GaussianNoise(0.2))
    >>> sa.simulate(sa.GBAI(), world, trials=200, seed=1)
    Results(G-BAI: 15 errors in 200 trials)
    """

    arms: ArmSet
    means: Means = field(repr=False)
    budget: int
    noise: Noise = field(default_factory=GaussianNoise)
    direction: Direction = "maximize"

    def __post_init__(self) -> None:
        whole_number(self.budget, "budget", least=1)
        check_choice(self.direction, "direction", ("maximize", "minimize"))
        check_noise(self.noise)
        if not callable(self.means):
            raise InvalidInputError.of(
                "means",
                self.means,
                "a function of (rounds, plays) that returns the means of a round",
            )

    @cached_property
    def fingerprint(self) -> str:
        """Hash of everything that makes this world, with its function and what that refers to.

        Empty where the function holds something that cannot be compared, such as an open file.
        """
        return fingerprint_of(self, self.means)

    def begin(self, trials: int) -> Encounter:
        """The adversary at the beginning of so many trials, which it will remember."""
        return Encounter(self, trials)


class Encounter:
    """An adaptive adversary in the course of some trials; `simulate` makes one for each batch.

    Attributes
    ----------
    plays : (n, K) how often each arm was played so far
    totals : (n, K) sums of the means of every arm over the rounds so far
    """

    def __init__(self, world: AdaptiveAdversary, trials: int) -> None:
        self._world = world
        self.plays = np.zeros((trials, world.arms.size), dtype=np.int64)
        self.totals = np.zeros((trials, world.arms.size))

    @property
    def best_arm(self) -> Integers:
        """(n,) the arm whose means were best over the rounds of each trial."""
        return np.asarray(self._values.argmax(axis=1))

    def regret(self, arms: Integers) -> Floats:
        """(n,) by how much the mean of these arms falls short of the best one's.

        Over the rounds that were played: a policy may leave some of its budget unspent, and of
        those rounds there are no means.
        """
        values, rows = self._values, np.arange(len(arms))
        played = np.maximum(self.plays.sum(axis=1), 1)
        best, chosen = values.max(axis=1) / played, values[rows, arms] / played
        return shortfall(best, chosen, float(np.abs(values / played[:, None]).max()))

    @property
    def _values(self) -> Floats:
        return self.totals if self._world.direction == "maximize" else -self.totals

    def play(
        self, segment: Segment, start: Integers, rng: np.random.Generator, squares: bool = False
    ) -> SegmentStats:
        """Play each trial's segment from its round `start` (n,) on, all trials round by round."""
        world = self._world
        segment = segment.dense(world.arms.size)
        segment.check_within(start, world.budget)
        n, K, longest = segment.trials, world.arms.size, int(segment.rounds.max())
        drawn = drawn_columns(segment, rng, slice(None))
        active = np.arange(longest) < segment.rounds[:, None]
        cells = np.zeros((n, longest), dtype=np.int64)  # places in tables of a row for each trial
        cells[active] = drawn
        cells = np.ascontiguousarray((cells + K * np.arange(n)[:, None]).T)
        chosen = np.zeros((longest, n))  # means of the arms that are played
        plays = self.plays.reshape(-1)
        for p in range(longest):
            at = slice(None) if p < segment.rounds.min() else np.flatnonzero(active[:, p])
            means = np.asarray(world.means(start[at] + p, self.plays[at].copy()), dtype=np.float64)
            here = cells[p, at]
            if means.shape != (len(here), K):
                raise _wrong_means(means, len(here), K)
            self.totals[at] += means
            chosen[p, at] = means[np.arange(len(here)), here % K]
            plays[here] += 1
        if not np.isfinite(self.totals).all():
            raise _wrong_means(self.totals, n, K)
        rewards = np.zeros((longest, n))
        rewards[active.T] = drawn_rewards(world.noise, chosen[active.T], rng)
        counts, (sums, squared) = np.zeros_like(self.plays), np.zeros((2, n, K))
        kernels.add_rewards(drawn, rewards.T[active], segment.rounds, counts, sums, squared)
        return SegmentStats(counts, sums, squared if squares else None)


def _wrong_means(means: Floats, trials: int, arms: int) -> InvalidInputError:
    return InvalidInputError(
        f"the adversary's means have shape {means.shape}, or are not finite; expected "
        f"({trials}, {arms}): a row for each trial, a column for each arm."
    )
