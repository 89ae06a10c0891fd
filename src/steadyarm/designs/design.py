"""Design: how often to play each arm, with its value and a proof of its quality.

Also the validation of what the functions of this package are given.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.arms import ArmSet
from steadyarm.errors import InvalidInputError

MOST_RANK = 5000  # a matrix of 200 MB, whose factors take seconds

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


class Status(StrEnum):
    """The reason why a solver stopped. The gap always tells the quality of the design.

    Values: OPTIMAL, the tolerance was met. STEP_LIMIT, the step limit was reached first: a larger
    `tol` will be met sooner. STALLED, rounding stopped the solver: features of very different scale
    or nearly dependent arms are the usual cause. STEPS_DONE, a fixed number of steps was made.
    """

    OPTIMAL = "optimal"
    STEP_LIMIT = "step_limit"
    STALLED = "stalled"
    STEPS_DONE = "steps_done"


@dataclass(frozen=True, eq=False, repr=False)
class Design:
    """A design: how often to play each arm, and a proof of how far from optimal that can be.

    Attributes
    ----------
    size : number of arms, K
    support : (m,) rising indices of the arms with positive weight
    shares : (m,) their weights, which sum to one
    value : the worst variance ‖y‖² in the inverse of A(weights), over the given directions y;
        for XY designs of large sets it may be a bound above that
    lower_bound : no design has a value below this one
    status : why the solver stopped, see `Status`
    iterations : steps, sweeps or rounds that the solver made
    previous_value : for Frank-Wolfe the value of the iterate before the last, which is what the
        paper's published runs read as the value; None for the other solvers

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.from_features([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    >>> design = sa.g_optimal(arms)
    >>> print(f"{design.value:.3f}", design.support.tolist(), design.gap < 1e-6)
    2.000 [0, 1] True
    >>> design.weights.round(3).tolist()
    [0.5, 0.5, 0.0]
    """

    size: int
    support: Indices
    shares: Floats
    value: float
    lower_bound: float
    status: Status
    iterations: int
    previous_value: float | None = None

    @classmethod
    def of_weights(
        cls,
        weights: Floats,
        value: float,
        lower_bound: float,
        status: Status,
        iterations: int,
        previous_value: float | None = None,
    ) -> Design:
        """The design with weights (K,) on all arms.

        Parameters
        ----------
        weights : (K,) weights of all arms, nonnegative, with sum one
        value, lower_bound, status, iterations, previous_value : see the attributes
        """
        support = np.flatnonzero(weights)
        proof = value, lower_bound, status, iterations, previous_value
        return cls(weights.size, support, weights[support], *proof)

    @classmethod
    def equal(cls, size: int, support: Indices, value: float) -> Design:
        """Equal weights on some arms, known to be optimal with this value.

        Parameters
        ----------
        size : number of arms, K
        support : indices of the arms that are played
        value : the worst variance
        """
        shares = np.full(support.size, 1.0 / support.size)
        return cls(size, support, shares, value, value, Status.OPTIMAL, 0)

    @cached_property
    def weights(self) -> Floats:
        """(K,) read-only array: the weights of all arms, nonnegative, with sum one."""
        weights = np.zeros(self.size)
        weights[self.support] = self.shares
        weights.setflags(write=False)
        return weights

    @property
    def gap(self) -> float:
        """Relative gap ``value / lower_bound - 1``; zero when the value is zero."""
        if self.value == 0.0:
            return 0.0
        return self.value / self.lower_bound - 1.0 if self.lower_bound > 0.0 else np.inf

    def __repr__(self) -> str:
        return (
            f"Design(value={self.value:.6g}, gap={max(self.gap, 0.0):.1e}, "
            f"support={self.support.size} of {self.size} arms, status={self.status.value!r})"
        )


# Validation


def check_tolerance(tol: float) -> None:
    """Refuse a relative gap that is not a positive finite number."""
    if not (np.isfinite(tol) and tol > 0):
        raise InvalidInputError(
            f"tol is {tol}; expected a relative gap above 0, such as the default 1e-6."
        )


def check_among(arms: ArmSet, among: ArrayLike | None) -> NDArray[np.intp]:
    """Sorted indices of the arms meant by `among`, all of them for None."""
    size = arms.recommendable.size
    if among is None:
        return np.arange(size)
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
    outside = given[(given < 0) | (given >= size)]
    if outside.size:
        raise InvalidInputError(
            f"among names arm {outside[0]}; there are {size} arms, 0 to {size - 1}."
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
