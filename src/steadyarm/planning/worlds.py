"""Worlds of a question: many simulated tests at once, each with its own true effects."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.compiled import kernel, standard_normal
from steadyarm.environments import BernoulliReward, GaussianNoise
from steadyarm.errors import InvalidInputError
from steadyarm.planning.rhythm import Pieces
from steadyarm.segments import Direction, Segment, SegmentStats

# Compiled draws of whole segments where means stay put for whole pieces of the test.


Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@kernel
def play_pieces(
    effects: Floats,
    ends: Integers,
    swing: Floats,
    level: Floats,
    weights: Floats,
    planned: Integers,
    block: int,
    start: Integers,
    sd: float,
    rng: np.random.Generator,
    counts: Integers,
    sums: Floats,
) -> None:
    """Play every trial's segment; an arm's mean in piece p is level[p] + swing[p] * its effect.

    effects : (n, K), one row a trial; ends : (P,) round after the last of each piece
    swing, level : (P,)
    weights, planned, block, start : as in `environments.kernels.play_table`
    sd : of Gaussian noise; negative for Bernoulli rewards
    counts, sums : (n, K), zero on entry
    """
    K = effects.shape[1]
    here = np.zeros(K, dtype=np.int64)
    deck = np.zeros(K, dtype=np.int64)
    for i in range(effects.shape[0]):
        t, stop = start[i], start[i] + planned[i].sum()
        piece = np.searchsorted(ends, t, side="right")
        here[:] = 0
        while t < stop:
            if block == 1:
                cards = stop - t
            elif block == 0:
                for k in range(K):
                    deck[k] = planned[i, k]
                cards = stop - t
            else:
                _deal_block(weights[i], block, rng, deck)
                cards = min(block, stop - t)
            size = cards if block <= 1 else block  # of the deck; a last block may be cut off
            while cards > 0:
                length = min(cards, ends[piece] - t)
                if block == 1:
                    _add_multinomial(weights[i], length, rng, here)
                else:
                    _add_from_deck(deck, size, length, rng, here)
                t += length
                cards -= length
                size -= length
                if t == ends[piece] or t == stop:
                    for k in range(K):
                        if here[k] > 0:
                            mean = level[piece] + swing[piece] * effects[i, k]
                            counts[i, k] += here[k]
                            sums[i, k] += _rewards(here[k], mean, sd, rng)
                            here[k] = 0
                    piece += 1


@kernel
def _rewards(plays: int, mean: float, sd: float, rng: np.random.Generator) -> float:
    """The sum of `plays` rewards."""
    if sd >= 0.0:
        return plays * mean + sd * math.sqrt(plays) * standard_normal(rng)
    return float(rng.binomial(plays, min(max(mean, 0.0), 1.0)))


@kernel
def _add_multinomial(weights: Floats, draws: int, rng: np.random.Generator, here: Integers) -> None:
    left, share = draws, weights.sum()
    last = weights.shape[0] - 1
    while weights[last] == 0.0:
        last -= 1
    for k in range(last):
        if left == 0:
            return
        if weights[k] > 0.0:
            n = rng.binomial(left, min(weights[k] / share, 1.0))
            here[k] += n
            left -= n
            share -= weights[k]
    here[last] += left


@kernel
def _deal_block(weights: Floats, block: int, rng: np.random.Generator, deck: Integers) -> None:
    """How often each arm is in one block, by systematic sampling with a random start."""
    total, tick = weights.sum(), rng.random()
    last = weights.shape[0] - 1
    while weights[last] == 0.0:
        last -= 1
    end, before = 0.0, 0
    deck[:] = 0
    for k in range(last):
        end += weights[k] * block / total
        upto = min(max(math.ceil(end - tick), before), block)
        deck[k] = upto - before
        before = upto
    deck[last] = block - before


@kernel
def _add_from_deck(
    deck: Integers, size: int, draws: int, rng: np.random.Generator, here: Integers
) -> None:
    """Draw from the deck of `size` without replacement, and take away what was drawn."""
    for k in range(deck.shape[0]):
        if draws == 0:
            return
        n = deck[k] if draws == size else hypergeometric(deck[k], size - deck[k], draws, rng)
        size -= deck[k]
        here[k] += n
        deck[k] -= n
        draws -= n


@kernel
def hypergeometric(good: int, bad: int, draws: int, rng: np.random.Generator) -> int:
    """How many of `draws` without replacement are good: inversion, outwards from the mode."""
    low, high = max(0, draws - bad), min(good, draws)
    if low == high:
        return low
    mode = (draws + 1) * (good + 1) // (good + bad + 2)
    mode = min(max(mode, low), high)
    peak = math.exp(
        _log_choose(good, mode) + _log_choose(bad, draws - mode) - _log_choose(good + bad, draws)
    )
    u = rng.random() - peak
    down, up = mode, mode
    below, above = peak, peak
    while u >= 0.0 and (down > low or up < high):
        if up < high:
            above *= (good - up) * (draws - up) / ((up + 1.0) * (bad - draws + up + 1.0))
            up += 1
            u -= above
            if u < 0.0:
                return up
        if down > low:
            below *= down * (bad - draws + down) / ((good - down + 1.0) * (draws - down + 1.0))
            down -= 1
            u -= below
            if u < 0.0:
                return down
    return mode


@kernel
def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1.0) - math.lgamma(k + 1.0) - math.lgamma(n - k + 1.0)


@dataclass(frozen=True, eq=False)
class BatchWorld:
    """A batch of worlds in which trial i has the effects of row i; a `RewardSource`.

    Attributes
    ----------
    arms, budget, direction : as for `Environment`
    effects : (n, K) value of every arm in every trial, relative to the level
    level : average reward of an arm without effect
    pieces : how effects and level move
    noise : Gaussian or Bernoulli
    """

    arms: ArmSet
    budget: int
    effects: NDArray[np.float64] = field(repr=False)
    level: float
    pieces: Pieces = field(repr=False)
    noise: GaussianNoise | BernoulliReward
    direction: Direction = "maximize"

    @property
    def best_arm(self) -> int:
        """The best arm of the first trial; others can have another."""
        return int(self.effects[0].argmax())

    def play(
        self,
        segment: Segment,
        start: NDArray[np.int64],
        rng: np.random.Generator,
        squares: bool = False,
    ) -> SegmentStats:
        """Play each trial's segment from its round `start` (n,) on."""
        segment.check_within(start, self.budget)
        if squares:
            raise InvalidInputError(
                "a BatchWorld draws sums and has no squares of rewards; play it without squares."
            )
        shape = segment.weights.shape
        counts, sums = np.zeros(shape, dtype=np.int64), np.zeros(shape)
        play_pieces(
            self.effects,
            self.pieces.ends,
            self.pieces.swing,
            self.level + self.pieces.level,
            segment.weights,
            segment.planned,
            segment.block_code,
            start,
            self.noise.sd if isinstance(self.noise, GaussianNoise) else -1.0,
            rng,
            counts,
            sums,
        )
        return SegmentStats(counts, sums)
