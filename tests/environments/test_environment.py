"""Tables of means: draws have the right moments, quick ones those of slow ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import ks_2samp, norm

import steadyarm as sa
from steadyarm.environments import Noise
from steadyarm.segments import Segment

ARMS = sa.ArmSet.from_features([[1.0, 0.0], [0.0, 1.0], [0.6, 0.6]])
T = 40
RNG = np.random.default_rng(5)
MOVING = 0.5 + 0.4 * np.sin(np.arange(T)[:, None] + np.array([0.0, 1.0, 2.0]))
STILL = np.array([0.3, 0.5, 0.8])
NOISES: list[Noise] = [sa.GaussianNoise(0.5), sa.BoundedNoise(), sa.BernoulliReward()]


def test_parameters_are_given_in_the_users_features() -> None:
    arms = sa.ArmSet.bundles(["a", "b", "c"], size=2, interactions=1)
    theta = np.array([0.1, 1.0, 2.0, 4.0])
    world = sa.Environment.from_parameters(arms, theta, budget=10)
    assert np.allclose(world.means, np.tile([3.1, 5.1, 6.1], (10, 1)))
    assert world.best_arm == 2
    assert np.isclose(world.gap, 1.0)


def test_a_still_world_is_stored_once() -> None:
    world = sa.Environment.from_means(ARMS, STILL, budget=10**9)
    assert world.table.shape == (1, 3)
    assert world.means.shape == (10**9, 3)
    assert world.is_stationary


def test_the_best_arm_is_the_best_on_average() -> None:
    world = sa.Environment.from_means(ARMS, MOVING)
    low = sa.Environment.from_means(ARMS, MOVING, direction="minimize")
    order = np.argsort(MOVING.mean(axis=0))
    assert (low.best_arm, world.best_arm) == (order[0], order[2])
    average = np.sort(MOVING.mean(axis=0))
    assert np.isclose(world.gap, average[2] - average[1])
    assert np.isclose(low.gap, average[1] - average[0])


@pytest.mark.parametrize("order", ["iid", "shuffled"])
@pytest.mark.parametrize("noise", NOISES, ids=lambda noise: type(noise).__name__)
@pytest.mark.parametrize(
    "table", [MOVING, np.tile(STILL, (T, 1)), STILL], ids=["moving", "tiled", "still"]
)
@pytest.mark.parametrize("squares", [False, True])
def test_segments_have_the_right_mean_and_variance(
    order: Any, noise: Noise, table: np.ndarray[Any, Any], squares: bool
) -> None:
    """Sums of a whole segment against their exact first two moments, over 20,000 trials."""
    n, start, rounds = 20_000, 7, 24
    weights = np.array([0.25, 0.5, 0.25])
    world = sa.Environment.from_means(ARMS, table, noise, budget=T)
    segment = Segment(np.tile(weights, (n, 1)), np.full(n, rounds), order)
    stats = world.play(segment, np.full(n, start), np.random.default_rng(3), squares)
    assert (stats.counts.sum(axis=1) == rounds).all()
    means = world.means[start : start + rounds]
    # Reward of arm k in round t is counted with probability w_k: E = w μ, and for iid draws
    # Var = w E[r²] - (w μ)² per round, independent over rounds.
    spread = {
        "GaussianNoise": np.full_like(means, 0.25),
        "BoundedNoise": np.full_like(means, 1 / 3),
        "BernoulliReward": means * (1 - means),
    }[type(noise).__name__]
    expected = (weights * means).sum(axis=0)
    seen = stats.sums.mean(axis=0)
    error = stats.sums.std(axis=0) / np.sqrt(n)
    limit = norm.isf(1e-4 / 2)
    assert (np.abs(seen - expected) < limit * error).all()
    second = means**2 + spread
    if order == "iid":
        variance = (weights * second - (weights * means) ** 2).sum(axis=0)
        relative = stats.sums.var(axis=0) / variance
        assert (np.abs(relative - 1) < limit * np.sqrt(3 / n)).all()
    else:
        assert (stats.counts == [6, 12, 6]).all()
    if squares:
        assert stats.squares is not None
        seen = stats.squares.mean(axis=0)
        error = stats.squares.std(axis=0) / np.sqrt(n) + 1e-12
        assert (np.abs(seen - (weights * second).sum(axis=0)) < limit * error).all()


@pytest.mark.parametrize("order", ["iid", "shuffled"])
@pytest.mark.parametrize("noise", NOISES, ids=lambda noise: type(noise).__name__)
def test_the_quick_draws_have_the_distribution_of_the_slow_ones(order: Any, noise: Noise) -> None:
    """Sums drawn at once (no squares) against sums of single rewards (squares asked for)."""
    n = 4000
    world = sa.Environment.from_means(ARMS, STILL, noise, budget=T)
    segment = Segment(np.tile([0.25, 0.5, 0.25], (n, 1)), np.full(n, 16), order)
    start = np.zeros(n, dtype=np.int64)
    quick = world.play(segment, start, np.random.default_rng(1))
    slow = world.play(segment, start, np.random.default_rng(2), squares=True)
    for k in range(3):
        assert ks_2samp(quick.sums[:, k], slow.sums[:, k]).pvalue > 1e-3


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: sa.Environment.from_parameters(ARMS, np.zeros((5, 3))), r"expected \(T, 2\)"),
        (lambda: sa.Environment.from_means(ARMS, np.zeros((5, 2))), r"expected \(T, 3\)"),
        (lambda: sa.Environment.from_means(ARMS, np.zeros((0, 3))), "shape"),
        (lambda: sa.Environment.from_means(ARMS, [0.0, 1.0, np.nan], budget=5), r"means\[2\]"),
        (lambda: sa.Environment.from_means(ARMS, [0.0, 1.0, 2.0]), "budget="),
        (lambda: sa.Environment.from_means(ARMS, np.zeros((5, 3)), budget=6), "5 rows but budget"),
        (lambda: sa.Environment.from_means(ARMS, [0.0, 1.0, 2.0], budget=0), "budget is 0"),
        (lambda: sa.Environment.from_means(ARMS, "x"), "not a table of numbers"),
        (
            lambda: sa.Environment.from_means(ARMS, [0.0, 1.0, 2.0], sa.BernoulliReward(), 5),
            "arm 'arm 2' in round 0 is 2",
        ),
        (
            lambda: sa.Environment.from_means(ARMS, [0.0, 1.0, 2.0], budget=5, direction="up"),  # type: ignore[arg-type]  # the point of the test
            "direction is 'up'",
        ),
        (lambda: sa.Environment.from_means(ARMS, STILL, 0.3, budget=5), "noise is 0.3"),  # type: ignore[arg-type]  # the point of the test
        (lambda: replace(sa.Environment.from_means(ARMS, MOVING), budget=10**7), "has shape"),
        (lambda: sa.GaussianNoise(-1.0), "sd is -1"),
        (lambda: sa.GaussianNoise("a"), "sd is 'a'"),  # type: ignore[arg-type]  # the point of the test
        (lambda: sa.BoundedNoise(float("nan")), "bound is nan"),
    ],
)
def test_bad_worlds_are_refused_with_a_reason(build: Any, message: str) -> None:
    with pytest.raises(sa.InvalidInputError, match=message):
        build()


def test_blocks_in_the_simulator_are_those_of_a_live_test() -> None:
    """Counts within one of their share in each block, exact on average, every round alike."""
    n, weights = 4000, np.array([0.13, 0.5, 0.37])
    table = np.zeros((20, 3))
    table[5] = 1.0  # what is played in round 5 alone brings a reward
    world = sa.Environment.from_means(ARMS, table, sa.GaussianNoise(0.0))
    segment = Segment(np.tile(weights, (n, 1)), np.full(n, 20), "blocks", block=8)
    stats = world.play(segment, np.zeros(n, dtype=np.int64), np.random.default_rng(1))
    assert (np.abs(stats.counts - 20 * weights) < 3).all()  # two whole blocks and half of one
    error = stats.sums.std(axis=0) / np.sqrt(n)
    assert (np.abs(stats.sums.mean(axis=0) - weights) < norm.isf(1e-4) * error).all()
    whole = Segment(np.tile(weights, (n, 1)), np.full(n, 8), "blocks", block=8)
    stats = world.play(whole, np.zeros(n, dtype=np.int64), np.random.default_rng(2))
    assert (np.abs(stats.counts - 8 * weights) < 1).all()
    error = stats.counts.std(axis=0) / np.sqrt(n) + 1e-12
    assert (np.abs(stats.counts.mean(axis=0) - 8 * weights) < norm.isf(1e-4) * error).all()


def test_a_segment_beyond_the_budget_is_refused() -> None:
    world = sa.Environment.from_means(ARMS, MOVING)
    segment = Segment(np.full((2, 3), 1 / 3), np.array([5, 6]))
    with pytest.raises(sa.InvalidInputError, match="ends in round 41, but the budget is 40"):
        world.play(segment, np.array([35, 35]), np.random.default_rng(0))
