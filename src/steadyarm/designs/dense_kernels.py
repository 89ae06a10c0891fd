"""What the kernels of designs share: information matrices, farthest pairs, values on a range.

For the kernels of this folder, the estimators and the policies; factors are in `linalg`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steadyarm.compiled import kernel
from steadyarm.linalg import cholesky, cholesky_solve, times_into, whiten_rows

__all__ = [
    "cholesky",
    "cholesky_solve",
    "farthest",
    "information",
    "value_on_range",
    "whiten_rows",
]

BLOCK = 64  # rows above which pairs are looked at in blocks


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
def _reach(norm: NDArray[np.float64], products: NDArray[np.float64]) -> float:
    """Largest of norm - 2 products, both (n,); four at a time, which is quicker."""
    a = b = c = d = -1e300
    whole = norm.size - norm.size % 4
    for j in range(0, whole, 4):
        a = max(a, norm[j] - 2.0 * products[j])
        b = max(b, norm[j + 1] - 2.0 * products[j + 1])
        c = max(c, norm[j + 2] - 2.0 * products[j + 2])
        d = max(d, norm[j + 3] - 2.0 * products[j + 3])
    for j in range(whole, norm.size):
        a = max(a, norm[j] - 2.0 * products[j])
    return max(max(a, b), max(c, d))


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
        for k in range(r):  # in the order of `times_into`: a row is at distance 0 from itself
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
    width = max(BLOCK**2 // r, 1)
    for left in range(0, m, width):
        right = min(left + width, m)
        Ut = np.ascontiguousarray(U[left:right].T)
        gram = np.empty((BLOCK, right - left))
        for start in range(0, m, BLOCK):
            stop = min(start + BLOCK, m)
            times_into(U[start:stop], Ut, gram[: stop - start])
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
