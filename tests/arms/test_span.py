"""The span of many arms is that of few; twins are found."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array, eye_array

import steadyarm as sa
from steadyarm.arms.rows import DenseRows, Rows, SparseRows
from steadyarm.arms.span import span_of_features, span_of_rows, twin_in

Floats = NDArray[np.float64]


def tables(seed: int, K: int, d: int, rank: int, scale: float) -> Floats:
    """Mostly zeros, the last columns sums of the first `rank`, in scales that differ."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(K, rank)) * (rng.random((K, rank)) < 0.4)
    X[0, 0] = 1.0
    more = X @ rng.integers(-1, 2, size=(rank, d - rank))
    sizes = scale ** rng.integers(-1, 2, size=d)
    return np.hstack([X, more]) * sizes


@settings(max_examples=60)
@given(st.data())
def test_many_arms_have_the_span_that_few_have(data: st.DataObject) -> None:
    K, d = data.draw(st.integers(2, 40)), data.draw(st.integers(1, 9))
    rank = data.draw(st.integers(1, d))
    scale = data.draw(st.sampled_from([1.0, 10.0, 1e4]))
    X = tables(data.draw(st.integers(0, 10**6)), K, d, rank, scale)
    few = span_of_features(DenseRows(X))
    theta = np.random.default_rng(1).normal(size=d)
    for rows in (DenseRows(X), SparseRows(csr_array(X))):
        many = span_of_rows(rows)
        assert many.rows.shape == few.rows.shape
        r = many.rows.shape[1]
        coordinates = many.rows.block(0, K)
        basis = np.eye(d) if many.basis is None else many.basis
        dual = np.eye(d) if many.dual is None else many.dual
        near = 1e-9 * np.abs(X).max(axis=0) + 1e-14
        assert (np.abs(coordinates @ basis.T - X) <= near).all()
        assert np.allclose(X @ dual, coordinates, atol=1e-9)
        assert np.allclose(dual.T @ basis, np.eye(r), atol=1e-9)
        assert np.allclose(coordinates @ (basis.T @ theta), X @ theta, atol=1e-9 * scale)
        taken = many.rows.take(np.array([K - 1, 0]))
        assert np.allclose(taken, coordinates[[K - 1, 0]], atol=1e-12)


@pytest.mark.parametrize("small", [1e-6, 1e-9])
def test_directions_that_drown_in_squares_are_found(small: float) -> None:
    rng = np.random.default_rng(2)
    a, b = (rng.random((2, 300)) < 0.3) * rng.integers(1, 4, size=(2, 300))
    X = np.column_stack([a, a + small * b]).astype(float)
    truth = np.linalg.svd(X, compute_uv=False)
    assert (truth[1] / truth[0]) ** 2 < 1e-10  # lost in products of columns
    for rows in (DenseRows(X), SparseRows(csr_array(X))):
        span = span_of_rows(rows)
        assert span.rows.shape == (300, 2)
        assert span.basis is not None
        assert np.allclose(span.rows.block(0, 300) @ span.basis.T, X, rtol=1e-12)
        assert np.linalg.cond(span.rows.block(0, 300)) < 1.01


def test_columns_that_do_not_overlap_are_the_span_whatever_their_number() -> None:
    span = span_of_rows(SparseRows(eye_array(50_000, format="csr")))
    assert span.rows.shape == (50_000, 50_000)
    assert span.basis is span.dual is None


def test_a_zero_column_leaves_the_span() -> None:
    X = csr_array((np.ones(3), np.array([0, 1, 3]), np.array([0, 1, 2, 3])), shape=(3, 4))
    span = span_of_rows(SparseRows(X))
    assert span.rows.shape == (3, 3)
    assert span.basis is not None
    assert np.allclose(span.rows.block(0, 3) @ span.basis.T, X.toarray())


def test_too_many_features_that_overlap_are_refused() -> None:
    K = 20_001
    X = eye_array(K, format="lil")
    X[0, 1] = 1.0
    with pytest.raises(sa.InvalidInputError, match="20,001 features that overlap"):
        sa.ArmSet.from_features(X)


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(2, 60))
def test_twins_are_found_in_sparse_rows_as_in_dense_ones(seed: int, K: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.integers(-1, 2, size=(K, 4)).astype(float) * (rng.random((K, 4)) < 0.7)
    seen: dict[tuple[float, ...], int] = {}
    truth = None
    for k, row in enumerate(map(tuple, (X + 0.0).tolist())):
        if row in seen:
            truth = (seen[row], k)
            break
        seen[row] = k
    forms: list[Rows] = [DenseRows(X), SparseRows(csr_array(X))]
    assert [twin_in(rows) for rows in forms] == [truth, truth]


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("levels", [[7], [2, 2], [3, 4], [2, 3, 5], [11, 12], [30, 2]])
def test_factorial_sets_are_their_own_span(levels: list[int], constant: bool) -> None:
    factors = {f"f{i}": [str(k) for k in range(L)] for i, L in enumerate(levels)}
    arms = sa.ArmSet.factorial(factors, interactions=2, constant=constant)
    assert arms.plain
    assert span_of_features(DenseRows(arms.features)).basis is None
