"""Some of the rows of a large arm set, as rows of their own.

For solvers that compare or solve some of the arms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms.rows import DenseRows, Rows

__all__ = ["HELD", "SubsetRows", "subset_of"]

HELD = 2**24  # numbers of a subset up to which it is held in memory: 128 MB

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


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
