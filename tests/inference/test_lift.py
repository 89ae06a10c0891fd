"""Differences from a control: absolute and relative, at the end and at all times."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import steadyarm as sa
from steadyarm.inference import Evidence, Lifts, fixed_budget, lift_path, lift_sequence, lifts
from steadyarm.inference.intervals import SingleAnalysis, pairwise_value
from steadyarm.inference.lift import (
    simultaneous_value,
)
from steadyarm.inference.sequences import ConfidenceSequence
from tests.inference import large
from tests.inference.test_winner import random_test
from tests.inference.worlds import members, moving, one_segment, played

Floats = NDArray[np.float64]
COLUMNS = ("differences", "low", "high", "relative", "relative_low", "relative_high")


def normal_world(means: list[float], budget: int = 2000) -> sa.Environment:
    arms = sa.ArmSet.one_hot([f"arm {k}" for k in range(len(means))])
    return sa.Environment.from_means(arms, means, sa.GaussianNoise(1.0), budget)


def evidence_on(world: sa.Environment, trials: int = 1, seed: int = 0, **given: Any) -> Evidence:
    return Evidence.from_segments(world.arms, played(sa.GBAI(), world, trials, seed), **given)


def check_consistent(found: Lifts) -> None:
    """Estimates lie in their intervals, and both kinds of interval agree about 0."""
    assert (found.low <= found.differences).all()
    assert (found.differences <= found.high).all()
    defined = ~np.isnan(found.relative)
    for numbers in (found.relative_low, found.relative_high):
        np.testing.assert_array_equal(np.isnan(numbers), ~defined)
    assert (found.relative_low <= found.relative)[defined].all()
    assert (found.relative <= found.relative_high)[defined].all()
    apart = (found.low > 0) | (found.high < 0)
    far = (found.relative_low > 0) | (found.relative_high < 0)
    np.testing.assert_array_equal(apart[defined], far[defined])
    for name in COLUMNS:
        assert (getattr(found, name)[:, found.control] == 0).all()


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 2**31), st.sampled_from(["maximize", "minimize"]), st.sampled_from([0.5, 0.95])
)
def test_absolute_and_relative_lifts_agree(seed: int, direction: Any, level: float) -> None:
    evidence = random_test(seed, direction)
    budget = int(evidence.played[0])
    check_consistent(lifts(evidence, 1, level))
    check_consistent(lift_sequence(evidence, budget, 1, level))
    check_consistent(lift_sequence(evidence, budget, 1, level, reward_range=(0, 100)))


@pytest.mark.parametrize("policy", [sa.GBAI(), sa.Steady(), sa.P1RAGE(order="blocks")])
@pytest.mark.parametrize("reward_range", [None, (-3.0, 3.0)])
def test_they_agree_where_arms_share_features(
    policy: sa.Policy[Any], reward_range: tuple[float, float] | None
) -> None:
    world = moving(1500, sa.BoundedNoise(0.5))
    evidence = Evidence.from_segments(world.arms, played(policy, world, 20))
    found = lifts(evidence, 4)
    check_consistent(found)
    assert np.isfinite(found.low).all()
    assert np.isfinite(found.relative_high[~np.isnan(found.relative_high)]).all()
    for look in lift_path(evidence, 1500, 4, reward_range=reward_range, at=[5, 20, -1]):
        check_consistent(look)


@pytest.mark.parametrize(("others", "table"), [(1, 1.960), (2, 2.212), (3, 2.349), (4, 2.442)])
def test_critical_values_are_those_of_dunnett(others: int, table: float) -> None:
    # two-sided 5 %, equal numbers of plays, correlation one half, infinite degrees of freedom
    world = normal_world([100.0] * (others + 1), 40_000)
    analysis = SingleAnalysis(evidence_on(world, trials=1))
    assert simultaneous_value(analysis, 0, 0.05)[0] == pytest.approx(table, rel=0.008)


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
@pytest.mark.parametrize("clicks", [False, True])
def test_of_two_arms_a_lift_is_a_gap_from_the_control(direction: Any, clicks: bool) -> None:
    squares = [30.0, 50.0] if clicks else [90.0, 80.0]
    evidence = one_segment([400, 400], [30.0, 50.0], squares, direction=direction)
    gaps, found = fixed_budget(evidence, 0.95, [0]), lifts(evidence, 0)
    sign = -1.0 if direction == "maximize" else 1.0
    ends = np.sort([sign * gaps.gap_low[0, 1], sign * gaps.gap_high[0, 1]])
    np.testing.assert_allclose([found.low[0, 1], found.high[0, 1]], ends, rtol=1e-12)
    assert found.differences[0, 1] == pytest.approx(20 / 400)


def fieller(theta: Floats, V: Floats, x: Floats, c: Floats, z: float) -> Floats:
    """Both roots of (x'θ - ρ c'θ)² = z² (x - ρc)'V(x - ρc), minus 1."""
    xv, cv = x @ theta, c @ theta
    a = cv**2 - z**2 * c @ V @ c
    b = -2 * (xv * cv - z**2 * x @ V @ c)
    return np.asarray(np.sort(np.roots([a, b, xv**2 - z**2 * x @ V @ x]).real)) - 1


