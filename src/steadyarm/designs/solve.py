"""Designs of raw matrices with all arms and directions in hand: kernels, purging, second tries.

Called by `active`, which decides what is in hand. `whiten` is for whoever has raw arms.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from steadyarm.designs.design import Status
from steadyarm.designs.saddle_kernel import interior_point, purge
from steadyarm.designs.volume_kernel import largest_volume
from steadyarm.linalg import qr, solve_lower

__all__ = [
    "Certificate",
    "Matrix",
    "Solution",
    "in_coordinates",
    "most_volume",
    "saddle_point",
    "whiten",
]

OUTCOMES = (Status.OPTIMAL, Status.STEP_LIMIT, Status.STALLED)
MOST_STEPS = 120

Matrix = NDArray[np.float64]


class Solution(NamedTuple):
    """Weights over the rows of X, their value, a proven lower bound, and how it went."""

    weights: Matrix
    value: float
    lower_bound: float
    status: Status
    iterations: int


class Certificate(NamedTuple):
    """What proves a lower bound over any arms x: ``strength / max x'Qx``."""

    Q: Matrix
    strength: float


def whiten(X: Matrix) -> tuple[Matrix, Matrix]:
    """Arms in coordinates where the uniform design is the identity, and the factor L of the map.

    Designs do not change under a linear map; near-dependent arms become well conditioned. Other
    vectors are mapped by `in_coordinates(L, vectors)`.
    """
    orthonormal, R = qr(X)
    root = np.sqrt(len(X))
    return np.ascontiguousarray(orthonormal * root), np.ascontiguousarray(R.T / root)


def in_coordinates(L: Matrix, vectors: Matrix) -> Matrix:
    """Rows of `vectors` (m, r) in the coordinates where LL' is the identity."""
    return solve_lower(L, vectors)


def saddle_point(X: Matrix, B: Matrix, pairs: bool, tol: float) -> tuple[Solution, Certificate]:
    """Design on whitened arms X (K, r) for the rows of B (m, r), or all differences of them.

    First quickly to within half the tolerance; closer if the arms that carry nothing cannot be
    told yet; and with short, careful steps if the quick way did not arrive.
    """
    K, r = X.shape
    best = Solution(np.full(K, 1 / K), np.inf, 0.0, Status.STALLED, 0)
    proof = Certificate(np.zeros((r, r)), 0.0)
    steps = 0
    for aim, most, careful in (
        (0.5 * tol, 40, False),
        (0.02 * tol, 40, False),
        (0.5 * tol, MOST_STEPS, True),
    ):
        weights, slack = np.empty(K), np.empty(K)
        Q, bounds = np.empty((r, r)), np.empty(3)
        ended, more = interior_point(X, B, pairs, aim, most, careful, weights, slack, Q, bounds)
        steps += more
        if bounds[1] > best.lower_bound:
            best = best._replace(lower_bound=float(bounds[1]))
            proof = Certificate(Q, float(bounds[2]))
        if bounds[0] < best.value:
            best = best._replace(
                weights=weights.copy(), value=float(bounds[0]), status=OUTCOMES[ended]
            )
        limit = best.lower_bound * (1 + tol)
        purged = purge(X, B, pairs, limit, weights, slack)
        if purged <= limit:
            best = best._replace(weights=weights, value=purged, status=Status.OPTIMAL)
            break
        if aim < 0.5 * tol and best.value <= limit:
            best = best._replace(status=Status.OPTIMAL)  # but no arm can be left out for certain
            break
    if best.value <= best.lower_bound * (1 + tol):
        best = best._replace(status=Status.OPTIMAL)
    return best._replace(iterations=steps), proof


def most_volume(X: Matrix, tol: float) -> Solution:
    """G-optimal design on whitened arms X (K, r) of full column rank."""
    K, r = X.shape
    weights, slack = np.empty(K), np.empty(K)
    ended, steps, value = largest_volume(X, 0.1 * tol, MOST_STEPS, weights, slack)
    purged = purge(X, X, False, r * (1 + tol), weights, slack)
    value = purged if np.isfinite(purged) else value
    status = Status.OPTIMAL if value <= r * (1 + tol) else OUTCOMES[ended]
    return Solution(weights, value, float(r), status, steps)
