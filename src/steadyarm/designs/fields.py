"""What the steps of `pair_game` ask of the arms, and how two-level factorial sets answer.

`factorial_xy` plays on the field given here, `pool_xy` on that of `pool_field`.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms.rows import Rows
from steadyarm.arms.walsh import Walsh
from steadyarm.designs.subset_rows import subset_of
from steadyarm.linalg import matmul

__all__ = ["Field", "WalshField"]

UNIT = 2.0**-52

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


class Field(Protocol):
    """The arms in play and the arms compared, in coordinates where the base design is I."""

    @property
    def total(self) -> int:
        """Number of all arms, K."""

    @property
    def cost(self) -> float:
        """Of the forms of the arms in play, in plain passes over all arms."""

    @property
    def compared(self) -> Rows:
        """The m arms to compare."""

    def forms(self, M: Floats) -> Floats:
        """X'Mx of the arms in play, which may be rough."""
        ...

    def moment(self, lam: Floats, exact: bool = True) -> Floats:
        """Sum of lam_x x x' over the arms in play: (r, r); rough unless it has to be exact."""
        ...

    def squares(self, M: Floats, chosen: Indices) -> Floats:
        """X'Mx of the compared arms at the positions chosen."""
        ...

    def radii(self, root: Floats, inverse: Floats, centre: Floats) -> Floats:
        """At least the lengths of (x - centre) @ root of arms compared; inverse = root root'."""
        ...

    def largest(self, M: Floats) -> float:
        """At least the largest x'Mx over all arms, also those not in play; M is nonnegative."""
        ...


class WalshField:
    """All arms are in play; equal weights are the base design."""

    def __init__(self, walsh: Walsh, among: Indices) -> None:
        """To compare the arms `among`."""
        self.total, self.cost = walsh.size, walsh.cost
        self.compared = subset_of(walsh.rows, among)
        self._walsh, self._among = walsh, among

    def forms(self, M: Floats) -> Floats:
        """X'Mx of all arms: one transform."""
        return self._walsh.forms(M)

    def moment(self, lam: Floats, exact: bool = True) -> Floats:
        """Sum of lam_x x x' over all arms: one transform."""
        return self._walsh.moment(lam)

    def squares(self, M: Floats, chosen: Indices) -> Floats:
        """X'Mx of the compared arms at the positions chosen."""
        return self._walsh.forms(M)[self._among[chosen]]

    def radii(self, root: Floats, inverse: Floats, centre: Floats) -> Floats:
        """At least the distances of the compared arms from the centre."""
        middle = matmul(inverse, centre)
        square = self._walsh.forms(inverse, -2 * middle)[self._among]
        square += matmul(centre, middle)
        return np.asarray(np.sqrt(np.maximum(square, 0.0) + self._rounding(inverse)))

    def largest(self, M: Floats) -> float:
        """The largest form, and what rounding may hide."""
        return float(self._walsh.forms(M).max()) + self._rounding(M)

    def _rounding(self, M: Floats) -> float:
        """How far rounding can move the quadratic forms of M."""
        return float(np.abs(M).sum() * UNIT * (2 + self.total.bit_length()))
