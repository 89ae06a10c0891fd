"""Designs of raw matrices: small sets in one compiled call, large ones by bringing arms in.

Called by `g_optimal`, `xy_optimal`, `adjacency` and `memo`; what fits in one call goes to `solve`.

An optimal design needs at most r(r+1)/2 arms, so a large set is solved over a working set of arms
and of directions; the full set is scanned for arms and directions that prove the answer wrong,
those are added, and it is solved again until the proof holds for all.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steadyarm.designs.dense_kernels import farthest, value_on_range
from steadyarm.designs.design import Status
from steadyarm.designs.solve import (
    Matrix,
    Solution,
    in_coordinates,
    most_volume,
    saddle_point,
)
from steadyarm.linalg import eigh, factor, gram, matmul, row_dots, spanning

__all__ = ["solve_pairs", "solve_saddle", "solve_volume"]

SMALL = 48  # up to this many arms and directions everything is in the working set
MAX_ROUNDS = 100

Indices = NDArray[np.intp]


def solve_pairs(X: Matrix, chosen: NDArray[np.bool_] | NDArray[np.int64], tol: float) -> Solution:
    """XY-optimal design on whitened arms X (K, r) to compare the chosen ones.

    If the arms are linearly independent, a difference x_i - x_j has the value 1/w_i + 1/w_j; its
    mean over all pairs of s arms is at least 2s, which equal weights on them attain.
    """
    K, r = X.shape
    weights = np.zeros(K)
    weights[chosen] = 1.0
    size = int(weights.sum())
    if r < K or size < 2:
        return solve_saddle(X, X[chosen], True, tol)
    return Solution(weights / size, 2.0 * size, 2.0 * size, Status.OPTIMAL, 0)


def solve_saddle(X: Matrix, B: Matrix, pairs: bool, tol: float) -> Solution:
    """Design on whitened arms X (K, r) for the rows of B (m, r), or all differences of them."""
    if pairs:
        B = B - B.mean(axis=0)  # differences stay; distances are computed with less rounding
    if not (np.ptp(B, axis=0) if pairs else B).any():
        return Solution(np.full(len(X), 1 / len(X)), 0.0, 0.0, Status.OPTIMAL, 0)
    if max(len(X), len(B)) <= SMALL:
        return saddle_point(X, B, pairs, tol)[0]
    return _solve_large(X, B, pairs, tol)


def _solve_large(X: Matrix, B: Matrix, pairs: bool, tol: float) -> Solution:
    K, r = X.shape
    distance, partner = np.empty(len(B)), np.empty(len(B), dtype=np.int64)
    farthest(B, pairs, distance, partner)
    rows = _spread(X, 3 * r)
    points = np.argsort(-distance, kind="stable")[: 3 * r]
    if pairs:
        points = np.union1d(points, partner[points])
    best = Solution(np.full(K, 1 / K), np.inf, 0.0, Status.STALLED, 0)
    aim, steps = max(tol, 1e-2), 0
    for _ in range(MAX_ROUNDS):
        local, proof = saddle_point(X[rows], B[points], pairs, 0.5 * aim)
        steps += local.iterations
        g = row_dots(matmul(X, proof.Q), X)
        lower = max(best.lower_bound, proof.strength / g.max())
        weights = np.zeros(K)
        weights[rows] = local.weights
        # directions outside the range of a purged design have no value: keep a trace of all arms
        interior = 0.999 * weights[rows] + 0.001 / rows.size
        reached = value_on_range(X[rows], local.weights, B, pairs)
        probe = local.weights if np.isfinite(reached) else interior
        root = _regular_factor(X[rows], probe, interior)
        farthest(in_coordinates(root, B), pairs, distance, partner)
        if reached < best.value:
            best = best._replace(weights=weights, value=reached)
        best = best._replace(lower_bound=lower, status=local.status, iterations=steps)
        if best.value <= lower * (1 + tol):
            return best._replace(status=Status.OPTIMAL)
        new_rows = _most_violating(g, g[rows].max() * (1 + 0.1 * aim), rows, 2 * r + rows.size // 4)
        bound = local.value * (1 + 0.1 * aim)
        new_points = _most_violating(distance, bound, points, 2 * r + points.size // 4)
        if pairs and new_points.size:
            new_points = np.setdiff1d(np.union1d(new_points, partner[new_points]), points)
        if not new_rows.size and not new_points.size:
            if aim <= 0.05 * tol:
                break
            aim = max(0.05 * tol, 1e-2 * aim)
        elif aim > tol:
            aim = max(tol, 0.1 * aim)
        rows, points = np.union1d(rows, new_rows), np.union1d(points, new_points)
    status = Status.STALLED if best.status is Status.OPTIMAL else best.status
    return best._replace(status=status)


def solve_volume(X: Matrix, tol: float) -> Solution:
    """G-optimal design on whitened arms X (K, r) of full column rank."""
    K, r = X.shape
    if K <= SMALL:
        return most_volume(X, tol)
    rows = _spread(X, 4 * r)
    best = Solution(np.full(K, 1 / K), np.inf, float(r), Status.STALLED, 0)
    aim, steps = max(tol, 1e-2), 0
    for _ in range(MAX_ROUNDS):
        local = most_volume(X[rows], 0.5 * aim)
        steps += local.iterations
        root = _regular_factor(X[rows], local.weights, local.weights)
        g = np.square(in_coordinates(root, X)).sum(axis=1)
        if g.max() < best.value:
            weights = np.zeros(K)
            weights[rows] = local.weights
            best = best._replace(weights=weights, value=float(g.max()))
        best = best._replace(status=local.status, iterations=steps)
        if best.value <= r * (1 + tol):
            return best._replace(status=Status.OPTIMAL)
        new = _most_violating(g, g[rows].max() * (1 + 0.1 * aim), rows, 2 * r + rows.size // 4)
        if not new.size and aim <= 0.05 * tol:
            break
        aim = max(tol, 0.1 * aim) if new.size else max(0.05 * tol, 1e-2 * aim)
        rows = np.union1d(rows, new)
    status = Status.STALLED if best.status is Status.OPTIMAL else best.status
    return best._replace(status=status)


def _spread(X: Matrix, count: int) -> Indices:
    """At least r arms that span the space, and the longest ones, up to `count` in all."""
    basis = spanning(X)[0][: X.shape[1]]
    longest = np.argsort(-np.square(X).sum(axis=1), kind="stable")[:count]
    return np.union1d(basis, longest)


def _regular_factor(X: Matrix, weights: Matrix, interior: Matrix) -> Matrix:
    A = gram(X, weights)
    if eigh(A)[0][0] <= 1e-10 * np.trace(A):
        A = gram(X, interior)
    return factor(A)


def _most_violating(size: Matrix, bound: float, known: Indices, most: int) -> Indices:
    outside = np.setdiff1d(np.flatnonzero(size > bound), known)
    return outside[np.argsort(-size[outside], kind="stable")[:most]]
