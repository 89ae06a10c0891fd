"""Pools: the few arms of a large set on which a design is solved between passes.

Called by `large_g`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms.rows import Rows
from steadyarm.designs.passes import farthest_along
from steadyarm.linalg import eigh, gram, matmul, spanning

__all__ = ["Pool", "first_pool", "next_pool", "started_pool", "top"]

MOST_ARMS = 5_000  # in a pool, or 40 times the rank if that is more
FLAT = 1e-3  # pivots below this do not span well: along every direction some arm reaches 1

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


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
