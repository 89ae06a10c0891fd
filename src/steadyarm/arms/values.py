"""The values of all arms for one parameter, in blocks or through the structure of the set.

`ArmSet.values` for large sets.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms.checks import LARGE
from steadyarm.arms.rows import Rows
from steadyarm.arms.sparse import SparseRows
from steadyarm.arms.walsh import walsh_of
from steadyarm.linalg import matmul

__all__ = ["row_blocks", "values_of"]

Floats = NDArray[np.float64]


def values_of(rows: Rows, parameter: Floats) -> Floats:
    """(K,) products of all rows with a parameter (r,).

    Examples
    --------
    >>> from steadyarm.arms.rows import FactorialRows
    >>> values_of(FactorialRows([2, 2]), np.array([1.0, 0.5, 0.25, 0.0])).tolist()
    [0.25, 0.75, 1.25, 1.75]
    """
    if isinstance(rows, SparseRows):
        return rows.values(parameter)
    walsh = walsh_of(rows)
    if walsh is not None:
        return walsh.products(parameter)
    out = np.empty(rows.shape[0])
    for start, stop in row_blocks(*rows.shape):
        out[start:stop] = matmul(rows.block(start, stop), parameter)
    return out


def row_blocks(count: int, columns: int) -> Iterator[tuple[int, int]]:
    """Where blocks of rows start and stop, each of a handy size."""
    step = max(LARGE // columns, 64)
    for start in range(0, count, step):
        yield start, min(start + step, count)
