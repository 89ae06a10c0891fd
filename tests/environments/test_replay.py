"""Replays draw what the log holds, with its averages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

import steadyarm as sa
from steadyarm.environments import Replay
from steadyarm.segments import Segment

ARMS = sa.ArmSet.one_hot(["A", "B"])
RNG = np.random.default_rng(0)
PERIOD = np.repeat([2013, 2014, 2015], 40)
ARM = np.tile([0, 1], 60)
REWARD = RNG.exponential(size=120) + PERIOD - 2013 + ARM


def world(**settings: Any) -> Replay:
    return Replay.from_log(
        **{"arms": ARMS, "period": PERIOD, "arm": ARM, "reward": REWARD, "budget": 9, **settings}
    )


def test_averages_are_those_of_the_log() -> None:
    means = np.array(
        [[REWARD[(p == PERIOD) & (k == ARM)].mean() for k in range(2)] for p in range(2013, 2016)]
    )
    found = world()
    assert np.allclose(found.period_means, means)
    assert np.allclose(found.means, np.repeat(means, 3, axis=0))
    assert np.allclose(found.average, means.mean(axis=0))
    uneven = world(budget=10)
    assert np.allclose(uneven.average, np.array([4, 3, 3]) @ means / 10)
    assert (found.best_arm, world(direction="minimize").best_arm) == (1, 0)
    assert np.isclose(found.gap, abs(np.diff(means.mean(axis=0))[0]))


@pytest.mark.parametrize("order", ["iid", "shuffled"])
def test_draws_have_the_moments_of_the_log(order: Any) -> None:
    n, found = 20_000, world(budget=12)
    segment = Segment(np.tile([0.25, 0.75], (n, 1)), np.full(n, 8), order)
    stats = found.play(segment, np.full(n, 2), np.random.default_rng(1), squares=True)
    assert (stats.counts.sum(axis=1) == 8).all()
    weights = np.array([0.25, 0.75])
    expected = weights * found.means[2:10].sum(axis=0)
    error = stats.sums.std(axis=0) / np.sqrt(n)
    assert (np.abs(stats.sums.mean(axis=0) - expected) < norm.isf(1e-4) * error).all()
    assert stats.squares is not None
    pools = [REWARD[(2013 + t * 3 // 12 == PERIOD) & (ARM == 1)] for t in range(2, 10)]
    second = 0.75 * sum((pool**2).mean() for pool in pools)
    error = stats.squares[:, 1].std() / np.sqrt(n)
    assert abs(stats.squares[:, 1].mean() - second) < norm.isf(1e-4) * error


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"arm": ARM[:-1]}, "three columns of the same length"),
        ({"arm": ARM + 1}, "other values than indices 0 to 1"),
        ({"arm": ARM * 0.5}, "other values than indices"),
        ({"reward": np.where(ARM, np.nan, 1.0)}, "the reward in row 1 is nan"),
        ({"arm": np.where(PERIOD == 2014, 0, ARM)}, "arm 'B' has no reward in period 2014"),
        ({"budget": 2}, "budget is 2 for 3 periods"),
        ({"budget": 9.7}, "budget is 9.7"),
        ({"direction": "up"}, "direction is 'up'"),
        ({"reward": ["x"] * 120}, "rewards that are numbers"),
    ],
)
def test_bad_logs_are_refused_with_a_reason(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(sa.InvalidInputError, match=message):
        world(**settings)
