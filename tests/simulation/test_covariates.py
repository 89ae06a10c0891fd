"""Simulations with a covariate: as good as the same world with less noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

import steadyarm as sa

ARMS = sa.ArmSet.one_hot(["A", "B", "C"])
BUDGET, TRIALS = 900, 1500


def world(sd: float = 1.0, direction: Any = "maximize") -> sa.Environment:
    means = np.array([0.1, 0.0, 0.0]) * (1 if direction == "maximize" else -1)
    return sa.Environment.from_means(
        ARMS, means, sa.GaussianNoise(sd), budget=BUDGET, direction=direction
    )


def test_a_covariate_is_as_good_as_less_noise() -> None:
    """Error rates between those of worlds whose variance is 1 - ρ² and 1.08 times that.

    One part of sixty is not adjusted, and slopes are not known at once: some 4 % of the variance.
    """
    rho, policy = 0.7, sa.Steady()
    found = sa.simulate(policy, world().with_covariate(rho), TRIALS, seed=1)
    best = sa.simulate(policy, world(np.sqrt(1 - rho**2)), TRIALS, seed=2)
    worst = sa.simulate(policy, world(np.sqrt(1.08 * (1 - rho**2))), TRIALS, seed=3)
    plain = sa.simulate(policy, world(), TRIALS, seed=4)
    error = np.sqrt(2 * best.error_rate * (1 - best.error_rate) / TRIALS)
    z = float(norm.isf(1e-4))
    assert best.error_rate - z * error < found.error_rate < worst.error_rate + z * error
    assert found.error_rate < 0.5 * plain.error_rate


@pytest.mark.parametrize(
    "policy", [sa.Steady(), sa.GBAI(), sa.TopTwoThompson()], ids=lambda policy: policy.name
)
def test_every_policy_uses_a_covariate(policy: Any) -> None:
    trials = 300
    plain = sa.simulate(policy, world(), trials, seed=1)
    known = sa.simulate(policy, world().with_covariate(0.95), trials, seed=1)
    useless = sa.simulate(policy, world().with_covariate(0.0), trials, seed=1)
    error = np.sqrt(2 * plain.error_rate * (1 - plain.error_rate) / trials)
    # Thompson sampling gains least: it trusts early rewards, whose slopes are not known yet
    assert known.error_rate < plain.error_rate - 3 * error
    assert abs(useless.error_rate - plain.error_rate) < 4 * error


def test_less_is_better_and_jobs_change_nothing() -> None:
    more = sa.simulate(sa.Steady(), world().with_covariate(0.7), 600, seed=5, jobs=1)
    again = sa.simulate(sa.Steady(), world().with_covariate(0.7), 600, seed=5, jobs=3)
    less = sa.simulate(sa.Steady(), world(direction="minimize").with_covariate(0.7), 600, seed=5)
    assert more.recommended == again.recommended
    error = np.sqrt(2 * more.error_rate * (1 - more.error_rate) / 600)
    assert abs(less.error_rate - more.error_rate) < 4 * error


def test_parts_are_whole_blocks_and_make_up_the_segment() -> None:
    rounds = np.array([100, 37])
    segment = sa.Segment(np.full((2, 3), 1 / 3), rounds, "blocks", block=8)
    parts = [part.rounds for part in segment.parts(budget=900)]
    assert np.array_equal(sum(parts), rounds)
    assert [part[0] for part in parts] == [16, 16, 16, 16, 16, 16, 4]
    assert all(part.max() <= segment.part_length(900) == 16 for part in parts)
    ends = np.cumsum(parts, axis=0)
    assert ((ends % 8 == 0) | (ends == rounds)).all()
    assert len(list(segment.parts(budget=900, pieces=30))) == 4
    whole = sa.Segment.shuffled(np.array([[50, 50]]))
    assert list(whole.parts(900)) == [whole]
