"""G-optimal designs: estimate the value of every arm well (Kiefer and Wolfowitz 1960)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.arms import ArmSet
from steadyarm.arms.rows import Rows
from steadyarm.designs.active import solve_volume
from steadyarm.designs.checks import check_among, check_rank, check_tolerance
from steadyarm.designs.design import Design, Status, on_all_arms
from steadyarm.designs.large_g import solve_g
from steadyarm.designs.solve import whiten
from steadyarm.designs.subset_rows import subset_of
from steadyarm.designs.support import with_few_arms
from steadyarm.errors import InvalidInputError
from steadyarm.linalg import svd

__all__ = ["LARGE", "g_optimal", "independent_arms", "own_span"]

RANK_TOLERANCE = 1e-9  # in whitened coordinates; smaller singular values of a subset are rounding
LARGE = 2**18  # numbers in the matrix of arms from which passes over them pay


def g_optimal(
    arms: ArmSet | Rows, tol: float = 1e-6, *, among: ArrayLike | None = None, sparse: bool = False
) -> Design:
    """Design that makes the worst-known arm known as well as possible.

    Minimises max over x of ‖x‖² in the inverse of A(weights). The optimal value is the rank r of
    the arms, which is the lower bound given.

    Parameters
    ----------
    arms : the arm set, or rows of arms that need not be stored (then without the options below)
    tol : relative gap between value and lower bound to reach
    among : indices of arms. If given, the design of these arms alone, in their own span: other
        arms have weight zero, and the lower bound is the rank of these arms.
    sparse : reduce the support to at most r(r+1)/2 arms

    Examples
    --------
    >>> arms = ArmSet.from_features([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    >>> design = g_optimal(arms)
    >>> print(f"{design.value:.4f}", design.support.tolist())
    2.0000 [0, 1]
    """
    check_tolerance(tol)
    if not isinstance(arms, ArmSet):
        if among is not None or sparse:
            raise InvalidInputError(
                "among and sparse are not available for rows that are not an ArmSet; take the "
                "rows you want first."
            )
        return solve_g(arms, tol).design()
    chosen = check_among(arms, among)
    if arms.size * arms.rank > LARGE and arms.rank == arms.size:
        return independent_arms(arms.size, chosen, 1.0)
    check_rank(arms)
    if chosen.size * arms.rank > LARGE and not sparse:
        rows = subset_of(arms.rows, None if among is None else chosen)
        design = solve_g(rows, tol).design()
        return replace(design, weights=on_all_arms(arms.size, chosen, design.weights))
    X, _ = whiten(arms.coordinates)
    if among is not None:
        X = own_span(X[chosen])
    solution = solve_volume(X, tol)
    if sparse:
        solution = with_few_arms(solution, X, X, False, tol)
    weights = on_all_arms(arms.size, chosen, solution.weights)
    return Design(*solution._replace(weights=weights))


def independent_arms(size: int, chosen: NDArray[np.intp], times: float) -> Design:
    """Equal weights, optimal for arms none of which tells anything about another.

    times : how many of them each thing to be known is made of
    """
    weights = on_all_arms(size, chosen, 1.0 / chosen.size)
    value = times * chosen.size
    return Design(weights, value, value, Status.OPTIMAL, 0)


def own_span(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows of X in whitened coordinates of their own span: full column rank."""
    left, singular, _ = svd(X)
    rank = max(int((singular > RANK_TOLERANCE * max(singular[0], 1e-300)).sum()), 1)
    return np.ascontiguousarray(left[:, :rank] * np.sqrt(len(X)))
