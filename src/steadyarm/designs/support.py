"""Fewer arms with the same information: support reduction to at most r(r+1)/2 arms.

For `g_optimal` and `xy_optimal` with ``sparse=True``, and for users.
"""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from steadyarm.arms import ArmSet
from steadyarm.designs.checks import check_weights
from steadyarm.designs.dense_kernels import value_on_range
from steadyarm.designs.solve import Solution, in_coordinates
from steadyarm.errors import InvalidInputError
from steadyarm.linalg import eigh, factor, gram, matmul

__all__ = ["sparsify", "with_few_arms"]


def sparsify(arms: ArmSet, weights: ArrayLike) -> NDArray[np.float64]:
    """Weights on at most r(r+1)/2 arms that carry at least the information of the given ones.

    A(weights) lies in a space of dimension r(r+1)/2, so a vertex of the linear program "least
    total weight with the same A" has no larger support. Scaled back to sum one, no variance is
    larger than before.

    Examples
    --------
    >>> import numpy as np
    >>> angles = np.arange(12) * np.pi / 6
    >>> arms = ArmSet.from_features(np.column_stack([np.cos(angles), np.sin(angles)]))
    >>> weights = sparsify(arms, np.full(12, 1 / 12))
    >>> bool(np.count_nonzero(weights) <= 3)
    True
    """
    given = check_weights(weights, axes=1)
    if given.size != arms.size:
        raise InvalidInputError(f"there are {given.size} weights for {arms.size} arms.")
    return sparsified(arms.coordinates, given / given.sum())


def sparsified(X: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """`sparsify` on raw arms X (K, r). Returns the weights as they are if they are sparse."""
    support = np.flatnonzero(weights)
    r = X.shape[1]
    if support.size <= r * (r + 1) // 2:
        return weights
    A = gram(X[support], weights[support])
    V = _in_range_coordinates(A, X[support])
    r = V.shape[1]
    upper = np.triu_indices(r)
    products = (V[:, upper[0]] * V[:, upper[1]]).T
    target = np.eye(r)[upper]
    answer = scipy.optimize.linprog(
        np.ones(support.size),
        A_eq=products,
        b_eq=target,
        method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if answer.status != 0 or answer.x is None:
        return weights
    # a basic solution has at most r(r+1)/2 positive entries; least squares removes its rounding
    basic = np.argsort(-answer.x, kind="stable")[: upper[0].size]
    basic = basic[answer.x[basic] > 1e-12]
    exact, residual = scipy.optimize.nnls(products[:, basic], target)
    if residual > 1e-8:
        return weights
    sparse = np.zeros_like(weights)
    sparse[support[basic]] = exact / exact.sum()
    return sparse


def with_few_arms(
    solution: Solution, X: NDArray[np.float64], B: NDArray[np.float64], pairs: bool, tol: float
) -> Solution:
    """The solution on at most r(r+1)/2 arms, unless rounding would make its value worse."""
    weights = sparsified(X, solution.weights)
    value = value_on_range(X, weights, B, pairs)
    if value > max(solution.value * (1 + 1e-9), solution.lower_bound * (1 + tol)):
        return solution
    return solution._replace(weights=weights, value=value)


def _in_range_coordinates(A: NDArray[np.float64], X: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows of X in coordinates of the range of A where A is the identity."""
    values, vectors = eigh(A)
    kept = values > 1e-12 * values[-1]
    if kept.all():
        return in_coordinates(factor(A), X)
    return np.asarray(matmul(X, vectors[:, kept] / np.sqrt(values[kept])))
