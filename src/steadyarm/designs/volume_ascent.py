"""G-optimal weights on some arms from any start: coordinate ascent with Newton steps.

Called by `large_g` on its pool.

Maximises log det A(lam) - sum lam over lam >= 0, whose optimum has sum r and x'A^-1 x <= 1. One
weight at a time has a closed form, 1 - 1/g up with g = x'A^-1 x (or down to zero), and costs r^2:
this finds the support. Newton steps on the support, by conjugate gradients with products that
never form the m by m matrix, then finish. Unlike an interior point it gains from a good start.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from steadyarm.compiled import kernel, log
from steadyarm.linalg import cholesky, gram, matmul, row_dots, solve_lower

__all__ = ["Ascent", "ascend", "inverse_root"]

NEAR = 0.05  # gap below which Newton steps begin to pay
MOST_PRODUCTS = 60  # of conjugate gradients in a Newton step
PATIENCE = 25  # sweeps without a better gap after which rounding has won

Floats = NDArray[np.float64]


class Ascent(NamedTuple):
    """Weights lam (m,), their relative gap on the arms given, and sweeps made."""

    lam: Floats
    gap: float
    sweeps: int


def ascend(X: Floats, lam: Floats, aim: float, most: int = 500) -> Ascent:
    """G-optimal weights on arms X (m, r), from weights lam (m,) that span, to a gap of `aim`."""
    r = X.shape[1]
    best, since, lam = Ascent(lam, np.inf, 0), 0, lam.copy()
    for sweep in range(most + 1):
        inverse = inverse_root(X, lam)
        if inverse is None:
            break
        g = _lengths(X, inverse)
        gap = float(g.max() * lam.sum() / r - 1)
        if gap < best.gap:
            since = sweep
            best = Ascent(lam.copy(), gap, sweep)
        if gap <= aim or sweep - since > PATIENCE:
            break
        if gap < NEAR:
            moved = _newton(X, lam, inverse, g)
            moved_inverse = inverse_root(X, moved)
            if moved_inverse is not None:
                lam, inverse, g = moved, moved_inverse, _lengths(X, moved_inverse)
        entering = np.flatnonzero((g > 1.0) & (lam == 0.0))
        entering = entering[np.argsort(-g[entering], kind="stable")[: 4 * r]]
        order = np.concatenate([entering, np.flatnonzero(lam)])
        sweep_weights(X, order, lam, gram(inverse.T))
    return best._replace(sweeps=sweep)


def inverse_root(X: Floats, lam: Floats) -> Floats | None:
    """R (r, r) with RR' the inverse of A(lam), or None where A(lam) is singular."""
    support = np.flatnonzero(lam)
    L = gram(X[support], lam[support])
    if not cholesky(L, 0.0):
        return None
    return solve_lower(L, np.eye(len(L)))


def _lengths(X: Floats, M: Floats) -> Floats:
    """Squared lengths of the rows of X @ M."""
    image = matmul(X, M)
    return np.asarray(row_dots(image, image))


@kernel
def sweep_weights(
    X: NDArray[np.float64],
    order: NDArray[np.int64],
    lam: NDArray[np.float64],
    P: NDArray[np.float64],
) -> None:
    """Set each weight of lam (m,) named by order to its best, the others fixed.

    X (m, r) are the arms and P (r, r) the inverse of A(lam), kept up to date.
    """
    r = X.shape[1]
    y = np.empty(r)
    for i in order:
        g = 0.0
        for k in range(r):
            t = 0.0
            for n in range(r):
                t += P[k, n] * X[i, n]
            y[k] = t
            g += t * X[i, k]
        step = max(1.0 - 1.0 / g, -lam[i]) if g > 0.0 else -lam[i]
        if step == 0.0:
            continue
        lam[i] += step
        share = step / (1.0 + step * g)
        for k in range(r):
            t = share * y[k]
            for n in range(r):
                P[k, n] -= t * y[n]


def _newton(X: Floats, lam: Floats, R: Floats, g: Floats) -> Floats:
    """Weights after a Newton step on the support, shortened until the objective grows."""
    support = np.flatnonzero(lam)
    V = matmul(X[support], R)
    slope = g[support] - 1.0
    # where many designs are optimal the system is singular: small weights move little
    damping = max(float(g.max()) - 1.0, 0.0) / lam[support]
    direction = _solve(V, slope, damping, np.square(g[support]))
    step = 1.0
    while step > 0.05:
        moved = np.maximum(lam[support] + step * direction, 0.0)
        change = moved - lam[support]
        L = np.eye(V.shape[1]) + gram(V, change)
        if cholesky(L, 0.0) and 2 * sum(map(log, np.diag(L).tolist())) > change.sum():
            answer = np.zeros_like(lam)
            answer[support] = moved
            return answer
        step *= 0.5
    return lam


def _solve(V: Floats, slope: Floats, damping: Floats, diagonal: Floats) -> Floats:
    """Conjugate gradients for (N + damping) x = slope, N = (VV')∘(VV') with this diagonal."""
    x, residual = np.zeros_like(slope), slope.copy()
    diagonal = diagonal + damping
    scaled = residual / diagonal
    along = scaled.copy()
    size = first = matmul(residual, scaled)
    for _ in range(MOST_PRODUCTS):
        if size <= 1e-2 * first:
            break
        image = row_dots(matmul(V, gram(V, along)), V) + damping * along
        curvature = matmul(along, image)
        if not curvature > 0.0:
            break
        x += size / curvature * along
        residual -= size / curvature * image
        scaled = residual / diagonal
        size, previous = matmul(residual, scaled), size
        along = scaled + size / previous * along
    return x
