"""Passes over the rows of a large arm set, and the farthest pair of its points.

Passes go in blocks that stay in the cache, in a few threads. The search for the farthest pair, the
proof of large XY designs, does not compare every pair.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms.generated import walsh_of
from steadyarm.arms.rows import Rows, row_blocks
from steadyarm.errors import InvalidInputError
from steadyarm.kernels import gram, row_dots

LANES = 4  # threads at most
CLEAR = 1e-9  # a Gram matrix whose eigenvalues spread less than this needs no second pass
SHIFT = 1e-15  # eigenvalues below this share of the largest are rounding in a Gram matrix
DEPENDENT = 1e-13  # what remains of a dependent direction in a second pass

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Answer = TypeVar("Answer")


def leverages(rows: Rows, to: Floats) -> Floats:
    """(K,) squared lengths of x @ to for all rows x: one pass."""
    walsh = walsh_of(rows)
    if walsh is not None:
        return np.maximum(walsh.forms(to @ to.T), 0.0)
    answer = np.empty(rows.shape[0])

    def score(lane: list[tuple[int, int]]) -> None:
        for start, stop in lane:
            image = rows.block(start, stop) @ to
            answer[start:stop] = row_dots(image, image)

    _in_lanes(score, *rows.shape)
    return answer


def radii(rows: Rows, to: Floats, middle: Floats) -> Floats:
    """Distances of the points x @ to from the middle: one pass."""
    answer = np.empty(rows.shape[0])

    def measure(lane: list[tuple[int, int]]) -> None:
        for start, stop in lane:
            Y = rows.block(start, stop) @ to
            Y -= middle
            answer[start:stop] = np.sqrt(row_dots(Y, Y))

    _in_lanes(measure, *rows.shape)
    return answer


def span_of(rows: Rows) -> Floats:
    """(columns, r) map to coordinates x @ map of the span, where equal weights have A = I.

    The eigenvectors of the Gram matrix show directions down to about 1e-7 of the largest. Where
    some are small, a second pass in coordinates that enlarge them tells small from dependent.
    """
    K, columns = rows.shape
    if walsh_of(rows) is not None:
        return np.eye(columns)
    table = _gram(rows, None)
    size = np.sqrt(np.diag(table))
    if not np.isfinite(size).all():
        raise InvalidInputError(
            f"column {int(np.flatnonzero(~np.isfinite(size))[0])} of the rows holds a number that "
            "is not finite, or too large to be squared."
        )
    if not size.any():
        raise InvalidInputError("all rows are zero; nothing tells the arms apart.")
    size[size == 0] = 1.0
    values, vectors = np.linalg.eigh(table / size / size[:, None])
    to = vectors / np.sqrt(np.maximum(values, SHIFT * values[-1])) / size[:, None]
    if values[0] > CLEAR * values[-1]:
        return np.asarray(np.ascontiguousarray(to) * np.sqrt(K))
    values, vectors = np.linalg.eigh(_gram(rows, to))
    kept = values > DEPENDENT * values[-1]
    to = to @ (vectors[:, kept] / np.sqrt(values[kept]))
    return np.asarray(np.ascontiguousarray(to) * np.sqrt(K))


def farthest_along(rows: Rows, to: Floats) -> Indices:
    """For each column of `to`, the row with the largest product with it: one pass."""
    best = np.full(to.shape[1], -1.0)
    where = np.zeros(to.shape[1], dtype=np.int64)
    columns = np.arange(to.shape[1])
    for start, stop in row_blocks(*rows.shape):
        size = np.abs(rows.block(start, stop) @ to)
        first = size.argmax(axis=0)
        found = size[first, columns]
        better = found > best
        best[better], where[better] = found[better], start + first[better]
    return np.unique(where)


def top(scores: Floats, count: int) -> Indices:
    """Indices of the largest scores, largest first and equal ones in their order."""
    chosen = np.arange(scores.size)
    if scores.size > count:
        least = np.partition(scores, scores.size - count)[scores.size - count]
        chosen = np.flatnonzero(scores >= least)
    return chosen[np.argsort(-scores[chosen], kind="stable")[:count]].astype(np.int64)


def _gram(rows: Rows, to: Floats | None) -> Floats:
    """Sum of x x' over all rows, mapped by `to` if given."""
    columns = rows.shape[1] if to is None else to.shape[1]

    def add(lane: list[tuple[int, int]]) -> Floats:
        total = np.zeros((columns, columns))
        for start, stop in lane:
            X = rows.block(start, stop)
            total += gram(X if to is None else X @ to)
        return total

    return sum(_in_lanes(add, *rows.shape), np.zeros((columns, columns)))


def _in_lanes(
    work: Callable[[list[tuple[int, int]]], Answer], count: int, columns: int
) -> list[Answer]:
    """Work on blocks of rows in threads; always as many lanes, so that sums come out the same."""
    every = row_blocks(count, columns)
    lanes = [every[lane::LANES] for lane in range(LANES)]
    workers = min(LANES, os.cpu_count() or 1)
    if workers == 1 or len(every) < 2 * LANES:
        return [work(lane) for lane in lanes]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, lanes))


