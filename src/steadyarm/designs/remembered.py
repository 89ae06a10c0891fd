"""A farthest-pair search carried over to the next design, so that one search can prove several.

Called by `large_xy`.

If all pairs but a few listed ones are at most `level` under one design, they are at most ρ times
`level` under another, with ρ the largest eigenvalue of A_old in the norm of A_new^-1. Late in a
solve designs differ little, and ρ is close to one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms.rows import Rows
from steadyarm.designs.farthest import FarthestPair
from steadyarm.linalg import matmul, row_dots, solve_lower, svd

__all__ = ["Remembered", "remember"]

ROUNDING = 1e-9  # of ρ

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Remembered:
    """What a search has proven.

    Attributes
    ----------
    inverse : (r, r) inverse of the root of A of that design, see `remember`
    level : squared distance that no pair exceeds but those listed
    pairs : (n, 2) pairs listed
    Z : (n, r) their differences
    """

    inverse: Floats
    level: float
    pairs: Indices
    Z: Floats

    def carried(self, root: Floats, known: FarthestPair, goal: float) -> FarthestPair | None:
        """The farthest pair under the design of `root`, with all listed pairs above the goal.

        None if neither a listed pair is above the goal nor one is proven to be the farthest;
        `known` is a pair far apart under that design.
        """
        spread = float(svd(matmul(self.inverse, root)).singular[0]) ** 2 * (1 + ROUNDING)
        bound = spread * self.level
        U = matmul(self.Z, root)
        apart = row_dots(U, U)
        first, second, value = known.first, known.second, known.value
        if apart.size and apart.max() > value:
            value = float(apart.max())
            first, second = self.pairs[int(apart.argmax())].tolist()
        above = np.flatnonzero(apart > goal)
        others = self.pairs[above[np.argsort(-apart[above], kind="stable")]]
        exact = bound <= value
        if value <= goal and not exact:
            return None
        upper = value if exact else np.inf
        return FarthestPair(first, second, value, upper, exact, 0.0, others)


def remember(
    compared: Rows, to: Floats, root: Floats, far: FarthestPair, level: float
) -> Remembered | None:
    """What a finished search that collected every pair above `level` has proven; or None."""
    if not far.exact:
        return None
    pairs = far.others
    Z = matmul(compared.take(pairs[:, 0]) - compared.take(pairs[:, 1]), to)
    # root is upper triangular, so that its inverse is a solution of lower triangular systems
    inverse = solve_lower(np.ascontiguousarray(root.T), np.eye(len(root)))
    return Remembered(inverse, level, pairs, Z)
