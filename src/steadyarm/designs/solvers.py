"""The exact solver: a primal-dual interior point on a working set of arms and directions.

Arms are the rows of a whitened X (K, r). Directions are the rows of B (m, r), or all differences
of two of them if `pairs`. The design minimises the largest y'A(λ)⁻¹y over the directions y.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.designs.design import Status
from steadyarm.kernels import first_largest, gram, inverse_root, row_dots, solve_lower

Matrix = NDArray[np.float64]
Indices = NDArray[np.int64]

RANGE = 1e-12  # share of the largest eigenvalue of A below which a direction is out of its range
OUTSIDE = 1e-9  # relative part of a direction out of the range of A that is rounding
BLOCK = 2**22  # numbers of a table of pairs that are held at once
SMALL = 48  # up to this many arms and directions everything is in the working set
MAX_ROUNDS = 100  # of adding arms and directions to it
MOST_STEPS = 120  # of Newton's method
ENTER = 0.7  # a direction enters when y'A⁻¹y exceeds this share of its bound


class Solution(NamedTuple):
    """Weights over the rows of X, their value, a proven lower bound, and how it went."""

    weights: Matrix
    value: float
    lower_bound: float
    status: Status
    iterations: int


class Certificate(NamedTuple):
    """The proof of a lower bound over any arms x: ``strength / max x'Qx``."""

    Q: Matrix
    strength: float


def solve_g(X: Matrix, tol: float) -> Solution:
    """G-optimal design on whitened arms X (K, r) of full column rank, whose value is r."""
    r = float(X.shape[1])
    found = solve_saddle(X, X, False, tol)
    status = Status.OPTIMAL if found.value <= r * (1 + tol) else found.status
    return found._replace(lower_bound=r, status=status)