# The farthest pair
#
# With a centre and the distances of all points from it, a pair can only be farther apart than the
# best one known if its two distances add up to more. Points are put in blocks by that distance,
# pairs of blocks are taken in the order of their bounds, and the search ends when the next bound is
# below the best pair. Where all points are about equally far from every centre, as on a sphere,
# nothing can be left out: the search then ends with its allowance of work, and the bound of the
# next pair of blocks is what is proven.
#
# Factorial sets have no shortcut here: for a general A their farthest pair is a quadratic problem
# in binary unknowns, also with main effects only.


BLOCK = 1024  # points in a block
MOST_BLOCKS = 2048  # bounds between all blocks are kept
UNIT = 2.0**-24  # relative rounding error in single precision
EFFORT = 1100.0  # passes: enough for every pair of 10^5 points in 50 dimensions
LEAST_WORK = 4e9  # multiplications, half a second or less: in few dimensions passes are cheap
FEW_POINTS = 2048  # up to which the exact pair is as quick as a proof that none is above a goal
STARTS = 16  # points from which to alternate
ROUNDING = 1e-12  # relative: bounds this close to the best pair are not searched

Singles = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Blocks:
    """Points that may be in a farther pair, in blocks.

    Attributes
    ----------
    members : indices of the points of each block
    radius : largest distance from the middle in each block
    """

    rows: Rows
    to: Floats
    middle: Floats
    members: list[Indices]
    radius: Floats

    @property
    def size(self) -> int:
        """Number of points in all blocks."""
        return sum(block.size for block in self.members)

    def points(self, block: int) -> Floats:
        """The points of a block, seen from the middle: (m, r)."""
        return np.asarray(self.rows.take(self.members[block]) @ self.to - self.middle)

    def singles(self, block: int) -> Singles:
        """Points in single precision as (y, |y|²), scaled so that the outermost has length one."""
        Y = self.points(block) / self.radius.max()
        answer = np.empty((len(Y), Y.shape[1] + 1), dtype=np.float32)
        answer[:, :-1] = Y
        answer[:, -1] = row_dots(Y, Y)
        return answer

    def work(self, i: int, j: int) -> float:
        """Multiplications to compare two blocks."""
        return float(self.members[i].size * self.members[j].size * self.to.shape[1])


