"""Eigenvalues, orthogonal factors and singular values with the same bits on every processor.

Compiled strictly, as `linalg` is: each sum has one order, and each product and sum is rounded once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from steadyarm.compiled import kernel
from steadyarm.linalg import dot, matmul

EPS = 2.0**-52
MOST_SWEEPS = 60  # of Jacobi's rotations; some ten are enough

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


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
