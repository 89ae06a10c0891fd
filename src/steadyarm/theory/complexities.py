"""Complexities: about how many rounds it takes to find the best arm, by what is known of the world.

Each is a number H such that errors fall like exp(-T/H), up to constants and logarithms. `theta`
is the parameter of a world that stands still, or the average over the rounds of one that moves,
in the features of the arms. Where low rewards are wanted give ``-theta``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.arms import ArmSet
from steadyarm.designs import adjacent_optimal, transductive
from steadyarm.errors import InvalidInputError

# Instance: arms with their true means, one of which is best; where all of the theory starts.


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


def rho_star(arms: ArmSet, theta: ArrayLike) -> float:
    """ρ*(θ) = H_LB(θ), equation (2): the least possible worst ‖x - x*‖² / Δ_x².

    The norm is in the inverse of A(λ), the least is over designs λ and the worst over the arms x
    that are not best. It is what an oracle needs that knows θ, in a world that stands still. To a
    proven relative gap of 1e-9.

    Examples
    --------
    >>> arms = ArmSet.one_hot(["A", "B"])
    >>> print(f"{rho_star(arms, [0.5, 0.3]):.4f}")  # two arms: 4/Δ²
    100.0000
    >>> soare = ArmSet.from_features([[1, 0], [0, 1], [np.cos(0.1), np.sin(0.1)]])
    >>> print(f"{rho_star(soare, [1.0, 0.0]):.1f}")
    440.3
    """
    return Instance.from_parameter(arms, theta).worst_comparison(2)


def rho_star_of_means(arms: ArmSet, means: ArrayLike) -> float:
    """ρ* of equation (2), from the means (K,) of the arms instead of a parameter.

    Examples
    --------
    >>> print(f"{rho_star_of_means(ArmSet.from_features([[1.0], [3.0]]), [0.1, 0.3]):.4f}")
    11.1111
    """
    return Instance.from_means(arms, means).worst_comparison(2)


def h_g_bai(arms: ArmSet, theta: ArrayLike) -> float:
    """H_G-BAI(θ) = d / Δ_(1)², Theorem 1: what G-BAI needs however the world moves.

    d is the rank of the arms.

    Examples
    --------
    >>> arms = ArmSet.from_features([[1, 0], [0, 1], [0.5, 0.5]])
    >>> print(f"{h_g_bai(arms, [0.5, 0.1]):.4f}")
    50.0000
    """
    return arms.rank / Instance.from_parameter(arms, theta).gap ** 2


def h_unif(arms: ArmSet, theta: ArrayLike) -> float:
    """H_UNIF(θ) = K / Δ_(1)², Section 4: what uniform play needs if the arms share nothing.

    The features serve for the means alone.

    Examples
    --------
    >>> arms = ArmSet.from_features([[1, 0], [0, 1], [0.5, 0.5]])
    >>> print(f"{h_unif(arms, [0.5, 0.1]):.4f}")
    75.0000
    """
    return arms.size / Instance.from_parameter(arms, theta).gap ** 2


def h_bob(arms: ArmSet, theta: ArrayLike) -> float:
    """H_BOB(θ) = max over k of k / Δ_(k), over Δ_(1), Section 5: the best of both worlds.

    With arms that share nothing no algorithm does better in a world that stands still, if it is
    to be robust to drift as well (Abbasi-Yadkori et al. 2018). The features serve for the means
    alone.

    Examples
    --------
    >>> arms = ArmSet.one_hot(["A", "B", "C"])
    >>> print(f"{h_bob(arms, [0.5, 0.4, 0.0]):.4f}")  # 2/0.1 beats 3/0.5
    200.0000
    """
    gaps = np.sort(Instance.from_parameter(arms, theta).gaps)
    return float((np.arange(1, gaps.size + 1) / gaps).max() / gaps[0])


def h_adjacent(arms: ArmSet, theta: ArrayLike) -> float:
    """H_Adjacent(θ): the least possible worst ‖x - x'‖² over neighbours, over Δ_(1)².

    Neighbours are arms joined by an edge of the convex hull. It is what Adjacent-BAI needs
    however the world moves, and its authors show that none can do with less (Maynard-Zhang,
    Xiong, Jamieson and Fazel, COLT 2026). To a proven relative gap of 1e-6.

    Examples
    --------
    >>> cube = ArmSet.factorial({f: ["0", "1"] for f in "abcd"}, interactions=1)
    >>> print(f"{h_adjacent(cube, [0.0, 0.5, 0.4, 0.3, 0.1]):.4f}")  # 4/Δ², whatever the factors
    100.0000
    """
    return adjacent_optimal(arms).value / Instance.from_parameter(arms, theta).gap ** 2
