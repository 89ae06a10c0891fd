"""Rows of factorial and bundle sets, compiled: combinations from ranks, products of columns.

Called by `rows`; blind, as all kernels.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steadyarm.compiled import kernel

__all__ = ["products", "unrank"]


@kernel
def unrank(
    indices: NDArray[np.int64], counts: NDArray[np.int64], included: NDArray[np.float64]
) -> None:
    """Set included (m, n) to one at the items of combinations (m,), in lexicographic order.

    counts (n, k) is the number of combinations in which an item takes a slot, given the earlier
    slots.
    """
    for i in range(indices.size):
        rest = indices[i]
        item = 0
        for slot in range(counts.shape[1]):
            while rest >= counts[item, slot]:
                rest -= counts[item, slot]
                item += 1
            included[i, item] = 1.0
            item += 1


@kernel
def products(
    columns: NDArray[np.float64], terms: NDArray[np.int64], rows: NDArray[np.float64]
) -> None:
    """Products of columns (m, c) named by terms (t, order), into rows (m, t)."""
    for i in range(columns.shape[0]):
        for t in range(terms.shape[0]):
            value = columns[i, terms[t, 0]]
            for k in range(1, terms.shape[1]):
                value *= columns[i, terms[t, k]]
            rows[i, t] = value
