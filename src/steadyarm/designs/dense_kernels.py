"""Small dense linear algebra, compiled: factorisations, triangular solves, farthest pairs.

Shared by the kernels of this folder, the estimators and the policies.

Hand-written loops because the matrices are tiny (r up to some tens): a LAPACK call through numba
costs more than the work. Matrices of factors are lower triangular; the upper part is not read.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from steadyarm.compiled import kernel

__all__ = [
    "BLOCK",
    "add_weighted_gram",
    "cholesky",
    "cholesky_solve",
    "farthest",
    "information",
    "value_on_range",
    "whiten_rows",
]

# Above this many rows a BLAS call pays. Products stay below BLOCK**3 multiplications, up to which
# OpenBLAS uses one thread: waking others costs milliseconds on a busy machine.
BLOCK = 64


@kernel
def information(X: NDArray[np.float64], lam: NDArray[np.float64], A: NDArray[np.float64]) -> None:
    """Lower triangle of A = sum_i lam_i x_i x_i' for X (K, r), lam (K,), into A (r, r)."""
    A[:] = 0.0
    for i in range(X.shape[0]):
        if lam[i] > 0.0:
            for k in range(X.shape[1]):
                t = lam[i] * X[i, k]
                for m in range(k + 1):
                    A[k, m] += t * X[i, m]


@kernel
def cholesky(A: NDArray[np.float64], frozen: float) -> bool:
    """Factor A (n, n) in place.

    A pivot lost to rounding becomes `frozen` times the diagonal, which holds that unknown at
    zero if `frozen` is huge; if `frozen` is zero the factorisation ends with False.
    """
    for i in range(A.shape[0]):
        for j in range(i):
            t = A[i, j]
            for k in range(j):
                t -= A[i, k] * A[j, k]
            A[i, j] = t / A[j, j]
        t = A[i, i]
        diagonal = t
        for k in range(i):
            t -= A[i, k] * A[i, k]
        if not t > 1e-15 * diagonal:
            if frozen == 0.0:
                return False
            t = frozen * max(diagonal, 1e-60)
        A[i, i] = np.sqrt(t)
    return True


@kernel
def whiten_rows(L: NDArray[np.float64], B: NDArray[np.float64], U: NDArray[np.float64]) -> None:
    """Rows u = L^-1 b of B (m, r) into U (m, r), so that u'v = b'(LL')^-1 c."""
    r = L.shape[0]
    for i in range(B.shape[0]):
        for k in range(r):
            t = B[i, k]
            for m in range(k):
                t -= L[k, m] * U[i, m]
            U[i, k] = t / L[k, k]


@kernel
def cholesky_solve(L: NDArray[np.float64], b: NDArray[np.float64]) -> None:
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
def add_weighted_gram(
    C: NDArray[np.float64], weights: NDArray[np.float64], N: NDArray[np.float64]
) -> None:
    """Add C' diag(weights) C to the lower triangle of N (K, K), for C (J, K)."""
    J, K = C.shape
    if K <= BLOCK:
        for j in range(J):
            for i in range(K):
                t = weights[j] * C[j, i]
                for k in range(i + 1):
                    N[i, k] += t * C[j, k]
        return
    for top in range(0, J, BLOCK):
        height = min(BLOCK, J - top)
        for left in range(0, K, BLOCK):
            width = min(BLOCK, K - left)
            right = np.ascontiguousarray(C[top : top + height, left : left + width])
            for start in range(left, K, BLOCK):
                length = min(BLOCK, K - start)
                tile = np.empty((length, height))
                for j in range(height):
                    for i in range(length):
                        tile[i, j] = weights[top + j] * C[top + j, start + i]
                product = np.dot(tile, right)
                for i in range(length):
                    for k in range(width):
                        N[start + i, left + k] += product[i, k]


@njit(cache=True, nogil=True, fastmath=True)
def _reach(norm: NDArray[np.float64], products: NDArray[np.float64]) -> float:
    top = -1e300
    for j in range(norm.size):
        top = max(top, norm[j] - 2.0 * products[j])
    return top


