"""Confidence sequences: closed forms, coverage at all looks at once, and what is refused."""

from __future__ import annotations

from itertools import permutations, product
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

import steadyarm as sa
from steadyarm.inference.boundaries import bernstein_reach, normal_factor
from steadyarm.inference.evidence import Evidence, bounded_terms
from steadyarm.inference.sequences import confidence_path, confidence_sequence
from tests.inference.worlds import first_pieces, members, moving, one_segment, played

POLICIES = (sa.GBAI(), sa.P1RAGE(), sa.Steady(), sa.P1RAGE(order="blocks"))
RANGES = (None, (-3.0, 3.0))
NAMES = ("estimates", "low", "high", "gaps", "gap_low", "gap_high")


def psi(rate: float, scale: float) -> float:
    return float((-np.log1p(-scale * rate) - scale * rate) / scale**2)


# the inequalities behind the empirical Bernstein sequence, by enumeration


@settings(max_examples=60)
@given(st.integers(0, 2**31), st.floats(0.01, 0.99), st.sampled_from([-1, 1]))
def test_permuted_blocks_need_twice_the_squares(seed: int, share: float, sign: int) -> None:
    """E exp(λ Σ(X - p) - 2ψ(λ) Σ(X - p)²) <= exp(λ Σ(E X - p)), ψ of twice the scale."""
    rng = np.random.default_rng(seed)
    B = int(rng.integers(2, 6))
    X = rng.normal(size=(B, B)) * rng.uniform(0, 3, size=(B, 1))  # round, entry of the list
    scale = 2 * max(float(-(sign * X).min()), 0.1)
    rate = share / scale
    orders = np.array(list(permutations(range(B))))
    terms = sign * X[np.arange(B), orders]
    power = rate * terms.sum(axis=1) - 2 * psi(rate, scale) * (terms**2).sum(axis=1)
    assert np.log(np.exp(power).mean()) <= rate * sign * X.mean(axis=1).sum() + 1e-9


@settings(max_examples=60)
@given(st.integers(0, 2**31), st.floats(0.01, 0.99))
def test_one_arm_of_a_permuted_block_needs_no_more_than_independent_rounds(
    seed: int, share: float
) -> None:
    rng = np.random.default_rng(seed)
    B = int(rng.integers(2, 6))
    X = np.zeros((B, B))
    X[:, : rng.integers(1, B)] = rng.normal(size=(B, 1))  # some entries are the arm, others nothing
    scale = max(float(-X.min()), 0.1)
    rate = share / scale
    orders = np.array(list(permutations(range(B))))
    terms = X[np.arange(B), orders]
    power = rate * terms.sum(axis=1) - psi(rate, scale) * (terms**2).sum(axis=1)
    assert np.log(np.exp(power).mean()) <= rate * X.mean(axis=1).sum() + 1e-9


@settings(max_examples=60)
@given(st.floats(0.01, 1e4), st.floats(0.1, 10), st.floats(0.2, 5), st.floats(1e-4, 0.2))
def test_the_bernstein_boundary_solves_its_mixture(
    variance: float, scale: float, grown: float, alpha: float
) -> None:
    budget, later = 1000, scale * max(grown, 1.0)
    reach = float(
        bernstein_reach(np.array([variance]), np.array([later]), np.array([scale]), budget, alpha)[
            0
        ]
    )
    count = 9
    rates = [2.0**-i / scale for i in range(1, count + 1)]
    mixture = sum(
        np.exp(rate * reach - psi(rate, later) * variance) / count
        for rate in rates
        if rate * later < 1
    )
    assert 1 / alpha * (1 - 1e-9) <= mixture <= 2 / alpha  # never below, nearly solved


