"""XY designs of large sets by multiplicative weights: proofs over all arms and pairs, structure."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.arms.generated import (
    BundleRows,
    FactorialRows,
    fraction,
    walsh_of,
)
from steadyarm.arms.rows import DenseRows, Rows
from steadyarm.designs import Design, Status, pooled_xy, xy_optimal
from steadyarm.designs.pooled_g import leverages, pooled_g
from steadyarm.designs.solvers import solve_saddle, whiten
from tests.designs.armsets import random_points
from tests.designs.reference import achieved_value, all_pairs, optimal_value

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
TWO, THREE = ["1", "2"], ["1", "2", "3"]

SETS: list[Rows] = [
    BundleRows(14, 4, interactions=1),
    FactorialRows([3] * 6, interactions=1),
    FactorialRows([2] * 10, interactions=1),
    DenseRows(np.random.default_rng(0).normal(size=(1500, 6))),
]
NAMES = ["bundles", "three levels", "two levels", "dense"]


@pytest.fixture
def small_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most arms are not in play at first."""
    monkeypatch.setattr(pooled_xy, "LEAST_FIRST", 20)
    monkeypatch.setattr(pooled_xy, "LEAST_MORE", 30)
    monkeypatch.setattr(pooled_xy, "MOST_IN_POOL", 200)


def in_front(rows: Rows, size: int, seed: int) -> Indices:
    """The best arms for random effects, as an elimination would keep them."""
    K, columns = rows.shape
    means = rows.block(0, K) @ np.random.default_rng(seed).normal(size=columns)
    return np.sort(np.argsort(-means, kind="stable")[:size]).astype(np.int64)


def start_of(rows: Rows) -> Design:
    if isinstance(rows, FactorialRows):
        return Design.equal(rows.shape[0], fraction(rows), 0.0)
    return pooled_g(rows, 0.01)


def solve(rows: Rows, among: Indices, tol: float, **options: float) -> Design:
    return pooled_xy.pooled_xy(rows, among, tol, start_of(rows), **options)  # type: ignore[arg-type]


def check(X: Floats, among: Indices, design: Design) -> None:
    """Value and lower bound against a pass over all pairs and the solver for small sets."""
    assert design.shares.sum() == pytest.approx(1.0, abs=1e-12)
    assert (design.shares > 0).all()
    assert (np.diff(design.support) > 0).all()
    worst = achieved_value(X, all_pairs(X[among]), design.weights)
    assert worst <= design.value * (1 + 1e-6)
    whitened, _ = whiten(X)
    small = solve_saddle(whitened, whitened[among], True, 1e-6)
    assert design.lower_bound <= small.value * (1 + 1e-6)
    assert small.lower_bound <= design.value * (1 + 1e-6)


