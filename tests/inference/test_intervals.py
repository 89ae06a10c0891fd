"""Intervals for a fixed budget: closed forms, coverage under drift, and what is refused."""

from __future__ import annotations

from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm, studentized_range, t

import steadyarm as sa
from steadyarm.environments import Noise
from steadyarm.inference.evidence import Evidence, score_scatter, third_moments
from steadyarm.inference.intervals import Intervals, critical_values, fixed_budget
from steadyarm.segments import Segment, SegmentStats
from tests.inference.worlds import members, moving, one_segment, played

TWO = sa.ArmSet.one_hot(["A", "B"])
POLICIES = (sa.GBAI(), sa.P1RAGE(), sa.Steady(), sa.P1RAGE(order="blocks"))
METHODS = ("rounds", "rounds", "lists", "differences")


def check_known(found: Intervals) -> None:
    for values in (found.estimates, found.low, found.high, found.gap_low, found.gap_high):
        assert not np.isnan(values).any()
    assert (found.low <= found.high).all()
    assert (found.gap_low <= found.gap_high).all()
    rows = np.arange(len(found.rounds))
    assert found.plausible[rows, found.recommended].all()
    assert not found.gap_high[rows, found.recommended].any()


# closed forms


def test_fixed_counts_give_the_two_sample_interval() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(0.4, 1.0, 60), rng.normal(0.1, 2.0, 90)
    evidence = one_segment(
        [60, 90], [a.sum(), b.sum()], [(a**2).sum(), (b**2).sum()], shuffled=True
    )
    found = fixed_budget(evidence)
    se = np.array([a.std(ddof=1) / 60**0.5, b.std(ddof=1) / 90**0.5])
    assert found.method == "lists"
    np.testing.assert_allclose(found.estimates[0], [a.mean(), b.mean()])
    np.testing.assert_allclose(found.standard_errors[0], se)
    other = 1 - found.recommended[0]
    # the gap of two independent samples, with the harmonic mean of 59 and 89 degrees of freedom
    # rounded down to a power of 1.1
    freedom = 1.1 ** np.floor(np.log(2 / (1 / 59 + 1 / 89)) / np.log(1.1))
    half = (found.gap_high - found.gap_low)[0, other] / 2
    np.testing.assert_allclose(half, t.isf(0.025, freedom) * np.hypot(*se), rtol=2e-3)
    z = t.isf((1 - 0.95**0.5) / 2, freedom)
    np.testing.assert_allclose((found.high - found.low)[0] / 2, z * se, rtol=1e-2)


def test_independent_draws_give_the_sample_variance_of_the_scores() -> None:
    rng = np.random.default_rng(2)
    arm = rng.integers(2, size=100)
    rewards = rng.normal(size=100) + arm
    scores = np.stack([2 * rewards * (arm == k) for k in range(2)])
    half = Segment(np.full((1, 2), 0.5), np.array([100]))
    found = fixed_budget(Evidence.from_segments(TWO, [(half, sums_of(arm, rewards))]))
    np.testing.assert_allclose(found.standard_errors[0], scores.std(axis=1, ddof=1) / 10)


def test_critical_values_are_those_of_tables() -> None:
    free = np.array([np.inf])
    for K in (2, 5, 12):
        z, pair, best = critical_values(np.eye(K), np.eye(K)[None], free, 0.05)
        assert z[0] == pytest.approx(norm.isf((1 - 0.95 ** (1 / K)) / 2), rel=4e-3)
        assert pair[0] == pytest.approx(studentized_range.ppf(0.95, K, np.inf) / 2**0.5, rel=1e-2)
    assert best[0].mean() == pytest.approx(2.486, rel=1e-2)  # Dunnett's, 11 one-sided comparisons
    z, pair, _ = critical_values(np.eye(5), np.eye(5)[None], np.array([10.0]), 0.05)
    assert pair[0] == pytest.approx(studentized_range.ppf(0.95, 5, 10) / 2**0.5, rel=1e-2)
    one, _, _ = critical_values(np.ones((4, 1)), np.eye(1)[None], np.array([7.0]), 0.1)
    assert one[0] == pytest.approx(t.isf(0.05, 7), rel=1e-3)