def test_a_boundary_holds_for_all_times() -> None:
    """Exact: the chance that a fair coin of 14 tosses ever crosses, by enumeration."""
    tosses = np.array(list(product([-1.0, 1.0], repeat=14)))
    sums, squares = tosses.cumsum(axis=1), (tosses**2).cumsum(axis=1)
    one = np.ones_like(sums)
    for alpha in (0.2, 0.05):
        crossed = (sums > bernstein_reach(squares, one, one, 14, alpha)).any(axis=1)
        assert crossed.mean() <= alpha


def test_the_normal_boundary_holds_for_all_times() -> None:
    steps = np.random.default_rng(1).normal(size=(4000, 500)).cumsum(axis=1)
    t = np.arange(1, 501)
    crossed = (steps > np.sqrt(t) * normal_factor(t / 500, 0.05)).any(axis=1)
    assert crossed.sum() <= binom.ppf(1 - 1e-4, 4000, 0.05)
    assert crossed.mean() > 0.005  # and is not idle
    assert (np.diff(normal_factor(np.linspace(0.01, 1, 50), 0.01)) < 0).all()


class CentredP1RAGE(sa.P1RAGE):
    """P1-RAGE whose rewards are compared with the estimate so far."""

    centred: ClassVar[bool] = True


def test_bounds_of_scores_are_those_of_brute_force() -> None:
    world = moving(600)
    pieces = played(CentredP1RAGE(order="blocks"), world, 2)
    evidence = Evidence.from_segments(world.arms, pieces)
    assert evidence.references is not None
    _, scale, kind = bounded_terms(evidence, (-1.0, 2.0))
    assert kind == "pieces"
    X = world.arms.coordinates
    for j, (segment, _) in enumerate(pieces[:5]):
        assert segment.reference is not None
        for i in range(2):
            inverse = np.linalg.inv((X.T * segment.weights[i]) @ X)
            played_arms = segment.weights[i] > 0
            terms = np.stack(
                [
                    (X @ inverse @ X[played_arms].T) * (r - X[played_arms] @ segment.reference[i])
                    for r in (-1.0, 2.0)
                ]
            )
            n = segment.rounds[i]
            np.testing.assert_allclose(scale[0, i, j], -n * terms.min(axis=(0, 2)), rtol=1e-7)
            np.testing.assert_allclose(scale[1, i, j], n * terms.max(axis=(0, 2)), rtol=1e-7)


# what must not matter


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("reward_range", RANGES)
def test_a_batch_equals_its_members_and_a_path_its_looks(
    policy: sa.Policy[Any], reward_range: tuple[float, float] | None
) -> None:
    world = moving(900, sa.BoundedNoise(1.0))
    evidence = Evidence.from_segments(world.arms, played(policy, world, 3))
    path = confidence_path(evidence, 900, 0.9, reward_range)
    assert len(path) == evidence.rounds.shape[1]
    for j in (0, 7, len(path) - 1):
        part = members(first_pieces(evidence, j + 1), slice(1, 2))
        alone = confidence_sequence(part, 900, 0.9, reward_range)
        for name in NAMES:
            expected = getattr(path[j], name)[1:2]
            assert not np.isnan(expected).any()
            np.testing.assert_allclose(getattr(alone, name), expected, rtol=1e-9, atol=1e-12)
        assert (alone.plausible == path[j].plausible[1]).all()
        assert alone.assumption
        assert "\n" not in alone.assumption


@pytest.mark.parametrize("reward_range", RANGES)
def test_small_is_good_is_large_is_good_upside_down(
    reward_range: tuple[float, float] | None,
) -> None:
    world = moving(900, sa.BoundedNoise(1.0))
    pieces = played(sa.P1RAGE(), world, 3)
    turned = [(segment, stats.negate()) for segment, stats in pieces]
    up = confidence_sequence(Evidence.from_segments(world.arms, pieces), 900, 0.95, reward_range)
    evidence = Evidence.from_segments(world.arms, turned, direction="minimize")
    down = confidence_sequence(evidence, 900, 0.95, reward_range)
    np.testing.assert_allclose(down.low, -up.high)
    np.testing.assert_allclose(down.gap_low, up.gap_low)
    np.testing.assert_allclose(down.gap_high, up.gap_high)


