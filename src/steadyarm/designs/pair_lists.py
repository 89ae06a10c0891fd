"""The short lists of arms and pairs on which a large XY design is solved, and how they change."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steadyarm.designs.farthest import partners, radii
from steadyarm.designs.passes import farthest_along
from steadyarm.designs.rows import Rows
from steadyarm.designs.saddle_steps import Improved, Point, first_point, warm_point

FIRST_ARMS = 10  # arms to begin with, times the rank
FIRST_PAIRS = 4
NEW_ARMS = 6  # arms that may come in after a sweep, times the rank
NEW_PAIRS = 4
DROP = 4.0  # slack above which a member of a list leaves it, as a multiple of the gap
CARRIES = 0.1  # an arm with this share of the mean weight stays whatever its slack
REGULAR = 1e-9  # least eigenvalue of the arms listed, as a share of the largest

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Lists:
    """Arms and pairs in hand, in coordinates where equal weights on all arms are the identity.

    Attributes
    ----------
    arms : (n,) indices
    pairs : (J, 2) indices, the smaller first
    X : (n, r) the arms
    Z : (J, r) the differences
    point : from which the steps go on
    level : slack above which arms and pairs were last left out
    """

    arms: Indices
    pairs: Indices
    X: Floats
    Z: Floats
    point: Point
    level: float


def first_lists(rows: Rows, to: Floats, centre: Floats) -> tuple[Lists | None, float]:
    """Outermost arms that span the space and their farthest partners; None if all arms are one.

    Also the passes made.
    """
    r = to.shape[1]
    radius = radii(rows, to, centre @ to)
    outer = np.argsort(-radius, kind="stable")[: FIRST_ARMS * r].astype(np.int64)
    arms, passes = outer, 1.0
    while True:
        X = rows.take(arms) @ to
        values, vectors = np.linalg.eigh(X.T @ X)
        missing = vectors[:, values <= REGULAR * values[-1]]
        if not missing.shape[1]:
            break
        more = np.union1d(arms, farthest_along(rows, to @ missing))
        passes += missing.shape[1] / r
        if more.size == arms.size:
            break
        arms = more
    outer = outer[: FIRST_PAIRS * r]
    where, apart = partners(rows, to, outer)
    passes += 1 + outer.size / r
    if not apart.max() > 0:
        return None, passes
    far = apart > 0
    pairs = np.unique(np.sort(np.column_stack([outer[far], where[far]]), axis=1), axis=0)
    Z = _differences(rows, to, pairs)
    return Lists(arms, pairs, X, Z, first_point(X, Z), 1.0), passes


def light(lists: Lists, weights: Floats, value: float, tol: float) -> Floats:
    """The weights without the least ones, if that costs less than a part of the tolerance."""
    order = np.argsort(weights)
    dropped = order[np.cumsum(weights[order]) < 0.05 * tol]
    trial = weights.copy()
    trial[dropped] = 0.0
    trial /= trial.sum()
    A = (lists.X.T * trial) @ lists.X
    if np.linalg.eigvalsh(A)[0] <= 1e-10 * np.trace(A):
        return weights
    U = np.linalg.solve(np.linalg.cholesky(A), lists.Z.T)
    return trial if np.square(U).sum(axis=0).max() <= value * (1 + 0.2 * tol) else weights


def grown(
    rows: Rows, to: Floats, lists: Lists, solved: Improved, g: Floats, far: Indices, gap: float
) -> tuple[Lists, int]:
    """The lists without what has become idle, with arms and pairs that came up; how many came.

    `g` (K,) says how much each arm would help; `far` (m, 2) are pairs, the farthest first.
    """
    r, point = to.shape[1], solved.point
    reached = float(g[lists.arms].max())
    arms = np.setdiff1d(np.flatnonzero(g > reached * (1 + 0.05 * gap)), lists.arms)
    arms = arms[np.argsort(-g[arms], kind="stable")[: NEW_ARMS * r]]
    pairs = _unknown(lists.pairs, far)[: NEW_PAIRS * r]
    level = max(DROP * gap, 0.3 * lists.level)
    stays = (point.z < level) | (point.lam > CARRIES * point.lam.mean())
    if np.linalg.matrix_rank(lists.X[stays]) < r:
        stays[:] = True
    active = (point.s < level) | (point.nu > CARRIES * point.nu.mean())
    slack = np.maximum(1 - g[arms] / reached, 0.05)
    lam = np.concatenate([point.lam[stays], point.centre / slack])
    nu = np.concatenate([point.nu[active], np.full(len(pairs), np.nan)])
    X = np.vstack([lists.X[stays], rows.take(arms) @ to])
    Z = np.vstack([lists.Z[active], _differences(rows, to, pairs)])
    margin = max(0.3 * gap, 1e-9)
    changed = Lists(
        np.concatenate([lists.arms[stays], arms]),
        np.vstack([lists.pairs[active], pairs]),
        X,
        Z,
        warm_point(X, Z, lam, nu, point.centre, margin),
        level,
    )
    return changed, arms.size + len(pairs)


def _unknown(known: Indices, far: Indices) -> Indices:
    """Those of the pairs that are not in the list, in their order."""
    seen = set(map(tuple, known.tolist()))
    new = [pair for pair in far.tolist() if tuple(pair) not in seen]
    return np.array(new, dtype=np.int64).reshape(-1, 2)


def _differences(rows: Rows, to: Floats, pairs: Indices) -> Floats:
    return (rows.take(pairs[:, 0]) - rows.take(pairs[:, 1])) @ to
