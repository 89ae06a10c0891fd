"""Validation of what the design functions are given, in one place.

For the functions that users call; `row_checks` is for the solvers behind them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.arms import ArmSet
from steadyarm.errors import InvalidInputError
from steadyarm.linalg import matmul

__all__ = ["check_among", "check_directions", "check_rank", "check_tolerance", "check_weights"]

SPAN_TOLERANCE = 1e-8  # relative distance from the span of the arms that counts as rounding
MOST_RANK = 5000  # a matrix of 200 MB, whose factors take seconds


def check_tolerance(tol: float) -> None:
    """Refuse a relative gap that is not a positive finite number."""
    if not (np.isfinite(tol) and tol > 0):
        raise InvalidInputError(
            f"tol is {tol}; expected a relative gap above 0, such as the default 1e-6."
        )


def check_among(arms: ArmSet, among: ArrayLike | None) -> NDArray[np.intp]:
    """Sorted indices of the arms meant by `among`, all of them for None."""
    if among is None:
        return np.arange(arms.size)
    given = np.asarray(among)
    if given.ndim != 1 or given.size == 0:
        raise InvalidInputError(
            f"among has shape {given.shape}; expected a list of at least one arm index."
        )
    if not np.issubdtype(given.dtype, np.integer):
        raise InvalidInputError(
            f"among holds {given.dtype} values; expected integer arm indices "
            "(for a boolean mask use numpy.flatnonzero)."
        )
    outside = given[(given < 0) | (given >= arms.size)]
    if outside.size:
        raise InvalidInputError(
            f"among names arm {outside[0]}; there are {arms.size} arms, 0 to {arms.size - 1}."
        )
    indices, counts = np.unique(given, return_counts=True)
    if indices.size < given.size:
        raise InvalidInputError(
            f"among names arm {indices[counts.argmax()]} more than once; name each arm once."
        )
    return indices.astype(np.intp)


def check_rank(arms: ArmSet) -> None:
    """Not more parameters than a matrix of them by them may have in memory and time."""
    if arms.rank > MOST_RANK:
        raise InvalidInputError(
            f"the arms have {arms.rank:,} parameters; designs are found for up to {MOST_RANK:,}. "
            "Describe the arms by fewer features."
        )


def check_directions(arms: ArmSet, directions: ArrayLike) -> NDArray[np.float64]:
    """Directions (J, d) in the user's features, mapped to the span of the arms: (J, r)."""
    try:
        given = np.asarray(directions, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"the directions are not a table of numbers ({error}); give one row per direction."
        ) from None
    d = arms.features.shape[1]
    if given.ndim != 2 or given.shape[0] == 0 or given.shape[1] != d:
        raise InvalidInputError(
            f"the directions have shape {given.shape}; expected (J, {d}): one row per direction, "
            f"at least one, and one column for each of the {d} features."
        )
    if not np.isfinite(given).all():
        j, k = np.argwhere(~np.isfinite(given))[0]
        raise InvalidInputError(
            f"direction {j} has {given[j, k]} in column {k}; all must be finite numbers."
        )
    inside = matmul(given, arms.dual)
    missed = np.sqrt(np.square(given - matmul(inside, arms.basis.T)).sum(axis=1))
    outside = np.flatnonzero(missed > SPAN_TOLERANCE * np.sqrt(np.square(given).sum(axis=1)))
    if outside.size:
        raise InvalidInputError(
            f"direction {outside[0]} is not in the span of the arms, so no data about the arms "
            "can tell its value; use differences or other combinations of the arms' features."
        )
    return np.asarray(inside, dtype=np.float64)


def check_weights(weights: ArrayLike, axes: int) -> NDArray[np.float64]:
    """Weights with `axes` axes: nonnegative, finite, with a positive sum along the last axis."""
    given = np.asarray(weights, dtype=np.float64)
    if given.ndim != axes or given.size == 0:
        raise InvalidInputError(
            f"the weights have shape {given.shape}; expected {axes} axes and at least one weight."
        )
    if not np.isfinite(given).all() or (given < 0).any() or not (given.sum(axis=-1) > 0).all():
        raise InvalidInputError(
            "the weights must be finite numbers, none of them negative, and not all zero."
        )
    return given
