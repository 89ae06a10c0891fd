"""Matrix products and factors that NumPy and SciPy have no short name for."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Numbers = NDArray[Any]  # double or single precision


def row_dots(A: Numbers, B: Numbers) -> Floats:
    """Products of each row of A (m, r) with the same row of B: (m,).

    Examples
    --------
    >>> row_dots(np.array([[1.0, 2.0], [3.0, 4.0]]), np.eye(2))
    array([1., 4.])
    """
    return np.asarray(np.einsum("ij,ij->i", A, B))


def gram(X: Numbers, weights: Floats | None = None) -> Floats:
    """Sum of weights_i x_i x_i' over the rows of X (m, r); weights are one by default.

    Examples
    --------
    >>> gram(np.array([[1.0, 2.0], [0.0, 1.0]]), np.array([2.0, 1.0])).tolist()
    [[2.0, 4.0], [4.0, 9.0]]
    """
    return np.asarray(X.T @ X if weights is None else (X.T * weights) @ X)


def grams(X: Floats, weights: Floats) -> Floats:
    """`gram` for each row of weights (n, m): (n, r, r)."""
    return np.asarray((X.T * weights[:, None, :]) @ X)


def quadratic_forms(D: Floats, M: Floats) -> Floats:
    """D'Md for directions D (n, K, r), or the same (K, r) for all, and M (n, ..., r, r).

    Returns
    -------
    (n, ..., K)

    Examples
    --------
    >>> quadratic_forms(np.array([[1.0, -1.0], [0.0, 2.0]]), np.array([np.eye(2)])).tolist()
    [[2.0, 4.0]]
    """
    directions = D if D.ndim == 2 else D.reshape(len(D), *[1] * (M.ndim - 3), *D.shape[1:])
    return np.asarray(np.einsum("...ka,...ka->...k", directions @ M, directions))


def solve_lower(L: Floats, B: Floats) -> Floats:
    """L⁻¹b for every row b of B (m, r), as rows.

    Examples
    --------
    >>> solve_lower(np.array([[2.0, 0.0], [1.0, 2.0]]), np.array([[2.0, 5.0]])).tolist()
    [[1.0, 2.0]]
    """
    from scipy.linalg import solve_triangular

    return np.ascontiguousarray(solve_triangular(L, B.T, lower=True, check_finite=False).T)


def inverse_root(A: Floats) -> Floats:
    """R = L⁻ᵀ with RR' the inverse of A = LL': x @ R are coordinates where A is the identity.

    Examples
    --------
    >>> inverse_root(np.array([[4.0, 0.0], [0.0, 1.0]])).tolist()
    [[0.5, 0.0], [0.0, 1.0]]
    """
    return solve_lower(np.asarray(np.linalg.cholesky(A), dtype=np.float64), np.eye(len(A)))


def first_largest(values: Floats) -> NDArray[np.intp]:
    """Index of the first number along the last axis that is the largest, up to rounding.

    Numbers within 1e-7 of the largest are equal: which of them is larger may depend on the
    processor.

    Examples
    --------
    >>> int(first_largest(np.array([0.3, 0.1 + 0.2, 0.0])))
    0
    """
    best = values.max(axis=-1, keepdims=True)
    return np.asarray((values >= best - 1e-7 * np.abs(best)).argmax(axis=-1))
