"""Worlds of many arms: the same rewards as a table of means would give, without the table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.segments import Segment

FEW = sa.ArmSet.factorial({"a": ["-", "+"], "b": ["x", "y", "z"]})
BUNDLES = sa.ArmSet.bundles(["p", "q", "r", "s"], size=2)
MANY = sa.ArmSet.factorial({f"slot {i}": ["off", "on"] for i in range(13)})


@pytest.mark.parametrize("arms", [FEW, BUNDLES], ids=repr)
@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_averages_are_those_of_a_table(arms: sa.ArmSet, direction: Any) -> None:
    thetas = np.random.default_rng(1).normal(size=(50, arms.dimension))
    few = sa.Environment.from_parameters(arms, thetas, direction=direction)
    many = sa.ParametricEnvironment(arms, thetas, direction=direction)
    np.testing.assert_allclose(many.average, few.average)
    assert many.best_arm == few.best_arm
    assert many.gap == pytest.approx(few.gap)
    assert many.budget == 50


@pytest.mark.parametrize("order", ["iid", "blocks", "shuffled"])
def test_rewards_without_noise_are_the_means_of_their_rounds(order: Any) -> None:
    """A parameter that counts the rounds: sums of rewards tell when each arm was played."""
    thetas = np.arange(100.0)[:, None] * np.eye(FEW.dimension)[0]
    world = sa.ParametricEnvironment(FEW, thetas, sa.GaussianNoise(0.0))
    segment = Segment(np.full((1, 6), 1 / 6), np.array([60]), order, 12)
    stats = world.play(segment, np.array([40]), np.random.default_rng(3), squares=True)
    assert stats.counts.sum() == 60
    assert stats.sums.sum() == pytest.approx(sum(range(40, 100)))
    assert stats.squares is not None
    assert stats.squares.sum() == pytest.approx(sum(t**2 for t in range(40, 100)))
    if order != "iid":
        assert stats.counts.tolist() == [[10] * 6]


@pytest.mark.parametrize(
    ("noise", "variance"),
    [
        (sa.GaussianNoise(0.5), 0.25),
        (sa.BoundedNoise(0.6), 0.12),
        (sa.BernoulliReward(), 0.3 * 0.7),
    ],
    ids=repr,
)
def test_rewards_scatter_as_they_should(noise: Any, variance: float) -> None:
    """Mean and variance of 200,000 rewards within five standard errors."""
    rounds, theta = 200_000, np.zeros(MANY.dimension)
    theta[0] = 0.3
    world = sa.ParametricEnvironment(MANY, theta, noise, budget=rounds)
    arms = np.array([5, 4000])
    segment = Segment(np.array([[0.25, 0.75]]), np.array([rounds]), arms=arms)
    stats = world.play(segment, np.array([0]), np.random.default_rng(3), squares=True)
    assert stats.squares is not None
    mean = stats.sums.sum() / rounds
    assert mean == pytest.approx(0.3, abs=5 * np.sqrt(variance / rounds))
    spread = stats.squares.sum() / rounds - mean**2
    assert spread == pytest.approx(variance, abs=5 * variance * np.sqrt(2 / rounds))


def test_a_segment_of_few_arms_in_a_table_of_means() -> None:
    """`Environment` plays segments of some arms as it plays all of them with zeros elsewhere."""
    means = np.random.default_rng(1).random(6)
    world = sa.Environment.from_means(FEW, means, sa.GaussianNoise(0.0), budget=30)
    some = np.array([1, 4])
    few = Segment(np.array([[0.5, 0.5]]), np.array([30]), "shuffled", arms=some)
    weights = np.zeros((1, 6))
    weights[0, some] = 0.5
    every = Segment(weights, np.array([30]), "shuffled")
    start = np.array([0])
    one = world.play(few, start, np.random.default_rng(2), squares=True)
    other = world.play(every, start, np.random.default_rng(2), squares=True)
    np.testing.assert_array_equal(one.counts, other.counts[:, some])
    np.testing.assert_allclose(one.sums, other.sums[:, some])
    np.testing.assert_allclose(one.sums, one.counts * means[some])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: sa.ParametricEnvironment(MANY, np.zeros(3), budget=10), "thetas has shape"),
        (lambda: sa.ParametricEnvironment(MANY, np.zeros(MANY.dimension)), "nothing moves"),
        (lambda: sa.ParametricEnvironment(FEW, np.zeros((4, 6)), 1.0), "noise is 1.0"),  # type: ignore[arg-type]  # the point of the test
        (
            lambda: sa.Environment.from_parameters(MANY, np.zeros((20_000, MANY.dimension))),
            "ParametricEnvironment",
        ),
    ],
)
def test_bad_worlds_are_refused(build: Any, message: str) -> None:
    with pytest.raises(sa.InvalidInputError, match=message):
        build()


def test_clicks_need_probabilities() -> None:
    world = sa.ParametricEnvironment(FEW, np.full(6, 2.0), sa.BernoulliReward(), budget=10)
    segment = Segment(np.full((1, 6), 1 / 6), np.array([10]))
    with pytest.raises(sa.InvalidInputError, match="Bernoulli rewards need means"):
        world.play(segment, np.array([0]), np.random.default_rng(1))
