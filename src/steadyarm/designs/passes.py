"""Passes over the rows of a large arm set, in blocks that stay in the cache, in a few threads.

For all solvers of large sets; `quick_forms` takes over where a set has structure.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms.rows import BundleRows, DenseRows, Rows, walsh_of
from steadyarm.compiled import kernel
from steadyarm.errors import InvalidInputError
from steadyarm.linalg import eigh, gram, matmul, row_dots, spanning

__all__ = [
    "HELD",
    "Pool",
    "SubsetRows",
    "blocks",
    "farthest_along",
    "first_pool",
    "forms",
    "in_lanes",
    "leverages",
    "next_pool",
    "quick_forms",
    "radii",
    "span_of",
    "started_pool",
    "subset_of",
    "top",
]

# Quadratic forms of all arms of a set through its structure, without making rows.


Floats = NDArray[np.float64]


def quick_forms(rows: Rows, M: Floats, linear: Floats | None = None) -> Floats | None:
    """(K,) values x'Mx + x'linear of all rows x; None where the set has no such structure.

    Two-level factorial sets have the transform of `walsh`. Bundles whose columns are items share
    all but the last of them with the bundle before, so that each takes one addition.

    Examples
    --------
    >>> quick_forms(BundleRows(4, 2, interactions=1), np.diag([1.0, 2.0, 3.0, 4.0]))
    array([3., 4., 5., 5., 6., 7.])
    """
    walsh = walsh_of(rows)
    if walsh is not None:
        return walsh.forms(M, linear)
    if not isinstance(rows, BundleRows) or rows.order > 1:
        return None
    out = np.empty(rows.shape[0])
    alone = np.diag(M).copy() if linear is None else np.diag(M) + linear
    forms_of_bundles(M + M.T, alone, rows.size, out)
    return out


@kernel
def forms_of_bundles(
    both: NDArray[np.float64], alone: NDArray[np.float64], k: int, out: NDArray[np.float64]
) -> None:
    """Sums of alone (n,) over the items and of both (n, n) over their pairs, for bundles of k.

    Bundles are in lexicographic order. `value` and `pull` hold, for the first items, their sum
    and what each further item would add to it.
    """
    n = alone.size
    item = np.arange(k)
    value, pull = np.zeros(k), np.empty((k, n))
    pull[0] = alone
    at = changed = 0
    while changed >= 0:
        for slot in range(changed, k - 1):
            value[slot + 1] = value[slot] + pull[slot, item[slot]]
            for further in range(item[slot] + 1, n):
                pull[slot + 1, further] = pull[slot, further] + both[item[slot], further]
        for last in range(item[k - 2] + 1 if k > 1 else 0, n):
            out[at] = value[k - 1] + pull[k - 1, last]
            at += 1
        changed = k - 2
        while changed >= 0 and item[changed] == n - k + changed:
            changed -= 1
        if changed >= 0:
            item[changed] += 1
            for slot in range(changed + 1, k - 1):
                item[slot] = item[slot - 1] + 1


BLOCK_FLOATS = 2**18  # 2 MB a block: few calls, and small enough for the cache
LANES = 4  # threads at most
CLEAR = 1e-9  # a Gram matrix whose eigenvalues spread less than this needs no second look
SHIFT = 1e-15  # eigenvalues below this share of the largest are rounding in a Gram matrix
DEPENDENT = 1e-13  # what remains of a dependent direction when it is looked at again

Indices = NDArray[np.int64]
Answer = TypeVar("Answer")


class Span(NamedTuple):
    """The span of the arms: x @ map are coordinates in which the uniform design is the identity.

    Attributes
    ----------
    map : (columns, r) array
    passes : how many passes over the rows it took
    """

    map: Floats
    passes: int


def blocks(count: int, columns: int) -> list[tuple[int, int]]:
    """Where blocks of rows of so many columns start and stop."""
    step = max(BLOCK_FLOATS // columns, 64)
    return [(start, min(start + step, count)) for start in range(0, count, step)]


def leverages(rows: Rows, to: Floats, among: Indices | None = None) -> Floats:
    """Squared lengths of x @ to for all rows x, or for those among: one pass."""
    quick = quick_forms(rows, gram(to.T))
    if quick is not None:
        scores: Floats = np.maximum(quick, 0.0)
        return scores if among is None else scores[among]
    count, columns = rows.shape
    count = count if among is None else among.size
    answer = np.empty(count)

    def score(lane: list[tuple[int, int]]) -> None:
        for start, stop in lane:
            X = rows.block(start, stop) if among is None else rows.take(among[start:stop])
            image = matmul(X, to)
            answer[start:stop] = row_dots(image, image)

    in_lanes(score, count, columns)
    return answer


def radii(rows: Rows, to: Floats, middle: Floats) -> Floats:
    """Distances of the points x @ to from the middle: one pass."""
    answer = np.empty(rows.shape[0])

    def measure(lane: list[tuple[int, int]]) -> None:
        for start, stop in lane:
            Y = matmul(rows.block(start, stop), to)
            Y -= middle
            answer[start:stop] = np.sqrt(row_dots(Y, Y))

    in_lanes(measure, *rows.shape)
    return answer


def span_of(rows: Rows) -> Span:
    """Coordinates of the span of the rows, in which equal weights on all are the identity.

    The eigenvectors of the Gram matrix show directions down to about 1e-7 of the largest. Where
    some are small, a second pass in coordinates that enlarge them tells small from dependent.
    """
    K, columns = rows.shape
    if walsh_of(rows) is not None:  # the uniform design is the identity
        return Span(np.eye(columns), 0)
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
    values, vectors = eigh(table / size / size[:, None])
    to = vectors / np.sqrt(np.maximum(values, SHIFT * values[-1])) / size[:, None]
    if values[0] > CLEAR * values[-1]:
        return Span(np.ascontiguousarray(to) * np.sqrt(K), 1)
    values, vectors = eigh(_gram(rows, to))
    kept = values > DEPENDENT * values[-1]
    to = matmul(to, vectors[:, kept] / np.sqrt(values[kept]))
    return Span(np.ascontiguousarray(to) * np.sqrt(K), 2)


def farthest_along(rows: Rows, to: Floats) -> Indices:
    """For each column of `to`, the row with the largest product with it: one pass."""
    best = np.full(to.shape[1], -1.0)
    where = np.zeros(to.shape[1], dtype=np.int64)
    columns = np.arange(to.shape[1])
    for start, stop in blocks(*rows.shape):
        size = np.abs(matmul(rows.block(start, stop), to))
        first = size.argmax(axis=0)
        found = size[first, columns]
        better = found > best
        best[better], where[better] = found[better], start + first[better]
    return np.unique(where)


def _gram(rows: Rows, to: Floats | None) -> Floats:
    """Sum of x x' over all rows, mapped by `to` if given."""
    columns = rows.shape[1] if to is None else to.shape[1]

    def add(lane: list[tuple[int, int]]) -> Floats:
        total = np.zeros((columns, columns))
        for start, stop in lane:
            X = rows.block(start, stop)
            total += gram(X if to is None else matmul(X, to))
        return total

    return sum(in_lanes(add, *rows.shape), np.zeros((columns, columns)))


