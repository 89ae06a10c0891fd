"""Products and Cholesky factors that have the same bits on every processor.

For coordinates, designs, estimates and draws: whatever an assignment or a recommendation rests on.
BLAS and LAPACK choose other kernels, and so other orders of summation, on other processors, and
NumPy's `einsum` and `@` call them. The functions here are compiled strictly (see `compiled`): each
sum has one order, written down below, and every product and every sum is rounded once.

Eigenvalues and orthogonal factors of the same kind are in `decompositions`.

Matrices are C-contiguous, in double or (products only) single precision. Factors are lower
triangular; kernels do not read the upper part.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadyarm.compiled import kernel

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Numbers = NDArray[Any]  # double or single precision


# Products


def matmul(A: Numbers, B: Numbers) -> Any:
    """A @ B for matrices or vectors; each element is the sum over k = 0, 1, … in this order.

    Examples
    --------
    >>> matmul(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0], [10.0]])).tolist()
    [[21.0], [43.0]]
    >>> matmul(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    11.0
    """
    A, B = np.ascontiguousarray(A), np.ascontiguousarray(B)
    if A.shape[-1] != B.shape[0]:
        raise ValueError(f"matrices of shapes {A.shape} and {B.shape} cannot be multiplied")
    if A.ndim == 1:
        row = matmul(A[None, :], B)
        return row[0] if B.ndim == 2 else float(row[0])
    if B.ndim == 1:
        values = np.empty(len(A), dtype=A.dtype)
        times_vector_into(A, B, values)
        return values
    out = np.empty((A.shape[0], B.shape[1]), dtype=A.dtype)
    times_into(A, B, out)
    return out


@kernel
def times_into(A: Numbers, B: Numbers, out: Numbers) -> None:
    """A (m, K) times B (K, n) into out (m, n): four terms at a time in the order of k."""
    m, K = A.shape
    n = B.shape[1]
    out[:] = 0.0
    whole = K - K % 4
    pairs = m - m % 2
    for i in range(0, pairs, 2):
        for k in range(0, whole, 4):
            a, b, c, d = A[i, k], A[i, k + 1], A[i, k + 2], A[i, k + 3]
            e, f, g, h = A[i + 1, k], A[i + 1, k + 1], A[i + 1, k + 2], A[i + 1, k + 3]
            for j in range(n):
                p, q, r, s = B[k, j], B[k + 1, j], B[k + 2, j], B[k + 3, j]
                out[i, j] = (((out[i, j] + a * p) + b * q) + c * r) + d * s
                out[i + 1, j] = (((out[i + 1, j] + e * p) + f * q) + g * r) + h * s
        for k in range(whole, K):
            for j in range(n):
                out[i, j] += A[i, k] * B[k, j]
                out[i + 1, j] += A[i + 1, k] * B[k, j]
    for i in range(pairs, m):
        for k in range(K):
            for j in range(n):
                out[i, j] += A[i, k] * B[k, j]


@kernel
def times_vector_into(A: Numbers, v: Numbers, out: Numbers) -> None:
    """A (m, K) times v (K,) into out (m,), four rows together."""
    m, K = A.shape
    whole = m - m % 4
    zero = v.dtype.type(0)
    for i in range(0, whole, 4):
        a, b, c, d = zero, zero, zero, zero
        for k in range(K):
            a += A[i, k] * v[k]
            b += A[i + 1, k] * v[k]
            c += A[i + 2, k] * v[k]
            d += A[i + 3, k] * v[k]
        out[i], out[i + 1], out[i + 2], out[i + 3] = a, b, c, d
    for i in range(whole, m):
        a = zero
        for k in range(K):
            a += A[i, k] * v[k]
        out[i] = a


def times_each(A: Floats, B: Floats) -> Floats:
    """Each of A (n, m, r), or the same (m, r), times each of B (n, r, s): (n, m, s).

    Examples
    --------
    >>> times_each(np.array([[1.0, 2.0]]), np.array([[[1.0], [1.0]], [[1.0], [0.0]]])).tolist()
    [[[3.0]], [[1.0]]]
    """
    left = np.ascontiguousarray(A if A.ndim == 3 else A[None])
    out = np.zeros((len(B), left.shape[1], B.shape[2]))
    _add_each(left, np.ascontiguousarray(B), out)
    return out


@kernel
def _add_each(A: Floats, B: Floats, out: Floats) -> None:
    n, m, s = out.shape
    each = A.shape[0] > 1
    for i in range(n):
        at = i if each else 0
        for j in range(m):
            for k in range(B.shape[1]):
                x = A[at, j, k]
                for h in range(s):
                    out[i, j, h] += x * B[i, k, h]


def row_dots(A: Numbers, B: Numbers) -> Any:
    """Products of each row of A (m, r) with the same row of B, in double precision: (m,).

    Examples
    --------
    >>> row_dots(np.array([[1.0, 2.0], [3.0, 4.0]]), np.eye(2))
    array([1., 4.])
    """
    out = np.empty(len(A))
    _row_dots(np.ascontiguousarray(A), np.ascontiguousarray(B), out)
    return out


@kernel
def _row_dots(A: Numbers, B: Numbers, out: Floats) -> None:
    m, r = A.shape
    for i in range(m):
        out[i] = dot(A, i, B, i, r)


@kernel
def dot(A: Numbers, i: int, B: Numbers, j: int, n: int) -> float:
    """Sum over k < n of A[i, k] B[j, k], in eight partial sums that are added in pairs."""
    a = b = c = d = e = f = g = h = 0.0
    whole = n - n % 8
    for k in range(0, whole, 8):
        a += A[i, k] * B[j, k]
        b += A[i, k + 1] * B[j, k + 1]
        c += A[i, k + 2] * B[j, k + 2]
        d += A[i, k + 3] * B[j, k + 3]
        e += A[i, k + 4] * B[j, k + 4]
        f += A[i, k + 5] * B[j, k + 5]
        g += A[i, k + 6] * B[j, k + 6]
        h += A[i, k + 7] * B[j, k + 7]
    total = ((a + e) + (c + g)) + ((b + f) + (d + h))
    for k in range(whole, n):
        total += A[i, k] * B[j, k]
    return total


def gram(X: Numbers, weights: Floats | None = None) -> Floats:
    """Sum over i = 0, 1, … of weights_i x_i x_i' for the rows of X (m, r), symmetric: (r, r).

    Weights are one by default and may be negative.

    Examples
    --------
    >>> gram(np.array([[1.0, 2.0], [0.0, 1.0]]), np.array([2.0, 1.0])).tolist()
    [[2.0, 4.0], [4.0, 9.0]]
    """
    X = np.ascontiguousarray(X)
    lam = np.ones(len(X), dtype=X.dtype) if weights is None else weights.astype(X.dtype)
    out = np.zeros((X.shape[1], X.shape[1]), dtype=X.dtype)
    add_gram(X, lam, out)
    lower = out.astype(np.float64, copy=False)
    return np.where(np.tri(len(lower), dtype=bool), lower, lower.T)


@kernel
def add_gram(X: Numbers, lam: Numbers, out: Numbers) -> None:
    """Add the sum of lam_i x_i x_i' over the rows of X (m, r) to the lower triangle of out."""
    m, r = X.shape
    whole = m - m % 4
    for i in range(0, whole, 4):
        for k in range(r):
            a, b = lam[i] * X[i, k], lam[i + 1] * X[i + 1, k]
            c, d = lam[i + 2] * X[i + 2, k], lam[i + 3] * X[i + 3, k]
            for n in range(k + 1):
                out[k, n] = (
                    ((out[k, n] + a * X[i, n]) + b * X[i + 1, n]) + c * X[i + 2, n]
                ) + d * X[i + 3, n]
    for i in range(whole, m):
        for k in range(r):
            a = lam[i] * X[i, k]
            for n in range(k + 1):
                out[k, n] += a * X[i, n]


@kernel
def information(X: Floats, lam: Floats, A: Floats) -> None:
    """Lower triangle of A = sum_i lam_i x_i x_i' for X (K, r), lam (K,), into A (r, r)."""
    A[:] = 0.0
    for i in range(X.shape[0]):
        if lam[i] > 0.0:
            for k in range(X.shape[1]):
                t = lam[i] * X[i, k]
                for m in range(k + 1):
                    A[k, m] += t * X[i, m]


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
    directions = np.ascontiguousarray(D if D.ndim == 3 else D[None])
    n, *between, r, _ = M.shape
    matrices = np.ascontiguousarray(M).reshape(n, -1, r, r)
    out = np.empty((n, matrices.shape[1], directions.shape[1]))
    _quadratic_forms(directions, matrices, out)
    return out.reshape(n, *between, -1)


@kernel
def _quadratic_forms(D: Floats, M: Floats, out: Floats) -> None:
    """Into out (n, G, K) for D (n, K, r) or (1, K, r) and M (n, G, r, r)."""
    n, G, K = out.shape
    r = D.shape[2]
    each = D.shape[0] > 1
    for i in range(n):
        at = i if each else 0
        for g in range(G):
            for k in range(K):
                total = 0.0
                for a in range(r):
                    if D[at, k, a] != 0.0:  # arms that share nothing have one coordinate
                        t = 0.0
                        for b in range(r):
                            t += M[i, g, a, b] * D[at, k, b]
                        total += D[at, k, a] * t
                out[i, g, k] = total


def sparse_times(data: Floats, columns: NDArray[Any], ends: NDArray[Any], M: Floats) -> Floats:
    """A sparse matrix in compressed rows times a dense one (d, s), or a vector (d,).

    data, columns, ends : of SciPy's `csr_array`, there called data, indices and indptr

    Examples
    --------
    >>> sparse_times(np.ones(2), np.array([1, 0]), np.array([0, 1, 2]), np.array([5.0, 7.0]))
    array([7., 5.])
    """
    table = np.ascontiguousarray(M if M.ndim == 2 else M[:, None])
    out = np.zeros((len(ends) - 1, table.shape[1]))
    _sparse_times(data, columns.astype(np.int64), ends.astype(np.int64), table, out)
    return out if M.ndim == 2 else out[:, 0]


@kernel
def _sparse_times(data: Floats, columns: Integers, ends: Integers, M: Floats, out: Floats) -> None:
    for i in range(out.shape[0]):
        for at in range(ends[i], ends[i + 1]):
            for j in range(M.shape[1]):
                out[i, j] += data[at] * M[columns[at], j]


def sparse_gram(data: Floats, columns: NDArray[Any], ends: NDArray[Any], d: int) -> Floats:
    """Products of the d columns of a sparse matrix in compressed rows with each other: (d, d).

    Examples
    --------
    >>> sparse_gram(np.array([1.0, 2.0]), np.array([0, 1]), np.array([0, 2]), 2).tolist()
    [[1.0, 2.0], [2.0, 4.0]]
    """
    out = np.zeros((d, d))
    _sparse_gram(data, columns.astype(np.int64), ends.astype(np.int64), out)
    return out


@kernel
def _sparse_gram(data: Floats, columns: Integers, ends: Integers, out: Floats) -> None:
    for i in range(ends.size - 1):
        for a in range(ends[i], ends[i + 1]):
            for b in range(ends[i], ends[i + 1]):
                out[columns[a], columns[b]] += data[a] * data[b]


# Factors of positive matrices


@kernel
def cholesky(A: Floats, frozen: float) -> bool:
    """Factor A (n, n) in place.

    A pivot lost to rounding becomes `frozen` times the diagonal, which holds that unknown at
    zero if `frozen` is huge; if `frozen` is zero the factorisation ends with False.
    """
    n = A.shape[0]
    for j in range(n):
        diagonal = A[j, j]
        t = diagonal
        for k in range(j):
            t -= A[j, k] * A[j, k]
        if not t > 1e-15 * diagonal:
            if frozen == 0.0:
                return False
            t = frozen * max(diagonal, 1e-60)
        root = np.sqrt(t)
        A[j, j] = root
        whole = j + 1 + (n - j - 1) // 4 * 4
        for i in range(j + 1, whole, 4):  # four rows together: one would wait for its own sums
            a, b, c, d = A[i, j], A[i + 1, j], A[i + 2, j], A[i + 3, j]
            for k in range(j):
                x = A[j, k]
                a -= A[i, k] * x
                b -= A[i + 1, k] * x
                c -= A[i + 2, k] * x
                d -= A[i + 3, k] * x
            A[i, j], A[i + 1, j], A[i + 2, j], A[i + 3, j] = a / root, b / root, c / root, d / root
        for i in range(whole, n):
            a = A[i, j]
            for k in range(j):
                a -= A[i, k] * A[j, k]
            A[i, j] = a / root
    return True


@kernel
def cholesky_solve(L: Floats, b: Floats) -> None:
    """Solve LL'x = b in place."""
    n = L.shape[0]
    for i in range(n):
        t = b[i]
        for k in range(i):
            t -= L[i, k] * b[k]
        b[i] = t / L[i, i]
    for i in range(n - 1, -1, -1):
        b[i] /= L[i, i]
        t = b[i]
        for k in range(i):
            b[k] -= L[i, k] * t


@kernel
def whiten_rows(L: Floats, B: Floats, U: Floats) -> None:
    """Rows u = L^-1 b of B (m, r) into U (m, r), so that u'v = b'(LL')^-1 c."""
    m, r = B.shape[0], L.shape[0]
    whole = m - m % 4
    for i in range(0, whole, 4):
        for k in range(r):
            a, b, c, d = B[i, k], B[i + 1, k], B[i + 2, k], B[i + 3, k]
            for n in range(k):
                x = L[k, n]
                a -= x * U[i, n]
                b -= x * U[i + 1, n]
                c -= x * U[i + 2, n]
                d -= x * U[i + 3, n]
            x = L[k, k]
            U[i, k], U[i + 1, k], U[i + 2, k], U[i + 3, k] = a / x, b / x, c / x, d / x
    for i in range(whole, m):
        for k in range(r):
            a = B[i, k]
            for n in range(k):
                a -= L[k, n] * U[i, n]
            U[i, k] = a / L[k, k]


def factor(A: Floats) -> Floats:
    """L with A = LL' and zeros above the diagonal; LinAlgError where A has no full rank.

    Examples
    --------
    >>> factor(np.array([[4.0, 2.0], [2.0, 5.0]])).tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    L = np.array(A, dtype=np.float64, order="C")
    if not cholesky(L, 0.0):
        raise np.linalg.LinAlgError("the matrix is not positive definite")
    return np.tril(L)


def solve_lower(L: Floats, B: Floats) -> Floats:
    """L⁻¹b for every row b of B (m, r), as rows.

    Examples
    --------
    >>> solve_lower(np.array([[2.0, 0.0], [1.0, 2.0]]), np.array([[2.0, 5.0]])).tolist()
    [[1.0, 2.0]]
    """
    rows = np.ascontiguousarray(B)
    out = np.empty(rows.shape)
    whiten_rows(np.ascontiguousarray(L), rows, out)
    return out


def inverse_root(A: Floats) -> Floats:
    """R = L⁻ᵀ with RR' the inverse of A = LL': x @ R are coordinates where A is the identity.

    Examples
    --------
    >>> inverse_root(np.array([[4.0, 0.0], [0.0, 1.0]])).tolist()
    [[0.5, 0.0], [0.0, 1.0]]
    """
    return solve_lower(factor(A), np.eye(len(A)))