def solve_saddle(X: Matrix, B: Matrix, pairs: bool, tol: float) -> Solution:
    """Design on whitened arms X (K, r) for the rows of B (m, r), or all differences of them."""
    K, r = X.shape
    if pairs:
        B = B - B.mean(axis=0)  # differences stay; distances are computed with less rounding
    if not (np.ptp(B, axis=0) if pairs else B).any():
        return Solution(np.full(K, 1 / K), 0.0, 0.0, Status.OPTIMAL, 0)
    if max(K, len(B)) <= SMALL:
        return _solve(X, B, pairs, tol)[0]
    distance, partner = farthest(B, pairs)
    rows = _spread(X, 3 * r)
    points = _falling(distance)[: 3 * r]
    if pairs:
        points = np.union1d(points, partner[points])
    best = Solution(np.full(K, 1 / K), np.inf, 0.0, Status.STALLED, 0)
    aim, steps = max(tol, 1e-2), 0
    for _ in range(MAX_ROUNDS):
        local, proof = _solve(X[rows], B[points], pairs, 0.5 * aim)
        steps += local.iterations
        g = row_dots(X @ proof.Q, X)
        lower = max(best.lower_bound, proof.strength / g.max())
        reached = value_on_range(X[rows], local.weights, B, pairs)
        if reached < best.value:
            weights = np.zeros(K)
            weights[rows] = local.weights
            best = best._replace(weights=weights, value=reached)
        best = best._replace(lower_bound=lower, status=local.status, iterations=steps)
        if best.value <= lower * (1 + tol):
            return best._replace(status=Status.OPTIMAL)
        # Directions out of the range of A have no value: keep a trace of all arms of the set.
        trace = 0.0 if np.isfinite(reached) else 0.001
        A = gram(X[rows], (1 - trace) * local.weights + trace / rows.size)
        distance, partner = farthest(_on_range(A, B)[0], pairs)
        most = g[rows].max() * (1 + 0.1 * aim)
        new_rows = _most_violating(g, most, rows, 2 * r + rows.size // 4)
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


def _spread(X: Matrix, count: int) -> Indices:
    """At least r arms that span the space, and the longest ones, up to `count` in all."""
    basis, left = [], X.copy()
    for _ in range(X.shape[1]):  # the arm farthest from the span of those before
        basis.append(int(first_largest(row_dots(left, left))))
        direction = left[basis[-1]] / np.linalg.norm(left[basis[-1]])
        left -= np.outer(left @ direction, direction)
    return np.union1d(basis, _falling(row_dots(X, X))[:count])


def _falling(size: Matrix) -> Indices:
    """Indices of the largest first; of those that are equal up to rounding, the first."""
    return np.argsort(-np.round(size / size.max(), 9), kind="stable")


def _most_violating(size: Matrix, bound: float, known: Indices, most: int) -> Indices:
    outside = np.setdiff1d(np.flatnonzero(size > bound), known)
    return outside[_falling(size[outside])[:most]] if outside.size else outside


def farthest(U: Matrix, pairs: bool) -> tuple[Matrix, Indices]:
    """Squared distance of each row of U (m, r) to its farthest row, and which row that is.

    Without pairs, squared norms and -1.
    """
    m, norm = len(U), row_dots(U, U)
    if not pairs:
        return norm, np.full(m, -1)
    distance, partner = np.empty(m), np.empty(m, dtype=np.int64)
    step = max(BLOCK // m, 1)
    for start in range(0, m, step):
        block = slice(start, start + step)
        table = np.maximum(norm[block, None] + norm - 2.0 * (U[block] @ U.T), 0.0)
        partner[block] = first_largest(table)
        distance[block] = table.max(axis=1)
    return distance, partner


def value_on_range(X: Matrix, weights: Matrix, B: Matrix, pairs: bool) -> float:
    """Largest y'A⁺y over the directions; infinite if one is not in the range of A(weights)."""
    U, missed = _on_range(gram(X, weights), B)
    if np.abs(missed - missed[0] if pairs else missed).max(initial=0.0) > OUTSIDE * np.abs(B).max():
        return np.inf
    return float(farthest(U, pairs)[0].max())


def _on_range(A: Matrix, B: Matrix) -> tuple[Matrix, Matrix]:
    """Rows of B in coordinates where A is the identity on its range, and what is out of it."""
    values, vectors = np.linalg.eigh(A)
    kept = values > RANGE * values[-1]
    return B @ (vectors[:, kept] / np.sqrt(values[kept])), B @ vectors[:, ~kept]


def _solve(X: Matrix, B: Matrix, pairs: bool, tol: float) -> tuple[Solution, Certificate]:
    """The design on a working set: `interior_point`, then again on the arms that carry weight.

    The second solution needs no more precision than the first. A point much closer to the optimum
    would tell the arms apart as well, but where several designs are optimal, rounding moves it
    among them, and the design would depend on the processor. Short, careful steps follow if the
    quick way did not arrive.
    """
    K, r = X.shape
    best = Solution(np.full(K, 1 / K), np.inf, 0.0, Status.STALLED, 0)
    proof, steps = Certificate(np.zeros((r, r)), 0.0), 0
    for most, careful in ((40, False), (MOST_STEPS, True)):
        point = interior_point(X, B, pairs, 0.5 * tol, most, careful)
        steps += point.steps
        if point.lower > best.lower_bound:
            best, proof = best._replace(lower_bound=point.lower), point.proof
        if point.value < best.value:
            best = best._replace(weights=point.weights, value=point.value, status=point.status)
        limit = best.lower_bound * (1 + tol)
        carrying = point.weights >= point.slack
        weights = np.where(carrying, point.weights, 0.0)
        value = np.inf
        if carrying.any():
            weights /= weights.sum()
            value = value_on_range(X, weights, B, pairs)
        if best.value <= limit < value and r <= carrying.sum() < K:
            alone = interior_point(X[carrying], B, pairs, 0.25 * tol, most, careful)
            steps += alone.steps
            weights[carrying], value = alone.weights, alone.value
        if value <= limit:
            best = best._replace(weights=weights, value=value)
        if best.value <= limit:
            best = best._replace(status=Status.OPTIMAL)
            break
    return best._replace(iterations=steps), proof


class InteriorPoint(NamedTuple):
    """The state in which the interior point stopped.

    Attributes
    ----------
    weights, slack : (K,) weights that sum to one, and 1 - g, zero on the support
    value, lower : of the weights, and a proven bound below the value of any design
    proof : the proof of that bound
    """

    weights: Matrix
    slack: Matrix
    value: float
    lower: float
    proof: Certificate
    status: Status
    steps: int


def interior_point(
    X: Matrix, B: Matrix, pairs: bool, tol: float, steps: int, careful: bool
) -> InteriorPoint:
    """Newton steps with Mehrotra's predictor and corrector on all arms and the active directions.

    With weights λ of any sum, each active direction y has q = y'A(λ)⁻¹y and 1/q - 1 = s >= 0,
    with multiplier ν; each arm has weight λ >= 0 and slack z = 1 - g, g the gradient.
    """
    K, r = X.shape
    m = len(B)
    reach, least, lag = (0.7, 0.2, 0.3) if careful else (0.98, 0.005, 3.0)
    room = min(m * (m - 1) // 2, 20 * m + 200) if pairs else m
    lam = z = np.full(K, 1.0 / K)
    codes = np.empty(0, dtype=np.int64)  # of active directions: first · m + second
    nu, s, sigma = np.empty(0), np.empty(0), 0.0
    best = InteriorPoint(lam, z, np.inf, 0.0, Certificate(np.zeros((r, r)), 0.0), Status.STALLED, 0)
    for step in range(steps + 1):
        best = best._replace(steps=step)
        try:
            root = inverse_root(gram(X, lam))
        except np.linalg.LinAlgError:
            return best._replace(status=Status.STALLED)
        V, U = X @ root, B @ root
        distance, partner = farthest(U, pairs)
        largest = float(distance.max())
        if step == 0:
            if largest <= 0.0:
                return best._replace(status=Status.OPTIMAL)
            scale = np.sqrt(2.0 * largest)  # every q starts at 1/2 or less: strictly inside
            lam, V, U, root = lam * scale**2, V / scale, U / scale, root / scale
            distance, largest = distance / scale**2, 0.5
        entering = np.flatnonzero(distance > ENTER * (largest if step == 0 else 1.0) * (1 - 1e-9))
        other = partner[entering] if pairs else entering
        new, where = np.unique(
            np.maximum(entering, other) * m + np.minimum(entering, other), return_index=True
        )
        fresh = ~np.isin(new, codes)
        new, apart = new[fresh], distance[entering][where][fresh]
        new, apart = new[: room - codes.size], apart[: room - codes.size]
        started = np.maximum(1.0 / apart - 1.0, 0.1)
        codes, s = np.append(codes, new), np.append(s, started)
        nu = np.append(nu, np.ones(new.size) if step == 0 else sigma / started)
        first, second = np.divmod(codes, m)
        w = U[first] - U[second] if pairs else U[first]
        # W in the coordinates where A is the identity, and the gradient g
        q = row_dots(w, w)
        mu = nu / (q * q)
        W = gram(w, mu)
        VW = V @ W
        g = row_dots(VW, V)
        if step == 0:  # multipliers scaled so that all slacks are at least one half
            shrink = 0.5 / g.max()
            nu, mu, W, VW, g = nu * shrink, mu * shrink, W * shrink, VW * shrink, g * shrink
            z = 1.0 - g
        total, mass, trace, steepest = lam.sum(), mu.sum(), mu @ q, g.max()
        lower = float(trace * trace / (steepest * mass))
        if lower > best.lower:
            proof = Certificate(root @ W @ root.T, float(trace * trace / mass))
            best = best._replace(lower=lower, proof=proof)
        if total * largest < best.value:
            best = best._replace(weights=lam / total, slack=z, value=float(total * largest))
        if best.value <= best.lower * (1.0 + tol):
            return best._replace(status=Status.OPTIMAL)
        if step == steps:
            break
        # Newton matrix: curvature of q, barrier of lam, barrier of the constraints
        C = np.square(w @ V.T)
        curve = nu / (s * q**4) - 2.0 * mu / q
        N = 2.0 * (V @ V.T) * (VW @ V.T) + (C.T * curve) @ C
        N[np.diag_indices(K)] += z / lam
        solve = _solver(N)
        gap = float(lam @ z + nu @ s)
        lagging = np.abs(1.0 - g - z).max() * total > lag * gap
        alpha = sigma = second_order = 0.0
        (dlam, dz), (dnu, ds) = np.zeros((2, K)), np.zeros((2, s.size))
        for corrector in (False, True):
            if corrector:
                after = float((lam + alpha * dlam) @ (z + alpha * dz))
                after += float((nu + alpha * dnu) @ (s + alpha * ds))
                sigma = gap / (K + s.size) * np.clip(max(after / gap, 0.0) ** 3, least, 1.0)
                second_order = 1.0
                if lagging:  # the multipliers lag behind: only centre
                    sigma, second_order = gap / (K + s.size), 0.0
            rlam = sigma - lam * z - second_order * dlam * dz
            rnu = sigma - nu * s - second_order * dnu * ds
            push = (rnu - nu * (1.0 / q - 1.0 - s)) / (s * q * q)
            dlam = solve(g + z - 1.0 + rlam / lam + push @ C)
            dz = (rlam - z * dlam) / lam
            ds = C @ dlam / (q * q) + (1.0 / q - 1.0 - s)
            dnu = (rnu - nu * ds) / s
            longest = min(map(_longest, (lam, z, s, nu), (dlam, dz, ds, dnu)))
            alpha = min(1.0, reach * longest if corrector else longest)
        lam, z, nu, s = lam + alpha * dlam, z + alpha * dz, nu + alpha * dnu, s + alpha * ds
    return best._replace(status=Status.STEP_LIMIT)


def _longest(x: Matrix, dx: Matrix) -> float:
    """The largest step for which x + step dx stays nonnegative."""
    falling = dx < 0.0
    return float((-x[falling] / dx[falling]).min(initial=np.inf))


def _solver(N: Matrix) -> Callable[[Matrix], Matrix]:
    """Solve with a positive matrix; where rounding hides that it is, with a little more of it."""
    size = np.sqrt(N.diagonal())
    scaled, ridge = N / size / size[:, None], 0.0
    while True:
        try:
            factor = scipy.linalg.cho_factor(scaled, lower=True, check_finite=False)
            break
        except np.linalg.LinAlgError:
            ridge = max(10 * ridge, 1e-15)
            scaled[np.diag_indices(len(N))] = 1.0 + ridge
    return lambda b: np.asarray(scipy.linalg.cho_solve(factor, b / size, check_finite=False) / size)


# Coordinates


def whiten(X: Matrix) -> tuple[Matrix, Matrix]:
    """Arms in coordinates where the uniform design is the identity, and the factor L of the map.

    Designs do not change under a linear map; near-dependent arms become well conditioned. Other
    vectors are mapped by `solve_lower(L, vectors)`.
    """
    orthonormal, R = np.linalg.qr(X)
    root = np.sqrt(len(X))
    return np.ascontiguousarray(orthonormal * root), np.ascontiguousarray(R.T / root)


def whiten_arms(arms: ArmSet) -> tuple[Matrix, Matrix]:
    """Arms that can be played and those that can be recommended, in whitened coordinates."""
    X, L = whiten(arms.coordinates)
    return X, X if arms.targets is None else solve_lower(L, arms.target_coordinates)


def own_span(X: Matrix) -> Matrix:
    """Rows of X in whitened coordinates of their own span: full column rank."""
    left, singular, _ = np.linalg.svd(X, full_matrices=False)
    rank = max(int((singular > 1e-9 * max(singular[0], 1e-300)).sum()), 1)
    return np.ascontiguousarray(left[:, :rank] * np.sqrt(len(X)))
