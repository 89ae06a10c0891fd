"""The farthest pair of many points, without looking at every pair.

The proof of every XY design of many arms: `large_xy`, `pair_game` and `nested` call it.

With a centre and the distances of all points from it, a pair can only be farther apart than the
best one known if its two distances add up to more. Points are put in blocks by that distance (in
few dimensions by place), pairs of blocks are taken in the order of their bounds, and the search
ends when the next bound is below the best pair. Where all points are about equally far from every
centre, as on a sphere in many dimensions, nothing can be left out: the search then ends with its
allowance of work, and the bound of the next pair of blocks is what is proven.

Factorial sets do not get a short cut here: for a general A the farthest pair of them is a
quadratic problem in binary unknowns, also with main effects only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms.rows import Rows
from steadyarm.designs.far_blocks import best_of_rows, in_blocks, upper_bounds
from steadyarm.designs.passes import blocks, radii
from steadyarm.linalg import matmul, row_dots

__all__ = ["FarthestPair", "farthest_pair", "mean_row", "partners"]

EFFORT = 1100.0  # passes: enough for every pair of 10^5 points in 50 dimensions
LEAST_WORK = 1e10  # multiplications, a second or less: in few dimensions passes are cheap
FEW_POINTS = 2048
STARTS = 16  # points from which to alternate
ROUNDING = 1e-12  # bounds this close to the best pair are not worth a look
SAMPLE = 1000  # outermost points that are enclosed to find a better centre

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


class FarthestPair(NamedTuple):
    """Two points far apart, and a proof of how much farther apart two others can be.

    Attributes
    ----------
    first, second : indices of the pair
    value : its squared distance
    upper_bound : no pair has a larger squared distance; the value itself if exact, to rounding
    exact : whether no pair is farther apart
    passes : multiplications made, in passes: as many as it takes to map all rows once
    others : (m, 2) further pairs found above the level asked for, the farthest first
    """

    first: int
    second: int
    value: float
    upper_bound: float
    exact: bool
    passes: float
    others: Indices


def farthest_pair(
    rows: Rows,
    to: Floats,
    *,
    centre: Floats | None = None,
    radius: Floats | None = None,
    known: tuple[int, int] | None = None,
    effort: float | None = None,
    above: float = np.inf,
    enough: int = 0,
    goal: float = 0.0,
    every: bool = False,
) -> FarthestPair:
    """Farthest pair of the points x @ to for the rows x.

    Parameters
    ----------
    rows : the points, before the map
    to : (columns, r) the map; L^-T for distances in the norm of the inverse of LL'
    centre : (columns,) a row to measure distances from; the mean by default
    radius : (K,) distances of the points from the centre, if known
    known : a pair known to be far apart; by default alternating steps look for one
    effort : passes after which to stop with an upper bound; by default 1,100, and more where
        they take less than a second
    above : collect pairs with a squared distance above this level
    enough : stop, without a proof, when so many pairs were collected; 0 for never
    goal : leave pairs alone that are proven not to be above this level. If no pair is, the upper
        bound is at most the goal, and `exact` may be False
    every : collect every pair above the level; otherwise at least the farthest of each point.
        Pairs below the level are then left alone

    Examples
    --------
    >>> from steadyarm.arms.rows import DenseRows
    >>> points = DenseRows(np.array([[0.0, 0.0], [3.0, 0.0], [3.0, 4.0], [1.0, 1.0]]))
    >>> farthest_pair(points, np.eye(2))[:5]
    (0, 2, 25.0, 25.0, True)
    """
    K = rows.shape[0]
    one = float(K) * to.size  # multiplications of one pass
    allowed = max(EFFORT * one, LEAST_WORK) if effort is None else effort * one
    centre = mean_row(rows) if centre is None else centre
    middle = matmul(centre, to)
    work = 0.0
    if radius is None:
        radius, work = radii(rows, to, middle), one
    if known is None:
        known, extra = _alternate(rows, to, radius)
        work += extra
    first, second = sorted(known)
    value = _apart(rows, to, first, second)
    goal = goal if K > FEW_POINTS else 0.0  # the exact pair is as quick
    floor = min(max(value, goal), above) if every else max(value, goal)
    rest, bound = in_blocks(rows, to, middle, radius, floor), 0.0
    if allowed > rest.pairs_left * to.shape[1] > 4 * one:  # a second centre may pay
        outermost = np.argsort(-radius, kind="stable")[:SAMPLE]
        moved = _enclosing_centre(matmul(rows.take(outermost), to), middle)
        radius = radii(rows, to, moved)
        work += one
        other = in_blocks(rows, to, moved, radius, floor)
        rest = other if other.pairs_left < rest.pairs_left else rest
    best = (value, first, second)
    collected: dict[tuple[int, int], float] = {}
    a, b, bounds = upper_bounds(rest, floor)
    for i, j, limit in zip(a.tolist(), b.tolist(), bounds.tolist(), strict=True):
        if limit <= min(max(best[0] * (1 + ROUNDING), goal), above if every else np.inf):
            bound = min(limit, goal)
            break
        if work > allowed or (enough and len(collected) >= enough):
            bound = limit
            break
        work += rest.work(i, j)
        for pair in best_of_rows(rest, i, j, min(best[0], above), every):
            best = max(best, pair)
            if pair[0] > above:
                collected[pair[1:]] = pair[0]
    value, first, second = best
    if a.size < len(rest.members) * (len(rest.members) + 1) // 2 or rest.size < K or bound:
        bound = max(bound, goal)  # something was left alone
    exact = bound <= value * (1 + ROUNDING)
    others = np.array(sorted(collected, key=lambda pair: -collected[pair]), dtype=np.int64)
    return FarthestPair(
        first,
        second,
        value,
        value if exact else bound,
        exact,
        work / one,
        others.reshape(-1, 2),
    )


def mean_row(rows: Rows) -> Floats:
    """Mean of the rows: one reading."""
    total = np.zeros(rows.shape[1])
    for start, stop in blocks(*rows.shape):
        total += rows.block(start, stop).sum(axis=0)
    return total / rows.shape[0]


def partners(rows: Rows, to: Floats, starts: Indices) -> tuple[Indices, Floats]:
    """For each start the point farthest from it, and their squared distance: a pass and more."""
    S = matmul(rows.take(starts), to)
    best, where = np.full(starts.size, -1.0), np.zeros(starts.size, dtype=np.int64)
    columns = np.arange(starts.size)
    for start, stop in blocks(*rows.shape):
        Y = matmul(rows.block(start, stop), to)
        part = matmul(Y, -2.0 * S.T)
        part += row_dots(Y, Y)[:, None]
        row = part.argmax(axis=0)
        found = part[row, columns]
        better = found > best
        best[better], where[better] = found[better], start + row[better]
    D = matmul(rows.take(where), to) - S
    return where, row_dots(D, D)


def _alternate(rows: Rows, to: Floats, radius: Floats) -> tuple[tuple[int, int], float]:
    """A pair by steps to the farthest point, from the outermost points; and the work."""
    K, r = radius.size, to.shape[1]
    starts = np.argsort(-radius, kind="stable")[: min(STARTS, K)].astype(np.int64)
    pair, value, work = (int(starts[0]), int(starts[0])), 0.0, 0.0
    for _ in range(4):
        where, apart = partners(rows, to, starts)
        work += float(K) * to.size * (1 + starts.size / r)
        top = int(apart.argmax())
        if apart[top] <= value:
            break
        value, pair = float(apart[top]), (int(starts[top]), int(where[top]))
        starts = np.unique(where)
    return pair, work


def _apart(rows: Rows, to: Floats, first: int, second: int) -> float:
    ends = matmul(rows.take(np.array([first, second], dtype=np.int64)), to)
    return float(np.square(ends[0] - ends[1]).sum())


def _enclosing_centre(Y: Floats, middle: Floats) -> Floats:
    """About the centre of the least ball around Y (m, r): steps to the farthest point."""
    centre = middle.copy()
    for step in range(1, 200):
        D = Y - centre
        far = int(row_dots(D, D).argmax())
        centre += D[far] / (step + 1)
    return centre
