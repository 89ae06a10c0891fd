"""Products of tall matrices in stacks of few rows.

For whatever multiplies many rows; `singles` is the same in single precision.

OpenBLAS wakes its other threads for all but small products. On a busy machine that costs
milliseconds, many times the product itself, so large ones are made of small ones.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steadyarm.designs.dense_kernels import BLOCK

__all__ = ["height", "lengths", "times", "weighted_gram"]

LOWEST = 11  # rows in a stack

Floats = NDArray[np.float64]


def times(X: Floats, M: Floats) -> Floats:
    """X @ M for a tall contiguous X (m, r) and M (r, s)."""
    m, r = X.shape
    rows = height(r)
    whole = m - m % rows if rows else 0
    if not whole:
        return X @ M
    answer = np.empty((m, M.shape[1]))
    np.matmul(X[:whole].reshape(-1, rows, r), M, out=answer[:whole].reshape(-1, rows, len(M.T)))
    answer[whole:] = X[whole:] @ M
    return answer


def lengths(X: Floats, M: Floats) -> Floats:
    """Squared lengths of the rows of X @ M."""
    image = times(X, M)
    return np.asarray(np.einsum("ij,ij->i", image, image))


def weighted_gram(X: Floats, lam: Floats) -> Floats:
    """Sum of lam_i x_i x_i' over the rows of a tall contiguous X (m, r)."""
    m, r = X.shape
    rows = max(height(r), BLOCK)
    whole = m - m % rows if height(r) else 0
    scaled = X * lam[:, None]
    answer = np.asarray(scaled[whole:].T @ X[whole:])
    if whole:
        left = scaled[:whole].reshape(-1, rows, r).transpose(0, 2, 1)
        right = X[:whole].reshape(-1, rows, r)
        step = 2 * BLOCK**3 // (rows * r)
        for start in range(0, r, step):
            answer[start : start + step] += np.matmul(left[:, start : start + step], right).sum(0)
    return answer


def height(r: int) -> int:
    """Rows of a stack, or 0 where stacks would be too low for BLAS to be quick."""
    rows = 2 * BLOCK**3 // r**2
    return min(rows, 4 * BLOCK) if rows >= LOWEST else 0
