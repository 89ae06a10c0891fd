"""One sweep over all arms of a large XY problem: which would help, and how far out they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steadyarm.designs.passes import blocks
from steadyarm.designs.rows import Rows

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Sweep:
    """What a sweep found.

    Attributes
    ----------
    g : (K,) |x @ proof|², how much each arm would help
    radius : (K,) distance of x @ norm from the centre
    """

    g: Floats
    radius: Floats


def sweep_all(rows: Rows, norm: Floats, proof: Floats, centre: Floats) -> Sweep:
    """Look at all arms x as points x @ norm, and at the lengths of x @ proof: two passes."""
    middle = centre @ norm
    g, square = np.empty(rows.shape[0]), np.empty(rows.shape[0])
    for start, stop in blocks(*rows.shape):
        X = rows.block(start, stop)
        image = X @ proof
        np.einsum("ij,ij->i", image, image, out=g[start:stop])
        image = X @ norm
        image -= middle
        np.einsum("ij,ij->i", image, image, out=square[start:stop])
    return Sweep(g, np.sqrt(square))