def in_lanes(
    work: Callable[[list[tuple[int, int]]], Answer], count: int, columns: int
) -> list[Answer]:
    """Work on blocks of rows in threads; always as many lanes, so that sums come out the same."""
    every = blocks(count, columns)
    lanes = [every[lane::LANES] for lane in range(LANES)]
    workers = min(LANES, os.cpu_count() or 1)
    if workers == 1 or len(every) < 2 * LANES:
        return [work(lane) for lane in lanes]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, lanes))


# Values and quadratic forms of all arms of a large set at once.


def forms(rows: Rows, M: Floats, linear: Floats) -> Floats:
    """(K,) values x'Mx + x'linear of all rows x, for M (r, r) and linear (r,): one pass.

    Examples
    --------
    >>> from steadyarm.arms.rows import DenseRows
    >>> forms(DenseRows(np.array([[1.0, 2.0], [3.0, 0.0]])), np.eye(2), np.array([1.0, 0.0]))
    array([ 6., 12.])
    """
    quick = quick_forms(rows, M, linear)
    if quick is not None:
        return quick
    out = np.empty(rows.shape[0])
    for start, stop in blocks(*rows.shape):
        X = rows.block(start, stop)
        out[start:stop] = row_dots(matmul(X, M) + linear, X)
    return out


# Some of the rows of a large arm set, as rows of their own.


HELD = 2**24  # numbers of a subset up to which it is held in memory: 128 MB


