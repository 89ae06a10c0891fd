"""Quadratic forms of all arms of a set through its structure, without making rows.

Called by `passes` and `forms`, which go over the rows where this says None.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms.rows import BundleRows, Rows
from steadyarm.arms.walsh import walsh_of
from steadyarm.compiled import kernel

__all__ = ["quick_forms"]

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