def test_limits_of_ratios_are_those_of_fieller() -> None:
    world = moving(4000, sa.GaussianNoise(0.5))
    evidence = Evidence.from_segments(world.arms, played(sa.GBAI(), world, 3))
    found, X = lift_sequence(evidence, 4000, 0), world.arms.coordinates
    sequence = ConfidenceSequence(replace(evidence, direction="minimize"), 4000, None)
    z = sequence.factor(-1, 0.05 / (2 * 4))
    for i in range(3):
        V = sequence.variance[i, -1] / 4000**2
        for k in range(1, 5):
            ends = fieller(evidence.theta[i], V, X[k], X[0], z[i, 0])
            got = found.relative_low[i, k], found.relative_high[i, k]
            np.testing.assert_allclose(got, ends, rtol=1e-6, atol=1e-7)


def test_limits_of_click_ratios_are_those_of_donner_and_zou() -> None:
    evidence = one_segment([2000, 2000], [100.0, 130.0], [100.0, 130.0], shuffled=True)
    found, z = lifts(evidence, 0), pairwise_value(np.array([np.inf]), 0.05)[:, None]
    (l0, l1), (u0, u1) = (limit[0] for limit in SingleAnalysis(evidence).value_limits(z))
    p0, p1 = evidence.estimates[0]
    # the closed form of Donner and Zou 2012 for the limits of a ratio of two means
    low = p0 * p1 - np.sqrt((p0 * p1) ** 2 - l1 * u0 * (2 * p1 - l1) * (2 * p0 - u0))
    high = p0 * p1 + np.sqrt((p0 * p1) ** 2 - u1 * l0 * (2 * p1 - u1) * (2 * p0 - l0))
    ends = low / (u0 * (2 * p0 - u0)) - 1, high / (l0 * (2 * p0 - l0)) - 1
    got = found.relative_low[0, 1], found.relative_high[0, 1]
    np.testing.assert_allclose(got, ends, rtol=1e-6)


def test_a_negative_control_turns_relative_lifts() -> None:
    up = one_segment([500, 500], [900.0, 1000.0], [2500.0, 2800.0])
    down = one_segment([500, 500], [-900.0, -1000.0], [2500.0, 2800.0])
    one, other = lifts(up, 0), lifts(down, 0)
    np.testing.assert_allclose(other.differences, -one.differences, rtol=1e-12)
    np.testing.assert_allclose(other.low, -one.high, rtol=1e-12, atol=1e-15)
    for name in ("relative", "relative_low", "relative_high"):
        np.testing.assert_allclose(getattr(other, name), getattr(one, name), rtol=1e-8)


def test_a_batch_equals_its_members() -> None:
    world = normal_world([1.0, 1.1, 0.7, 1.0])
    evidence = evidence_on(world, trials=4)
    whole, path = lifts(evidence, 2), lift_sequence(evidence, 2000, 2)
    for i in range(4):
        one = members(evidence, slice(i, i + 1))
        for found, alone in ((whole, lifts(one, 2)), (path, lift_sequence(one, 2000, 2))):
            for name in (*COLUMNS, "standard_errors"):
                np.testing.assert_allclose(
                    getattr(found, name)[i], getattr(alone, name)[0], rtol=1e-9, atol=1e-12
                )


