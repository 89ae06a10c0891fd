"""Validation of what solvers for many arms are given.

For `large_g` and `large_xy`; what users call is checked in `checks`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.designs.checks import check_weights
from steadyarm.errors import InvalidInputError

__all__ = ["checked_among", "checked_start"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


def checked_among(among: ArrayLike | None, K: int) -> Indices | None:
    """Sorted indices of the arms to compare; None for all of them."""
    if among is None:
        return None
    given = np.asarray(among)
    if given.ndim != 1 or not given.size or not np.issubdtype(given.dtype, np.integer):
        raise InvalidInputError(
            f"among is an array of shape {given.shape} of {given.dtype}; expected a list of at "
            "least one integer arm index (for a boolean mask use numpy.flatnonzero)."
        )
    _check_arms(given, K, "among")
    return None if given.size == K else np.sort(given).astype(np.int64)


def checked_start(start: tuple[ArrayLike, ArrayLike], K: int) -> tuple[Indices, Floats]:
    """Sorted indices and weights of the arms from which to begin, without those that have none."""
    indices, weights = np.asarray(start[0]), check_weights(start[1], axes=1)
    if indices.shape != weights.shape or not np.issubdtype(indices.dtype, np.integer):
        raise InvalidInputError(
            f"start has indices of shape {indices.shape} and type {indices.dtype}, and weights of "
            f"shape {weights.shape}; expected one integer index for each weight."
        )
    _check_arms(indices, K, "start")
    carrying = np.flatnonzero(weights)
    order = carrying[np.argsort(indices[carrying], kind="stable")]
    return indices[order].astype(np.int64), weights[order]


def _check_arms(indices: NDArray[np.integer], K: int, what: str) -> None:
    if indices.min() < 0 or indices.max() >= K or np.unique(indices).size < indices.size:
        raise InvalidInputError(
            f"{what} names {indices.size} arms from {indices.min()} to {indices.max()}; expected "
            f"distinct arms from 0 to {K - 1}."
        )
