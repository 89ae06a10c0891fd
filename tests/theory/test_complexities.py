"""Complexities: closed forms, cvxpy and direct searches."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import brentq

import steadyarm as sa
from steadyarm import theory
from tests.designs.reference import optimal_value
from tests.theory.instances import one_hot

Floats = NDArray[np.float64]


def gaussian(K: int, d: int, seed: int) -> tuple[sa.ArmSet, Floats]:
    """Arms and a parameter with all means in [-1, 1]."""
    rng = np.random.default_rng(seed)
    X, theta = rng.normal(size=(K, d)), rng.normal(size=d)
    return sa.ArmSet.from_features(X), theta / np.abs(X @ theta).max()


def sorted_gaps(means: Floats) -> Floats:
    gaps = np.sort(means.max() - means)
    gaps[0] = gaps[1]
    return gaps


def best_share(others: Floats) -> float:
    """K arms that share nothing: least over λ of max 1/λ_1 + 1/λ_k, each divided by `others`.

    All terms are equal at the best λ: λ_k = 1 / (v others_k - 1/λ_1), and λ_1 is what is best.
    """

    def value(first: float) -> float:
        def missing(v: float) -> float:
            return float((1 / (v * others - 1 / first)).sum() - (1 - first))

        low = (1 / first) / others.min()
        return float(brentq(missing, low * (1 + 1e-13) + 1e-12, 1e9 * low, xtol=1e-12, rtol=1e-14))

    low, high = 1e-3, 1 - 1e-3
    for _ in range(200):  # golden section: the value is convex in λ_1
        a, b = high - (high - low) / 1.618033988749895, low + (high - low) / 1.618033988749895
        low, high = (low, b) if value(a) < value(b) else (a, high)
    return value((low + high) / 2)


@pytest.mark.parametrize("means", [[0.5, 0.2], [0.1, 0.9, 0.3], [0.9, 0.8, 0.3, 0.2, 0.85]])
def test_arms_that_share_nothing(means: list[float]) -> None:
    values = np.array(means)
    K, gaps, arms = len(means), sorted_gaps(values), one_hot(len(means))
    assert theory.rho_star(arms, values) == pytest.approx(best_share(gaps[1:] ** 2), rel=1e-8)
    assert theory.rho_star_of_means(arms, values) == theory.rho_star(arms, values)
    assert theory.h_unif(arms, values) == pytest.approx(K / gaps[0] ** 2)
    assert theory.h_g_bai(arms, values) == pytest.approx(K / gaps[0] ** 2)
    assert theory.h_adjacent(arms, values) == pytest.approx(2 * K / gaps[0] ** 2, rel=2e-6)
    bob = max((k + 1) / gap for k, gap in enumerate(gaps)) / gaps[0]
    assert theory.h_bob(arms, values) == pytest.approx(bob)
    i0 = math.ceil(math.log2(1 / gaps[0])) + 1
    main, low_order = best_share(gaps[1:]), math.sqrt(K) * (1 + math.sqrt(K - 1))
    for m in (i0, i0 + 3):
        simplified = (m * i0 * main + m * low_order) / gaps[0]
        assert theory.h_p1_rage(arms, values, m) == pytest.approx(simplified, rel=1e-8)


@pytest.mark.parametrize("K", [2, 3, 10])
def test_equal_gaps(K: int) -> None:
    """Half as it were for the best arm: (1 + √(K-1))² / Δ²."""
    theta = np.where(np.arange(K) == K - 1, 0.3, 0.1)
    least = (1 + math.sqrt(K - 1)) ** 2
    assert theory.rho_star(one_hot(K), theta) == pytest.approx(least / 0.04, rel=1e-8)
    assert theory.h_bob(one_hot(K), theta) == pytest.approx(K / 0.04)


def test_orthogonal_arms_of_any_length_are_arms_that_share_nothing() -> None:
    means, lengths = np.array([0.7, 0.5, 0.2, -0.3]), np.array([1.0, 3.0, 0.2, 0.7])
    plain, stretched = one_hot(4), sa.ArmSet.from_features(np.diag(lengths))
    for h in (theory.rho_star, theory.h_g_bai, theory.h_unif, theory.h_bob, theory.h_adjacent):
        assert h(stretched, means / lengths) == pytest.approx(h(plain, means), rel=2e-6)
    for of_m in (theory.h_p1_rage, theory.h_p1_rage_exact, theory.h_p1_rage_ceiling):
        assert of_m(stretched, means / lengths, 7) == pytest.approx(of_m(plain, means, 7), rel=1e-8)


def test_two_arms_on_a_line() -> None:
    """The longer arm tells all: ‖x - x'‖² = (x - x')² / x_max²."""
    arms = sa.ArmSet.from_features([[1.0], [-4.0], [2.0]])
    assert theory.rho_star(arms, [-0.1]) == pytest.approx((5 / 4) ** 2 / 0.5**2)
    assert theory.h_adjacent(arms, [-0.1]) == pytest.approx((6 / 4) ** 2 / 0.5**2)  # ends: -4, 2
    assert theory.h_g_bai(arms, [-0.1]) == pytest.approx(1 / 0.5**2)


def test_neighbours_on_a_cube() -> None:
    cube = sa.ArmSet.factorial({f: ["0", "1"] for f in "abc"}, interactions=1)
    assert theory.h_adjacent(cube, [0.1, 0.3, 0.2, 0.1]) == pytest.approx(4 / 0.2**2, rel=2e-6)


@pytest.mark.parametrize("seed", range(6))
def test_cvxpy_agrees(seed: int) -> None:
    arms, theta = gaussian(6, 3, seed)
    means = arms.features @ theta
    best = int(means.argmax())
    others = np.arange(6) != best
    differences, gaps = (arms.features[best] - arms.features)[others], means[best] - means[others]
    rho, main, square = (
        optimal_value(arms.features, differences / gaps[:, None] ** power) for power in (1, 0.5, 0)
    )
    assert theory.rho_star(arms, theta) == pytest.approx(rho, rel=1e-5)
    i0 = theory.phases_for(gaps.min())
    simplified = (i0 * i0 * main + i0 * math.sqrt(3 * square)) / gaps.min()
    assert theory.h_p1_rage(arms, theta) == pytest.approx(simplified, rel=1e-5)


@given(st.integers(2, 12), st.integers(1, 4), st.integers(0, 10**6))
@settings(max_examples=40)
def test_order_of_the_complexities(K: int, d: int, seed: int) -> None:
    arms, theta = gaussian(K, d, seed)
    rho, robust = theory.rho_star(arms, theta), theory.h_g_bai(arms, theta)
    slack = 1 + 1e-5
    assert rho <= theory.h_adjacent(arms, theta) * slack  # differences are sums of edges
    assert theory.h_adjacent(arms, theta) <= 4 * robust * slack  # differences of two arms
    assert rho <= theory.h_p1_rage(arms, theta) * slack
    assert theory.h_bob(arms, theta) <= theory.h_unif(arms, theta) * slack
    exact = theory.h_p1_rage_exact(arms, theta)
    assert rho <= exact <= theory.h_p1_rage_ceiling(arms, theta) * slack


def corollary_1(gaps: Floats) -> tuple[float, float]:
    """H_P1-RAGE of arms that share nothing, and 2 i0 (i0 log 2K + 1) H_BOB."""
    means = 1 - np.append(0.0, gaps)
    arms = one_hot(means.size)
    return theory.h_p1_rage(arms, means), theory.h_p1_rage_one_hot_ceiling(arms, means)


@given(st.lists(st.floats(0.01, 2.0), min_size=2, max_size=20))
@settings(max_examples=50)
def test_corollary_1(gaps: list[float]) -> None:
    """From three arms on it holds for all gaps that there can be."""
    value, most = corollary_1(np.array(gaps))
    assert value <= most * (1 + 1e-6)


def test_features_and_their_scale_do_not_matter() -> None:
    arms, theta = gaussian(8, 3, 5)
    rng = np.random.default_rng(1)
    transform = rng.normal(size=(3, 3)) * [1e-3, 1.0, 1e3]
    mapped = sa.ArmSet.from_features(arms.features @ transform)
    wide = sa.ArmSet.from_features(np.hstack([arms.features, arms.features[:, :2]]))
    other = np.linalg.solve(transform, theta)
    for h in (theory.rho_star, theory.h_g_bai, theory.h_adjacent, theory.h_p1_rage_exact):
        value = h(arms, theta)
        assert h(mapped, other) == pytest.approx(value, rel=1e-5)
        assert h(wide, np.append(theta, [0.0, 0.0])) == pytest.approx(value, rel=1e-5)


def by_events(gaps: Floats, m: int, a: Floats) -> float:
    """H̄ at one sequence a_0, a_1, …, for arms that share nothing; event i has precision 2^-i."""
    K, total = gaps.size, 0.0
    terms: list[float] = []
    for i in range(1, a.size):
        total += (a[i] - a[i - 1]) * 2.0 * max(int((gaps <= 2 * 2.0 ** (2 - i)).sum()), 1)
        reach = 8 * (m * math.sqrt(K * 2 * K) + 1)
        share = float(a[i])
        terms.append((48 * m * total + reach * share / 2**i) / (3 * share**2 / 4**i))
    return max(terms)


@pytest.mark.parametrize("gaps", [[0.1, 0.5, 0.5, 0.4], [0.03, 0.06, 0.2, 0.5], [0.12, 0.5, 0.5]])
def test_no_sequence_is_better_than_the_minimum(gaps: list[float]) -> None:
    means = 0.5 - np.array([0.0, *gaps])
    every = sorted_gaps(means)
    i0 = math.ceil(math.log2(1 / every[0])) + 1
    least = theory.h_p1_rage_exact(one_hot(means.size), means)
    events = math.floor(math.log2(1 / every[0])) + 1
    rng = np.random.default_rng(0)
    best, centre = math.inf, np.sort(rng.random(events - 1))
    for round_ in range(4000):  # a random walk downhill, over the steps of the sequence
        width = 0.3 * 0.997**round_
        steps = np.diff(np.concatenate([[0.0], centre, [1.0]])) ** 0.5
        tried = np.square(steps + width * rng.normal(size=events))
        a = np.concatenate([[0.0], np.cumsum(tried) / tried.sum()])
        value = by_events(every, i0, a)
        assert value >= least * (1 - 1e-9)
        if value < best:
            best, centre = value, a[1:-1]
    assert best == pytest.approx(least, rel=5e-3)


def test_one_demand_has_a_closed_form() -> None:
    """All other arms at gap Δ: earlier events cost nothing while f stays."""
    K, m = 4, 6
    means = np.where(np.arange(K) == 0, 0.5, 0.4)
    # the events ask for 2^-4 in place of 0.1
    by_proof = (48 * m * 2 * K + 8 * (m * math.sqrt(K * 2 * K) + 1) / 16) / (3 / 16**2)
    assert theory.h_p1_rage_exact(one_hot(K), means, m) == pytest.approx(by_proof, rel=1e-8)


def test_two_demands_by_hand() -> None:
    """Gaps 0.7 and 0.3 as the proof has it: events 1 and 2 with f = 2K, where all share f."""
    m, R = 5, 2.0
    means = np.array([0.9, 0.2, 0.6])
    reach = 8 * R * (m * math.sqrt(18) + 1)
    least = (48 * m * R**2 * 6 + reach / 4) / (3 / 16)
    found = theory.h_p1_rage_exact(one_hot(3), means, m, largest_reward=R)
    assert found == pytest.approx(least, rel=1e-8)
    # gaps above one need an event before the first, with precision 1
    alone = theory.h_p1_rage_exact(one_hot(2), [0.9, -0.6], m)
    assert alone == pytest.approx((48 * m * 4 + 8 * (m * math.sqrt(8) + 1)) / 3, rel=1e-8)


def test_epsilon() -> None:
    means = np.array([0.5, 0.499, 0.3, 0.0])
    arms = one_hot(4)
    exact, relaxed, loose = (
        theory.h_p1_rage_exact(arms, means, 12, epsilon) for epsilon in (0.0, 0.01, 0.3)
    )
    assert exact > 100 * relaxed > 100 * loose
    assert theory.h_p1_rage_exact(arms, means, 12, 0.5) == 0.0  # any arm will do
    assert theory.p1_rage_error_bound(arms, means, 1000, 12, 0.5) == 0.0
    # without Δ_(1): a closer rival changes nothing
    closer = np.array([0.5, 0.4999999, 0.3, 0.0])
    assert theory.h_p1_rage_exact(arms, closer, 12, 0.01) == pytest.approx(relaxed, rel=1e-8)
    assert theory.h_p1_rage_exact(arms, means, epsilon=0.1) < relaxed  # fewer phases by default


def test_phases() -> None:
    assert [theory.phases_for(2.0**-k) for k in range(6)] == [1, 2, 3, 4, 5, 6]
    for effect in (0.9, 0.3, 0.1, 0.02, 1e-3, 1e-6):
        assert theory.phases_for(effect) == math.ceil(math.log2(1 / effect)) + 1
    assert theory.phases_for(3.0) == 1
    assert theory.phases_for(0.5, first_cut=8.0) == theory.phases_for(1 / 16) == 5


def test_corollary_1_is_for_arms_that_share_nothing() -> None:
    means = np.array([0.5, 0.4, 0.0])
    i0 = math.ceil(math.log2(10)) + 1
    most = 2 * i0 * (i0 * math.log(6) + 1) * 200  # H_BOB = (2/0.1)/0.1
    assert theory.h_p1_rage_one_hot_ceiling(one_hot(3), means) == pytest.approx(most)
    skewed = sa.ArmSet.from_features([[1.0, 0.5, 0.0], [0.0, 2.0, 0.1], [0.3, 0.0, 1.0]])
    theta = np.linalg.solve(skewed.features, means)
    assert theory.h_p1_rage_one_hot_ceiling(skewed, theta) == pytest.approx(most)
    assert theory.h_p1_rage(skewed, theta) == pytest.approx(theory.h_p1_rage(one_hot(3), means))
    with pytest.raises(sa.InvalidInputError, match="share nothing"):
        theory.h_p1_rage_one_hot_ceiling(*gaussian(4, 2, 0))
