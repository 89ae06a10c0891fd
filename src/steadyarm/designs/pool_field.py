"""A pool of arms in play out of many of any kind, and passes over all for arms that are missed.

The field (see `fields`) on which `pool_xy` plays.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms.rows import DenseRows, Rows
from steadyarm.arms.span import MappedRows
from steadyarm.designs.passes import leverages, radii
from steadyarm.designs.pools import top
from steadyarm.designs.subset_rows import HELD, SubsetRows
from steadyarm.linalg import eigh, gram, matmul, row_dots

__all__ = ["PoolField"]

ROUNDING = 1e-9  # of a form: more than rounding in a pass
NEAR = 0.9  # of the most that an arm in play helps: from there on others are worth it
MOST_MISSED = 2**14  # noted
FEW_BEST = 4  # of the arms that come in, one in so many is from the top
NEXT_BEST = 3  # times as many arms are those of which the others are drawn

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


class PoolField:
    """The arms in a pool are in play.

    Attributes
    ----------
    arms : (n,) indices of the arms in play
    missed : arms that the last pass found to help about as much as those in play or more,
        the best first
    """

    def __init__(self, rows: Rows, to: Floats, among: Indices, arms: Indices) -> None:
        """Rows x are seen as x @ to; the arms `among` are compared."""
        self.total, self.arms = rows.shape[0], arms
        some: Rows = MappedRows(SubsetRows(rows, among), to)
        held = among.size * max(to.shape) <= HELD
        self.compared: Rows = DenseRows(some.block(0, among.size)) if held else some
        self.missed = np.empty(0, dtype=np.int64)
        self._all, self._to = rows, to
        self._X = matmul(rows.take(arms), to)
        self._singles = self._X.astype(np.float32)

    @property
    def cost(self) -> float:
        """Of the forms of the arms in play, in passes over all."""
        return self.arms.size / self.total

    def forms(self, M: Floats) -> Floats:
        """X'Mx of the arms in play, in single precision."""
        return np.asarray(row_dots(matmul(self._singles, M.astype(np.float32)), self._singles))

    def moment(self, lam: Floats, exact: bool = True) -> Floats:
        """Sum of lam_x x x' over the arms in play."""
        return gram(self._X if exact else self._singles, lam)

    def squares(self, M: Floats, chosen: Indices) -> Floats:
        """X'Mx of the compared arms at the positions chosen."""
        X = self.compared.take(chosen)
        return np.asarray(row_dots(matmul(X, M), X))

    def radii(self, root: Floats, inverse: Floats, centre: Floats) -> Floats:
        """Distances of the compared arms from the centre."""
        return radii(self.compared, root, matmul(centre, root))

    def largest(self, M: Floats) -> float:
        """The largest x'Mx over all arms: one pass, which notes `missed`."""
        values, vectors = eigh(M)
        half = vectors * np.sqrt(np.maximum(values, 0.0))
        scores = leverages(self._all, matmul(self._to, half))
        over = scores > NEAR * scores[self.arms].max()
        over[self.arms] = False
        above = np.flatnonzero(over)
        self.missed = above[top(scores[above], MOST_MISSED)]
        return float(scores.max()) * (1 + ROUNDING)

    def come_in(self, most: int, kept: NDArray[np.bool_], seed: int) -> int:
        """Play on with the arms kept and at most so many of those missed; how many came in.

        Some are the best and the others random ones of them, since the best are often alike.
        """
        best, rest = np.split(self.missed[: NEXT_BEST * most], [most // FEW_BEST])
        count = min(most - best.size, rest.size)
        spread = np.random.default_rng(seed).choice(rest, count, replace=False)
        new = np.concatenate([best, spread])
        self.arms = np.concatenate([self.arms[kept], new])
        self._X = np.vstack([self._X[kept], matmul(self._all.take(new), self._to)])
        self._singles = self._X.astype(np.float32)
        self.missed = self.missed[:0]
        return int(new.size)
