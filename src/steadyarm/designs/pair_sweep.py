"""One sweep over all arms of a large XY problem: which would help, and how far out they are.

Called by `large_xy` once a round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms.rows import Rows
from steadyarm.designs.passes import in_lanes, leverages, radii
from steadyarm.linalg import matmul, row_dots

__all__ = ["sweep_all"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Sweep:
    """What a sweep found.

    Attributes
    ----------
    g : (K,) |x @ proof|², how much each arm would help
    radius : (m,) distance of x @ norm from the centre, for the arms compared
    """

    g: Floats
    radius: Floats


def sweep_all(rows: Rows, compared: Rows, norm: Floats, proof: Floats, centre: Floats) -> Sweep:
    """Look at the arms compared as points x @ norm, and at the lengths of x @ proof: two passes.

    Where all rows are compared they are read once.
    """
    middle = matmul(centre, norm)
    if compared is not rows:
        return Sweep(leverages(rows, proof), radii(compared, norm, middle))
    g, square = np.empty(rows.shape[0]), np.empty(rows.shape[0])

    def look(lane: list[tuple[int, int]]) -> None:
        for start, stop in lane:
            X = rows.block(start, stop)
            image = matmul(X, proof)
            g[start:stop] = row_dots(image, image)
            image = matmul(X, norm)
            image -= middle
            square[start:stop] = row_dots(image, image)

    in_lanes(look, *rows.shape)
    return Sweep(g, np.sqrt(square))