@pytest.mark.parametrize("rows", SETS, ids=NAMES)
@pytest.mark.parametrize("size", [2, 15, 120])
def test_the_proof_holds_over_arms_that_are_not_in_play(
    small_pools: None, rows: Rows, size: int
) -> None:
    among = in_front(rows, size, seed=size)
    design = solve(rows, among, 0.2)
    check(rows.block(0, rows.shape[0]), among, design)
    assert design.status is Status.OPTIMAL
    assert design.gap <= 0.2


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["gaussian", "sphere", "constant", "grid"]),
    st.integers(20, 250),
    st.integers(2, 8),
    st.integers(0, 10_000),
)
def test_bounds_enclose_those_of_the_small_solver(kind: str, K: int, d: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = random_points(kind, K, d, rng)
    size = round(2 * (len(X) / 2) ** rng.random())
    among = np.sort(rng.choice(len(X), size, replace=False)).astype(np.int64)
    X = whiten(X)[0]
    check(X, among, solve(DenseRows(X), among, 0.2))


@pytest.mark.parametrize(("K", "d"), [(25, 3), (15, 5)])
def test_the_lower_bound_is_below_the_optimum_of_cvxpy(K: int, d: int) -> None:
    X = np.random.default_rng(K).normal(size=(K, d))
    optimum = optimal_value(X, all_pairs(X))
    design = solve(DenseRows(X), np.arange(K), 0.1)
    assert design.lower_bound <= optimum * (1 + 1e-6)
    assert optimum <= design.value * (1 + 1e-6)
    assert design.gap <= 0.1


@pytest.mark.parametrize("rounds", [1, 3])
def test_stopped_early_the_design_is_proven_all_the_same(small_pools: None, rounds: int) -> None:
    rows, among = SETS[0], in_front(SETS[0], 60, seed=1)
    design = solve(rows, among, 0.01, most_rounds=rounds)
    check(rows.block(0, rows.shape[0]), among, design)
    assert design.gap > 0.01
    assert design.status is Status.STEP_LIMIT


def test_ten_percent_with_tens_of_thousands_of_arms() -> None:
    """The default of `xy_optimal` on a large set; the proof by another pass over all pairs."""
    X = np.random.default_rng(2).normal(size=(30_000, 9))
    arms = ArmSet.from_features(X)
    assert arms.large
    among = np.arange(0, 30_000, 60)
    design = xy_optimal(arms, among=among)
    assert design.gap <= 0.1
    assert design.support.size < 1000
    worst = achieved_value(X, all_pairs(X[among]), design.weights)
    assert worst <= design.value * (1 + 1e-6)


def test_without_effort_the_value_is_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(5).normal(size=(600, 12))
    X /= np.linalg.norm(X, axis=1)[:, None]
    monkeypatch.setattr(pooled_xy, "BLOCK", 50)
    monkeypatch.setattr(pooled_xy, "LEAST_WORK", 0.0)
    among = np.arange(200)
    design = solve(DenseRows(X), among, 0.2, effort=0.0)
    check(X, among, design)
    assert design.status is Status.STEP_LIMIT
    assert achieved_value(X, all_pairs(X[among]), design.weights) < design.value


# Sets with structure


@pytest.mark.parametrize(
    ("levels", "interactions"),
    [([2] * 7, 2), ([2] * 9, 1), ([3] * 6, 1), ([2] * 8, 3), ([2, 3, 2, 4, 3, 2, 2, 2], 1)],
)
def test_a_fraction_is_as_good_as_all_arms(levels: list[int], interactions: int) -> None:
    rows = FactorialRows(levels, interactions)
    K = rows.shape[0]
    arms, X = fraction(rows), rows.block(0, K)
    part = rows.take(arms)
    assert arms.size < K
    assert (np.diff(arms) > 0).all()
    np.testing.assert_allclose(part.T @ part / arms.size, X.T @ X / K, atol=1e-12)


@pytest.mark.parametrize(
    "arms",
    [
        ArmSet.factorial({f"f{i}": TWO for i in range(15)}, 1),
        ArmSet.factorial({f"f{i}": THREE for i in range(9)}, 1),
        ArmSet.bundles([str(i) for i in range(20)], 5, 1),
    ],
    ids=["two levels", "three levels", "bundles"],
)
def test_large_symmetric_sets_have_an_exact_design(arms: ArmSet) -> None:
    """The farthest arm from the first one, under equal weights on all arms."""
    design = xy_optimal(arms)
    X = arms.coordinates
    inverse = np.linalg.inv(X.T @ X / arms.size)
    apart = X - X[0]
    worst = np.einsum("ij,jk,ik->i", apart, inverse, apart).max()
    assert arms.large
    assert design.gap == 0.0
    assert design.value == pytest.approx(worst, rel=1e-9)


@pytest.mark.parametrize(
    "rows", [FactorialRows([2] * 6), FactorialRows([2] * 5, 3, constant=False), FactorialRows([2])]
)
def test_transforms_agree_with_products_of_rows(rows: FactorialRows) -> None:
    walsh, rng = walsh_of(rows), np.random.default_rng(6)
    assert walsh is not None
    K, r = rows.shape
    X, M, v = rows.block(0, K), rng.normal(size=(r, r)), rng.normal(size=r)
    np.testing.assert_allclose(
        walsh.forms(M, v), np.einsum("ij,jk,ik->i", X, M, X) + X @ v, atol=1e-11
    )
    np.testing.assert_allclose(walsh.products(v), X @ v, atol=1e-12)
    np.testing.assert_allclose(leverages(rows, M), leverages(DenseRows(X), M), atol=1e-11)
