"""Instance: arms with their true means, one of which is best; where all of the theory starts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.arms import ArmSet
from steadyarm.designs import transductive
from steadyarm.errors import InvalidInputError

__all__ = ["TOLERANCE", "Instance", "halvings", "whole_halvings"]

TOLERANCE = 1e-9  # proven relative gap asked of every design
TIE = 2.0**-40  # of the largest mean, up to which two means count as equal

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Instance:
    """Arms, their means (K,), the best arm, and the gaps Δ_k (K,); the best's is the smallest."""

    arms: ArmSet
    means: Floats
    best: int
    gaps: Floats

    @classmethod
    def from_parameter(cls, arms: ArmSet, theta: ArrayLike) -> Instance:
        """Means x'θ, θ in the features of the arms."""
        return cls.from_means(arms, arms.features @ _vector(theta, arms.dimension, "theta"))

    @classmethod
    def from_means(cls, arms: ArmSet, means: ArrayLike) -> Instance:
        """Means given directly."""
        values = _vector(means, arms.size, "means")
        best = int(values.argmax())
        gaps = values[best] - values
        gaps[best] = np.inf
        rival = int(gaps.argmin())
        gaps[best] = gaps[rival]
        if gaps[best] <= TIE * np.abs(values).max():
            raise InvalidInputError(
                f"arms {arms.names[best]!r} and {arms.names[rival]!r} have the same mean "
                f"{values[best]:g}, so no single arm is best; leave one of them out."
            )
        return cls(arms, values, best, gaps)

    @property
    def gap(self) -> float:
        """Δ_(1): by how much the best arm beats the second best."""
        return float(self.gaps[self.best])

    def worst_comparison(self, power: float) -> float:
        """Least over designs of the largest ‖x - x*‖² / Δ_x^power over the other arms."""
        others = np.arange(self.arms.size) != self.best
        X = self.arms.features
        differences = (X[self.best] - X[others]) / self.gaps[others, None] ** (power / 2)
        return transductive(self.arms, differences, tol=TOLERANCE).value


def halvings(gap: float) -> int:
    """⌈log2(1/gap)⌉, exact also at powers of two."""
    return 1 - math.frexp(gap)[1]


def whole_halvings(gap: float) -> int:
    """⌊log2(1/gap)⌋: the largest i with gap ≤ 2^-i, exact also at powers of two."""
    fraction, exponent = math.frexp(gap)
    return 1 - exponent if fraction == 0.5 else -exponent


def _vector(values: ArrayLike, length: int, what: str) -> Floats:
    try:
        vector = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{what} is not a list of numbers ({error}).") from None
    if vector.shape != (length,):
        of = "features" if what == "theta" else "arms"
        hint = " For a world that moves give the average over its rounds." * (vector.ndim == 2)
        raise InvalidInputError(
            f"{what} has shape {vector.shape}; expected ({length},), one number for each of the "
            f"{length} {of}.{hint}"
        )
    if not np.isfinite(vector).all():
        where = int(np.flatnonzero(~np.isfinite(vector))[0])
        raise InvalidInputError(f"{what}[{where}] is {vector[where]}; expected a finite number.")
    return vector
