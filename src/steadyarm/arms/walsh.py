"""Passes over the full set of two-level factors by a fast Walsh-Hadamard transform.

Each column of such a set is a product of signs, a Walsh function of the arm's index. A quadratic
form of the rows is then a combination of Walsh functions, and all K values come out of one
transform: K log2 K additions, where multiplying rows takes K r² of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import log2

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms.rows import FactorialRows, Rows
from steadyarm.compiled import kernel

__all__ = ["Walsh", "walsh_of"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Walsh:
    """The columns of a two-level factorial set as signed Walsh functions.

    Attributes
    ----------
    rows : the set
    size : number of arms, 2ⁿ
    masks : (r,) which bits of the index each column multiplies
    signs : (r,) what the column is at index 0

    Examples
    --------
    >>> rows = FactorialRows([2, 2, 2])
    >>> walsh, M = walsh_of(rows), np.diag(np.arange(7.0))
    >>> X = rows.block(0, 8)
    >>> bool(np.allclose(walsh.forms(M), np.einsum("ij,jk,ik->i", X, M, X)))
    True
    """

    rows: FactorialRows
    size: int
    masks: Indices
    signs: Floats

    @property
    def cost(self) -> float:
        """Additions of a transform, as a share of the multiplications of a plain pass."""
        return log2(self.size) / float(self.masks.size) ** 2

    def forms(self, M: Floats, linear: Floats | None = None) -> Floats:
        """X'Mx + x'linear for every arm x: (K,)."""
        both = (self.masks[:, None] ^ self.masks).ravel()
        signed = (M * self.signs * self.signs[:, None]).ravel()
        answer = np.bincount(both, signed, minlength=self.size).astype(np.float64, copy=False)
        if linear is not None:
            answer[self.masks] += self.signs * linear
        transform(answer)
        return answer

    def products(self, v: Floats) -> Floats:
        """X'v for every arm x: (K,)."""
        answer = np.zeros(self.size)
        answer[self.masks] = self.signs * v
        transform(answer)
        return answer

    def moment(self, weights: Floats) -> Floats:
        """Sum of weights_x x x' over all arms: (r, r)."""
        sums = weights.astype(np.float64)
        transform(sums)
        answer: Floats = sums[self.masks[:, None] ^ self.masks] * self.signs * self.signs[:, None]
        return answer


def walsh_of(rows: Rows) -> Walsh | None:
    """The Walsh functions of a two-level factorial set; None for any other rows."""
    if not isinstance(rows, FactorialRows) or set(rows.levels) != {2}:
        return None
    return _walsh(len(rows.levels), rows.interactions, rows.constant)


@lru_cache(maxsize=8)
def _walsh(factors: int, interactions: int, constant: bool) -> Walsh:
    rows = FactorialRows((2,) * factors, interactions, constant)
    bits = np.array([0, *(1 << bit for bit in range(factors))], dtype=np.int64)
    ends = rows.take(bits)  # a bit of the index turns the sign of the columns that it is in
    masks = bits[1:] @ (ends[1:] != ends[0])
    return Walsh(rows, rows.shape[0], masks, ends[0])


@kernel
def transform(values: NDArray[np.float64]) -> None:
    """Sum over j of values[j] (-1)^|i & j|, for every i, in place; two bits at a time."""
    step, size = 1, values.size
    while 4 * step <= size:
        for start in range(0, size, 4 * step):
            for i in range(start, start + step):
                a, b = values[i], values[i + step]
                c, d = values[i + 2 * step], values[i + 3 * step]
                values[i], values[i + step] = a + b + (c + d), a - b + (c - d)
                values[i + 2 * step], values[i + 3 * step] = a + b - (c + d), a - b - (c - d)
        step *= 4
    if 2 * step <= size:
        for i in range(step):
            a, b = values[i], values[i + step]
            values[i], values[i + step] = a + b, a - b
