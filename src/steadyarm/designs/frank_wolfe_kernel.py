"""The paper's Frank-Wolfe iteration, compiled, with rank-one updates of all it needs.

Called by `frank_wolfe` only; blind, as all kernels.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steadyarm.compiled import kernel
from steadyarm.designs.dense_kernels import cholesky, farthest, information, whiten_rows

__all__ = ["frank_wolfe_steps"]

TABLE = 1024  # up to this many points the variances of all pairs are kept and updated


@kernel
def frank_wolfe_steps(
    X: NDArray[np.float64],
    B: NDArray[np.float64],
    pairs: bool,
    steps: int,
    weights: NDArray[np.float64],
    W: NDArray[np.float64],
) -> float:
    """From uniform weights (K,), step i = 1..steps of size 1 / (2(i + 2)) to one arm.

    Arms X (K, r) whitened; directions are the rows of B (m, r) or their differences. W (r, r)
    gathers the worst directions with the steps as weights, for the lower bound. Returns the
    largest variance before the last step.
    """
    K, r = X.shape
    m = B.shape[0]
    weights[:] = 1.0 / K
    W[:] = 0.0
    P = np.eye(r)
    y, Py, Px = np.empty(r), np.empty(r), np.empty(r)
    u = np.empty(m)
    kept = m <= TABLE
    variance = np.empty((m, m) if pairs and kept else (1, m))
    A, U = np.empty((r, r)), np.empty((m, r))
    distance, partner = np.empty(m), np.empty(m, np.int64)
    largest, row, column = -1.0, 0, 0
    for i in range(m if kept or not pairs else 0):
        if pairs:
            for j in range(i):
                t = 0.0
                for k in range(r):
                    t += (B[i, k] - B[j, k]) ** 2
                variance[i, j] = t
                if t > largest:
                    largest, row, column = t, i, j
        else:
            t = 0.0
            for k in range(r):
                t += B[i, k] ** 2
            variance[0, i] = t
            if t > largest:
                largest, row = t, i
    for step in range(1, steps + 1):
        if pairs and not kept:
            information(X, weights, A)
            cholesky(A, 0.0)
            whiten_rows(A, B, U)
            largest = farthest(U, pairs, distance, partner)
            row = int(np.argmax(distance))
            column = int(partner[row])
        previous = largest
        size = 1.0 / (2.0 * (step + 2))
        for k in range(r):
            y[k] = B[row, k] - (B[column, k] if pairs else 0.0)
        for k in range(r):
            t = 0.0
            for n in range(r):
                t += P[k, n] * y[n]
            Py[k] = t
        best, arm = -1.0, 0
        for i in range(K):
            t = 0.0
            for k in range(r):
                t += X[i, k] * Py[k]
            if t * t > best:
                best, arm = t * t, i
        keep = 1.0 - size
        for i in range(K):
            weights[i] *= keep
        weights[arm] += size
        for k in range(r):
            t = size * y[k]
            for n in range(r):
                W[k, n] = keep * W[k, n] + t * y[n]
        leverage = 0.0
        for k in range(r):
            t = 0.0
            for n in range(r):
                t += P[k, n] * X[arm, n]
            Px[k] = t
            leverage += t * X[arm, k]
        shrink = size / (keep + size * leverage)
        grow = 1.0 / keep
        for k in range(r):
            t = shrink * Px[k]
            for n in range(r):
                P[k, n] = (P[k, n] - t * Px[n]) * grow
        if pairs and not kept:
            continue
        for i in range(m):
            t = 0.0
            for k in range(r):
                t += B[i, k] * Px[k]
            u[i] = t
        largest = -1.0
        if pairs:
            for i in range(1, m):
                top = -1.0
                for j in range(i):
                    t = u[i] - u[j]
                    t = (variance[i, j] - shrink * t * t) * grow
                    variance[i, j] = t
                    top = max(top, t)
                if top > largest:
                    largest, row = top, i
            for j in range(row):
                if variance[row, j] == largest:
                    column = j
                    break
        else:
            for i in range(m):
                t = (variance[0, i] - shrink * u[i] * u[i]) * grow
                variance[0, i] = t
                if t > largest:
                    largest, row = t, i
    return previous
