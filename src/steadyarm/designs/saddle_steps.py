"""The Newton steps of `saddle_kernel` for hundreds of arms and pairs, from a warm start.

Called by `large_xy` on its lists; `pair_lists` makes the points to go on from.

The same primal-dual method on the same scaled problem, with every pair given as a direction. It
can go on from an earlier point after arms and pairs came in: weights and multipliers are scaled
until all constraints hold with a margin, and newcomers start as if on the path to the optimum.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from steadyarm.linalg import (
    cholesky,
    cholesky_solve,
    eigh,
    factor,
    gram,
    matmul,
    row_dots,
    solve_lower,
)

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
        return float(matmul(self.lam, self.z) + matmul(self.nu, self.s)) / (
            self.lam.size + self.nu.size
        )


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
    g = matmul(nu / q**2, look.C) / scale**2
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
        g = matmul(mu, look.C)
        W = gram(look.U, mu)
        total, mass, trace = float(lam.sum()), float(mu.sum()), matmul(mu, look.q)
        if trace * trace > lower * mass * g.max():
            strength = trace * trace / mass
            lower = strength / float(g.max())
            proof = _proof(look.L, W)
        if total * look.q.max() < value:
            value, weights = total * float(look.q.max()), lam / total
        if value <= lower * (1 + tol) or made == steps:
            break
        newton = _factor(_newton_matrix(look, W, mu, Point(lam, z, nu, s)))
        if newton is None:
            stuck = True
            break
        moved = _step(look, g, Point(lam, z, nu, s), newton)
        if not all(np.isfinite(part).all() for part in moved):
            stuck = True
            break
        lam, z, nu, s = moved
        made += 1
    return Improved(Point(lam, z, nu, s), weights, value, lower, proof, strength, made, stuck)


def _look(X: Floats, Z: Floats, lam: Floats) -> _Look:
    L = factor(gram(X, lam))
    V, U = solve_lower(L, X), solve_lower(L, Z)
    return _Look(L, V, U, row_dots(U, U), np.square(matmul(U, V.T)))


def _proof(L: Floats, W: Floats) -> Floats:
    values, vectors = eigh(W)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(matmul(solve_lower(L, np.eye(len(L))), root))


def _newton_matrix(look: _Look, W: Floats, mu: Floats, at: Point) -> Floats:
    """Lower triangle of curvature of h, barrier of lam and barrier of the constraints."""
    curve = at.nu / (at.s * np.square(np.square(look.q))) - 2 * mu / look.q
    N = gram(look.C, curve)
    bend = gram(look.V.T)
    bend *= matmul(matmul(look.V, 2 * W), look.V.T)
    N += bend
    N[np.diag_indices(len(N))] += at.z / at.lam
    return N


def _factor(N: Floats) -> Floats | None:
    diagonal = N.diagonal().copy()
    for ridge in RIDGES:
        N[np.diag_indices(len(N))] = diagonal * (1 + ridge)
        L = N.copy()
        if cholesky(L, 0.0):
            return L
    return None


def _step(look: _Look, g: Floats, at: Point, newton: Floats) -> Point:
    """Mehrotra: a step to the boundary tells how far to go, the second step goes there."""
    lam, z, nu, s = at
    q, centre = look.q, at.centre
    product = matmul(lam, z) + matmul(nu, s)
    lagging = np.abs(1 - g - z).max() * lam.sum() > 3 * product
    aim, second, alpha = 0.0, 0.0, 0.0
    dlam, dz, dnu, ds = (np.zeros_like(part) for part in at)
    for corrector in (False, True):
        if corrector:
            after = matmul(lam + alpha * dlam, z + alpha * dz)
            after += matmul(nu + alpha * dnu, s + alpha * ds)
            ratio = max(after / product, 0.0)
            share = min(max(ratio * ratio * ratio, 0.005), 1.0)
            aim, second = (centre, 0.0) if lagging else (centre * share, 1.0)
        left_lam = aim - lam * z - second * dlam * dz
        left_nu = aim - nu * s - second * dnu * ds
        pull = (left_nu - nu * (1 / q - 1 - s)) / (s * q * q)
        dlam = g + z - 1 + left_lam / lam + matmul(pull, look.C)
        cholesky_solve(newton, dlam)
        dz = (left_lam - z * dlam) / lam
        ds = matmul(look.C, dlam) / (q * q) + (1 / q - 1 - s)
        dnu = (left_nu - nu * ds) / s
        longest = min(map(_room, at, (dlam, dz, dnu, ds)))
        alpha = min(1.0, REACH * longest if corrector else longest)
    return Point(lam + alpha * dlam, z + alpha * dz, nu + alpha * dnu, s + alpha * ds)


def _room(part: Floats, change: Floats) -> float:
    falls = change < 0
    return float((-part[falls] / change[falls]).min(initial=np.inf))
