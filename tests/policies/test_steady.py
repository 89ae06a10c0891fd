"""What Steady adds: blocks take slow drift out of the estimate, and adapting has a capped price."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.environments import switching
from steadyarm.policies.ips import IPSPolicy

LAYOUTS = sa.ArmSet.factorial({"a": ["-", "+"], "b": ["-", "+"], "c": ["-", "+"]})


def final_state(policy: IPSPolicy[Any], world: sa.Environment, trials: int = 20) -> Any:
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
    state = final_state(policy, world)
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


def test_the_balanced_share_falls_during_the_test_and_has_the_mean_that_was_asked_for() -> None:
    for robustness in (0.6, 0.8, 1.0):
        policy = sa.Steady(robustness=robustness)
        state = policy.start(LAYOUTS, 1000, trials=1000)
        shares = policy.balanced_share(replace(state, played=np.arange(1000)))
        assert (np.diff(shares) <= 0).all()
        assert shares.mean() == pytest.approx(robustness, abs=1e-3)
        assert shares.min() >= robustness / 4


def expected_values(recent: float, seed: int = 4) -> tuple[np.ndarray[Any, Any], float]:
    """What three arms are expected to be worth in the end, at half of a test, and B's estimate.

    B starts at -1 and has just gained `recent`; A and C stay at 0. The noise is 0.5.
    """
    means = np.zeros((1000, 3))
    means[:, 1] = np.where(np.arange(1000) < 400, -1.0, -1.0 + recent)
    arms = sa.ArmSet.one_hot(["A", "B", "C"])
    world = sa.Environment.from_means(arms, means, sa.GaussianNoise(0.5))
    policy, rng = sa.Steady(), np.random.default_rng(seed)
    state = policy.start(arms, 1000, 200, seed=3)
    while state.played[0] < 500:
        segment = policy.next_segment(state)
        assert segment is not None
        state = policy.observe(state, segment, world.play(segment, state.played, rng))
    expected, _ = policy._extrapolate(state)
    leader = expected - expected[:, [0]]  # against A
    return leader.mean(axis=0), float((state.theta[:, 1] - state.theta[:, 0]).mean())


def test_what_an_arm_has_clearly_gained_counts_for_the_rounds_that_are_left() -> None:
    values, estimate = expected_values(recent=3.0)
    assert estimate < -0.3  # B is behind on average so far
    assert values[1] > 0.4  # 0.5 * -0.4 + 0.5 * 2 if all of the gain were believed


def test_noise_is_not_taken_for_a_gain() -> None:
    values, estimate = expected_values(recent=0.0)
    assert values[1] == pytest.approx(estimate, abs=0.05)


def test_adapting_costs_little_where_the_best_look_bad_for_half_of_the_test() -> None:
    """The old rule made 2.9 times the errors of the balanced design here."""
    others = np.linspace(0.0, -0.36, 3)
    halves = [np.r_[-0.88, -1.0, others], np.r_[1.12, 1.0, others]]
    arms = sa.ArmSet.one_hot(list("ABCDE"))
    world = switching(arms, halves, budget=5000, noise=sa.GaussianNoise(1.13))
    adaptive = sa.simulate(sa.Steady(), world, trials=2000, seed=1).errors
    balanced = sa.simulate(sa.GBAI(order="blocks"), world, trials=2000, seed=1).errors
    # About 20 errors are expected of the balanced design; three standard errors of both.
    assert adaptive <= 1.2 * balanced + 3 * np.sqrt(adaptive + 1.44 * balanced)
