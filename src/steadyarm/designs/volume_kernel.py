"""The solver for G-optimal designs: a primal-dual interior-point method, compiled.

Called by `solve` only; blind, as all kernels.

By Kiefer and Wolfowitz the G-optimal design maximises det A, and its value is the rank r. Solved
in the scaled form: minimise sum_i lam_i - log det A(lam), whose optimum has sum lam = r and
x'A^-1 x <= 1 for every arm.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steadyarm.compiled import kernel
from steadyarm.designs.dense_kernels import cholesky, cholesky_solve, information, whiten_rows
from steadyarm.designs.saddle_kernel import OPTIMAL, STALLED, STEP_LIMIT
from steadyarm.linalg import times_into

__all__ = ["largest_volume"]


@kernel
def largest_volume(
    X: NDArray[np.float64],
    tol: float,
    steps: int,
    weights: NDArray[np.float64],
    slack: NDArray[np.float64],
) -> tuple[int, int, float]:
    """G-optimal weights (K,) for arms X (K, r) of full rank, and their slack (K,) 1 - x'A^-1 x.

    Returns outcome, steps and value.
    """
    K, r = X.shape
    lam, z, g = np.full(K, float(r) / K), np.empty(K), np.empty(K)
    dlam, dz, rlam = np.empty(K), np.empty(K), np.empty(K)
    A, V, N = np.empty((r, r)), np.empty((K, r)), np.empty((K, K))
    Vt = np.empty((r, K))
    best = np.inf
    outcome = STEP_LIMIT
    taken = 0
    for step in range(steps + 1):
        information(X, lam, A)
        if not cholesky(A, 0.0):
            outcome = STALLED
            break
        whiten_rows(A, X, V)
        largest = 0.0
        for i in range(K):
            t = 0.0
            for k in range(r):
                t += V[i, k] * V[i, k]
            g[i] = t
            largest = max(largest, t)
        if step == 0:  # scaled so that every slack 1 - g is at least one half
            scale = 2.0 * largest
            lam *= scale
            V /= np.sqrt(scale)
            g /= scale
            largest = 0.5
            for i in range(K):
                z[i] = 1.0 - g[i]
        total = lam.sum()
        taken = step
        if total * largest < best:
            best = total * largest
            for i in range(K):
                weights[i] = lam[i] / total
                slack[i] = z[i]
        if best <= r * (1.0 + tol):
            outcome = OPTIMAL
            break
        if step == steps:
            break
        complementarity = 0.0
        for k in range(r):
            for i in range(K):
                Vt[k, i] = V[i, k]
        times_into(V, Vt, N)
        for i in range(K):
            for k in range(i + 1):
                N[i, k] *= N[i, k]
            N[i, i] += z[i] / lam[i]
            complementarity += lam[i] * z[i]
        cholesky(N, 1e60)
        alpha = 0.0
        for corrector in range(2):
            sigma = 0.0
            if corrector == 1:
                after = 0.0
                for i in range(K):
                    after += (lam[i] + alpha * dlam[i]) * (z[i] + alpha * dz[i])
                ratio = max(after / complementarity, 0.0)
                sigma = complementarity / K * min(max(ratio**3, 0.005), 1.0)
            longest = np.inf
            for i in range(K):
                rlam[i] = sigma - lam[i] * z[i]
                if corrector == 1:
                    rlam[i] -= dlam[i] * dz[i]
            for i in range(K):
                dlam[i] = g[i] + z[i] - 1.0 + rlam[i] / lam[i]
            cholesky_solve(N, dlam)
            for i in range(K):
                dz[i] = (rlam[i] - z[i] * dlam[i]) / lam[i]
                if dlam[i] < 0.0:
                    longest = min(longest, -lam[i] / dlam[i])
                if dz[i] < 0.0:
                    longest = min(longest, -z[i] / dz[i])
            alpha = min(1.0, longest if corrector == 0 else 0.98 * longest)
        for i in range(K):
            lam[i] += alpha * dlam[i]
            z[i] += alpha * dz[i]
    return outcome, taken, best
