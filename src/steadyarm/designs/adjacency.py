"""Which arms are neighbours: pairs joined by an edge of the convex hull, and the design for them.

Only a vertex of the hull can be the single best arm, and whichever is best, the linear function
falls along every edge that leaves it. So comparing neighbours finds the best (the simplex method).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.designs.design import Design
from steadyarm.designs.optimal import TOLERANCE, solve_directions, xy_optimal
from steadyarm.kernels import row_dots

MARGIN = 1e-8  # of a functional on arms of size one, up to which it separates nothing
TOUCHING = 1e-10  # distance up to which two hulls have a point in common

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def adjacent_pairs(arms: ArmSet) -> Integers:
    """Pairs i < j of arms joined by an edge of conv(X): (P, 2), read-only, in order.

    Vertices i and j are joined if some functional is equal on both and lower on all other
    vertices. The functional through their middle proves it for most pairs; for the others, the
    nearest points of two hulls tell. Arms inside the hull, or between two others, are in no pair.
    Remembered per arm set.

    Parameters
    ----------
    arms : the arm set

    Returns
    -------
    (P, 2) array of arm indices

    Examples
    --------
    >>> square = ArmSet.from_features([[0, 0], [0, 1], [1, 1], [1, 0], [0.4, 0.6]])
    >>> adjacent_pairs(square).tolist()
    [[0, 1], [0, 3], [1, 2], [2, 3]]
    """
    arms.refuse_targets("adjacent_pairs")
    return _pairs(arms)


def adjacent_optimal(arms: ArmSet) -> Design:
    """The XY design for adjacent pairs only, to a proven relative gap of 1e-6; remembered.

    Minimises max over adjacent x, x' of ‖x - x'‖² in the inverse of A(weights). It is the XY
    design itself if all pairs are adjacent, and its value is never above that design's.

    Parameters
    ----------
    arms : the arm set

    Returns
    -------
    Design : weights, value and a lower bound that proves how good they are

    Examples
    --------
    >>> square = ArmSet.from_features([[0, 0], [0, 1], [1, 1], [1, 0]])
    >>> print(f"{adjacent_optimal(square).value:.3f}")
    1.866
    """
    arms.refuse_targets("adjacent_optimal")
    return _design(arms)


@lru_cache(maxsize=64)
def _pairs(arms: ArmSet) -> Integers:
    points = _affine_coordinates(arms.coordinates)
    vertices = _vertices(points)
    found = vertices[np.argwhere(_are_joined(points[vertices]))].astype(np.int64)
    found.setflags(write=False)
    return found


@lru_cache(maxsize=64)
def _design(arms: ArmSet) -> Design:
    pairs = _pairs(arms)
    if len(pairs) == arms.size * (arms.size - 1) // 2:
        return xy_optimal(arms, tol=TOLERANCE)
    X = arms.coordinates
    return solve_directions(arms, X[pairs[:, 0]] - X[pairs[:, 1]], TOLERANCE)


def _affine_coordinates(X: Floats) -> Floats:
    """Arms (K, q) seen from their mean, in coordinates of their own directions, largest size 1."""
    left, singular, _ = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    kept = singular > 1e-10 * singular[0]
    points = left[:, kept]
    return np.asarray(points / np.sqrt(row_dots(points, points).max()))


def _vertices(points: Floats) -> NDArray[np.intp]:
    """Arms that some functional separates from the hull of all others."""
    return np.flatnonzero([_is_face(points, [i]) for i in range(len(points))])


def _are_joined(points: Floats) -> NDArray[np.bool_]:
    """(V, V) upper triangle: which vertices are joined by an edge."""
    V = len(points)
    joined = np.zeros((V, V), dtype=bool)
    for i in range(V - 1):
        joined[i, i + 1 :] = _middle_margins(points, i) > MARGIN
        for j in range(i + 1, V):
            joined[i, j] = joined[i, j] or _is_face(points, [i, j])
    return joined


def _middle_margins(points: Floats, i: int) -> Floats:
    """For each j > i the margin of the functional through the middle of i and j: a quick proof."""
    later = points[i + 1 :]
    across, middle = later - points[i], later + points[i]
    share = (middle * across).sum(axis=1) / (across * across).sum(axis=1)
    functional = middle - share[:, None] * across
    values = functional @ points.T
    ends = values[:, i].copy()
    values[:, i] = -np.inf
    np.fill_diagonal(values[:, i + 1 :], -np.inf)
    return np.asarray((ends - values.max(axis=1)) / np.abs(functional).max(axis=1).clip(MARGIN))


def _is_face(points: Floats, chosen: list[int]) -> bool:
    """Whether one point is a vertex, or the line between two vertices is an edge.

    It is one if the hulls of the chosen points and of the others have no point in common: for two
    vertices, walks of the simplex method then never leave their side, so an edge joins them.
    """
    from scipy.optimize import nnls

    V, q = points.shape
    mine = np.zeros(V, dtype=bool)
    mine[chosen] = True
    if mine.all():
        return True
    sides = np.vstack([np.where(mine, points.T, -points.T), mine, ~mine])
    missed = np.append(np.zeros(q), [1.0, 1.0])
    missed -= sides @ nnls(sides, missed, maxiter=100 * V)[0]
    return float(np.linalg.norm(missed)) > TOUCHING