@dataclass(frozen=True, eq=False)
class SubsetRows:
    """Rows at the indices `among`, in their order, made when they are asked for."""

    rows: Rows
    among: Indices

    @property
    def shape(self) -> tuple[int, int]:
        """Number of arms and of columns."""
        return int(self.among.size), self.rows.shape[1]

    def block(self, start: int, stop: int) -> Floats:
        """Rows start to stop - 1 of the subset."""
        return self.rows.take(self.among[start:stop])

    def take(self, indices: Indices) -> Floats:
        """Rows of the subset at the given indices into it."""
        return self.rows.take(self.among[indices])


def subset_of(rows: Rows, among: Indices | None) -> Rows:
    """The rows named, held in memory if they are few; all rows if none are named."""
    if among is None:
        return rows
    if among.size * rows.shape[1] <= HELD:
        return DenseRows(rows.take(among))
    return SubsetRows(rows, among)


# Pools: the few arms of a large set on which a design is solved between passes.


MOST_ARMS = 5_000  # in a pool, or 40 times the rank if that is more
FLAT = 1e-3  # pivots below this do not span well: along every direction some arm reaches 1


class Pool(NamedTuple):
    """Sorted arms by index (m,), their coordinates X (m, r) in the span, and weights lam (m,)."""

    indices: Indices
    X: Floats
    lam: Floats


def first_pool(rows: Rows, to: Floats, scores: Floats) -> tuple[Pool, int]:
    """A pool from the scores of the uniform design, and the passes it took.

    It begins with equal weights on arms that span and on those with the largest scores. A random
    few are looked at as well, since arms of equal score often stand together and are alike.
    """
    K, r = scores.size, to.shape[1]
    some = np.random.default_rng(K).integers(0, K, size=5 * r)
    longest = top(scores, 5 * r)
    seeds, basis, passes = _spanning(rows, to, np.union1d(longest, some))
    pool = _pool(rows, to, np.union1d(seeds, top(scores, _most(r))))
    lam = np.zeros(pool.indices.size)
    lam[np.searchsorted(pool.indices, np.union1d(basis, longest[: 3 * r]))] = 1.0
    return pool._replace(lam=lam * (r / lam.sum())), passes


def started_pool(rows: Rows, to: Floats, start: Indices, weights: Floats) -> tuple[Pool, int]:
    """A pool of the arms of a given design, completed if they do not span."""
    r = to.shape[1]
    seeds, basis, passes = _spanning(rows, to, start)
    pool = _pool(rows, to, seeds)
    pool.lam[np.searchsorted(pool.indices, start)] = weights * (r / weights.sum())
    if eigh(gram(pool.X, pool.lam))[0][0] < FLAT**2:
        pool.lam[np.searchsorted(pool.indices, basis)] += 0.05
    return pool, passes


def next_pool(
    rows: Rows, to: Floats, pool: Pool, arms: Indices, scores: Floats, gap: float
) -> Pool:
    """The support of the pool, and of the arms scored those near the bound r or above it."""
    r = to.shape[1]
    near = np.flatnonzero(scores > r * (1.0 - 10.0 * gap))
    near = arms[near[top(scores[near], _most(r))]]
    carrying = np.flatnonzero(pool.lam)
    support = pool.indices[carrying]
    fresh = _pool(rows, to, np.union1d(support, near))
    fresh.lam[np.searchsorted(fresh.indices, support)] = pool.lam[carrying]
    return fresh


def top(scores: Floats, count: int) -> Indices:
    """Indices of the largest scores, largest first and equal ones in their order."""
    chosen = np.arange(scores.size)
    if scores.size > count:
        least = np.partition(scores, scores.size - count)[scores.size - count]
        chosen = np.flatnonzero(scores >= least)
    return chosen[np.argsort(-scores[chosen], kind="stable")[:count]].astype(np.int64)


def _most(r: int) -> int:
    return max(MOST_ARMS, 40 * r)


def _pool(rows: Rows, to: Floats, indices: Indices) -> Pool:
    return Pool(indices, matmul(rows.take(indices), to), np.zeros(indices.size))


def _spanning(rows: Rows, to: Floats, seeds: Indices) -> tuple[Indices, Indices, int]:
    """The seeds, completed until they span well; r of them that do; and the passes it took."""
    r, passes = to.shape[1], 0
    while True:
        order, far, Q = spanning(matmul(rows.take(seeds), to))
        rank = int((far > FLAT).sum())
        if rank == r:
            return seeds, np.sort(seeds[order[:r]]), passes
        seeds = np.union1d(seeds, farthest_along(rows, matmul(to, Q[:, rank:])))
        passes += 1
