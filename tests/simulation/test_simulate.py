"""Simulated error rates against closed forms and enumeration; jobs change nothing."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, norm

import steadyarm as sa
from steadyarm.environments import published_multivariate
from steadyarm.simulation import clopper_pearson


@pytest.mark.parametrize("policy", [sa.P1RAGE(), sa.Peace()])
def test_the_number_of_jobs_changes_nothing(policy: sa.Policy[sa.State]) -> None:
    world = published_multivariate("scale", 5)
    one, five = (
        sa.simulate(policy, world, trials=1300, seed=3, jobs=jobs).recommended for jobs in (1, 5)
    )
    assert one == five
    other = sa.simulate(policy, world, trials=1300, seed=4).recommended
    assert one != other


def test_error_probability_against_a_closed_form() -> None:
    """Two arms, G-BAI, a still world: the estimate of the gap is a mean of T independent terms."""
    T, gap, sd, trials = 200, 0.2, 1.0, 40_000
    arms = sa.ArmSet.one_hot(["A", "B"])
    world = sa.Environment.from_means(arms, [gap, 0.0], sa.GaussianNoise(sd), budget=T)
    found = sa.simulate(sa.GBAI(), world, trials=trials, seed=1)
    # Each round adds ±2 r with probability 1/2: mean gap, variance 4 (gap²/2 + sd²) - gap².
    variance = 4 * (gap**2 / 2 + sd**2) - gap**2
    expected = norm.cdf(-gap / np.sqrt(variance / T))
    low, high = found.interval(0.9999)
    assert low < expected < high


def test_error_probability_against_exact_enumeration() -> None:
    """Bernoulli rewards, uniform draws, four rounds of a drifting world: all 256 courses."""
    arms = sa.ArmSet.one_hot(["A", "B"])
    means = np.array([[0.9, 0.2], [0.1, 0.6], [0.7, 0.3], [0.5, 0.4]])
    world = sa.Environment.from_means(arms, means, sa.BernoulliReward())
    wrong = 0.0
    for course in product([0, 1], [0, 1], repeat=4):
        played, rewards = course[::2], course[1::2]
        chance = 1.0
        total = [0, 0]
        for t, (arm, reward) in enumerate(zip(played, rewards, strict=True)):
            p = means[t, arm]
            chance *= 0.5 * (p if reward else 1 - p)
            total[arm] += reward
        wrong += chance * (0.5 if total[0] == total[1] else float(total[0] < total[1]))
    found = sa.simulate(sa.Uniform(), world, trials=40_000, seed=2)
    low, high = found.interval(0.9999)
    assert low < wrong < high


def test_progress_is_told_in_trials() -> None:
    world = sa.Environment.from_means(sa.ArmSet.one_hot(["A", "B"]), [1.0, 0.0], budget=5)
    done: list[int] = []
    sa.simulate(sa.GBAI(), world, trials=3000, progress=done.append)
    assert sum(done) == 3000


def test_minimising_finds_the_lowest() -> None:
    arms = sa.ArmSet.one_hot(["A", "B", "C"])
    world = sa.Environment.from_means(arms, [0.5, 0.1, 0.9], budget=600, direction="minimize")
    for policy in (sa.P1RAGE(), sa.Peace()):
        found = sa.simulate(policy, world, trials=300, seed=5)
        assert found.best_arm == 1
        assert found.error_rate < 0.05


@pytest.mark.parametrize(("errors", "trials"), [(0, 10), (3, 10), (10, 10), (17, 4000)])
def test_clopper_pearson_inverts_the_binomial(errors: int, trials: int) -> None:
    low, high = clopper_pearson(errors, trials, 0.95)
    if errors > 0:
        assert np.isclose(binom.sf(errors - 1, trials, low), 0.025)
    else:
        assert low == 0.0
    if errors < trials:
        assert np.isclose(binom.cdf(errors, trials, high), 0.025)
    else:
        assert high == 1.0


class Broken(sa.Uniform):
    """A policy whose weights are no probabilities."""

    def allocation(self, state: Any) -> Any:
        return np.full((state.trials, state.arms.size), np.nan)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"trials": 0}, "trials is 0"),
        ({"trials": 1.5}, "trials is 1.5"),
        ({"jobs": 0}, "jobs is 0"),
        ({"jobs": "2"}, "jobs is '2'"),
        ({"seed": None}, "seed is None"),
        ({"policy": sa.GBAI}, "expected an instance of a policy"),
        ({"environment": None}, "expected an environment"),
        ({"policy": Broken()}, "weights that are no probabilities"),
    ],
)
def test_bad_requests_are_refused(settings: dict[str, Any], message: str) -> None:
    world = sa.Environment.from_means(sa.ArmSet.one_hot(["A", "B"]), [1.0, 0.0], budget=5)
    with pytest.raises(sa.InvalidInputError, match=message):
        sa.simulate(**{"policy": sa.GBAI(), "environment": world, **settings})


def test_bad_intervals_are_refused() -> None:
    with pytest.raises(sa.InvalidInputError, match="level is 95"):
        clopper_pearson(1, 10, 95)
    with pytest.raises(sa.InvalidInputError, match="11 errors in 10 trials"):
        clopper_pearson(11, 10)


def test_any_of_several_best_arms_is_right() -> None:
    arms = sa.ArmSet.one_hot(["A", "B", "C"])
    third = 1 / 3
    for best in ([0.5, 0.5, 0.0], [3 * (third / 3), 1 - 2 * third, 0.0]):
        world = sa.Environment.from_means(arms, best, sa.GaussianNoise(0.1), budget=200)
        found = sa.simulate(sa.GBAI(), world, trials=200)
        assert found.errors == found.regret == 0
        assert not found.to_frame("polars")["wrong"].any()
        assert found.recommended.keys() == {0, 1}
        assert sa.compare(["g-bai"], {"tie": world}, trials=200).cells[0].errors == 0