def test_many_arms_cost_little_and_stay_below_bonferroni() -> None:
    X = np.random.default_rng(0).normal(size=(400, 6))
    z, pair, best = critical_values(X, np.eye(6)[None], np.array([np.inf]), 0.05)
    scheffe = 12.592**0.5
    assert z[0] < scheffe
    assert pair[0] == pytest.approx(scheffe, rel=1e-3)
    assert (best <= norm.isf(0.05 / 399)).all()


# variances are never too small on average


def sums_of(arm: Any, rewards: Any) -> SegmentStats:
    """Counts, sums and sums of squares of the rewards of two arms."""
    powers = (rewards**power for power in range(3))
    N, S, Q = (np.array([[np.sum(v[arm == k]) for k in range(2)]]) for v in powers)
    return SegmentStats(N.astype(np.int64), S, Q)


def list_course(rewards: Any, orders: Any) -> tuple[Segment, SegmentStats]:
    """A piece of blocks of four with given orders of arms; rewards (T, 2) without noise."""
    arm = np.concatenate([np.array(order) for order in orders])
    segment = Segment(np.array([[0.5, 0.5]]), np.array([len(arm)]), "blocks", 4)
    return segment, sums_of(arm, rewards[np.arange(len(arm)), arm])


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("cut", [False, True])
@settings(max_examples=25)
@given(st.integers(0, 2**31))
def test_variance_of_lists_is_never_too_small(blocks: int, cut: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rewards = rng.normal(size=(4 * blocks, 2)) + rng.normal(size=2)
    all_orders = sorted(set(permutations([0, 0, 1, 1])))
    totals, estimates = [], []
    for orders in product(all_orders, repeat=blocks):
        if cut:  # the last round was not played: counts vary, the reference is all there is
            orders = (*orders[:-1], orders[-1][:3])
        course = list_course(rewards, orders)
        evidence = Evidence.from_segments(TWO, [course])
        assert evidence.within is not None
        totals.append(evidence.scores[0, 0])
        estimates.append(evidence.within[0, 0])
    true = np.cov(np.array(totals).T, bias=True)
    slack = np.mean(estimates, axis=0) - true
    assert np.linalg.eigvalsh(slack).min() >= -1e-9


@settings(max_examples=25)
@given(st.integers(0, 2**31))
def test_variance_of_independent_rounds_is_never_too_small(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rewards = rng.normal(size=(5, 2))
    totals, estimates = [], []
    for arms in product(range(2), repeat=5):
        arm = np.array(arms)
        segment = Segment(np.full((1, 2), 0.5), np.array([5]))
        stats = sums_of(arm, rewards[np.arange(5), arm])
        evidence = Evidence.from_segments(TWO, [(segment, stats)])
        totals.append(evidence.scores[0, 0])
        estimates.append(score_scatter(evidence).total[0])
    true = np.cov(np.array(totals).T, bias=True)
    assert np.linalg.eigvalsh(np.mean(estimates, axis=0) - true).min() >= -1e-9


def test_variance_from_differences_is_never_too_small() -> None:
    """Twelve pieces whose sums are mean ± spread: all 4,096 courses."""
    rng = np.random.default_rng(3)
    means, spreads = rng.normal(size=12), rng.uniform(0.1, 2.0, 12)
    spreads[[0, -1]] = 5.0  # the ends matter as much as the others
    signs = np.array(list(product([-1.0, 1.0], repeat=12)))
    scores = (means + signs * spreads)[:, :, None]
    n, J = signs.shape
    arms = sa.ArmSet.from_features([[1.0], [2.0]])
    evidence = Evidence(arms, np.full((n, J), 10), scores, np.ones((n, J, 1, 1)), block=5)
    scatter = score_scatter(evidence)
    assert scatter.method == "differences"
    assert (scatter.freedom == 8.0).all()
    expected = (spreads**2).sum() + (np.diff(means) ** 2).sum() / 2
    expected += (np.diff(means)[[0, -1]] ** 2).sum() / 2 + (spreads[[1, -2]] ** 2).sum() / 2
    assert scatter.total.mean() == pytest.approx(expected)


def test_third_moments_are_those_of_clicks() -> None:
    clicks = np.random.default_rng(4).poisson(3.0, size=(400, 20, 1)).astype(float)
    third = third_moments(clicks, clicks, np.full((400, 20), 100))[:, -1, 0]
    # a Poisson count has third moment = variance = 60, of which cutting shocks takes some
    error = third.std() / 20
    assert 0.8 * 60 - 4 * error < third.mean() < 60 + 4 * error


# what must not matter


@pytest.mark.parametrize("policy", POLICIES, ids=METHODS)
def test_a_batch_equals_its_members(policy: sa.Policy[Any]) -> None:
    world = moving(1500)
    evidence = Evidence.from_segments(world.arms, played(policy, world, 5))
    batch = fixed_budget(evidence)
    check_known(batch)
    for i in range(5):
        alone = fixed_budget(members(evidence, slice(i, i + 1)))
        for name in ("estimates", "low", "high", "gap_low", "gap_high"):
            expected = getattr(batch, name)[i : i + 1]
            np.testing.assert_allclose(getattr(alone, name), expected, rtol=1e-9, atol=1e-12)
        assert (alone.plausible == batch.plausible[i]).all()


@settings(max_examples=20)
@given(st.floats(0.01, 100), st.floats(-50, 50))
def test_units_do_not_matter(scale: float, shift: float) -> None:
    world = moving(400)
    pieces = played(sa.Steady(), world, 1)
    before = fixed_budget(Evidence.from_segments(world.arms, pieces))
    other = []
    for segment, stats in pieces:
        assert stats.squares is not None
        squares = scale**2 * stats.squares
        m = None if segment.reference is None else scale * segment.reference
        changed = SegmentStats(stats.counts, scale * stats.sums, squares)
        other.append(
            (Segment(segment.weights, segment.rounds, segment.order, segment.block, m), changed)
        )
    after = fixed_budget(Evidence.from_segments(world.arms, other))
    np.testing.assert_allclose(after.low, scale * before.low, rtol=1e-6)
    np.testing.assert_allclose(
        after.gap_high, scale * before.gap_high, rtol=1e-6, atol=1e-9 * scale
    )
    assert (after.plausible == before.plausible).all()
    a = one_segment([20, 30], [4.0, 9.0], [9.0, 12.0], shuffled=True)
    moved = one_segment(
        [20, 30],
        [4 + 20 * shift, 9 + 30 * shift],
        [9 + 8 * shift + 20 * shift**2, 12 + 18 * shift + 30 * shift**2],
        shuffled=True,
    )
    one, two = fixed_budget(a), fixed_budget(moved)
    np.testing.assert_allclose(two.low - shift, one.low, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(two.gap_low, one.gap_low, rtol=1e-6, atol=1e-6)


def test_small_is_good_is_large_is_good_upside_down() -> None:
    world = moving(1500)
    pieces = played(sa.P1RAGE(), world, 3)
    turned = [(segment, stats.negate()) for segment, stats in pieces]
    up = fixed_budget(Evidence.from_segments(world.arms, pieces))
    down = fixed_budget(Evidence.from_segments(world.arms, turned, direction="minimize"))
    np.testing.assert_allclose(down.low, -up.high)
    np.testing.assert_allclose(down.gap_low, up.gap_low)
    np.testing.assert_allclose(down.gap_high, up.gap_high)
    assert (down.plausible == up.plausible).all()


# the edges


def test_unknown_is_infinite_never_nan() -> None:
    few = fixed_budget(one_segment([2, 3], [1.0, 2.0], [1.0, 2.0]))
    assert np.isinf(few.low).all()
    assert np.isinf(few.high).all()
    assert few.plausible.all()
    check_known(few)
    silent = fixed_budget(one_segment([500, 500], [0.0, 20.0], [0.0, 90.0]))
    assert np.isinf(silent.high[0, 0])  # not one purchase: no spread, nothing known
    assert np.isfinite(silent.high[0, 1])
    check_known(silent)
    all_silent = fixed_budget(one_segment([500, 500], [0.0, 0.0], [0.0, 0.0]))
    assert np.isinf(all_silent.high).all()  # clicks, or purchases nobody made
    nothing = Evidence(
        TWO, np.zeros((1, 1), dtype=np.int64), np.zeros((1, 1, 2)), np.zeros((1, 1, 2, 2))
    )
    check_known(fixed_budget(nothing))


@pytest.mark.parametrize("level", [0, 1, -0.1, 1.5, float("nan"), "much"])
def test_wrong_levels_are_refused(level: Any) -> None:
    with pytest.raises(sa.InvalidInputError, match="level"):
        fixed_budget(one_segment([20, 20], [3.0, 4.0], [3.0, 4.0]), level)


@pytest.mark.parametrize("arm", [2, -1, 0.5, [0, 1]])
def test_wrong_arms_are_refused(arm: Any) -> None:
    with pytest.raises(sa.InvalidInputError, match="index of an arm"):
        fixed_budget(one_segment([20, 20], [3.0, 4.0], [3.0, 4.0]), recommended=arm)


# coverage


@pytest.mark.parametrize(("policy", "method"), list(zip(POLICIES, METHODS, strict=True)))
@pytest.mark.parametrize("noise", [sa.GaussianNoise(1.0), sa.BoundedNoise(1.0)])
def test_intervals_cover(policy: sa.Policy[Any], method: str, noise: Noise) -> None:
    world, trials = moving(1200, noise), 200
    found = fixed_budget(Evidence.from_segments(world.arms, played(policy, world, trials, seed=3)))
    truth, rows = world.average, np.arange(trials)
    gaps = truth[found.recommended][:, None] - truth
    slack = 1e-12
    values = ((found.low <= truth) & (truth <= found.high)).all(axis=1)
    apart = ((found.gap_low <= gaps + slack) & (gaps - slack <= found.gap_high)).all(axis=1)
    best = found.plausible[rows, world.best_arm]
    least = binom.ppf(1e-4, trials, 0.94)
    for right in (values, apart, best):
        assert right.sum() >= least, (method, right.mean())


def test_intervals_of_rare_clicks_cover() -> None:
    arms = sa.ArmSet.one_hot(list("ABC"))
    world = sa.Environment.from_means(arms, [0.03, 0.02, 0.01], sa.BernoulliReward(), budget=3000)
    found = fixed_budget(Evidence.from_segments(arms, played(sa.Steady(), world, 600, seed=1)))
    covered = ((found.low <= world.average) & (world.average <= found.high)).all(axis=1)
    assert covered.sum() >= binom.ppf(1e-4, 600, 0.94)
    assert (found.high - found.estimates > found.estimates - found.low).mean() > 0.9


@pytest.mark.parametrize(
    "policy", [sa.Steady(), sa.Steady(order="iid"), sa.P1RAGE()], ids=lambda policy: policy.name
)
@pytest.mark.parametrize(("K", "T"), [(5, 60), (20, 200)])
def test_intervals_of_few_plays_an_arm_cover(policy: sa.Policy[Any], K: int, T: int) -> None:
    arms = sa.ArmSet.one_hot([str(k) for k in range(K)])
    world = sa.Environment.from_means(arms, np.full((T, K), 0.5), sa.GaussianNoise(1.0))
    found = fixed_budget(Evidence.from_segments(arms, played(policy, world, 150, seed=3)))
    covered = ((found.low <= 0.5) & (found.high >= 0.5)).all(axis=1)
    apart = ((found.gap_low <= 1e-9) & (found.gap_high >= -1e-9)).all(axis=1)
    assert min(covered.sum(), apart.sum()) >= binom.ppf(1e-4, 150, 0.94)