def _in_blocks(rows: Rows, to: Floats, middle: Floats, radius: Floats, value: float) -> Blocks:
    """The points that can be in a pair of squared distance above `value`, in blocks."""
    order = np.argsort(-radius, kind="stable")
    descending = radius[order]
    count = int(np.searchsorted(-descending, descending[0] - np.sqrt(value), side="left"))
    candidates = order[: max(count, 1)].astype(np.int64)
    size = max(BLOCK, -(-candidates.size // MOST_BLOCKS))
    members = [candidates[k : k + size] for k in range(0, candidates.size, size)]
    return Blocks(rows, to, middle, members, np.array([radius[block].max() for block in members]))


def _upper_bounds(rest: Blocks, value: float) -> tuple[Indices, Indices, Floats]:
    """Pairs of blocks that can hold a pair above `value`, and their bounds, the largest first."""
    count = len(rest.members)
    firsts, seconds, bounds = [], [], []
    for i in range(count):
        bound = np.square(rest.radius[i] + rest.radius[i:])
        near = np.flatnonzero(bound > value)
        firsts.append(np.full(near.size, i))
        seconds.append(near + i)
        bounds.append(bound[near])
    first, second, bound = map(np.concatenate, (firsts, seconds, bounds))
    order = np.argsort(-bound, kind="stable")
    return first[order], second[order], bound[order]


def _best_of_rows(rest: Blocks, i: int, j: int, bar: float) -> list[tuple[float, int, int]]:
    """For each point of block i that has one, its farthest partner in block j above the bar.

    With |y| at most one and r + 1 products added up, what single precision makes of
    |y|² + |z|² - 2yz differs by less than 8 (r + 8) units: 4 in sum of the terms, times two.
    """
    scale = rest.radius.max() ** 2
    if not scale:
        return []
    A, B = rest.singles(i), rest.singles(j)
    left = np.empty((len(A), A.shape[1] + 1), dtype=np.float32)
    left[:, :-2], left[:, -2], left[:, -1] = -2.0 * A[:, :-1], 1.0, A[:, -1]
    right = np.empty((len(B), B.shape[1] + 1), dtype=np.float32)
    right[:, :-1], right[:, -1] = B, 1.0
    # BLAS: its last bits decide how many rows are computed again and, as the bar is met in double
    # precision below, not what is found.
    rough = (left @ right.T).max(axis=1)
    slack = 8.0 * (rest.to.shape[1] + 8) * UNIT
    near = np.flatnonzero(rough > bar / scale - slack)
    if not near.size:
        return []
    Y, Z = rest.points(i)[near], rest.points(j)
    D = Y @ (-2.0 * Z.T)
    D += row_dots(Z, Z)
    D += row_dots(Y, Y)[:, None]
    where = D.argmax(axis=1)
    gaps = Y - Z[where]
    found = row_dots(gaps, gaps)
    first, second = rest.members[i][near], rest.members[j][where]
    answers = zip(found.tolist(), first.tolist(), second.tolist(), strict=True)
    return [(v, min(a, b), max(a, b)) for v, a, b in answers if v > bar]


class FarthestPair(NamedTuple):
    """Two points far apart, and a proof of how much farther apart two others can be.

    Attributes
    ----------
    first, second : indices of the pair
    value : its squared distance
    upper_bound : no pair has a larger squared distance; the value itself if exact, to rounding
    exact : whether no pair is farther apart
    others : (m, 2) pairs found above the goal, if some were to be collected, the farthest first
    """

    first: int
    second: int
    value: float
    upper_bound: float
    exact: bool
    others: Indices


def farthest_pair(
    rows: Rows,
    to: Floats,
    *,
    centre: Floats | None = None,
    radius: Floats | None = None,
    known: tuple[int, int] | None = None,
    effort: float = EFFORT,
    goal: float = 0.0,
    enough: int = 0,
) -> FarthestPair:
    """Farthest pair of the points x @ to for the rows x.

    Parameters
    ----------
    rows : the points, before the map
    to : (columns, r) the map; L^-T for distances in the norm of the inverse of LL'
    centre : (columns,) a row to measure distances from; the mean by default
    radius : (K,) distances of the points from the centre, if known
    known : a pair known to be far apart; by default alternating steps look for one
    effort : passes after which to stop with an upper bound; a pass is as many multiplications as
        it takes to map all rows once. More are made where they take less than half a second
    goal : skip pairs that are proven not to be above this level. If no pair is, the upper bound
        is at most the goal, and `exact` may be False
    enough : collect pairs above the goal, at least the farthest of each point, and stop without a
        proof when there are so many; 0 for none

    Examples
    --------
    >>> from steadyarm.arms.rows import DenseRows
    >>> points = DenseRows(np.array([[0.0, 0.0], [3.0, 0.0], [3.0, 4.0], [1.0, 1.0]]))
    >>> farthest_pair(points, np.eye(2))[:5]
    (0, 2, 25.0, 25.0, True)
    """
    K = rows.shape[0]
    one = float(K) * to.size  # multiplications of one pass
    allowed = max(effort * one, LEAST_WORK)
    centre = mean_row(rows) if centre is None else centre
    middle = centre @ to
    work = 0.0
    if radius is None:
        radius, work = radii(rows, to, middle), one
    if known is None:
        known, extra = _alternate(rows, to, radius)
        work += extra
    first, second = sorted(known)
    value = _apart(rows, to, first, second)
    above = goal if enough else np.inf
    goal = goal if K > FEW_POINTS else 0.0
    floor = max(value, goal)
    rest, bound = _in_blocks(rows, to, middle, radius, floor), 0.0
    best = (value, first, second)
    collected: dict[tuple[int, int], float] = {}
    a, b, bounds = _upper_bounds(rest, floor)
    for i, j, limit in zip(a.tolist(), b.tolist(), bounds.tolist(), strict=True):
        if limit <= max(best[0] * (1 + ROUNDING), goal):
            bound = min(limit, goal)
            break
        if work > allowed or (enough and len(collected) >= enough):
            bound = limit
            break
        work += rest.work(i, j)
        for pair in _best_of_rows(rest, i, j, min(best[0], above)):
            best = max(best, pair)
            if pair[0] > above:
                collected[pair[1:]] = pair[0]
    value, first, second = best
    if a.size < len(rest.members) * (len(rest.members) + 1) // 2 or rest.size < K or bound:
        bound = max(bound, goal)  # some pairs were skipped
    exact = bound <= value * (1 + ROUNDING)
    others = np.array(sorted(collected, key=lambda pair: -collected[pair]), dtype=np.int64)
    upper = value if exact else bound
    return FarthestPair(first, second, value, upper, exact, others.reshape(-1, 2))


def mean_row(rows: Rows) -> Floats:
    """Mean of the rows: one reading."""
    total = np.zeros(rows.shape[1])
    for start, stop in row_blocks(*rows.shape):
        total += rows.block(start, stop).sum(axis=0)
    return total / rows.shape[0]


def partners(rows: Rows, to: Floats, starts: Indices) -> tuple[Indices, Floats]:
    """For each start the point farthest from it, and their squared distance: a pass and more."""
    S = rows.take(starts) @ to
    best, where = np.full(starts.size, -1.0), np.zeros(starts.size, dtype=np.int64)
    columns = np.arange(starts.size)
    for start, stop in row_blocks(*rows.shape):
        Y = rows.block(start, stop) @ to
        part = Y @ (-2.0 * S.T)
        part += row_dots(Y, Y)[:, None]
        row = part.argmax(axis=0)
        found = part[row, columns]
        better = found > best
        best[better], where[better] = found[better], start + row[better]
    D = rows.take(where) @ to - S
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
    ends = rows.take(np.array([first, second], dtype=np.int64)) @ to
    return float(np.square(ends[0] - ends[1]).sum())