def test_too_few_rounds_leave_limits_infinite() -> None:
    found = lifts(one_segment([5, 5], [5.0, 6.0], [6.0, 8.0]), 0)
    assert found.low[0, 1] == -np.inf
    assert found.high[0, 1] == np.inf
    assert found.standard_errors[0, 1] == np.inf
    assert np.isnan(found.relative[0, 1])


def test_the_control_is_on_the_short_list_of_a_large_set() -> None:
    evidence = Evidence.from_segments(large.LARGE, large.played(large.LARGE, columns=120))
    for control in (0, evidence.arms.size - 1):
        for found in (
            lifts(evidence, control),
            lift_sequence(evidence, int(evidence.played[0]), control),
        ):
            check_consistent(found)
            assert found.shown is not None
            assert found.shown[found.control] == control
            assert found.low.shape == (1, len(found.shown))


@pytest.mark.parametrize("control", [-1, 2, True, "A", 1.0])
def test_a_control_that_is_no_arm_is_refused(control: Any) -> None:
    evidence = one_segment([50, 50], [50.0, 60.0], [60.0, 80.0])
    with pytest.raises(sa.InvalidInputError, match="expected the index of an arm, 0 to 1"):
        lifts(evidence, control)
    with pytest.raises(sa.InvalidInputError, match="expected the index of an arm, 0 to 1"):
        lift_sequence(evidence, 100, control)


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_limits_do_not_contradict_a_declared_winner(direction: Any) -> None:
    sign = 1 if direction == "maximize" else -1
    evidence = evidence_on(normal_world([1.0, 1.0 + 0.18 * sign, 1.0 - sign]), trials=300)
    evidence = replace(evidence, direction=direction)
    intervals, found = fixed_budget(evidence), lifts(evidence, 0)
    cut = lifts(evidence, 0, intervals=intervals)
    better = sign * (found.low if sign > 0 else found.high)
    after = sign * (cut.low if sign > 0 else cut.high)
    won = intervals.winner & (intervals.recommended == 1)
    kept = intervals.winner & (intervals.recommended == 0)
    assert (better[won, 1] < 0).any()  # the winner is a statement of its own
    assert (after[won, 1] > 0).all()
    assert (cut.relative_low if sign > 0 else -cut.relative_high)[won, 1].min() > 0
    assert not kept.any() or (sign * (cut.high if sign > 0 else cut.low))[kept][:, 1:].max() < 0
    np.testing.assert_array_equal(cut.low[~intervals.winner], found.low[~intervals.winner])


@pytest.mark.parametrize("kind", ["normal", "clicks"])
def test_lifts_are_right_as_often_as_they_say(kind: str) -> None:
    rates = np.array([0.1, 0.1, 0.13, 0.08])
    noise = sa.BernoulliReward() if kind == "clicks" else sa.GaussianNoise(0.3)
    arms = sa.ArmSet.one_hot(list("ABCD"))
    wave = 1 + 0.5 * np.sin(np.arange(4000) / 200)[:, None]
    world = sa.Environment.from_means(arms, rates * wave, noise)
    evidence = Evidence.from_segments(arms, played(sa.Steady(), world, 500, seed=5))
    found, truth = lifts(evidence, 0, 0.9), world.means.mean(axis=0)
    apart = truth - truth[0]
    absolute = (found.low <= apart + 1e-12) & (apart - 1e-12 <= found.high)
    share = apart / truth[0]
    relative = (found.relative_low <= share + 1e-12) & (share - 1e-12 <= found.relative_high)
    for right in (absolute, relative | np.isnan(found.relative)):
        assert 0.86 < right.all(axis=1).mean() < 0.95  # 3 standard errors, a little wide for clicks


def test_intervals_beside_a_clear_winner_are_right_as_often_as_they_say() -> None:
    world = normal_world([1.0] * 9 + [1.6])
    evidence = Evidence.from_segments(world.arms, played(sa.Steady(), world, 250, seed=6))
    found, truth = fixed_budget(evidence), world.means.mean(axis=0)
    against = lifts(evidence, 0, intervals=found)
    assert found.winner.mean() > 0.95
    gaps = truth[found.recommended][:, None] - truth
    for low, high, right in (
        (found.gap_low, found.gap_high, gaps),
        (against.low, against.high, truth - truth[0]),
    ):
        inside = (low <= right + 1e-12) & (right - 1e-12 <= high)
        assert inside.all(axis=1).mean() > 0.92  # 2 standard errors below; with single limits 0.88
