"""Linear algebra that gives the same bits on every processor.

For coordinates, designs, estimates and draws: whatever an assignment or a recommendation rests on.
BLAS and LAPACK choose other kernels, and so other orders of summation, on other processors, and
NumPy's `einsum` and `@` call them. The functions here are compiled strictly (see `compiled`): each
sum has one order, written down below, and every product and every sum is rounded once.

Matrices are C-contiguous, in double or (products only) single precision. Factors are lower
triangular; kernels do not read the upper part.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from steadyarm.compiled import kernel

__all__ = [
    "SVD",
    "add_gram",
    "cholesky",
    "cholesky_solve",
    "dot",
    "eigh",
    "factor",
    "gram",
    "information",
    "inverse_root",
    "matmul",
    "matrix_rank",
    "qr",
    "row_dots",
    "solve_lower",
    "spanning",
    "sparse_gram",
    "sparse_times",
    "square_roots",
    "svd",
    "symmetric_eigen",
    "times_each",
    "times_into",
    "times_vector_into",
    "whiten_rows",
]

EPS = 2.0**-52
MOST_SWEEPS = 60  # of Jacobi's rotations; some ten are enough

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


# Eigenvalues, orthogonal factors, singular values


def eigh(A: Floats) -> tuple[Floats, Floats]:
    """Eigenvalues (n,) of a symmetric A, rising, and eigenvectors (n, n), one a column.

    Householder's tridiagonal form, then QL steps with implicit shifts (Bowdler, Martin, Reinsch
    and Wilkinson 1968). Eigenvalues are right to some rounding errors of the largest.

    Examples
    --------
    >>> values, vectors = eigh(np.array([[2.0, 1.0], [1.0, 2.0]]))
    >>> values.round(12).tolist()
    [1.0, 3.0]
    """
    V = np.array(A, dtype=np.float64, order="C")
    d = np.empty(len(V))
    if not np.isfinite(V).all() or not symmetric_eigen(V, d):
        raise np.linalg.LinAlgError("the eigenvalues of the matrix cannot be found")
    return d, np.ascontiguousarray(V.T)


@kernel
def symmetric_eigen(V: Floats, d: Floats) -> bool:
    """Eigenvalues of V (n, n), rising, into d (n,); eigenvectors into the rows of V.

    Only the lower triangle is read. False if the steps do not converge.
    """
    n = d.size
    e = np.zeros(n)
    for j in range(n):
        d[j] = V[n - 1, j]
    for i in range(n - 1, 0, -1):  # to tridiagonal form
        scale, h = 0.0, 0.0
        for k in range(i):
            scale += abs(d[k])
        if scale == 0.0:
            e[i] = d[i - 1]
            for j in range(i):
                d[j] = V[i - 1, j]
                V[i, j] = 0.0
                V[j, i] = 0.0
        else:
            for k in range(i):
                d[k] /= scale
                h += d[k] * d[k]
            f = d[i - 1]
            g = -np.sqrt(h) if f > 0.0 else np.sqrt(h)
            e[i] = scale * g
            h -= f * g
            d[i - 1] = f - g
            for j in range(i):
                e[j] = 0.0
            for j in range(i):
                V[j, i] = d[j]
                g = e[j] + V[j, j] * d[j]
                for k in range(j + 1, i):
                    g += V[k, j] * d[k]
                    e[k] += V[k, j] * d[j]
                e[j] = g
            f = 0.0
            for j in range(i):
                e[j] /= h
                f += e[j] * d[j]
            share = f / (h + h)
            for j in range(i):
                e[j] -= share * d[j]
            for k in range(i):
                for j in range(k + 1):
                    V[k, j] -= d[j] * e[k] + e[j] * d[k]
            for j in range(i):
                d[j] = V[i - 1, j]
                V[i, j] = 0.0
        d[i] = h
    w = np.empty(n)
    for i in range(n - 1):  # the transformations, multiplied
        V[n - 1, i] = V[i, i]
        V[i, i] = 1.0
        h = d[i + 1]
        if h != 0.0:
            for k in range(i + 1):
                d[k] = V[k, i + 1] / h
                w[k] = 0.0
            for k in range(i + 1):
                for j in range(i + 1):
                    w[j] += V[k, i + 1] * V[k, j]
            for k in range(i + 1):
                for j in range(i + 1):
                    V[k, j] -= w[j] * d[k]
        for k in range(i + 1):
            V[k, i + 1] = 0.0
    for j in range(n):
        d[j] = V[n - 1, j]
        V[n - 1, j] = 0.0
    V[n - 1, n - 1] = 1.0
    for k in range(n):
        for j in range(k):
            V[k, j], V[j, k] = V[j, k], V[k, j]
    for i in range(1, n):
        e[i - 1] = e[i]
    e[n - 1] = 0.0
    if not _implicit_ql(V, d, e):
        return False
    for i in range(n - 1):  # in order
        least = i
        for j in range(i + 1, n):
            if d[j] < d[least]:
                least = j
        if least != i:
            d[i], d[least] = d[least], d[i]
            for k in range(n):
                V[i, k], V[least, k] = V[least, k], V[i, k]
    return True


@kernel
def _implicit_ql(V: Floats, d: Floats, e: Floats) -> bool:
    """Eigenvalues of the tridiagonal matrix of d (n,) and e (n,) into d; rotate the rows of V."""
    n = d.size
    shift, size = 0.0, 0.0
    for left in range(n):
        size = max(size, abs(d[left]) + abs(e[left]))
        m = left
        while m < n - 1 and abs(e[m]) > EPS * size:
            m += 1
        steps = 0
        while m > left and (steps == 0 or abs(e[left]) > EPS * size):
            steps += 1
            if steps > 100:
                return False
            g = d[left]
            p = (d[left + 1] - g) / (2.0 * e[left])
            r = _length(p, 1.0)
            if p < 0.0:
                r = -r
            d[left] = e[left] / (p + r)
            d[left + 1] = e[left] * (p + r)
            beside, h = d[left + 1], g - d[left]
            for i in range(left + 2, n):
                d[i] -= h
            shift += h
            p, c, c2, c3 = d[m], 1.0, 1.0, 1.0
            after, s, s2 = e[left + 1], 0.0, 0.0
            for i in range(m - 1, left - 1, -1):
                c3, c2, s2 = c2, c, s
                g, h = c * e[i], c * p
                r = _length(p, e[i])
                e[i + 1] = s * r
                s, c = e[i] / r, p / r
                p = c * d[i] - s * g
                d[i + 1] = h + s * (c * g + s * d[i])
                for k in range(n):
                    h = V[i + 1, k]
                    V[i + 1, k] = s * V[i, k] + c * h
                    V[i, k] = c * V[i, k] - s * h
            p = -s * s2 * c3 * after * e[left] / beside
            e[left] = s * p
            d[left] = c * p
        d[left] += shift
        e[left] = 0.0
    return True


@kernel
def _length(a: float, b: float) -> float:
    """Root of a² + b² without overflow."""
    a, b = abs(a), abs(b)
    if a < b:
        a, b = b, a
    if a == 0.0:
        return 0.0
    size: float = a * np.sqrt(1.0 + (b / a) * (b / a))
    return size


def square_roots(A: Floats) -> Floats:
    """B (n, r, r) with BB' = A for each of many symmetric matrices A (n, r, r).

    Columns are eigenvectors times the roots of their eigenvalues, which are zero if negative.

    Examples
    --------
    >>> square_roots(np.array([[[4.0, 0.0], [0.0, 9.0]]])).tolist()
    [[[2.0, 0.0], [0.0, 3.0]]]
    """
    out = np.array(A, dtype=np.float64, order="C")
    if not np.isfinite(out).all() or not _square_roots(out):
        raise np.linalg.LinAlgError("the eigenvalues of a matrix cannot be found")
    return np.ascontiguousarray(out.swapaxes(1, 2))


@kernel
def _square_roots(V: Floats) -> bool:
    """Into the rows of each V (n, r, r)."""
    n, r, _ = V.shape
    values = np.empty(r)
    for i in range(n):
        if not symmetric_eigen(V[i], values):
            return False
        for k in range(r):
            root = np.sqrt(max(values[k], 0.0))
            for a in range(r):
                V[i, k, a] *= root
    return True


def times_each(X: Floats, B: Floats) -> Floats:
    """X (K, r) times each of B (n, r, s): (n, K, s).

    Examples
    --------
    >>> times_each(np.array([[1.0, 2.0]]), np.array([[[1.0], [1.0]], [[1.0], [0.0]]])).tolist()
    [[[3.0]], [[1.0]]]
    """
    n, r, s = B.shape
    flat = matmul(X, B.transpose(1, 0, 2).reshape(r, n * s))
    return np.ascontiguousarray(flat.reshape(len(X), n, s).transpose(1, 0, 2))


def qr(X: Floats) -> tuple[Floats, Floats]:
    """Orthonormal Q (m, r) and upper triangular R (r, r) with X = QR, for X (m, r), m ≥ r.

    Examples
    --------
    >>> Q, R = qr(np.array([[3.0, 1.0], [4.0, 2.0]]))
    >>> R.round(12).tolist()
    [[-5.0, -2.2], [0.0, -0.4]]
    """
    m, r = X.shape
    W = np.array(X.T, dtype=np.float64, order="C")
    beta = np.empty(r)
    _householder(W, np.arange(r), False, beta)
    R = np.tril(W[:, :r]).T
    Q = np.zeros((r, m))
    Q[np.arange(r), np.arange(r)] = 1.0
    _multiply_back(W, beta, Q)
    return np.ascontiguousarray(Q.T), np.ascontiguousarray(R)


def spanning(X: Floats) -> tuple[Integers, Floats, Floats]:
    """Rows of X (m, r) that span: the farthest from the span of those before comes next.

    Returns
    -------
    order of the rows (m,), of which the first min(m, r) were chosen so; how far each of these is
    from the span of those before; and an orthonormal basis (r, r), a column for each of them
    and then any further directions.

    Examples
    --------
    >>> order, far, _ = spanning(np.array([[1.0, 0.0], [3.0, 0.0], [1.0, 1.0]]))
    >>> order[:2].tolist(), far.tolist()
    ([1, 2], [3.0, 1.0])
    """
    m, r = X.shape
    W = np.array(X, dtype=np.float64, order="C")
    order, beta = np.arange(m), np.zeros(min(m, r))
    _householder(W, order, True, beta)
    far = np.abs(np.diagonal(W)).copy()
    Q = np.eye(r)
    _multiply_back(W, beta, Q)
    return order, far, np.ascontiguousarray(Q.T)


@kernel
def _householder(W: Floats, order: Integers, pivot: bool, beta: Floats) -> None:
    """Reflections that make the matrix with columns W (n, m) upper triangular, in place.

    Column j ends as R[:j + 1, j] in W[j, : j + 1]; of the reflection 1 - beta vv' the rest of it
    holds v without its first element, which is one.
    """
    n, m = W.shape
    for j in range(beta.size):
        if pivot:
            best, most = j, -1.0
            for i in range(j, n):
                size = 0.0
                for k in range(j, m):
                    size += W[i, k] * W[i, k]
                if size > most:
                    best, most = i, size
            if best != j:
                order[j], order[best] = order[best], order[j]
                for k in range(m):
                    W[j, k], W[best, k] = W[best, k], W[j, k]
        largest = 0.0
        for k in range(j, m):
            largest = max(largest, abs(W[j, k]))
        beta[j] = 0.0
        if largest == 0.0:
            continue
        size = 0.0
        for k in range(j, m):
            size += (W[j, k] / largest) * (W[j, k] / largest)
        size = largest * np.sqrt(size)
        head = W[j, j]
        end = -size if head > 0.0 else size
        beta[j] = (end - head) / end
        for k in range(j + 1, m):
            W[j, k] /= head - end
        W[j, j] = end
        for i in range(j + 1, n):
            _reflect(W, i, W, j, j, beta[j])


@kernel
def _multiply_back(W: Floats, beta: Floats, Q: Floats) -> None:
    """Apply the reflections in W, the last first, to the rows of Q."""
    for j in range(beta.size - 1, -1, -1):
        if beta[j] != 0.0:
            for i in range(Q.shape[0]):
                _reflect(Q, i, W, j, j, beta[j])


@kernel
def _reflect(A: Floats, i: int, W: Floats, j: int, start: int, beta: float) -> None:
    """Row i of A from `start` on, reflected by 1 - beta vv' with v in row j of W."""
    m = A.shape[1]
    a = b = c = d = 0.0
    whole = start + 1 + (m - start - 1) // 4 * 4
    for k in range(start + 1, whole, 4):
        a += A[i, k] * W[j, k]
        b += A[i, k + 1] * W[j, k + 1]
        c += A[i, k + 2] * W[j, k + 2]
        d += A[i, k + 3] * W[j, k + 3]
    total = A[i, start] + ((a + c) + (b + d))
    for k in range(whole, m):
        total += A[i, k] * W[j, k]
    total *= beta
    A[i, start] -= total
    for k in range(start + 1, m):
        A[i, k] -= total * W[j, k]