@kernel
def farthest(
    U: NDArray[np.float64],
    pairs: bool,
    distance: NDArray[np.float64],
    partner: NDArray[np.int64],
) -> float:
    """Squared distance of each row of U (m, r) to its farthest row, or its squared norm.

    Pairs are scanned row by row (in blocks of rows for large m), never stored. Returns the
    largest of `distance` (m,); `partner` (m,) is -1 where there are no pairs.
    """
    m, r = U.shape
    norm = np.zeros(m)
    for i in range(m):
        for k in range(r):
            norm[i] += U[i, k] * U[i, k]
    if not pairs:
        largest = 0.0
        for i in range(m):
            distance[i] = norm[i]
            partner[i] = -1
            largest = max(largest, norm[i])
        return largest
    distance[:] = 0.0
    partner[:] = 0
    if m <= BLOCK:
        for i in range(m):
            for j in range(i):
                t = 0.0
                for k in range(r):
                    t += U[i, k] * U[j, k]
                t = norm[i] + norm[j] - 2.0 * t
                if t > distance[i]:
                    distance[i] = t
                    partner[i] = j
                if t > distance[j]:
                    distance[j] = t
                    partner[j] = i
    else:
        width = max(BLOCK**2 // r, 1)
        for left in range(0, m, width):
            right = min(left + width, m)
            Ut = np.ascontiguousarray(U[left:right].T)
            for start in range(0, m, BLOCK):
                stop = min(start + BLOCK, m)
                gram = np.dot(U[start:stop], Ut)
                for i in range(start, stop):
                    top = _reach(norm[left:right], gram[i - start])
                    if norm[i] + top > distance[i]:
                        distance[i] = norm[i] + top
                        for j in range(right - left):
                            if norm[left + j] - 2.0 * gram[i - start, j] >= top:
                                partner[i] = left + j
                                break
    largest = 0.0
    for i in range(m):
        largest = max(largest, distance[i])
    return largest


@kernel
def value_on_range(
    X: NDArray[np.float64], lam: NDArray[np.float64], B: NDArray[np.float64], pairs: bool
) -> float:
    """Largest y'A^+y for A = sum lam_i x_i x_i'; infinite if some direction is not in A's range.

    Directions are the rows of B (m, r), or the differences of any two of them.
    """
    m, r = B.shape
    A = np.empty((r, r))
    information(X, lam, A)
    for k in range(r):
        for j in range(k):
            A[j, k] = A[k, j]
    order = np.arange(r)
    scale = 0.0
    for k in range(r):
        scale = max(scale, A[k, k])
    rank = r
    for k in range(r):  # diagonal pivoting: the factor stops where the rank ends
        best = k
        for j in range(k + 1, r):
            if A[j, j] > A[best, best]:
                best = j
        if A[best, best] <= 1e-12 * scale:
            rank = k
            break
        if best != k:
            order[k], order[best] = order[best], order[k]
            for j in range(r):
                A[k, j], A[best, j] = A[best, j], A[k, j]
            for j in range(r):
                A[j, k], A[j, best] = A[j, best], A[j, k]
        A[k, k] = np.sqrt(A[k, k])
        for j in range(k + 1, r):
            A[j, k] /= A[k, k]
        for j in range(k + 1, r):
            for i in range(k + 1, r):
                A[j, i] -= A[j, k] * A[i, k]
    U = np.empty((m, r))
    size = 0.0
    for i in range(m):
        for k in range(r):
            t = B[i, order[k]]
            size = max(size, abs(t))
            for j in range(min(k, rank)):
                t -= A[k, j] * U[i, j]
            U[i, k] = t / A[k, k] if k < rank else t
    for k in range(rank, r):
        for i in range(m):
            if abs(U[i, k] - (U[0, k] if pairs else 0.0)) > 1e-9 * size:
                return np.inf
    for k in range(rank, r):
        for i in range(m):
            U[i, k] = 0.0
    return farthest(U, pairs, np.empty(m), np.empty(m, np.int64))
