"""What Steady adds: blocks of whole numbers take slow drift out of the estimate altogether."""

from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.policies.steady import Steady, SteadyState

LAYOUTS = sa.ArmSet.factorial({"a": ["-", "+"], "b": ["-", "+"], "c": ["-", "+"]})


def final_state(policy: Steady, world: sa.Environment, trials: int = 20) -> SteadyState:
    rng = np.random.default_rng(5)
    state = policy.start(world.arms, world.budget, trials, seed=3)
    while (segment := policy.next_segment(state)) is not None:
        state = policy.observe(state, segment, world.play(segment, state.played, rng))
    return state


def moving_world(block: int, budget: int) -> sa.Environment:
    """No noise; another parameter in every block, large and without any rule."""
    rng = np.random.default_rng(1)
    steps = rng.normal(scale=10.0, size=(-(-budget // block), LAYOUTS.dimension))
    thetas = np.repeat(steps, block, axis=0)[:budget]
    return sa.Environment.from_parameters(LAYOUTS, thetas, sa.GaussianNoise(0.0))


def test_drift_between_blocks_costs_nothing() -> None:
    policy = sa.Steady()
    block = policy.block_length(LAYOUTS, 40 * 21)
    world = moving_world(block, 40 * block)
    state = final_state(policy, world)
    expected = np.tile(world.means.mean(axis=0), (20, 1))
    np.testing.assert_allclose(policy.estimates(state), expected, rtol=1e-9, atol=1e-9)


def test_random_lists_would_pay_for_it() -> None:
    """The same world with the paper's rule on random lists: estimates scatter."""
    policy = sa.P1RAGE(order="blocks")
    block = policy.block_length(LAYOUTS, 40 * 21)
    world = moving_world(block, 40 * block)
    rng = np.random.default_rng(5)
    state = policy.start(world.arms, world.budget, 20, seed=3)
    while (segment := policy.next_segment(state)) is not None:
        state = policy.observe(state, segment, world.play(segment, state.played, rng))
    assert policy.estimates(state).std(axis=0).max() > 0.1


@pytest.mark.parametrize("settings", [{}, {"robustness": 1.0}, {"block": 14}, {"updates": 3}])
def test_every_block_of_a_segment_is_whole(settings: dict[str, Any]) -> None:
    policy = sa.Steady(**settings)
    world = moving_world(16, 1000)
    rng = np.random.default_rng(2)
    state = policy.start(LAYOUTS, 1000, 10, seed=0)
    while (segment := policy.next_segment(state)) is not None:
        counts = segment.weights * segment.block
        np.testing.assert_allclose(counts, np.rint(counts), atol=1e-9)
        stats = world.play(segment, state.played, rng)
        if segment.rounds[0] % segment.block == 0:
            blocks = segment.rounds[:, None] // segment.block
            np.testing.assert_array_equal(stats.counts, np.rint(counts) * blocks)
        state = policy.observe(state, segment, stats)


def test_blocks_shorter_than_the_rank_are_lists_drawn_at_random() -> None:
    policy = sa.Steady(block=4)
    state = policy.start(LAYOUTS, 1000)
    counts = state.weights * 4
    assert np.abs(counts - np.rint(counts)).max() > 0.01


def test_the_estimate_so_far_is_what_rewards_are_compared_with() -> None:
    policy = sa.Steady()
    world = moving_world(16, 1000)
    state = policy.start(LAYOUTS, 1000)
    first = policy.next_segment(state)
    assert first is not None
    assert first.reference is not None
    assert not first.reference.any()
    state = policy.observe(state, first, world.play(first, state.played, np.random.default_rng(0)))
    second = policy.next_segment(state)
    assert second is not None
    np.testing.assert_array_equal(second.reference, state.theta)


def test_a_common_level_does_not_disturb_a_test_cut_short() -> None:
    """1001 rounds leave a block cut short; a million added to all rewards changes no verdict."""
    base = np.linspace(0.0, 0.4, LAYOUTS.size)
    for level in (0.0, 1e6):
        world = sa.Environment.from_means(
            sa.ArmSet.one_hot(list(LAYOUTS.names)),
            level + base,
            sa.GaussianNoise(0.1),
            budget=1001,
        )
        assert sa.simulate(sa.Steady(), world, trials=200, seed=1).errors <= 2