class SVD(NamedTuple):
    """A = left @ diag(singular) @ right, with singular values that fall.

    Attributes
    ----------
    left : (m, q) orthonormal columns, q = min(m, r)
    singular : (q,)
    right : (q, r) orthonormal rows; where a singular value is zero, a row of zeros
    """

    left: Floats
    singular: Floats
    right: Floats


def svd(A: Floats) -> SVD:
    """Singular values and vectors of A (m, r), by rotations of one side (Hestenes 1958).

    Examples
    --------
    >>> svd(np.array([[0.0, 2.0], [3.0, 0.0], [0.0, 0.0]])).singular.tolist()
    [3.0, 2.0]
    """
    if len(A) < A.shape[1]:
        left, singular, right = svd(np.ascontiguousarray(A.T))
        return SVD(np.ascontiguousarray(right.T), singular, np.ascontiguousarray(left.T))
    Q, W = qr(A)
    J = np.eye(len(W))
    singular = np.empty(len(W))
    _rotate(W, J, singular)
    order = np.argsort(-singular, kind="stable")
    singular, W = singular[order], W[order]
    right = W / np.where(singular > 0.0, singular, 1.0)[:, None]
    return SVD(matmul(Q, np.ascontiguousarray(J[order].T)), singular, right)


@kernel
def _rotate(W: Floats, J: Floats, singular: Floats) -> None:
    """Rotate rows of W, and of J with them, until those of W are orthogonal; their lengths."""
    n, m = W.shape
    square = np.empty(n)
    for _ in range(MOST_SWEEPS):
        largest = 0.0
        for i in range(n):
            square[i] = dot(W, i, W, i, m)
            largest = max(largest, square[i])
        negligible = largest * (1e-3 * EPS) * (1e-3 * EPS)
        turned = False
        for i in range(n - 1):
            for j in range(i + 1, n):
                if min(square[i], square[j]) <= negligible:
                    continue
                product = dot(W, i, W, j, m)
                if abs(product) <= EPS * np.sqrt(square[i]) * np.sqrt(square[j]):
                    continue
                turned = True
                zeta = (square[j] - square[i]) / (2.0 * product)
                t = 1.0 / (abs(zeta) + _length(1.0, zeta))
                if zeta < 0.0:
                    t = -t
                c = 1.0 / np.sqrt(1.0 + t * t)
                s = c * t
                for k in range(m):
                    a, b = W[i, k], W[j, k]
                    W[i, k], W[j, k] = c * a - s * b, s * a + c * b
                for k in range(J.shape[1]):
                    a, b = J[i, k], J[j, k]
                    J[i, k], J[j, k] = c * a - s * b, s * a + c * b
                square[i] = dot(W, i, W, i, m)
                square[j] = dot(W, j, W, j, m)
        if not turned:
            break
    for i in range(n):
        singular[i] = np.sqrt(dot(W, i, W, i, m))


def matrix_rank(X: Floats) -> int:
    """Rank of X (m, r): singular values above max(m, r) rounding errors of the largest.

    Examples
    --------
    >>> matrix_rank(np.array([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]]))
    1
    """
    singular = svd(X).singular
    return int((singular > singular[0] * max(X.shape) * EPS).sum()) if singular.size else 0
