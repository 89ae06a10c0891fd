"""Linear algebra of our own: the order of every sum, and what LAPACK and exact fractions say."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy
from numpy.typing import NDArray

from steadyarm.decompositions import eigh, matrix_rank, qr, spanning, svd
from steadyarm.linalg import (
    factor,
    gram,
    inverse_root,
    matmul,
    row_dots,
    solve_lower,
    sparse_gram,
    sparse_times,
)

EPS = np.finfo(np.float64).eps
SHAPES = [(1, 1), (5, 5), (40, 7), (7, 12), (300, 60), (64, 1)]


def table(m: int, r: int) -> np.ndarray:
    return np.random.default_rng([m, r]).normal(size=(m, r))


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize(("m", "K", "n"), [(1, 1, 1), (5, 4, 3), (6, 11, 17), (3, 2, 40)])
def test_a_product_adds_its_terms_one_after_the_other(kind: type, m: int, K: int, n: int) -> None:
    A: NDArray[Any] = table(m, K).astype(kind)
    B: NDArray[Any] = table(K, n).astype(kind)
    expected: NDArray[Any] = np.zeros((m, n), dtype=kind)
    for k in range(K):  # NumPy rounds each product and each sum
        expected += A[:, k, None] * B[k]
    assert np.array_equal(matmul(A, B), expected)
    assert np.array_equal(matmul(A, np.ascontiguousarray(B[:, 0])), expected[:, 0])
    assert np.array_equal(matmul(A[0], B), expected[0])


@pytest.mark.parametrize("m", [1, 4, 7, 23])
def test_a_weighted_sum_of_squares_adds_rows_one_after_the_other(m: int) -> None:
    X, lam = table(m, 6), table(m, 1)[:, 0]
    expected = np.zeros((6, 6))
    for x, weight in zip(X, lam, strict=True):
        expected += (weight * x)[:, None] * x
    lower = np.tril(expected)
    assert np.array_equal(gram(X, lam), lower + np.tril(expected, -1).T)
    np.testing.assert_allclose(gram(X), X.T @ X, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("r", [1, 8, 13])
def test_products_of_rows_are_within_rounding_of_the_exact_ones(r: int) -> None:
    A, B = table(9, r), table(9, r)[::-1].copy()
    for found, a, b in zip(row_dots(A, B).tolist(), A.tolist(), B.tolist(), strict=True):
        exact = sum((Fraction(x) * Fraction(y) for x, y in zip(a, b, strict=True)), Fraction(0))
        size = sum(abs(x * y) for x, y in zip(a, b, strict=True))
        assert abs(found - exact) <= r * EPS * size


def test_matrices_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(2, 3\) and \(2, 2\)"):
        matmul(np.zeros((2, 3)), np.zeros((2, 2)))


def test_a_sparse_product_is_the_dense_one() -> None:
    X = np.where(np.random.default_rng(0).random((30, 9)) < 0.3, table(30, 9), 0.0)
    rows = scipy.sparse.csr_array(X)
    M = table(9, 4)
    found = sparse_times(rows.data, rows.indices, rows.indptr, M)
    assert np.array_equal(found, matmul(X, M))  # adding zeros changes nothing
    found = sparse_gram(rows.data, rows.indices, rows.indptr, 9)
    assert np.array_equal(found, gram(X))


@pytest.mark.parametrize(("m", "r"), SHAPES)
def test_singular_values_are_those_of_lapack(m: int, r: int) -> None:
    X = table(m, r)
    left, singular, right = svd(X)
    rounding = 20 * max(m, r) * EPS * singular[0]
    np.testing.assert_allclose(singular, np.linalg.svd(X, compute_uv=False), atol=rounding)
    np.testing.assert_allclose(left * singular @ right, X, atol=rounding)
    one = np.eye(len(singular))
    np.testing.assert_allclose(left.T @ left, one, atol=20 * max(m, r) * EPS)
    np.testing.assert_allclose(right @ right.T, one, atol=20 * max(m, r) * EPS)


def test_small_singular_values_are_not_lost() -> None:
    scales = 10.0 ** -np.arange(0, 14, 2)
    Q, _ = np.linalg.qr(table(30, 7))
    U, _ = np.linalg.qr(table(7, 7))
    singular = svd(Q * scales @ U.T).singular
    np.testing.assert_allclose(singular, scales, atol=30 * EPS, rtol=1e-13)


def test_dependent_columns_are_counted() -> None:
    X = table(30, 4)
    assert matrix_rank(np.hstack([X, X @ table(4, 3)])) == 4
    assert matrix_rank(np.zeros((3, 2))) == 0
    assert matrix_rank(np.eye(200)[:, :150]) == 150


@pytest.mark.parametrize("r", [1, 2, 7, 60])
def test_eigenvalues_are_those_of_lapack(r: int) -> None:
    A = table(r, r)
    A = A + A.T
    values, vectors = eigh(A)
    rounding = 50 * r * EPS * np.abs(values).max()
    np.testing.assert_allclose(values, np.linalg.eigvalsh(A), atol=rounding)
    np.testing.assert_allclose(vectors * values @ vectors.T, A, atol=rounding)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(r), atol=50 * r * EPS)


def test_equal_and_vanishing_eigenvalues() -> None:
    values, vectors = eigh(np.diag([2.0, 0.0, 2.0, 0.0]))
    assert values.tolist() == [0.0, 0.0, 2.0, 2.0]
    np.testing.assert_allclose(np.abs(vectors).sum(axis=0), 1.0)
    assert eigh(np.zeros((3, 3)))[0].tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(np.linalg.LinAlgError):
        eigh(np.array([[np.nan]]))


@pytest.mark.parametrize(("m", "r"), [(m, r) for m, r in SHAPES if m >= r])
def test_orthogonal_factors(m: int, r: int) -> None:
    X = table(m, r)
    Q, R = qr(X)
    np.testing.assert_allclose(Q @ R, X, atol=20 * m * EPS)
    np.testing.assert_allclose(Q.T @ Q, np.eye(r), atol=20 * m * EPS)
    assert not np.tril(R, -1).any()


@pytest.mark.parametrize(("m", "r"), [(9, 4), (3, 5), (50, 50)])
def test_rows_that_span_are_those_of_pivoted_qr(m: int, r: int) -> None:
    X = table(m, r)
    order, far, basis = spanning(X)
    _, R, pivots = scipy.linalg.qr(X.T, pivoting=True)
    chosen = min(m, r)
    assert order[:chosen].tolist() == pivots[:chosen].tolist()
    np.testing.assert_allclose(far, np.abs(np.diag(R)), rtol=1e-10)
    np.testing.assert_allclose(basis.T @ basis, np.eye(r), atol=20 * r * EPS)
    np.testing.assert_allclose(X[order[:chosen]] @ basis[:, chosen:], 0.0, atol=20 * r * EPS)


def test_factors_of_positive_matrices() -> None:
    X = table(50, 20)
    A = X.T @ X
    L = factor(A)
    np.testing.assert_allclose(L, np.linalg.cholesky(A), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(solve_lower(L, X) @ L.T, X, atol=1e-13)
    R = inverse_root(A)
    np.testing.assert_allclose(R @ R.T @ A, np.eye(20), atol=1e-12)
    with pytest.raises(np.linalg.LinAlgError, match="positive"):
        factor(np.ones((2, 2)))
