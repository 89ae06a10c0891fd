"""Exact designs: what they promise, exchanges against enumeration, few of many arms, rounding."""

from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import steadyarm as sa
from steadyarm.designs import round_design, round_designs
from steadyarm.designs.rounding import (
    LEAST_SHARE,
    Allocation,
    exact_allocation,
    exact_counts,
)

Floats = NDArray[np.float64]


def random_design(seed: int, K: int, r: int) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    arms = sa.ArmSet.from_features(rng.normal(size=(K, r)))
    return arms.coordinates, 0.5 * sa.g_optimal(arms).weights + 0.5 * rng.dirichlet(np.ones(K))


def share(X: Floats, counts: NDArray[np.int64], weights: Floats) -> float:
    """Least information of the list in units of the design's, over all directions."""
    A = X.T @ (weights[:, None] * X)
    L = np.linalg.inv(np.linalg.cholesky(A))
    found = X.T @ (counts[:, None] / counts.sum() * X)
    return float(np.linalg.eigvalsh(L @ found @ L.T)[0])


def efficiency(X: Floats, counts: NDArray[np.int64], weights: Floats) -> float:
    A = X.T @ (weights[:, None] * X)
    found = X.T @ (counts[:, None] / counts.sum() * X)
    if np.linalg.matrix_rank(found) < X.shape[1]:
        return 0.0
    return float(X.shape[1] / np.trace(np.linalg.solve(found, A)))


@given(
    seed=st.integers(0, 10**6),
    K=st.integers(2, 12),
    r=st.integers(1, 6),
    length=st.integers(1, 40),
)
def test_lists_keep_what_they_promise(seed: int, K: int, r: int, length: int) -> None:
    X, weights = random_design(seed, K, min(r, K))
    counts, good = exact_counts(X, weights[None], length)
    assert counts.sum() == length
    assert (counts >= 0).all()
    if length < X.shape[1]:
        assert not good[0]
    if good[0]:
        assert share(X, counts[0], weights) >= LEAST_SHARE - 1e-9


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("K", "r"), [(30, 8), (50, 16), (60, 20), (80, 24)])
def test_two_rounds_per_direction_make_a_good_list(seed: int, K: int, r: int) -> None:
    """What `automatic_block` counts on: with 2r rounds a list is found that will do."""
    X, weights = random_design(seed, K, r)
    for length in (2 * r, 3 * r):
        _, good = exact_counts(X, weights[None], length)
        assert good[0]


@pytest.mark.parametrize("seed", range(5))
def test_exchanges_come_near_the_best_list_of_all(seed: int) -> None:
    """Either good enough as it is, or within 5 % of the best of all 210 lists."""
    X, weights = random_design(seed, 5, 3)
    counts, _ = exact_counts(X, weights[None], 6)
    best = max(
        efficiency(X, np.bincount(chosen, minlength=5), weights)
        for chosen in combinations_with_replacement(range(5), 6)
    )
    assert efficiency(X, counts[0], weights) >= min(0.9, 0.95 * best)


@given(seed=st.integers(0, 10**6), K=st.integers(2, 6), length=st.integers(2, 12))
def test_independent_arms_get_a_list_as_good_as_the_best(seed: int, K: int, length: int) -> None:
    rng = np.random.default_rng(seed)
    weights = 0.5 / K + 0.5 * rng.dirichlet(np.ones(K))
    counts, good = exact_counts(rng.normal(size=(K, K)), weights[None], length)
    assert counts.sum() == length
    if length >= K:
        best = max(
            efficiency(np.eye(K), np.bincount(chosen, minlength=K), weights)
            for chosen in combinations_with_replacement(range(K), length)
            if len(set(chosen)) == K
        )
        assert efficiency(np.eye(K), counts[0], weights) >= min(0.9, best) - 1e-9
    assert good[0] == (length >= K and bool((counts[0] >= LEAST_SHARE * weights * length).all()))


@pytest.mark.parametrize("length", [40, 60, 200])
def test_counts_on_few_of_many_arms_are_as_good(length: int) -> None:
    rng = np.random.default_rng(length)
    X, weights = rng.normal(size=(60, 8)), rng.dirichlet(np.ones(60))
    whole = exact_allocation(X, Allocation(weights[None], np.arange(60)), length)
    assert whole.arms is not None
    counts = whole.weights[0] * length
    np.testing.assert_allclose(counts, np.rint(counts), atol=1e-9)
    assert counts.sum() == pytest.approx(length)
    (dense,), (good,) = exact_counts(X, weights[None], length)
    assert good
    target = (X * weights[:, None]).T @ X

    def of_target(rows: Floats, share: Floats) -> float:
        return 8 / float(np.trace(target @ np.linalg.inv((rows * share[:, None]).T @ rows)))

    assert of_target(X[whole.arms], whole.weights[0]) > 0.93 * of_target(X, dense / length)


def test_too_few_rounds_leave_the_design_alone() -> None:
    design = Allocation(np.full((1, 60), 1 / 60), np.arange(60))
    X = np.random.default_rng(0).normal(size=(60, 8))
    assert exact_allocation(X, design, 7) is design


def test_a_design_stays_whole_where_few_arms_would_lose_a_direction() -> None:
    """One light arm tells of the second direction, and there is room for heavier ones only."""
    X = np.repeat([[1.0, 0.0], [0.0, 1.0]], [100, 1], axis=0)
    weights = np.append(np.full(100, 0.00999), 0.001)
    design = Allocation(weights[None], np.arange(101))
    assert exact_allocation(X, design, 16) is design
    assert exact_allocation(X, design, 26).weights.size < 101


# Efficient rounding


WEIGHTS = st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 1.0)), min_size=1, max_size=30).filter(
    lambda weights: sum(weights) > 0
)


def as_told(weights: np.ndarray, rounds: int) -> np.ndarray:
    """The rule of reference_notes.md, word for word, for rounds >= support."""
    support = np.flatnonzero(weights)
    lam = weights[support]
    n = np.ceil((rounds - len(lam) / 2) * lam).astype(int)
    while n.sum() < rounds:
        n[(n / lam).argmin()] += 1
    while n.sum() > rounds:
        n[((n - 1) / lam).argmax()] -= 1
    counts = np.zeros(len(weights), dtype=int)
    counts[support] = n
    return counts


@given(WEIGHTS, st.integers(0, 500))
def test_sums_and_bounds(weights: list[float], rounds: int) -> None:
    lam = np.array(weights) / sum(weights)
    counts = round_design(weights, rounds)
    assert counts.sum() == rounds
    assert counts.min() >= 0
    assert (counts[lam == 0] == 0).all()
    support = lam > 0
    if rounds >= support.sum():  # Pukelsheim: every arm of the support is played
        assert (counts[support] >= 1).all()
        assert (counts[support] / lam[support]).min() >= (
            (counts - 1)[support] / lam[support]
        ).max() - 1e-6


@given(st.integers(1, 12), st.integers(0, 10**6), st.integers(0, 300))
def test_as_told(K: int, seed: int, extra: int) -> None:
    weights = np.random.default_rng(seed).dirichlet(np.ones(K))
    np.testing.assert_array_equal(round_design(weights, K + extra), as_told(weights, K + extra))


def test_batch_equals_its_members() -> None:
    rng = np.random.default_rng(0)
    weights, rounds = rng.dirichlet(np.ones(9), size=50), rng.integers(0, 60, size=50)
    together = round_designs(weights, rounds)
    for row in range(50):
        np.testing.assert_array_equal(together[row], round_design(weights[row], int(rounds[row])))
