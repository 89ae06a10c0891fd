"""XY-optimal and transductive designs: estimate differences of arms, or any directions, well.

The design minimises the worst variance over the directions asked for (Soare, Lazaric and Munos
2014; Fiez, Jain, Jamieson and Ratliff 2019). The solver and its proof are in `saddle_kernel`.
"""

from __future__ import annotations

from numpy.typing import ArrayLike

from steadyarm.arms import ArmSet
from steadyarm.designs.active import solve_pairs, solve_saddle
from steadyarm.designs.checks import check_among, check_directions, check_rank, check_tolerance
from steadyarm.designs.design import Design
from steadyarm.designs.g_optimal import LARGE, independent_arms
from steadyarm.designs.large_xy import solve_xy
from steadyarm.designs.solve import in_coordinates, whiten
from steadyarm.designs.support import with_few_arms

__all__ = ["transductive", "xy_optimal"]


def xy_optimal(
    arms: ArmSet, among: ArrayLike | None = None, tol: float = 1e-6, sparse: bool = False
) -> Design:
    """Design that makes the worst-known difference between two arms known as well as possible.

    Minimises max over x, x' in `among` of ‖x - x'‖² in the inverse of A(weights). The weights lie
    on all arms: to compare a few arms it can pay to play others.

    Parameters
    ----------
    arms : the arm set
    among : indices of the arms to compare, all by default. A single arm leaves nothing to
        compare: the value is 0 and the weights are uniform.
    tol : relative gap between value and lower bound to reach
    sparse : reduce the support to at most r(r+1)/2 arms, r the rank of the arms

    Examples
    --------
    >>> arms = ArmSet.from_features([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6]])
    >>> print(f"{xy_optimal(arms).value:.4f}")
    4.0000
    >>> print(f"{xy_optimal(arms, among=[0, 2]).value:.4f}")
    0.6400
    """
    check_tolerance(tol)
    chosen = check_among(arms, among)
    if arms.size * arms.rank > LARGE and arms.rank == arms.size and chosen.size > 1:
        return independent_arms(arms.size, chosen, 2.0)
    check_rank(arms)
    if arms.large and not sparse:
        return solve_xy(arms.rows, tol, among=None if among is None else chosen).design()
    X, _ = whiten(arms.coordinates)
    solution = solve_pairs(X, chosen, tol)
    if sparse and solution.value > 0.0:
        solution = with_few_arms(solution, X, X[chosen], True, tol)
    return Design(*solution)


def transductive(
    arms: ArmSet, directions: ArrayLike, tol: float = 1e-6, sparse: bool = False
) -> Design:
    """Design that makes the worst-known of the given directions known as well as possible.

    Minimises max over y of ‖y‖² in the inverse of A(weights).

    Parameters
    ----------
    arms : the arm set
    directions : (J, d) array in the features of the arms, each in the span of the arms. If all
        are zero there is nothing to learn: the value is 0 and the weights are uniform.
    tol : relative gap between value and lower bound to reach
    sparse : reduce the support to at most r(r+1)/2 arms, r the rank of the arms

    Examples
    --------
    >>> arms = ArmSet.from_features([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> design = transductive(arms, [[1.0, 1.0]])
    >>> print(f"{design.value:.4f}", design.support.tolist())
    1.0000 [2]
    """
    check_tolerance(tol)
    Y = check_directions(arms, directions)
    X, L = whiten(arms.coordinates)
    B = in_coordinates(L, Y)
    solution = solve_saddle(X, B, False, tol)
    if sparse and solution.value > 0.0:
        solution = with_few_arms(solution, X, B, False, tol)
    return Design(*solution)
