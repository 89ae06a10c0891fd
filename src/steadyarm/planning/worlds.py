"""Worlds of a question: many simulated tests at once, each with its own true effects."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.environments import BernoulliReward, GaussianNoise
from steadyarm.errors import InvalidInputError
from steadyarm.planning.kernels import play_pieces
from steadyarm.planning.rhythm import Pieces
from steadyarm.segments import Direction, Segment, SegmentStats

__all__ = ["BatchWorld"]


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
