"""How effects move in the course of a planned test, and the environment that plays it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.environments import BernoulliReward, GaussianNoise
from steadyarm.environments.environment import shortfall
from steadyarm.errors import InvalidInputError
from steadyarm.segments import Direction, Segment, SegmentStats
from steadyarm.validation import check_choice, finite_number

KINDS = ("none", "weekend", "trend")
STEPS = 56  # of a trend, at least

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Pieces:
    """The test cut where its means change: round after each piece, and its swing.

    The swing multiplies the effects. Weighted with the pieces' lengths it averages one.
    """

    ends: Integers
    swing: Floats


@dataclass(frozen=True)
class Rhythm:
    """What happens to the effects in the course of a test that starts on a Saturday.

    The effects that a question states are averages over the test. At the rhythm's high, which is
    the weekend or the beginning of a trend, every lead is smaller, by `strength` times its average,
    than at the low; from about 2 on the order of the arms turns around. A test covers whole weeks
    for a weekend. A smaller budget takes a smaller share of each day's traffic.

    Parameters
    ----------
    kind : none, weekend or trend
    strength : difference of the leads between low and high, as a multiple of their average

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
        """How many days a test takes: as few as the traffic allows, in whole weeks if weekly."""
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
            "none": "nothing moves",
            "weekend": f"between weekday and weekend {turn}; starts on a Saturday",
            "trend": f"from first to last round {turn}",
        }[self.kind]


CALM = Rhythm()


@dataclass(frozen=True, eq=False)
class PlannedWorld:
    """An environment whose means stay put for whole pieces of the test, for long tests.

    It draws how often each arm is played in a piece, and the sum of these rewards, at once. Where a
    piece cuts a block, its beginning is drawn as a block of that length.

    Attributes
    ----------
    arms, budget, direction : as for `Environment`
    effects : (K,) value of every arm, relative to the level
    level : average reward of an arm without effect
    pieces : how effects move
    noise : Gaussian or Bernoulli
    correlation : of rewards with a covariate, for which they are adjusted as with its true slope:
        the part of the noise that the covariate explains is gone
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
        """By how much these arms fall short of the best one; exactly zero for ties."""
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
        """Sums of so many rewards, and of their squares."""
        left, some = math.sqrt(1.0 - self.correlation**2), np.maximum(counts, 1)
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
    """(n, K) cards of each kind among the first `draws` (n,) of shuffled decks (n, K)."""
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
