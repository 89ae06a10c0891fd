"""From the log's sums to principal components and daily ridge regressions.

Memberships add up to one, so a user's six features span five dimensions and an article's too;
their outer products span 25, and 24 once the mean is taken off. The paper's 24 components hence
lose nothing but the rounding of the log to six decimals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from steadyarm.data.yahoo_log import Moments
from steadyarm.errors import InvalidInputError

__all__ = ["DIMENSION", "Basis", "fit_days", "principal_components"]

DIMENSION = 24
NEGLIGIBLE = 1e-9  # of the largest variance; rounding to six decimals leaves less


@dataclass(frozen=True)
class Basis:
    """Principal components: coordinates are (x - centre) @ directions.

    Attributes
    ----------
    centre : (36,) mean of the outer products
    directions : (36, d) orthonormal columns
    variances : (d,) variance along each direction, falling
    """

    centre: NDArray[np.float64]
    directions: NDArray[np.float64]
    variances: NDArray[np.float64]

    def coordinates(self, products: NDArray[np.float64]) -> NDArray[np.float64]:
        """(n, d) coordinates of (n, 36) outer products."""
        return (products - self.centre) @ self.directions


def principal_components(moments: Moments, dimension: int = DIMENSION) -> Basis:
    """The directions of largest variance, from sums alone; each one's largest entry is positive.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(500, 36)) * np.arange(36, 0, -1)
    >>> basis = principal_components(Moments.of(X, np.zeros(500)), dimension=3)
    >>> bool(np.allclose(basis.coordinates(X).var(axis=0), basis.variances))
    True
    """
    centre = moments.x / moments.count
    covariance = moments.xx / moments.count - np.outer(centre, centre)
    values, vectors = np.linalg.eigh(covariance)
    values, vectors = values[::-1][:dimension], vectors[:, ::-1][:, :dimension]
    rank = int((values > NEGLIGIBLE * max(values[0], 1e-12)).sum())
    if rank < dimension:
        raise InvalidInputError(
            f"the {moments.count:,} visits vary in {rank} dimensions only; {dimension} are needed. "
            "Read more lines, users or articles."
        )
    top = np.abs(vectors).argmax(axis=0)
    vectors = vectors * np.sign(vectors[top, np.arange(dimension)])
    return Basis(centre, vectors, values)


def fit_days(
    days: Sequence[Moments], ridge: float = 0.01, per_day_basis: bool = False
) -> tuple[list[Basis], NDArray[np.float64], NDArray[np.float64]]:
    """Components and a ridge regression a day: bases (1 or one a day), thetas, intercepts.

    The penalty is `ridge` times the squared norm of θ; the intercept is not penalised. With one
    basis for all days, the days' parameters can be compared and averaged. With `per_day_basis`
    each is written in the components of its own day, as in the paper's published runs.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 36))
    >>> bases, thetas, intercepts = fit_days([Moments.of(X, 0.5 + 0.1 * X[:, 3])])
    >>> thetas.shape, intercepts.round(2).tolist()
    ((1, 24), [0.49])
    """
    if not ridge > 0:
        raise InvalidInputError(f"ridge is {ridge}; expected a positive number.")
    if per_day_basis:
        bases = [principal_components(moments) for moments in days]
    else:
        bases = [principal_components(reduce(add, days))]
    thetas, intercepts = [], []
    for moments, basis in zip(days, bases if per_day_basis else bases * len(days), strict=True):
        W, mean = basis.directions, moments.x / moments.count
        scatter = W.T @ (moments.xx - moments.count * np.outer(mean, mean)) @ W
        effect = W.T @ (moments.xy - mean * moments.y)
        theta = np.linalg.solve(scatter + ridge * np.eye(W.shape[1]), effect)
        thetas.append(theta)
        intercepts.append(moments.y / moments.count - basis.coordinates(mean) @ theta)
    return bases, np.array(thetas), np.array(intercepts)
