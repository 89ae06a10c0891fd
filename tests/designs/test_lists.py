"""Lists of whole numbers: what they promise, and that exchanges find what enumeration finds."""

from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import steadyarm as sa
from steadyarm.designs.exact_design import LEAST_SHARE, whole_lists

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
    counts, good = whole_lists(X, weights[None], length)
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
        _, good = whole_lists(X, weights[None], length)
        assert good[0]


@pytest.mark.parametrize("seed", range(5))
def test_exchanges_come_near_the_best_list_of_all(seed: int) -> None:
    """Either good enough as it is, or within 5 % of the best of all 210 lists."""
    X, weights = random_design(seed, 5, 3)
    counts, _ = whole_lists(X, weights[None], 6)
    best = max(
        efficiency(X, np.bincount(chosen, minlength=5), weights)
        for chosen in combinations_with_replacement(range(5), 6)
    )
    assert efficiency(X, counts[0], weights) >= min(0.9, 0.95 * best)


def test_a_list_that_would_lose_a_direction_is_mended() -> None:
    """Each of ten small arms rounds to zero by itself; two arms hold all but a tenth."""
    X = np.eye(12)
    weights = np.array([0.45, 0.45] + [0.01] * 10)
    counts, _ = whole_lists(X, weights[None], 24)
    assert (counts > 0).all()


def test_rows_do_not_depend_on_each_other() -> None:
    designs = np.stack([random_design(seed, 8, 4)[1] for seed in range(5)])
    X = random_design(0, 8, 4)[0]
    together, good = whole_lists(X, designs, 12)
    for i, design in enumerate(designs):
        alone, fine = whole_lists(X, design[None], 12)
        np.testing.assert_array_equal(together[i], alone[0])
        assert good[i] == fine[0]


@given(seed=st.integers(0, 10**6), K=st.integers(2, 6), length=st.integers(2, 12))
def test_independent_arms_get_a_list_as_good_as_the_best(seed: int, K: int, length: int) -> None:
    rng = np.random.default_rng(seed)
    weights = 0.5 / K + 0.5 * rng.dirichlet(np.ones(K))
    counts, good = whole_lists(rng.normal(size=(K, K)), weights[None], length)
    assert counts.sum() == length
    if length >= K:
        best = max(
            efficiency(np.eye(K), np.bincount(chosen, minlength=K), weights)
            for chosen in combinations_with_replacement(range(K), length)
            if len(set(chosen)) == K
        )
        assert efficiency(np.eye(K), counts[0], weights) >= min(0.9, best) - 1e-9
    assert good[0] == (length >= K and bool((counts[0] >= LEAST_SHARE * weights * length).all()))