# the edges


def test_unknown_is_infinite() -> None:
    evidence = one_segment([20, 20], [3.0, 4.0], [3.0, 4.0])
    early = confidence_sequence(evidence, budget=10_000)  # before a twentieth of the budget
    assert np.isinf(early.high).all()
    assert early.plausible.all()
    sure = confidence_sequence(evidence, budget=10_000, reward_range=(0, 1))
    assert np.isfinite(sure.high).all()
    nothing = Evidence(
        evidence.arms,
        np.zeros((1, 1), dtype=np.int64),
        np.zeros((1, 1, 2)),
        np.zeros((1, 1, 2, 2)),
        weights=np.full((1, 1, 2), 0.5),
    )
    for reward_range in (None, (0.0, 1.0)):
        found = confidence_sequence(nothing, 100, 0.95, reward_range)
        assert np.isinf(found.high).all()
        assert np.isinf(found.low).all()
        assert not np.isnan(found.gap_low).any()


@pytest.mark.parametrize("reward_range", [(1, 0), (0, 0), 3, (0, float("inf")), ("a", "b")])
def test_wrong_ranges_are_refused(reward_range: Any) -> None:
    evidence = one_segment([20, 20], [3.0, 4.0], [3.0, 4.0])
    with pytest.raises(sa.InvalidInputError, match="reward"):
        confidence_sequence(evidence, 100, reward_range=reward_range)


def test_wrong_budgets_and_levels_are_refused() -> None:
    evidence = one_segment([20, 20], [3.0, 4.0], [3.0, 4.0])
    with pytest.raises(sa.InvalidInputError, match="budget"):
        confidence_sequence(evidence, 0)
    with pytest.raises(sa.InvalidInputError, match="level"):
        confidence_sequence(evidence, 100, level=95)


# coverage at all looks


@pytest.mark.parametrize("policy", POLICIES[:3])
@pytest.mark.parametrize("reward_range", [None, (-2.0, 2.0)])
def test_sequences_hardly_ever_fail(
    policy: sa.Policy[Any], reward_range: tuple[float, float] | None
) -> None:
    world, trials = moving(1200, sa.BoundedNoise(1.0)), 300
    evidence = Evidence.from_segments(world.arms, played(policy, world, trials, seed=5))
    sums = np.vstack([np.zeros(5), world.means.cumsum(axis=0)])
    ever = np.zeros((trials, 3), dtype=bool)
    for look in confidence_path(evidence, 1200, 0.9, reward_range):
        truth = sums[look.rounds] / look.rounds[:, None]
        rows = np.arange(trials)
        gaps = truth[rows, look.recommended][:, None] - truth
        slack = 1e-12
        ever[:, 0] |= ((look.low > truth) | (truth > look.high)).any(axis=1)
        ever[:, 1] |= ((look.gap_low > gaps + slack) | (gaps - slack > look.gap_high)).any(axis=1)
        ever[:, 2] |= ~look.plausible[rows, truth.argmax(axis=1)]
    assert (ever.sum(axis=0) <= binom.ppf(1 - 1e-4, trials, 0.1)).all()


@pytest.mark.parametrize(("K", "T"), [(10, 400), (20, 1000)])
def test_sequences_of_few_plays_an_arm_hardly_ever_fail(K: int, T: int) -> None:
    arms = sa.ArmSet.one_hot([str(k) for k in range(K)])
    world = sa.Environment.from_means(arms, np.zeros((T, K)), sa.GaussianNoise(1.0))
    evidence = Evidence.from_segments(arms, played(sa.Steady(), world, 200, seed=4))
    ever = np.zeros(200, dtype=bool)
    for look in confidence_path(evidence, T, 0.95):
        ever |= ((look.low > 0) | (look.high < 0)).any(axis=1)
    assert ever.sum() <= binom.ppf(1 - 1e-4, 200, 0.05)
