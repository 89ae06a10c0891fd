"""Design: a probability vector over arms, with its value and a proof of its quality."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

__all__ = ["Design", "Status", "on_all_arms", "relative_gap"]


class Status(StrEnum):
    """Why a solver stopped."""

    OPTIMAL = "optimal"
    STEP_LIMIT = "step_limit"
    STALLED = "stalled"
    STEPS_DONE = "steps_done"

    @property
    def sentence(self) -> str:
        """The status in words, with what to do about it."""
        return _SENTENCES[self]


_SENTENCES = {
    Status.OPTIMAL: "The gap between value and lower bound is within the tolerance.",
    Status.STEP_LIMIT: "The step limit was reached first; the gap tells how good the design is "
    "for certain. A larger tol will be met sooner.",
    Status.STALLED: "Rounding stopped the solver; the gap tells how good the design is for "
    "certain. Features of very different scale or nearly dependent arms are the usual cause.",
    Status.STEPS_DONE: "A fixed number of steps was asked for and made; no tolerance was asked "
    "for. The gap tells how good the design is for certain.",
}


@dataclass(frozen=True, eq=False, repr=False)
class Design:
    """A design: how often to play each arm, and a proof of how far from optimal that can be.

    Attributes
    ----------
    weights : (K,) read-only array, nonnegative, sums to one
    value : the worst variance ‖y‖² in the inverse of A(weights), over the directions y asked for
    lower_bound : no design has a value below this one
    status : why the solver stopped; ``status.sentence`` says it in words
    iterations : Newton or Frank-Wolfe steps made
    previous_value : for Frank-Wolfe the value of the iterate before the last, which is what the
        paper's published runs read as the value; None for the exact solvers
    """

    weights: NDArray[np.float64]
    value: float
    lower_bound: float
    status: Status
    iterations: int
    previous_value: float | None = None

    def __post_init__(self) -> None:
        self.weights.setflags(write=False)

    @property
    def gap(self) -> float:
        """Relative gap ``value / lower_bound - 1``; zero when the value is zero."""
        return relative_gap(self.value, self.lower_bound)

    @property
    def support(self) -> NDArray[np.intp]:
        """Indices of the arms with positive weight."""
        return np.flatnonzero(self.weights)

    def __repr__(self) -> str:
        return (
            f"Design(value={self.value:.6g}, gap={max(self.gap, 0.0):.1e}, "
            f"support={self.support.size} of {self.weights.size} arms, "
            f"status={self.status.value!r})"
        )


def relative_gap(value: float, lower: float) -> float:
    """``value / lower - 1``; zero when there is nothing to compare, infinite without a bound."""
    if value == 0.0:
        return 0.0
    return value / lower - 1.0 if lower > 0.0 else np.inf


def on_all_arms(
    size: int, indices: NDArray[np.intp] | NDArray[np.int64], weights: NDArray[np.float64] | float
) -> NDArray[np.float64]:
    """(K,) weights for all arms, those at the indices as given and the others zero."""
    everywhere = np.zeros(size)
    everywhere[indices] = weights
    return everywhere
