"""The paper's own design solver, Frank-Wolfe with step 1 / (2(i + 2)), as a named alternative.

The published figures were made with it. It starts from uniform weights, finds the worst direction
y, and moves to the arm with the largest (x'A^-1 y)²; after the usual 999 steps 4.75 % of the mass
is still on the uniform start, so its value ends some percent above the optimum.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.arms import ArmSet
from steadyarm.designs.checks import check_among, check_directions
from steadyarm.designs.dense_kernels import value_on_range
from steadyarm.designs.design import Design, Status, on_all_arms
from steadyarm.designs.frank_wolfe_kernel import frank_wolfe_steps
from steadyarm.designs.g_optimal import own_span
from steadyarm.designs.solve import in_coordinates, whiten
from steadyarm.errors import InvalidInputError
from steadyarm.linalg import gram, inverse_root, matmul, row_dots

__all__ = ["frank_wolfe_g", "frank_wolfe_on", "frank_wolfe_transductive", "frank_wolfe_xy"]

PUBLISHED_STEPS = 999


class Iterate(NamedTuple):
    """Weights after the last step, the value before it as published, and the gathered W."""

    weights: NDArray[np.float64]
    value: float
    W: NDArray[np.float64]


def frank_wolfe_xy(
    arms: ArmSet, among: ArrayLike | None = None, steps: int = PUBLISHED_STEPS
) -> Design:
    """XY design by Frank-Wolfe; the exact solver is `xy_optimal`.

    The design's ``previous_value`` is the value that the published runs read.

    Examples
    --------
    >>> arms = ArmSet.from_features([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6]])
    >>> design = frank_wolfe_xy(arms)
    >>> print(f"{design.value:.3f} {design.previous_value:.3f}")
    4.062 4.062
    """
    chosen = check_among(arms, among)
    X, _ = whiten(arms.coordinates)
    return _run(X, X[chosen], True, steps)


def frank_wolfe_transductive(
    arms: ArmSet, directions: ArrayLike, steps: int = PUBLISHED_STEPS
) -> Design:
    """Design for the given directions by Frank-Wolfe; the exact solver is `transductive`.

    Examples
    --------
    >>> arms = ArmSet.from_features([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> print(f"{frank_wolfe_transductive(arms, [[1.0, 1.0]]).value:.3f}")
    1.024
    """
    Y = check_directions(arms, directions)
    X, L = whiten(arms.coordinates)
    return _run(X, in_coordinates(L, Y), False, steps)


def frank_wolfe_g(
    arms: ArmSet, among: ArrayLike | None = None, steps: int = PUBLISHED_STEPS
) -> Design:
    """G design by Frank-Wolfe, of `among` alone in their own span; see `g_optimal`.

    Examples
    --------
    >>> arms = ArmSet.from_features([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    >>> print(f"{frank_wolfe_g(arms).value:.3f}")
    2.017
    """
    chosen = check_among(arms, among)
    X, _ = whiten(arms.coordinates)
    if among is not None:
        X = own_span(X[chosen])
    local = _run(X, X, False, steps)
    weights = on_all_arms(arms.size, chosen, local.weights)
    return Design(
        weights, local.value, float(X.shape[1]), local.status, steps, local.previous_value
    )


def frank_wolfe_on(
    X: NDArray[np.float64], B: NDArray[np.float64], pairs: bool, steps: int = PUBLISHED_STEPS
) -> Iterate:
    """The iteration on raw whitened arms X (K, r) and the rows of B (m, r) or their differences."""
    weights, W = np.empty(len(X)), np.zeros((X.shape[1],) * 2)
    if not (np.ptp(B, axis=0) if pairs else B).any():
        weights[:] = 1 / len(X)
        return Iterate(weights, 0.0, W)
    previous = frank_wolfe_steps(X, B, pairs, steps, weights, W)
    return Iterate(weights, previous, W)


def _run(X: NDArray[np.float64], B: NDArray[np.float64], pairs: bool, steps: int) -> Design:
    if steps < 1:
        raise InvalidInputError(f"steps is {steps}; expected at least 1 (the paper makes 999).")
    weights, previous, W = frank_wolfe_on(X, B, pairs, steps)
    if previous == 0.0:
        return Design(weights, 0.0, 0.0, Status.OPTIMAL, 0, 0.0)
    value = value_on_range(X, weights, B, pairs)
    P = gram(inverse_root(gram(X, weights)).T)
    Q = matmul(matmul(P, W), P)
    mass = 1.0 - np.prod(1.0 - 0.5 / np.arange(3, steps + 3))  # total weight of what W gathered
    bound = (W * P).sum() ** 2 / (mass * row_dots(matmul(X, Q), X).max())
    return Design(weights, value, float(bound), Status.STEPS_DONE, steps, previous)
