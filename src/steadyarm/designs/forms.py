"""Values and quadratic forms of all arms of a large set at once.

For policies and intervals that look at every arm: `elimination_of_many`, `inference`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms.rows import Rows
from steadyarm.designs.passes import blocks
from steadyarm.designs.quick_forms import quick_forms
from steadyarm.linalg import matmul, row_dots

__all__ = ["forms"]

Floats = NDArray[np.float64]


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
