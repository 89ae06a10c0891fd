"""Optimal designs: what users and policies call, and where the solver is chosen.

Small sets go to the interior point of `solvers.py`, on all arms or on a working set that grows
until the proof holds for all; large ones to `pooled_g.py` and `pooled_xy.py`. Full factorial
and bundle sets look the same from each of their arms, so that equal weights are optimal: the value
is convex and does not change when arms are relabelled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.arms import ArmSet
from steadyarm.arms.generated import BundleRows, FactorialRows, fraction, walsh_of
from steadyarm.arms.rows import LARGE, DenseRows, Rows, is_large, subset_of
from steadyarm.designs.design import (
    Design,
    Status,
    check_among,
    check_rank,
    check_tolerance,
)
from steadyarm.designs.passes import partners, span_of
from steadyarm.designs.pooled_g import FIRST, pooled_g
from steadyarm.designs.pooled_xy import pooled_xy
from steadyarm.designs.solvers import Solution, own_span, solve_g, solve_pairs, solve_saddle, whiten
from steadyarm.errors import InvalidInputError
from steadyarm.kernels import gram, solve_lower

Kind = Literal["xy", "g"]
Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]

LEAST_GAP = 0.1  # to which XY designs of large sets without symmetry are solved, at best
FEW_GAP = 0.01  # of G designs, from which few arms are preferred to equal weights on very many
THOROUGH = 100.0  # passes that the search for the worst pair may take where it begins anew


def g_optimal(arms: ArmSet | Rows, tol: float = 1e-6, *, among: ArrayLike | None = None) -> Design:
    """Design that minimises the largest variance of an arm's estimated value.

    Minimises max over x of ‖x‖² in the inverse of A(weights). The optimal value is the rank r of
    the arms, which is the lower bound given.

    Parameters
    ----------
    arms : the arm set, or rows of arms that need not be stored (then without the options below)
    tol : relative gap between value and lower bound to reach
    among : indices of arms. If given, the design of these arms alone, in their own span: other
        arms have weight zero, and the lower bound is the rank of these arms.

    Returns
    -------
    Design : weights, value and a lower bound that proves how good they are

    Examples
    --------
    >>> arms = ArmSet.from_features([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    >>> design = g_optimal(arms)
    >>> print(f"{design.value:.4f}", design.support.tolist())
    2.0000 [0, 1]
    """
    check_tolerance(tol)
    if not isinstance(arms, ArmSet):
        if among is not None:
            raise InvalidInputError(
                "among is not available for rows that are not an ArmSet; take the rows you want "
                "first."
            )
        return large_g(arms, tol)
    chosen = check_among(arms, among)
    return next(solve_subsets(arms, "g", [chosen], tol, whiten_anew=among is not None))


def xy_optimal(arms: ArmSet, among: ArrayLike | None = None, tol: float = 1e-6) -> Design:
    """Design that minimises the largest variance of an estimated difference between two arms.

    Minimises max over x, x' in `among` of ‖x - x'‖² in the inverse of A(weights). The weights lie
    on all arms: to compare a few arms it can pay to play others.

    For large sets (`ArmSet.large`) without the symmetry of a full factorial or bundle set, the
    solver stops at a proven gap of 10 %. With tens of thousands of arms to compare in many
    dimensions the value is a bound above the worst pair, and the gap can be larger: `gap` tells.

    Parameters
    ----------
    arms : the arm set
    among : indices of the arms to compare, all by default. A single arm leaves nothing to
        compare: the value is 0 and the weights are uniform.
    tol : relative gap between value and lower bound to reach

    Returns
    -------
    Design : weights, value and a lower bound that proves how good they are

    Examples
    --------
    >>> arms = ArmSet.from_features([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6]])
    >>> print(f"{xy_optimal(arms).value:.4f}")
    4.0000
    >>> print(f"{xy_optimal(arms, among=[0, 2]).value:.4f}")
    0.6400
    """
    check_tolerance(tol)
    return next(solve_subsets(arms, "xy", [check_among(arms, among)], tol))


def solve_directions(arms: ArmSet, directions: Matrix, tol: float) -> Design:
    """Design that minimises the largest variance of an estimate in one of some directions.

    directions : (m, r) in coordinates of the arms
    """
    X, L = whiten(arms.coordinates)
    return Design.of_weights(*solve_saddle(X, solve_lower(L, directions), False, tol))


# The choice of a solver


def solve_subsets(
    arms: ArmSet,
    kind: Kind,
    subsets: Sequence[Indices],
    tol: float,
    known: Design | None = None,
    whiten_anew: bool = True,
) -> Iterator[Design]:
    """A design for each subset, given by rising indices of arms: the one place that picks a solver.

    Kind "xy" compares the arms of the subset using all arms; kind "g" is the design of the subset
    alone in its own span.

    Parameters
    ----------
    known : an XY design to compare all arms, from which large XY problems begin
    whiten_anew : whether G designs of small sets are solved in coordinates of the subset's own
        span; not needed for all arms, where it changes the last bits
    """
    K, r = arms.size, arms.rank
    if r == K and K * r > LARGE:  # no arm tells anything about another
        for chosen in subsets:
            if kind == "xy" and chosen.size == 1:
                yield _nothing_to_compare(K)
            else:
                value = (2.0 if kind == "xy" else 1.0) * chosen.size
                yield Design.equal(K, chosen, value)
        return
    check_rank(arms)
    if arms.large:
        for chosen in subsets:
            yield _large(arms, kind, chosen, tol, known)
        return
    X, _ = whiten(arms.coordinates)
    for chosen in subsets:
        if kind == "xy":
            yield Design.of_weights(*solve_pairs(X, chosen, tol))
        else:
            alone = own_span(X[chosen]) if whiten_anew else X
            yield _on_arms(K, chosen, solve_g(alone, tol))


def _large(arms: ArmSet, kind: Kind, chosen: Indices, tol: float, known: Design | None) -> Design:
    rows, K = arms.rows, arms.size
    if kind == "xy":
        return _nothing_to_compare(K) if chosen.size == 1 else large_xy(rows, chosen, tol, known)
    if chosen.size == K:
        return large_g(rows, tol)
    if not is_large(chosen.size, arms.rank):
        return _on_arms(K, chosen, solve_g(own_span(rows.take(chosen)), tol))
    found = pooled_g(subset_of(rows, chosen), tol)
    return replace(found, size=K, support=chosen[found.support])


def large_xy(rows: Rows, chosen: Indices, tol: float, known: Design | None = None) -> Design:
    """The XY-optimal design to compare the chosen ones of many rows; see `solve_subsets`."""
    everything = chosen.size == rows.shape[0]
    if known is None and _symmetric_arms(rows) is not None:
        known = _symmetric_xy(rows, tol if everything else max(tol, LEAST_GAP))
    if known is not None and everything:
        return known
    tol = max(tol, LEAST_GAP)
    if known is None:
        return pooled_xy(rows, chosen, tol, large_g(rows, FEW_GAP), effort=THOROUGH)
    return pooled_xy(rows, chosen, tol, known, known.value)


def large_g(rows: Rows, tol: float) -> Design:
    """The G-optimal design of all rows; on few arms rather than very many if the gap allows it."""
    equal = _symmetric_arms(rows)
    K, r = rows.shape
    if equal is not None and (tol < FEW_GAP or equal.size <= FIRST * r):
        return Design.equal(K, equal, float(r))
    return pooled_g(rows, tol)


def _symmetric_xy(rows: Rows, tol: float) -> Design:
    """Equal weights are optimal for comparing all arms; or a design on few arms, near enough.

    In coordinates where equal weights have A = I, a design whose A has no eigenvalue below e makes
    every variance at most 1/e times as large.
    """
    equal = _symmetric_arms(rows)
    assert equal is not None
    K, r = rows.shape
    value = _worst_pair(rows, equal)
    if tol < LEAST_GAP or equal.size <= FIRST * r:
        return Design.equal(K, equal, value)
    g = large_g(rows, FEW_GAP)
    A = gram(rows.take(g.support) @ span_of(rows), g.shares)
    upper = value / float(np.linalg.eigh(A)[0][0])
    status = Status.OPTIMAL if upper <= value * (1 + tol) else Status.STEP_LIMIT
    return Design(K, g.support, g.shares, upper, value, status, g.iterations)


def _symmetric_arms(rows: Rows) -> Indices | None:
    """Arms on which equal weights are optimal by symmetry; None if there is no symmetry."""
    if isinstance(rows, FactorialRows):
        return fraction(rows)
    return np.arange(rows.shape[0]) if isinstance(rows, BundleRows) else None


def _worst_pair(rows: Rows, equal: Indices) -> float:
    """The largest variance of a difference of two arms, with equal weights on symmetric arms.

    The arm farthest from the first one shows it.
    """
    first = np.zeros(1, dtype=np.int64)
    walsh = walsh_of(rows)
    if walsh is not None:
        apart = 2.0 * walsh.masks.size - 2.0 * walsh.products(rows.take(first)[0])
        return float(apart.max())
    some = rows if equal.size == rows.shape[0] else DenseRows(rows.take(equal))
    return float(partners(rows, span_of(some), first)[1][0])


def _nothing_to_compare(size: int) -> Design:
    return Design.of_weights(np.full(size, 1.0 / size), 0.0, 0.0, Status.OPTIMAL, 0)


def _on_arms(size: int, chosen: Indices, solution: Solution) -> Design:
    """A solution on the chosen arms as a design of all of them."""
    weights = np.zeros(size)
    weights[chosen] = solution.weights
    return Design.of_weights(weights, *solution[1:])
