"""Primal-dual interior-point methods for small designs, compiled, and what other kernels share.

Kernels take arrays and fill arrays; `optimal.py` validates, allocates and tries again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steadyarm.compiled import kernel
from steadyarm.linalg import (
    add_gram,
    cholesky,
    cholesky_solve,
    information,
    times_into,
    times_vector_into,
    whiten_rows,
)

BLOCK = 64  # rows above which pairs are scanned in blocks


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


# XY and transductive designs


OPTIMAL, STEP_LIMIT, STALLED = 0, 1, 2
ENTER = 0.7  # a direction enters when y'A^-1 y exceeds this share of its bound


@kernel
def interior_point(
    X: NDArray[np.float64],
    B: NDArray[np.float64],
    pairs: bool,
    tol: float,
    steps: int,
    careful: bool,
    weights: NDArray[np.float64],
    slack: NDArray[np.float64],
    Q: NDArray[np.float64],
    bounds: NDArray[np.float64],
) -> tuple[int, int]:
    """Solve over arms X (K, r) and directions B (m, r), or all differences of rows of B.

    Out: weights (K,) sum to one; slack (K,) is 1 - g_i, zero on the support; Q (r, r) and bounds
    (value, lower bound, tr(W A^-1)^2 / sum mu) are the certificate: x'Qx = g_x for any further
    arm x. Returns (outcome, Newton steps).
    """
    K, r = X.shape
    m = B.shape[0]
    reach, least, lag = (0.7, 0.2, 0.3) if careful else (0.98, 0.005, 3.0)
    room = min(m * (m - 1) // 2, 20 * m + 200) if pairs else m
    J = 0
    first, second = np.empty(room, np.int64), np.empty(room, np.int64)
    nu, s, mu, q = np.empty(room), np.empty(room), np.empty(room), np.empty(room)
    dnu, ds, rnu, curve = np.empty(room), np.empty(room), np.empty(room), np.empty(room)
    C = np.empty((room, K))
    active = np.zeros((m, m if pairs else 1), np.bool_)
    lam, z, g = np.full(K, 1.0 / K), np.empty(K), np.empty(K)
    dlam, dz, rlam = np.empty(K), np.empty(K), np.empty(K)
    A, W = np.empty((r, r)), np.empty((r, r))
    V, VW, U, w = np.empty((K, r)), np.empty((K, r)), np.empty((m, r)), np.empty(r)
    T, N, bend = np.empty((m, K)), np.empty((K, K)), np.empty((K, K))
    Vt, moved = np.empty((r, K)), np.empty(room)
    distance, partner = np.empty(m), np.empty(m, np.int64)
    best, lower, sigma = np.inf, 0.0, 0.0
    bounds[:] = 0.0
    for step in range(steps + 1):
        information(X, lam, A)
        if not cholesky(A, 0.0):
            return STALLED, step
        whiten_rows(A, X, V)
        whiten_rows(A, B, U)
        largest = farthest(U, pairs, distance, partner)
        if step == 0:
            if largest <= 0.0:
                weights[:] = 1.0 / K
                return OPTIMAL, 0
            scale = 2.0 * largest  # every h starts at 2 or more: strictly inside
            lam *= scale
            V /= np.sqrt(scale)
            U /= np.sqrt(scale)
            A *= np.sqrt(scale)
            distance /= scale
            largest = 0.5
        threshold = ENTER * (largest if step == 0 else 1.0)
        for i in range(m):
            if distance[i] > threshold and room > J:
                j = partner[i] if pairs else 0
                row, column = (max(i, j), min(i, j)) if pairs else (i, 0)
                if not active[row, column]:
                    active[row, column] = True
                    first[J] = row
                    second[J] = column if pairs else -1
                    s[J] = max(1.0 / distance[i] - 1.0, 0.1)
                    nu[J] = 1.0 if step == 0 else sigma / s[J]
                    J += 1
        # W in the coordinates where A is the identity, and the gradient g
        W[:] = 0.0
        trace, mass = 0.0, 0.0
        for j in range(J):
            t = 0.0
            for k in range(r):
                w[k] = U[first[j], k] - (U[second[j], k] if pairs else 0.0)
                t += w[k] * w[k]
            q[j] = t
            mu[j] = nu[j] / (t * t)
            mass += mu[j]
            trace += mu[j] * t
            for k in range(r):
                t = mu[j] * w[k]
                for n in range(r):
                    W[k, n] += t * w[n]
        times_into(V, W, VW)
        steepest = 0.0
        for i in range(K):
            t = 0.0
            for k in range(r):
                t += VW[i, k] * V[i, k]
            g[i] = t
            steepest = max(steepest, t)
        if step == 0:  # multipliers scaled so that all slacks are at least one half
            scale = 0.5 / steepest
            for j in range(J):
                nu[j] *= scale
                mu[j] *= scale
            W *= scale
            VW *= scale
            g *= scale
            mass *= scale
            trace *= scale
            steepest = 0.5
            for i in range(K):
                z[i] = 1.0 - g[i]
        total = 0.0
        for i in range(K):
            total += lam[i]
        if trace * trace > lower * steepest * mass:
            lower = trace * trace / (steepest * mass)
            bounds[2] = trace * trace / mass
            for k in range(r):  # Q = L^-T W L^-1, row by row: first W L^-1, then the same again
                for n in range(r - 1, -1, -1):
                    t = W[k, n]
                    for p in range(n + 1, r):
                        t -= Q[k, p] * A[p, n]
                    Q[k, n] = t / A[n, n]
            for n in range(r):
                for k in range(r - 1, -1, -1):
                    t = Q[k, n]
                    for p in range(k + 1, r):
                        t -= Q[p, n] * A[p, k]
                    Q[k, n] = t / A[k, k]
        if total * largest < best:
            best = total * largest
            for i in range(K):
                weights[i] = lam[i] / total
                slack[i] = z[i]
        bounds[0], bounds[1] = best, lower
        if best <= lower * (1.0 + tol):
            return OPTIMAL, step
        if step == steps:
            break
        # Newton matrix: curvature of h, barrier of lam, barrier of the constraints
        for k in range(r):
            for i in range(K):
                Vt[k, i] = V[i, k]
        times_into(U, Vt, T)
        for j in range(J):
            for i in range(K):
                t = T[first[j], i] - (T[second[j], i] if pairs else 0.0)
                C[j, i] = t * t
            square = q[j] * q[j]
            curve[j] = nu[j] / (s[j] * square * square) - 2.0 * mu[j] / q[j]
        times_into(V, Vt, N)
        times_into(VW, Vt, bend)
        for i in range(K):
            for k in range(i + 1):
                N[i, k] = 2.0 * N[i, k] * bend[i, k]
        add_gram(C[:J], curve[:J], N)
        complementarity, residual = 0.0, 0.0
        for i in range(K):
            N[i, i] += z[i] / lam[i]
            complementarity += lam[i] * z[i]
            residual = max(residual, abs(1.0 - g[i] - z[i]))
        for j in range(J):
            complementarity += nu[j] * s[j]
        average = complementarity / (K + J)
        cholesky(N, 1e60)
        # Mehrotra: a step to the boundary tells how far to go, the second step goes there
        alpha = 0.0
        for corrector in range(2):
            second_order = 0.0
            if corrector == 1:
                after = 0.0
                for i in range(K):
                    after += (lam[i] + alpha * dlam[i]) * (z[i] + alpha * dz[i])
                for j in range(J):
                    after += (nu[j] + alpha * dnu[j]) * (s[j] + alpha * ds[j])
                ratio = max(after / complementarity, 0.0)
                sigma = average * min(max(ratio * ratio * ratio, least), 1.0)
                second_order = 1.0
                if residual * total > lag * complementarity:
                    sigma = average  # the multipliers lag behind: only centre
                    second_order = 0.0
            else:
                sigma = 0.0
            for i in range(K):
                rlam[i] = sigma - lam[i] * z[i]
                if corrector == 1:
                    rlam[i] -= second_order * dlam[i] * dz[i]
            for i in range(K):
                dlam[i] = g[i] + z[i] - 1.0 + rlam[i] / lam[i]
            for j in range(J):
                rnu[j] = sigma - nu[j] * s[j]
                if corrector == 1:
                    rnu[j] -= second_order * dnu[j] * ds[j]
                t = (rnu[j] - nu[j] * (1.0 / q[j] - 1.0 - s[j])) / (s[j] * q[j] * q[j])
                for i in range(K):
                    dlam[i] += C[j, i] * t
            cholesky_solve(N, dlam)
            longest = np.inf
            for i in range(K):
                dz[i] = (rlam[i] - z[i] * dlam[i]) / lam[i]
                if dlam[i] < 0.0:
                    longest = min(longest, -lam[i] / dlam[i])
                if dz[i] < 0.0:
                    longest = min(longest, -z[i] / dz[i])
            times_vector_into(C[:J], dlam, moved)
            for j in range(J):
                t = moved[j]
                # small numbers first: added to 1 / q they would be lost
                ds[j] = t / (q[j] * q[j]) + (1.0 / q[j] - 1.0 - s[j])
                dnu[j] = (rnu[j] - nu[j] * ds[j]) / s[j]
                if ds[j] < 0.0:
                    longest = min(longest, -s[j] / ds[j])
                if dnu[j] < 0.0:
                    longest = min(longest, -nu[j] / dnu[j])
            alpha = min(1.0, longest if corrector == 0 else reach * longest)
        for i in range(K):
            lam[i] += alpha * dlam[i]
            z[i] += alpha * dz[i]
        for j in range(J):
            nu[j] += alpha * dnu[j]
            s[j] += alpha * ds[j]
    return STEP_LIMIT, steps


@kernel
def purge(
    X: NDArray[np.float64],
    B: NDArray[np.float64],
    pairs: bool,
    limit: float,
    weights: NDArray[np.float64],
    slack: NDArray[np.float64],
) -> float:
    """Drop the weights (K,) below their slack (K,) if the value stays within `limit`.

    Returns the new value, or infinity where the weights had to be left as they are. Dropping may
    leave A singular: the value is then taken on its range, which must hold every direction.
    """
    trial = np.empty_like(weights)
    total = 0.0
    for i in range(weights.size):
        trial[i] = 0.0 if weights[i] < slack[i] else weights[i]
        total += trial[i]
    if total <= 0.0:
        return np.inf
    for i in range(weights.size):
        trial[i] /= total
    value = value_on_range(X, trial, B, pairs)
    if not value <= limit:
        return np.inf
    for i in range(weights.size):
        weights[i] = trial[i]
    return value


# G-optimal designs


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
        total = 0.0
        for i in range(K):
            total += lam[i]
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
                sigma = complementarity / K * min(max(ratio * ratio * ratio, 0.005), 1.0)
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
