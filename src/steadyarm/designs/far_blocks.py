"""Blocks of points for the farthest pair, bounds between blocks, and the look at two of them.

Called by `farthest`.

Two blocks are compared in single precision, which is twice as quick and half as large. Its
rounding errors are bounded; rows that may hold a pair above the bar are done again in double.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms.rows import Rows
from steadyarm.linalg import matmul, row_dots

__all__ = ["best_of_rows", "in_blocks", "upper_bounds"]

BLOCK = 1024  # points in a block
LEAF = 128  # points in a block in few dimensions, where place tells more than distance
MOST_BLOCKS = 2048  # bounds between all blocks are kept
FEW_DIMENSIONS = 10
CACHE_FLOATS = 2**25  # single-precision numbers of blocks that are kept: 128 MB
NEAR_BAR = 1e-9  # of the bar: squared distances this close are computed again without rounding
UNIT = 2.0**-24  # relative rounding error in single precision

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Blocks:
    """Points that may be in a farther pair, in blocks.

    Attributes
    ----------
    members : indices of the points of each block
    radius : largest distance from the middle in each block
    low, high : corners of the box around each block, where there are few dimensions
    pairs_left : pairs of points whose distances from the middle add up to enough
    """

    rows: Rows
    to: Floats
    middle: Floats
    members: list[Indices]
    radius: Floats
    low: Floats | None
    high: Floats | None
    pairs_left: float
    kept: dict[int, Singles] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Number of points in all blocks."""
        return sum(block.size for block in self.members)

    def points(self, block: int) -> Floats:
        """The points of a block, seen from the middle: (m, r)."""
        return np.asarray(matmul(self.rows.take(self.members[block]), self.to) - self.middle)

    def singles(self, block: int) -> Singles:
        """Points in single precision as (y, |y|²), scaled so that the outermost has length one."""
        if block in self.kept:
            return self.kept[block]
        Y = self.points(block) / self.radius.max()
        answer = np.empty((len(Y), Y.shape[1] + 1), dtype=np.float32)
        answer[:, :-1] = Y
        answer[:, -1] = row_dots(Y, Y)
        if sum(map(np.size, self.kept.values())) + answer.size <= CACHE_FLOATS:
            self.kept[block] = answer
        return answer

    def work(self, i: int, j: int) -> float:
        """Multiplications to compare two blocks."""
        return float(self.members[i].size * self.members[j].size * self.to.shape[1])


def in_blocks(rows: Rows, to: Floats, middle: Floats, radius: Floats, value: float) -> Blocks:
    """The points that can be in a pair of squared distance above `value`, in blocks."""
    order = np.argsort(-radius, kind="stable")
    descending = radius[order]
    reach = np.sqrt(value)
    count = int(np.searchsorted(-descending, descending[0] - reach, side="left"))
    count = max(count, 1)
    candidates = order[:count].astype(np.int64)
    partners = np.searchsorted(-descending, descending[:count] - reach, side="left")
    pairs_left = 0.5 * float(partners.sum())
    if to.shape[1] > FEW_DIMENSIONS:
        size = max(BLOCK, -(-count // MOST_BLOCKS))
        members = [candidates[k : k + size] for k in range(0, count, size)]
        low = high = None
    else:
        Y = matmul(rows.take(candidates), to)
        leaves = _split(Y, max(LEAF, 2 * count // MOST_BLOCKS))
        members = [candidates[leaf] for leaf in leaves]
        low = np.array([Y[leaf].min(axis=0) for leaf in leaves])
        high = np.array([Y[leaf].max(axis=0) for leaf in leaves])
    outermost = np.array([radius[block].max() for block in members])
    return Blocks(rows, to, middle, members, outermost, low, high, pairs_left)


def upper_bounds(rest: Blocks, value: float) -> tuple[Indices, Indices, Floats]:
    """Pairs of blocks that can hold a pair above `value`, and their bounds, the largest first."""
    count = len(rest.members)
    firsts, seconds, bounds = [], [], []
    for i in range(count):
        bound = np.square(rest.radius[i] + rest.radius[i:])
        if rest.low is not None and rest.high is not None:
            span = np.maximum(rest.high[i] - rest.low[i:], rest.high[i:] - rest.low[i])
            bound = np.minimum(bound, np.square(span).sum(axis=1))
        near = np.flatnonzero(bound > value)
        firsts.append(np.full(near.size, i))
        seconds.append(near + i)
        bounds.append(bound[near])
    first, second, bound = map(np.concatenate, (firsts, seconds, bounds))
    order = np.argsort(-bound, kind="stable")
    return first[order], second[order], bound[order]


def best_of_rows(
    rest: Blocks, i: int, j: int, bar: float, every: bool = False
) -> list[tuple[float, int, int]]:
    """For each point of block i that has one, its farthest partner in block j above the bar.

    With `every`, all of its partners above the bar.

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
    # BLAS: its last bits decide how many rows are looked at again and, as the bar is met in
    # double precision below, not what is found.
    rough = (left @ right.T).max(axis=1)
    slack = 8.0 * (rest.to.shape[1] + 8) * UNIT
    near = np.flatnonzero(rough > bar / scale - slack)
    if not near.size:
        return []
    Y, Z = rest.points(i)[near], rest.points(j)
    D = matmul(Y, -2.0 * Z.T)
    D += row_dots(Z, Z)
    D += row_dots(Y, Y)[:, None]
    if every:
        row, where = np.nonzero(bar * (1 - NEAR_BAR) < D)
    else:
        row, where = np.arange(len(D)), D.argmax(axis=1)
    gaps = Y[row] - Z[where]
    found = row_dots(gaps, gaps)
    first, second = rest.members[i][near[row]], rest.members[j][where]
    answers = zip(found.tolist(), first.tolist(), second.tolist(), strict=True)
    return [(v, min(a, b), max(a, b)) for v, a, b in answers if v > bar]


def _split(Y: Floats, most: int) -> list[Indices]:
    """Indices of the rows of Y in groups of at most `most`, halved along the widest axis."""
    open_groups, groups = [np.arange(len(Y))], []
    while open_groups:
        group = open_groups.pop()
        if group.size <= most:
            groups.append(group)
            continue
        axis = int(np.ptp(Y[group], axis=0).argmax())
        half = group.size // 2
        order = np.argsort(Y[group, axis], kind="stable")
        open_groups += [group[order[:half]], group[order[half:]]]
    return groups
