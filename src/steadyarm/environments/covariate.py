"""Worlds whose units have covariates, known before they are assigned."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steadyarm.covariates import Moments
from steadyarm.environments.environment import KERNELS, Environment, World, noise_scale
from steadyarm.errors import InvalidInputError
from steadyarm.kernels import BERNOULLI, BOUNDED, draw_arms, kernel, scratch_for
from steadyarm.segments import Segment, SegmentStats
from steadyarm.validation import finite_number

ROOT_HALF = 0.7071067811865476

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class CovariateEnvironment(World):
    """A world in which a normal covariate of every unit says something of its reward's noise.

    The covariate is the same whatever is played, and drifts with nothing. Gaussian noise of
    standard deviation σ becomes σ(ρz + √(1 - ρ²)ε), z the covariate and ε another normal number,
    so that ρ is the correlation of covariate and reward. Clicks and bounded noise are drawn from
    the probability that ρz + √(1 - ρ²)ε is exceeded, which is uniform: rates and means are exactly
    those of the world without covariate, and ρ is the correlation with the normal number behind
    the reward. The correlation with the reward itself is smaller: for clicks of rate p it is
    ρ φ(q)/√(p(1 - p)), q the p-quantile of the normal density φ.

    Attributes
    ----------
    world : how rewards are distributed
    correlation : ρ, from -1 to 1

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B", "C"])
    >>> world = sa.Environment.from_means(arms, [0.2, 0.1, 0.0], budget=1000)
    >>> plain = sa.simulate(sa.Steady(), world, trials=500)
    >>> known = sa.simulate(sa.Steady(), world.with_covariate(0.9), trials=500)
    >>> known.error_rate < 0.5 * plain.error_rate
    True
    """

    world: Environment
    correlation: float

    def __post_init__(self) -> None:
        rho = finite_number(self.correlation, "correlation")
        if not -1 <= rho <= 1:
            raise InvalidInputError.of("correlation", self.correlation, "a number from -1 to 1")
        object.__setattr__(self, "correlation", rho)
        for name in ("arms", "budget", "direction"):
            object.__setattr__(self, name, getattr(self.world, name))

    @property
    def average(self) -> Floats:
        """(K,) time-averaged mean of every arm: what a test is to compare."""
        return self.world.average

    def _play(
        self, segment: Segment, start: Integers, rng: np.random.Generator, squares: bool
    ) -> SegmentStats:
        """Play without the covariate."""
        stats, _ = self.play_with_covariates(segment, start, rng)
        return stats if squares else SegmentStats(stats.counts, stats.sums)

    def play_with_covariates(
        self, segment: Segment, start: Integers, rng: np.random.Generator
    ) -> tuple[SegmentStats, Moments]:
        """Play each trial's segment; statistics with squares, and sums of the covariates.

        These are "known", 1 for every unit, and z.

        Parameters
        ----------
        segment : the allocation of each trial and its number of rounds
        start : (n,) rounds played before, in each trial
        rng : from which all randomness comes
        """
        segment.check_within(start, self.budget)
        noise, means = self.world.noise, self.world.table
        if segment.arms is not None:
            means = np.ascontiguousarray(means[:, segment.arms])
        shape = segment.weights.shape
        counts, sums, squares = np.zeros(shape, dtype=np.int64), np.zeros(shape), np.zeros(shape)
        z, z2, zr = np.zeros((3, *shape))
        _play_kernel(
            means,
            KERNELS[type(noise)],
            noise_scale(noise),
            self.correlation,
            segment.weights,
            segment.planned,
            segment.block_code,
            start,
            rng,
            counts,
            sums,
            squares,
            z,
            z2,
            zr,
        )
        units = counts.astype(np.float64)
        totals = np.stack([units, z], axis=-1)
        pairs = np.stack([totals, np.stack([z, z2], axis=-1)], axis=-1)
        products = np.stack([sums, zr], axis=-1)
        moments = Moments(counts, totals, totals, pairs, products, pairs)
        return SegmentStats(counts, sums, squares), moments


@kernel
def _play_kernel(
    means: Floats,
    kind: int,
    scale: float,
    correlation: float,
    weights: Floats,
    planned: Integers,
    block: int,
    start: Integers,
    rng: np.random.Generator,
    counts: Integers,
    sums: Floats,
    squares: Floats,
    z: Floats,
    z2: Floats,
    zr: Floats,
) -> None:
    """As `play_table`, with sums of z, z² and z times the reward, (n, K), zero on entry."""
    moving = means.shape[0] > 1
    rest = np.sqrt(1.0 - correlation * correlation)
    scratch, accept, alias = scratch_for(planned, weights.shape[1])
    for i in range(weights.shape[0]):
        arms = draw_arms(weights[i], planned[i], block, rng, scratch, accept, alias)
        for p in range(arms.shape[0]):
            arm = arms[p]
            mean = means[start[i] + p if moving else 0, arm]
            known = rng.standard_normal()
            latent = correlation * known + rest * rng.standard_normal()
            if kind == BERNOULLI:
                reward = 1.0 if 0.5 * math.erfc(ROOT_HALF * latent) < mean else 0.0
            elif kind == BOUNDED:
                reward = mean + scale * (1.0 - 2.0 * 0.5 * math.erfc(ROOT_HALF * latent))
            else:
                reward = mean + scale * latent
            counts[i, arm] += 1
            sums[i, arm] += reward
            squares[i, arm] += reward * reward
            z[i, arm] += known
            z2[i, arm] += known * known
            zr[i, arm] += known * reward
