"""Products in single precision, in stacks of few rows for the reason given in `stacked`.

For the steps of `pair_game`: these products steer and never prove.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steadyarm.designs.dense_kernels import BLOCK

__all__ = ["single_forms", "single_gram", "single_times"]

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]


def single_times(X: Singles, M: Singles) -> Singles:
    """X @ M for a tall X (m, r) and M (r, s)."""
    r, columns = M.shape
    rows = max(2 * BLOCK**3 // (r * columns), 1)
    whole = len(X) - len(X) % rows
    answer = np.empty((len(X), columns), dtype=np.float32)
    np.matmul(X[:whole].reshape(-1, rows, r), M, out=answer[:whole].reshape(-1, rows, columns))
    answer[whole:] = X[whole:] @ M
    return answer


def single_forms(X: Singles, M: Floats) -> Floats:
    """X'Mx for the rows x of X."""
    image = single_times(X, M.astype(np.float32))
    return np.asarray(np.einsum("ij,ij->i", image, X), dtype=np.float64)


def single_gram(X: Singles, lam: Floats) -> Floats:
    """Sum of lam_i x_i x_i' over the rows of X."""
    r, rows = X.shape[1], 2 * BLOCK
    scaled = X * lam.astype(np.float32)[:, None]
    whole = len(X) - len(X) % rows
    left = scaled[:whole].reshape(-1, rows, r).transpose(0, 2, 1)
    right = X[:whole].reshape(-1, rows, r)
    answer = np.empty((r, r))
    step = max(BLOCK**2 // r, 1)
    for start in range(0, r, step):
        part = slice(start, start + step)
        answer[part] = np.matmul(left[:, part], right).sum(0) + scaled[whole:, part].T @ X[whole:]
    return answer
