"""The short lists of arms and pairs on which a large XY design is solved, and how they change.

Called by `large_xy`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms.rows import Rows
from steadyarm.designs.farthest import partners
from steadyarm.designs.passes import farthest_along, leverages, radii
from steadyarm.designs.saddle_steps import Improved, Point, warm_point
from steadyarm.linalg import eigh, factor, gram, matmul, matrix_rank, solve_lower

__all__ = ["NEW_PAIRS", "Lists", "first_lists", "grown", "light"]

FIRST_ARMS = 10  # arms to begin with, times the rank
FIRST_PAIRS = 4
NEW_ARMS = 6  # arms that may come in after a sweep, times the rank
NEW_PAIRS = 4
DROP = 4.0  # slack above which a member of a list leaves it, as a multiple of the gap
CARRIES = 0.1  # an arm with this share of the mean weight stays whatever its slack
COLD = 0.3  # share of equal weights beside those of a start
REGULAR = 1e-9  # least eigenvalue of the arms listed, as a share of the largest

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Lists:
    """Arms and pairs in hand, in coordinates where equal weights on all arms are the identity.

    Attributes
    ----------
    arms : (n,) indices
    pairs : (J, 2) positions among the arms compared, the smaller first
    X : (n, r) the arms
    Z : (J, r) the differences
    point : from which the steps go on
    level : slack above which arms and pairs were last left out
    gone_arms, gone_pairs : what was ever left out; if it comes back it stays, so that nothing
        goes round in circles
    """

    arms: Indices
    pairs: Indices
    X: Floats
    Z: Floats
    point: Point
    level: float
    gone_arms: Indices = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    gone_pairs: Indices = field(default_factory=lambda: np.empty((0, 2), dtype=np.int64))


def first_lists(
    rows: Rows,
    compared: Rows,
    to: Floats,
    centre: Floats,
    start: tuple[Indices, Floats] | None = None,
) -> tuple[Lists | None, float]:
    """Outermost arms that span the space, with those of the start, and far pairs of those compared.

    None if all arms compared are one. Also the passes made.
    """
    r = to.shape[1]
    share = compared.shape[0] / rows.shape[0]
    radius = radii(compared, to, matmul(centre, to))
    outer = np.argsort(-radius, kind="stable")[: FIRST_ARMS * r].astype(np.int64)
    scores = radius if compared is rows else leverages(rows, to)
    arms = np.argsort(-scores, kind="stable")[: FIRST_ARMS * r].astype(np.int64)
    passes = share + (compared is not rows)
    if start is not None:
        heaviest = np.argsort(-start[1], kind="stable")[: FIRST_ARMS * r]
        arms = np.union1d(arms[: FIRST_ARMS * r // 2], start[0][heaviest])
    arms, more = _spanning(rows, to, arms)
    X = matmul(rows.take(arms), to)
    outer = outer[: FIRST_PAIRS * r]
    where, apart = partners(compared, to, outer)
    passes += more + share * (1 + outer.size / r)
    if not apart.max() > 0:
        return None, passes
    far = apart > 0
    pairs = np.unique(np.sort(np.column_stack([outer[far], where[far]]), axis=1), axis=0)
    Z = _differences(compared, to, pairs)
    lam = np.full(arms.size, 1 / arms.size)
    if start is not None:
        held, at, of = np.intersect1d(arms, start[0], return_indices=True)
        lam *= COLD
        lam[at] += (1 - COLD) * start[1][of] / start[1][of].sum() if held.size else 0.0
    point = warm_point(X, Z, lam, np.full(len(Z), np.nan), 1.0, 1.0)
    return Lists(arms, pairs, X, Z, point, 1.0), passes


def _spanning(rows: Rows, to: Floats, arms: Indices) -> tuple[Indices, float]:
    """The arms, with further ones if they do not span the space; and the passes made."""
    passes = 0.0
    while True:
        values, vectors = eigh(gram(matmul(rows.take(arms), to)))
        missing = vectors[:, values <= REGULAR * values[-1]]
        if not missing.shape[1]:
            return arms, passes
        more = np.union1d(arms, farthest_along(rows, matmul(to, missing)))
        passes += missing.shape[1] / to.shape[1]
        if more.size == arms.size:
            return arms, passes
        arms = more


def light(lists: Lists, weights: Floats, value: float, tol: float) -> Floats:
    """The weights without the least ones, if that costs less than a part of the tolerance."""
    order = np.argsort(weights, kind="stable")
    dropped = order[np.cumsum(weights[order]) < 0.05 * tol]
    trial = weights.copy()
    trial[dropped] = 0.0
    trial /= trial.sum()
    A = gram(lists.X, trial)
    if eigh(A)[0][0] <= 1e-10 * np.trace(A):
        return weights
    U = solve_lower(factor(A), lists.Z)
    return trial if np.square(U).sum(axis=1).max() <= value * (1 + 0.2 * tol) else weights


def grown(
    rows: Rows,
    compared: Rows,
    to: Floats,
    lists: Lists,
    solved: Improved,
    g: Floats,
    far: Indices,
    gap: float,
) -> tuple[Lists, int]:
    """The lists without what has become idle, with arms and pairs that came up; how many came.

    `g` (K,) says how much each arm would help; `far` (m, 2) are pairs, the farthest first.
    """
    r, point = to.shape[1], solved.point
    reached = float(g[lists.arms].max())
    arms = np.setdiff1d(np.flatnonzero(g > reached * (1 + 0.05 * gap)), lists.arms)
    arms = arms[np.argsort(-g[arms], kind="stable")[: NEW_ARMS * r]]
    pairs = far[~_known(far, lists.pairs)][: NEW_PAIRS * r]
    level = max(DROP * gap, 0.3 * lists.level)
    stays = (point.z < level) | (point.lam > CARRIES * point.lam.mean())
    stays |= np.isin(lists.arms, lists.gone_arms)
    if matrix_rank(lists.X[stays]) < r:
        stays[:] = True
    active = (point.s < level) | (point.nu > CARRIES * point.nu.mean())
    active |= _known(lists.pairs, lists.gone_pairs)
    slack = np.maximum(1 - g[arms] / reached, 0.05)
    lam = np.concatenate([point.lam[stays], point.centre / slack])
    nu = np.concatenate([point.nu[active], np.full(len(pairs), np.nan)])
    X = np.vstack([lists.X[stays], matmul(rows.take(arms), to)])
    Z = np.vstack([lists.Z[active], _differences(compared, to, pairs)])
    margin = max(0.3 * gap, 1e-9)
    changed = Lists(
        np.concatenate([lists.arms[stays], arms]),
        np.vstack([lists.pairs[active], pairs]),
        X,
        Z,
        warm_point(X, Z, lam, nu, point.centre, margin),
        level,
        np.union1d(lists.gone_arms, lists.arms[~stays]),
        np.vstack([lists.gone_pairs, lists.pairs[~active]]),
    )
    return changed, arms.size + len(pairs)


def _known(pairs: Indices, known: Indices) -> NDArray[np.bool_]:
    """Which of the pairs (n, 2) are in the list (m, 2)."""
    seen = set(map(tuple, known.tolist()))
    return np.array([tuple(pair) in seen for pair in pairs.tolist()], dtype=np.bool_)


def _differences(rows: Rows, to: Floats, pairs: Indices) -> Floats:
    return np.asarray(matmul(rows.take(pairs[:, 0]) - rows.take(pairs[:, 1]), to))
