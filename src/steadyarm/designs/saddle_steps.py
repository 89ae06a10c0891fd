"""The Newton steps of `saddle_kernel` for hundreds of arms and pairs, in BLAS, from a warm start.

Called by `large_xy` on its lists; `pair_lists` makes the points to go on from.

The same primal-dual method on the same scaled problem, with every pair given as a direction. It
can go on from an earlier point after arms and pairs came in: weights and multipliers are scaled
until all constraints hold with a margin, and newcomers start as if on the path to the optimum.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpotrf, dpotrs

__all__ = ["Improved", "Point", "improve", "warm_point"]

REACH = 0.95  # share of the way to the boundary that a step may go
RIDGES = (0.0, 1e-12, 1e-9, 1e-6)  # tried in turn if rounding makes the Newton matrix indefinite

Floats = NDArray[np.float64]


class Point(NamedTuple):
    """Weights `lam` and slacks `z` of the arms, multipliers `nu` and slacks `s` of the pairs."""

    lam: Floats
    z: Floats
    nu: Floats
    s: Floats

    @property
    def centre(self) -> float:
        """The mean product of a weight or multiplier with its slack."""
        return float(self.lam @ self.z + self.nu @ self.s) / (self.lam.size + self.nu.size)


class Improved(NamedTuple):
    """Where the steps led.

    Attributes
    ----------
    point : from which to go on
    weights : (n,) the best weights met, which sum to one
    value : the largest variance of the directions with them
    lower_bound : no design on these arms does better on these directions
    proof, strength : over any arms x no design has a value below ``strength / max |x @ proof|²``
    steps : Newton steps made
    stuck : whether rounding stopped the steps
    """

    point: Point
    weights: Floats
    value: float
    lower_bound: float
    proof: Floats
    strength: float
    steps: int
    stuck: bool


class _Look(NamedTuple):
    L: Floats  # factor of A
    V: Floats  # arms where A is the identity
    U: Floats  # directions there
    q: Floats  # variances of the directions
    C: Floats  # squared products of directions and arms


def warm_point(
    X: Floats, Z: Floats, lam: Floats, nu: Floats, centre: float, margin: float
) -> Point:
    """Weights and multipliers scaled until every constraint holds with a margin.

    A multiplier that is NaN is that of a new direction.
    """
    look = _look(X, Z, lam)
    scale = float(look.q.max()) * (1 + margin)
    q = look.q / scale
    s = 1 / q - 1
    nu = np.where(np.isnan(nu), centre / s, nu)
    g = (nu / q**2) @ look.C / scale**2
    shrink = 1 / (float(g.max()) * (1 + margin))
    return Point(lam * scale, 1 - g * shrink, nu * shrink, s)


def improve(X: Floats, Z: Floats, point: Point, tol: float, steps: int) -> Improved:
    """Steps until the gap on arms X (n, r) and directions Z (J, r) is within tol, or all made."""
    r = X.shape[1]
    value, lower, made, stuck = np.inf, 0.0, 0, False
    weights, proof, strength = point.lam / point.lam.sum(), np.zeros((r, r)), 0.0
    lam, z, nu, s = point
    while True:
        try:
            look = _look(X, Z, lam)
        except np.linalg.LinAlgError:  # the steps left no weight on some direction
            lam, stuck = point.lam, True
            break
        mu = nu / look.q**2
        g = mu @ look.C
        W = (look.U.T * mu) @ look.U
        total, mass, trace = float(lam.sum()), float(mu.sum()), float(mu @ look.q)
        if trace * trace > lower * mass * g.max():
            strength = trace * trace / mass
            lower = strength / float(g.max())
            proof = _proof(look.L, W)
        if total * look.q.max() < value:
            value, weights = total * float(look.q.max()), lam / total
        if value <= lower * (1 + tol) or made == steps:
            break
        factor = _factor(_newton_matrix(look, W, mu, Point(lam, z, nu, s)))
        if factor is None:
            stuck = True
            break
        moved = _step(look, g, Point(lam, z, nu, s), factor)
        if not all(np.isfinite(part).all() for part in moved):
            stuck = True
            break
        lam, z, nu, s = moved
        made += 1
    return Improved(Point(lam, z, nu, s), weights, value, lower, proof, strength, made, stuck)


def _look(X: Floats, Z: Floats, lam: Floats) -> _Look:
    L = np.asarray(np.linalg.cholesky((X.T * lam) @ X), dtype=np.float64)
    V = solve_triangular(L, X.T, lower=True, check_finite=False).T
    U = solve_triangular(L, Z.T, lower=True, check_finite=False).T
    return _Look(L, V, U, np.einsum("ij,ij->i", U, U), np.square(U @ V.T))


def _proof(L: Floats, W: Floats) -> Floats:
    values, vectors = np.linalg.eigh(W)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    answer: Floats = solve_triangular(L, root, lower=True, trans="T", check_finite=False)
    return answer


def _newton_matrix(look: _Look, W: Floats, mu: Floats, at: Point) -> Floats:
    """Lower triangle of curvature of h, barrier of lam and barrier of the constraints."""
    curve = at.nu / (at.s * look.q**4) - 2 * mu / look.q
    up = curve > 0
    N = dsyrk(1.0, (look.C[up] * np.sqrt(curve[up])[:, None]).T, lower=1)
    if not up.all():
        down = (look.C[~up] * np.sqrt(-curve[~up])[:, None]).T
        N = dsyrk(-1.0, down, beta=1.0, c=N, lower=1, overwrite_c=1)
    bend = look.V @ look.V.T
    bend *= (look.V @ (2 * W)) @ look.V.T
    N += bend
    N[np.diag_indices(len(N))] += at.z / at.lam
    answer: Floats = N
    return answer


def _factor(N: Floats) -> Floats | None:
    diagonal = N.diagonal().copy()
    for ridge in RIDGES:
        N[np.diag_indices(len(N))] = diagonal * (1 + ridge)
        factor, failed = dpotrf(N, lower=1, clean=0)
        if not failed:
            answer: Floats = factor
            return answer
    return None


def _step(look: _Look, g: Floats, at: Point, factor: Floats) -> Point:
    """Mehrotra: a step to the boundary tells how far to go, the second step goes there."""
    lam, z, nu, s = at
    q, centre = look.q, at.centre
    product = float(lam @ z + nu @ s)
    lagging = np.abs(1 - g - z).max() * lam.sum() > 3 * product
    aim, second, alpha = 0.0, 0.0, 0.0
    dlam, dz, dnu, ds = (np.zeros_like(part) for part in at)
    for corrector in (False, True):
        if corrector:
            after = (lam + alpha * dlam) @ (z + alpha * dz) + (nu + alpha * dnu) @ (s + alpha * ds)
            share = min(max(max(float(after) / product, 0.0) ** 3, 0.005), 1.0)
            aim, second = (centre, 0.0) if lagging else (centre * share, 1.0)
        left_lam = aim - lam * z - second * dlam * dz
        left_nu = aim - nu * s - second * dnu * ds
        pull = (left_nu - nu * (1 / q - 1 - s)) / (s * q * q)
        dlam = dpotrs(factor, g + z - 1 + left_lam / lam + pull @ look.C, lower=1)[0]
        dz = (left_lam - z * dlam) / lam
        ds = (look.C @ dlam) / (q * q) + 1 / q - 1 - s
        dnu = (left_nu - nu * ds) / s
        longest = min(map(_room, at, (dlam, dz, dnu, ds)))
        alpha = min(1.0, REACH * longest if corrector else longest)
    return Point(lam + alpha * dlam, z + alpha * dz, nu + alpha * dnu, s + alpha * ds)


def _room(part: Floats, change: Floats) -> float:
    falls = change < 0
    return float((-part[falls] / change[falls]).min(initial=np.inf))
