"""XY designs of many arms to compare some of them: agreement, proofs, warm starts, structure."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from steadyarm.arms.rows import BundleRows, DenseRows, FactorialRows, Rows, walsh_of
from steadyarm.designs import farthest, multiplicative_weights
from steadyarm.designs.design import Status
from steadyarm.designs.farthest import farthest_pair, remember
from steadyarm.designs.fractions import fraction
from steadyarm.designs.optimal import solve_pairs, whiten
from steadyarm.designs.passes import SubsetRows, leverages
from steadyarm.designs.pooled_xy import LargeXYDesign, solve_xy
from steadyarm.errors import InvalidInputError
from tests.designs.armsets import random_points
from tests.designs.reference import achieved_value, all_pairs

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


def random_subset(K: int, rng: np.random.Generator) -> Indices:
    """From two to all arms, small subsets as likely as large ones."""
    size = round(2 * (K / 2) ** rng.random())
    return np.sort(rng.choice(K, size, replace=False)).astype(np.int64)


def in_front(rows: Rows, size: int, seed: int) -> Indices:
    """The best arms for random effects, as an elimination would keep them."""
    K, columns = rows.shape
    means = rows.block(0, K) @ np.random.default_rng(seed).normal(size=columns)
    return np.sort(np.argsort(-means, kind="stable")[:size]).astype(np.int64)


def check(X: Floats, among: Indices, answer: LargeXYDesign) -> None:
    """Weights, worst pair and value computed again from scratch."""
    weights = answer.design().weights
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert (answer.weights > 0).all()
    assert (np.diff(answer.indices) > 0).all()
    assert set(answer.pair) <= set(among.tolist())
    worst = achieved_value(X, all_pairs(X[among]), weights)
    pair = achieved_value(X, np.array([X[answer.pair[0]] - X[answer.pair[1]]]), weights)
    assert pair == pytest.approx(answer.pair_value, rel=1e-5)
    assert pair <= worst * (1 + 1e-6) <= answer.value * (1 + 2e-6)
    if answer.exact:
        assert worst == pytest.approx(answer.value, rel=1e-5)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["gaussian", "sphere", "constant", "grid"]),
    st.integers(10, 250),
    st.integers(2, 8),
    st.integers(0, 10_000),
)
def test_subsets_agree_with_the_small_solver(kind: str, K: int, d: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = random_points(kind, K, d, rng)
    among, tol = random_subset(len(X), rng), float(rng.choice([1e-1, 1e-2, 1e-3]))
    answer = solve_xy(DenseRows(X), tol, among=among)
    small = solve_pairs(whiten(X)[0], among, 1e-6)
    check(X, among, answer)
    assert answer.status is Status.OPTIMAL
    assert answer.gap <= tol
    assert answer.lower_bound <= small.value * (1 + 1e-6)
    assert small.lower_bound <= answer.value * (1 + 1e-6)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(3, 8),
    st.integers(1, 3),
    st.booleans(),
    st.sampled_from([0.3, 0.1, 0.05]),
    st.integers(0, 10_000),
)
def test_factorial_subsets_agree_with_the_small_solver(
    factors: int, interactions: int, constant: bool, tol: float, seed: int
) -> None:
    rows = FactorialRows([2] * factors, interactions, constant)
    X, rng = rows.block(0, rows.shape[0]), np.random.default_rng(seed)
    among = random_subset(len(X), rng)
    if seed % 2:
        among = in_front(rows, among.size, seed)
    answer = solve_xy(rows, tol, among=among)
    small = solve_pairs(whiten(X)[0], among, 1e-6)
    check(X, among, answer)
    assert answer.gap <= tol
    assert answer.lower_bound <= small.value * (1 + 1e-6)
    assert small.lower_bound <= answer.value * (1 + 1e-6)


@pytest.mark.parametrize("size", [2, 9, 60])
def test_a_close_gap_for_a_factorial_subset(size: int) -> None:
    rows = FactorialRows([2] * 7)
    among = in_front(rows, size, seed=size)
    close, coarse = solve_xy(rows, 1e-3, among=among), solve_xy(rows, 0.1, among=among)
    check(rows.block(0, 128), among, close)
    assert close.gap <= 1e-3
    assert coarse.lower_bound <= close.value * (1 + 1e-6)
    assert close.lower_bound <= coarse.value


@pytest.mark.parametrize(
    "rows", [FactorialRows([3, 2, 2, 4]), BundleRows(7, 3), FactorialRows([2] * 6)]
)
def test_implicit_and_stored_rows_agree(rows: Rows) -> None:
    X = rows.block(0, rows.shape[0])
    among = in_front(rows, len(X) // 3, seed=1)
    implicit, stored = solve_xy(rows, 0.05, among=among), solve_xy(DenseRows(X), 0.05, among=among)
    check(X, among, implicit)
    check(X, among, stored)
    assert max(implicit.gap, stored.gap) <= 0.05
    assert implicit.lower_bound <= stored.value * (1 + 1e-6)
    assert stored.lower_bound <= implicit.value * (1 + 1e-6)


@pytest.mark.parametrize(
    "rows", [FactorialRows([2] * 10), DenseRows(np.random.default_rng(0).normal(size=(2000, 8)))]
)
def test_nested_subsets_from_the_design_of_the_larger_one(rows: Rows) -> None:
    start, lower, tol = None, np.inf, 0.1
    for size in (1000, 300, 60, 10, 2):
        among = in_front(rows, size, seed=3)
        answer = solve_xy(rows, tol, among=among, start=start)
        cold = solve_xy(rows, tol, among=among)
        assert answer.gap <= tol
        assert answer.lower_bound <= cold.value
        assert cold.lower_bound <= answer.value
        assert answer.lower_bound <= lower * (1 + tol)  # fewer arms are easier to compare
        start, lower = (answer.indices, answer.weights), answer.value


def test_few_arms_carry_the_design_of_a_subset(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = FactorialRows([2] * 11)
    among = in_front(rows, 60, seed=4)
    monkeypatch.setattr(multiplicative_weights, "FEW_ARMS", 400)
    few = solve_xy(rows, 0.3, among=among)
    monkeypatch.setattr(multiplicative_weights, "FEW_ARMS", 2**11)
    many = solve_xy(rows, 0.3, among=among)
    assert few.gap <= 0.3
    assert few.indices.size <= 400 + fraction(rows).size < many.indices.size


def test_large_subsets_are_compared_by_the_fraction() -> None:
    rows = FactorialRows([2] * 9)
    among = np.setdiff1d(np.arange(512), [7])
    answer = solve_xy(rows, 0.2, among=among)
    check(rows.block(0, 512), among, answer)
    assert answer.gap <= 0.2
    assert answer.indices.tolist() == fraction(rows).tolist()
    assert answer.value == solve_xy(rows).value


def test_without_effort_a_subset_has_an_upper_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = FactorialRows([2] * 10)
    among = in_front(rows, 200, seed=5)
    monkeypatch.setattr(farthest, "BLOCK", 50)
    proven = solve_xy(rows, 0.05, among=among)
    answer = solve_xy(rows, 0.05, among=among, effort=0.0)
    assert not answer.exact
    assert answer.pair_value < answer.value
    assert answer.lower_bound <= proven.value
    assert proven.lower_bound <= answer.value


@pytest.mark.parametrize("rows", [FactorialRows([2] * 4), DenseRows(np.eye(4))])
def test_a_single_arm_leaves_nothing_to_compare(rows: Rows) -> None:
    answer = solve_xy(rows, among=[2])
    assert (answer.value, answer.gap, answer.indices.tolist()) == (0.0, 0.0, [2])


def test_all_arms_named_are_all_arms() -> None:
    rows = FactorialRows([2] * 5)
    assert solve_xy(rows, among=np.arange(32)).value == solve_xy(rows).value


@pytest.mark.parametrize(
    ("among", "message"),
    [([0, 9], "0 to 7"), ([1, 1], "distinct"), ([], "at least one"), ([0.5], "integer")],
)
def test_arms_that_cannot_be_compared_are_refused(among: list[float], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        solve_xy(FactorialRows([2] * 3), among=among)


def test_a_start_that_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="start"):
        solve_xy(DenseRows(np.eye(3)), among=[0, 1], start=([0, 3], [0.5, 0.5]))


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
    answer = solve_xy(rows)
    assert answer.indices.tolist() == arms.tolist()
    uniform = achieved_value(X, X - X[0], np.full(K, 1 / K))
    assert answer.value == pytest.approx(uniform, rel=1e-9)


@pytest.mark.parametrize(
    "rows", [FactorialRows([2] * 6), FactorialRows([2] * 5, 3, constant=False), FactorialRows([2])]
)
def test_transforms_agree_with_products_of_rows(rows: FactorialRows) -> None:
    walsh, rng = walsh_of(rows), np.random.default_rng(6)
    assert walsh is not None
    K, r = rows.shape
    X, M, v, weights = rows.block(0, K), rng.normal(size=(r, r)), rng.normal(size=r), rng.random(K)
    np.testing.assert_allclose(
        walsh.forms(M, v), np.einsum("ij,jk,ik->i", X, M, X) + X @ v, atol=1e-11
    )
    np.testing.assert_allclose(walsh.products(v), X @ v, atol=1e-12)
    np.testing.assert_allclose(walsh.moment(weights), (X.T * weights) @ X, atol=1e-11)
    np.testing.assert_allclose(leverages(rows, M), leverages(DenseRows(X), M), atol=1e-11)
    some = np.array([1, 0])
    np.testing.assert_allclose(leverages(rows, M, some), leverages(rows, M)[some], atol=0)


def test_other_rows_have_no_transform() -> None:
    assert walsh_of(FactorialRows([2, 3])) is None
    assert walsh_of(DenseRows(np.eye(2))) is None


def test_rows_of_a_subset_are_those_of_the_set() -> None:
    rows = FactorialRows([2] * 5)
    some = SubsetRows(rows, np.array([3, 30, 31]))
    assert some.shape == (3, rows.shape[1])
    np.testing.assert_array_equal(some.block(1, 3), rows.take(np.array([30, 31])))
    np.testing.assert_array_equal(some.take(np.array([2, 0])), rows.take(np.array([31, 3])))


def test_a_search_is_carried_over_to_a_design_nearby() -> None:
    rng = np.random.default_rng(7)
    X = rng.normal(size=(400, 12))
    rows, to, root = DenseRows(X), np.eye(12), np.eye(12)
    level = 0.9 * farthest_pair(rows, root).value
    far = farthest_pair(rows, root, above=level, every=True)
    D = all_pairs(X)
    assert len(far.others) == (np.square(D).sum(axis=1) > level).sum() > 1
    memory = remember(rows, to, root, far, level)
    assert memory is not None
    near = root + 0.002 * rng.normal(size=(12, 12))
    truth = float(np.square(D @ near).sum(axis=1).max())
    known = far._replace(value=0.0)
    carried = memory.carried(near, known, truth * 1.01)
    assert carried is not None
    assert carried.exact
    assert carried.value == pytest.approx(truth, rel=1e-12)
    other = root + 0.5 * rng.normal(size=(12, 12))
    assert memory.carried(other, known, np.inf) is None
    found = memory.carried(near, known, 0.99 * truth)
    assert found is not None
    assert len(found.others) >= 1
