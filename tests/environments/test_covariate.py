"""Worlds with a covariate: rewards as without it, and the promised correlation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

import steadyarm as sa
from steadyarm.environments import Noise
from steadyarm.segments import Segment

ARMS = sa.ArmSet.one_hot(["A", "B", "C"])
MEANS = np.random.default_rng(3).uniform(0.1, 0.9, size=(40, 3))
STILL = np.array([0.05, 0.3, 0.8])
RHO = 0.6


def products(noise: Noise, mean: Any) -> Any:
    """Expectation of the covariate times a reward of that mean."""
    if isinstance(noise, sa.GaussianNoise):
        return np.full_like(mean, RHO * noise.sd)
    if isinstance(noise, sa.BoundedNoise):
        return np.full_like(mean, RHO * noise.bound / np.sqrt(np.pi))
    return RHO * norm.pdf(norm.ppf(mean))


@pytest.mark.parametrize("order", ["iid", "blocks", "shuffled"])
@pytest.mark.parametrize(
    "noise", [sa.GaussianNoise(0.5), sa.BoundedNoise(2.0), sa.BernoulliReward()], ids=repr
)
@pytest.mark.parametrize("table", [MEANS, STILL], ids=["moving", "still"])
def test_sums_have_the_right_means(order: Any, noise: Noise, table: Any) -> None:
    """Over 4,000 trials, each sum per play within five standard errors."""
    n, start, rounds = 4000, 7, 24
    world = sa.Environment.from_means(ARMS, table, noise, budget=None if table.ndim == 2 else 40)
    weights = np.tile([0.25, 0.25, 0.5], (n, 1))
    segment = Segment(weights, np.full(n, rounds), order, block=8)
    rng = np.random.default_rng(1)
    stats, moments = world.with_covariate(RHO).play_with_covariates(segment, np.full(n, start), rng)
    means = world.means[start : start + rounds]
    variances = (means * (1 - means)).mean(axis=0)  # of clicks
    if not isinstance(noise, sa.BernoulliReward):
        variances = np.full(3, 0.25 if isinstance(noise, sa.GaussianNoise) else 4 / 3)
    plays = rounds * weights[0]
    assert stats.squares is not None
    expected = {
        "rewards": (stats.sums, plays * means.mean(axis=0)),
        "squares": (stats.squares, plays * ((means**2).mean(axis=0) + variances)),
        "z": (moments.totals[..., 1], np.zeros(3)),
        "z²": (moments.total_squares[..., 1, 1], plays),
        "z times reward": (moments.products[..., 1], plays * products(noise, means).mean(axis=0)),
    }
    for name, (found, exact) in expected.items():
        error = found.std(axis=0) / np.sqrt(n)
        assert np.all(np.abs(found.mean(axis=0) - exact) < 5 * error + 1e-9), name
    assert np.array_equal(moments.assigned, stats.counts)
    assert np.array_equal(moments.totals[..., 0], stats.counts)
    assert np.array_equal(moments.products[..., 0], stats.sums)
    assert np.array_equal(moments.seen, moments.totals)


def test_a_world_and_its_covariate() -> None:
    world = sa.Environment.from_means(ARMS, STILL, budget=50, direction="minimize")
    known = world.with_covariate(0.7)
    assert (known.best_arm, known.budget, known.direction) == (0, 50, "minimize")
    assert known.gap == world.gap
    for wrong in (1.5, "much", float("nan")):
        with pytest.raises(sa.InvalidInputError, match="correlation is"):
            world.with_covariate(wrong)  # type: ignore[arg-type]
