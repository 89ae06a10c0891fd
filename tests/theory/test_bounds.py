"""Bounds on errors: by hand, exact, and above what is simulated."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import steadyarm as sa
from steadyarm import theory
from tests.theory.instances import one_hot


def test_bounds_by_hand() -> None:
    arms, theta = one_hot(3), [0.9, 0.4, 0.1]
    rate = 500 * 0.25 / 3
    assert theory.g_bai_error_bound(arms, theta, 500) == pytest.approx(3 * math.exp(-rate / 12))
    drift = theory.p1_rage_drift_error_bound(arms, theta, 500)
    assert drift == pytest.approx(3 * math.exp(-3 * rate / 64))
    assert theory.g_bai_error_bound(arms, theta, 1) == 1.0
    halved = theory.g_bai_error_bound(arms, theta, 2000, largest_reward=2.0)
    assert halved == pytest.approx(theory.g_bai_error_bound(arms, theta, 500))
    T = 60_000
    bound = 2 * 2 * 3 * T * math.exp(-T / theory.h_p1_rage_exact(arms, theta))
    assert theory.p1_rage_error_bound(arms, theta, T) == pytest.approx(bound)


def flat(K: int, gap: float, budget: int) -> sa.Environment:
    means = np.where(np.arange(K) == 0, 0.5 + gap / 2, 0.5 - gap / 2)
    return sa.Environment.from_means(one_hot(K), means, sa.BernoulliReward(), budget)


def swinging(budget: int) -> sa.Environment:
    """Rewards without noise of their own, up to one in size, that move all the time."""
    phase = np.arange(budget) * 0.1
    means = np.column_stack([np.sin(phase), np.cos(phase), np.full(budget, -1.0)])
    means[:, 0] = np.clip(means[:, 0] + 0.5, -1, 1)
    return sa.Environment.from_means(one_hot(3), means, sa.BoundedNoise(0.0))


def opposite(budget: int, theta: tuple[float, float], bound: float) -> sa.Environment:
    """Arms of which G-BAI plays the first two alone; the other two are opposite, and best."""
    root = math.sqrt(2)
    arms = sa.ArmSet.from_features([[1.0, 1.0], [-1.0, 1.0], [root, 0.0], [-root, 0.0]])
    return sa.Environment.from_parameters(arms, theta, sa.BoundedNoise(bound), budget)


WORLDS = [
    (flat(2, 0.4, 250), 1.0),
    (flat(5, 0.8, 200), 1.0),
    (flat(3, 0.3, 1000), 1.0),
    (swinging(600), 1.0),
    (opposite(800, (0.09, -0.9), 0.0), 1.0),
    (opposite(3200, (0.09, -0.9), 1.0), 2.0),
]


@pytest.mark.parametrize(("world", "largest"), WORLDS)
@pytest.mark.parametrize(
    ("policy", "bound_of", "longer"),
    [
        (sa.GBAI(), theory.g_bai_error_bound, 1),
        (sa.P1RAGE(), theory.p1_rage_drift_error_bound, 2),
    ],
)
def test_errors_stay_below_the_bounds_however_the_world_moves(
    world: sa.Environment, largest: float, policy: Any, bound_of: Any, longer: int
) -> None:
    table = np.tile(world.table, (longer, 1)) if len(world.table) > 1 else world.table[0]
    budget = None if len(world.table) > 1 else world.budget * longer
    world = sa.Environment.from_means(world.arms, table, world.noise, budget)
    theta = np.linalg.lstsq(world.arms.features, world.average, rcond=None)[0]
    bound = bound_of(world.arms, theta, world.budget, largest)
    results = sa.simulate(policy, world, trials=2000, seed=3)
    assert 0.01 < bound < 0.99  # otherwise nothing is tested
    assert results.interval(0.999)[0] <= bound


@pytest.mark.parametrize("means", [[1.0, 0.0], [0.0, 1.0, 0.0]])
def test_errors_stay_below_theorem_3(means: list[float]) -> None:
    """A new allocation after every round; the budget is where the bound says half."""
    arms = one_hot(len(means))
    m, budgets = theory.phases_for(1.0), range(1000, 10_000, 100)
    budget = next(T for T in budgets if theory.p1_rage_error_bound(arms, means, T, m) < 0.5)
    world = sa.Environment.from_means(arms, means, sa.BernoulliReward(), budget)
    policy = sa.P1RAGE(max_phases=m, updates="rounds")
    results = sa.simulate(policy, world, trials=64, seed=2)
    assert results.interval(0.999)[0] <= theory.p1_rage_error_bound(arms, means, budget, m)
    assert budget < 6000


@pytest.mark.parametrize("d", [1, 2, 3, 10, 1000])
def test_the_constants_hold_for_gaps_above_one(d: int) -> None:
    """The proofs say Δ ≤ 1; with the mean taken off the second moment Bernstein needs no such."""
    gap = np.linspace(0.0, 2.0, 2001)
    off = np.square(np.maximum(gap - 1, 0.0))
    assert (8 * (d - off + (d + 1) * gap / 6) <= 12 * d).all()
    assert (8 * (2 * d - off + (2 * d + 1) * gap / 6) <= 64 / 3 * d).all()


def exact_error(gap: float, T: int, noise: bool) -> tuple[tuple[float, float], float]:
    """Parameter, and how often at least G-BAI errs in `opposite` with noise ±1 at even odds.

    It plays (1, 1) and (-1, 1) alone; the estimate of the first parameter a is a plus the mean of
    (a - 1) y_t + y_t e_t, y_t = ±1, and G-BAI errs wherever that is negative.
    """
    a = gap / (2 * math.sqrt(2))
    drawn = (1 - a) * (2 * np.arange(T + 1) - T) - T * a  # the noise must be below this
    most = np.ceil((drawn + T) / 2) - 1
    below = binom.cdf(most, T, 0.5) if noise else drawn > 0
    return (a, a - 1), float((binom.pmf(np.arange(T + 1), T, 0.5) * below).sum())


def test_twelve_is_not_enough_for_rewards_of_two() -> None:
    """Means and noise within [-1, 1] as the paper has it, and an exact error above Theorem 1."""
    T = 57_600
    theta, error = exact_error(0.1, T, noise=True)
    world = opposite(T, theta, 1.0)
    np.testing.assert_allclose(sa.g_optimal(world.arms).weights, [0.5, 0.5, 0, 0], atol=1e-9)
    assert np.abs(world.average).max() <= 1 + 1e-12
    assert world.gap == pytest.approx(0.1)
    assert error > 3 * theory.g_bai_error_bound(world.arms, theta, T)


@pytest.mark.parametrize("gap", [0.02, 0.1, 0.4, 1.0])
@pytest.mark.parametrize("T", [30, 300, 3000, 30_000])
def test_exact_errors_stay_below_theorem_1(gap: float, T: int) -> None:
    arms = opposite(1, (0.1, 0.0), 0.0).arms
    for noise, largest in ((False, 1.0), (True, 2.0)):
        theta, error = exact_error(gap, T, noise)
        assert error <= theory.g_bai_error_bound(arms, theta, T, largest)
        assert error <= theory.p1_rage_drift_error_bound(arms, theta, T, largest)
