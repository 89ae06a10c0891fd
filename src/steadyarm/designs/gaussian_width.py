"""The design with the least Gaussian width: what the authors of Peace measure an instance by.

For directions v the width of a design is w(λ) = E max_v v'ξ, where ξ is normal with covariance
A(λ)⁻¹. It is convex in λ, and 1/w² is concave and of degree one, so that its gradient g proves
w*² ≥ w² / max_k u_k with u_k = x_k'Bx_k / w, B = E[ξ v*'] A(λ)⁻¹ and v* the maximiser for ξ.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

__all__ = ["Width", "least_gaussian_width"]

Floats = NDArray[np.float64]

LEAST = 1e-10  # weight of an arm; the infimum may be where an arm has none and A is singular
LEAST_FACTOR = 1e-3  # by which a step shrinks a weight at most
STEPS = 400
PIECE = 2**22  # numbers of a table of values at once


class Width(NamedTuple):
    """A design, the square of its Gaussian width, and a bound below that of every design."""

    weights: Floats
    value: float
    lower_bound: float


def least_gaussian_width(
    X: Floats, V: Floats, draws: int = 2**14, seed: int = 0, tol: float = 1e-3
) -> Width:
    """The design of arms X (K, r) with the least E max_v v'ξ over the rows v of V (J, r).

    Expectations are over `draws` scrambled Sobol points and their negatives, the same for all
    designs, so that value and bound share an error of sampling, of about one part in a thousand.

    Parameters
    ----------
    X : (K, r) arms that span all directions
    V : (J, r) directions
    draws : number of points, rounded up to a power of two
    seed : of the points
    tol : relative gap between value and bound at which it stops

    Returns
    -------
    Width : weights, squared width and lower bound

    Examples
    --------
    Three arms that share nothing, gaps 1 and 1: γ* = 2/π.

    >>> found = least_gaussian_width(np.eye(3), np.array([[1.0, -1, 0], [1, 0, -1]]))
    >>> print(f"{found.value:.3f}")
    0.637
    """
    K, r = X.shape
    weights = np.full(K, 1.0 / K)
    if np.ptp(V, axis=0).max(initial=0.0) <= 1e-12 * np.abs(V).max(initial=0.0):
        return Width(weights, 0.0, 0.0)  # a single direction has mean zero
    points = _normal_points(r, draws, seed)
    best = Width(weights, np.inf, 0.0)
    for _ in range(STEPS):
        width, u = _width(X, V, weights, points)
        bound = max(best.lower_bound, width**2 / float(u.max()))
        if width**2 < best.value:
            best = Width(weights, width**2, bound)
        best = best._replace(lower_bound=min(bound, best.value))
        if best.value <= best.lower_bound * (1 + tol):
            break
        weights = np.maximum(weights * np.sqrt(np.maximum(u, LEAST_FACTOR)), LEAST)
        weights = weights / weights.sum()
    return best


def _normal_points(r: int, draws: int, seed: int) -> Floats:
    """(2N, r) normal numbers that come with their negatives."""
    sobol = scipy.stats.qmc.Sobol(r, rng=np.random.default_rng(seed))
    uniform = sobol.random_base2(max(int(draws) - 1, 1).bit_length())
    half: Floats = scipy.special.ndtri(np.clip(uniform, 1e-12, 1 - 1e-12))
    return np.vstack([half, -half])


def _width(X: Floats, V: Floats, weights: Floats, points: Floats) -> tuple[float, Floats]:
    """The width of a design, and (K,) u: one on average, nowhere larger if it is optimal."""
    A = X.T @ (weights[:, None] * X)
    L = np.linalg.cholesky(A)
    total, B = 0.0, np.zeros_like(A)
    for first in range(0, len(points), max(1, PIECE // len(V))):
        part = points[first : first + max(1, PIECE // len(V))]
        xi = scipy.linalg.solve_triangular(L, part.T, lower=True, trans="T").T
        values = xi @ V.T
        chosen = values.argmax(axis=1)
        total += float(values[np.arange(len(part)), chosen].sum())
        B += xi.T @ V[chosen]
    width = total / len(points)
    half = np.linalg.solve(A, B.T / len(points))  # A⁻¹ E[v* ξ'], whose symmetric part counts
    return width, np.einsum("kr,rs,ks->k", X, half, X) / width
