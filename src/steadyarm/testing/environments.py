"""Checks that every environment must pass, your own included.

    from steadyarm.testing.environments import CHECKS
    for check in CHECKS:
        check(my_environment)

Each check raises an AssertionError that says what is broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from steadyarm.environments import RewardSource
from steadyarm.segments import Direction, Segment, SegmentStats

__all__ = ["CHECKS"]

TRIALS = 5
MOST = 40  # rounds in a segment, and arms that are compared


def check_described(environment: RewardSource) -> None:
    """There is a budget, a direction, and a best arm among the arms."""
    assert environment.budget >= 1, f"the budget is {environment.budget}"
    assert environment.direction in get_args(Direction), f"unknown {environment.direction}"
    assert 0 <= environment.best_arm < environment.arms.size, "the best arm is no arm"


def check_every_round_is_played(environment: RewardSource) -> None:
    """Each trial plays all rounds of its segment, with arms of positive weight only."""
    for segment, start in _segments(environment):
        stats = environment.play(segment, start, np.random.default_rng(1))
        assert stats.counts.shape == stats.sums.shape == segment.weights.shape, "another shape"
        assert (stats.counts >= 0).all(), "an arm was played less than never"
        played = stats.counts.sum(axis=1)
        assert (played == segment.rounds).all(), f"{played} of {segment.rounds} rounds were played"
        assert not stats.counts[segment.weights == 0].any(), "an arm without weight was played"
        if segment.order == "shuffled":
            assert (stats.counts == segment.counts).all(), "a shuffled segment has its own counts"


def check_sums(environment: RewardSource) -> None:
    """Rewards are finite, arms that were not played have none, and squares fit the sums."""
    for segment, start in _segments(environment):
        stats = environment.play(segment, start, np.random.default_rng(2), squares=True)
        assert stats.squares is not None, "squares were requested and are missing"
        assert np.isfinite(stats.sums).all(), "a reward is not finite"
        unplayed = stats.counts == 0
        assert not stats.sums[unplayed].any(), "an arm that was not played has rewards"
        least = stats.sums**2 / np.maximum(stats.counts, 1)
        slack = 1e-9 * (1 + np.abs(stats.squares))
        assert (stats.squares >= least - slack).all(), "the squares are too small for the sums"


def check_same_seed_same_rewards(environment: RewardSource) -> None:
    """The same generator gives the same statistics to the last bit, and nothing else matters."""
    for segment, start in _segments(environment):
        one, two = (environment.play(segment, start, np.random.default_rng(3)) for _ in range(2))
        assert _same(one, two), "two plays with the same seed differ"


def check_best_arm(environment: RewardSource) -> None:
    """Played in every round, no other arm earns more than the best one."""
    arms = environment.arms.size
    if arms > MOST:
        return
    start, rounds = np.zeros(100, dtype=np.int64), np.full(100, environment.budget)
    means, errors = np.zeros(arms), np.zeros(arms)
    for arm in range(arms):
        segment = Segment(np.tile(np.eye(arms)[arm], (100, 1)), rounds)
        stats = environment.play(segment, start, np.random.default_rng(4))
        earned = stats.sums[:, arm] / environment.budget
        means[arm], errors[arm] = earned.mean(), earned.std(ddof=1) / 10
    sign = 1 if environment.direction == "maximize" else -1
    best = environment.best_arm
    lead = sign * (means[best] - means)
    margin = 6 * np.hypot(errors, errors[best]) + 1e-9 * (1 + np.abs(means))
    assert (lead >= -margin).all(), f"arm {int(lead.argmin())} earns more than the best arm {best}"


CHECKS: tuple[Callable[[RewardSource], None], ...] = (
    check_described,
    check_every_round_is_played,
    check_sums,
    check_same_seed_same_rewards,
    check_best_arm,
)
"""Every check, each called with an environment; AssertionError says what is broken."""


def _segments(environment: RewardSource) -> Iterator[tuple[Segment, NDArray[np.int64]]]:
    """Segments of all orders for several trials, each with its first round."""
    rng, arms = np.random.default_rng(0), environment.arms
    columns = min(arms.size, MOST)
    some = np.arange(columns) if arms.large else None
    most = min(environment.budget, MOST)
    weights = rng.dirichlet(np.ones(columns), TRIALS)
    weights[:, 0] = 0.0  # this arm is never played
    weights /= weights.sum(axis=1, keepdims=True)
    rounds = rng.integers(0, most, TRIALS, endpoint=True)
    rounds[0], rounds[-1] = 0, most
    start = rng.integers(0, environment.budget - rounds, endpoint=True)
    yield Segment(weights, rounds, arms=some), start
    yield Segment(weights, rounds, "blocks", max(1, most // 3), arms=some), start
    counts = rng.multinomial(most, np.full(columns, 1 / columns), TRIALS)
    yield (
        Segment(counts / most, np.full(TRIALS, most), "shuffled", arms=some),
        np.minimum(start, environment.budget - most),
    )


def _same(one: SegmentStats, other: SegmentStats) -> bool:
    return np.array_equal(one.counts, other.counts) and np.array_equal(one.sums, other.sums)
