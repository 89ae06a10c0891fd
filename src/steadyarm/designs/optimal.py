"""Optimal designs: what users and policies call, and where the solver is chosen.

Small sets go to the interior point of `interior_point.py`, on all arms or on a working set that
grows until the proof holds for all; large ones to `pooled_g.py` and `pooled_xy.py`. Full factorial
and bundle sets look the same from each of their arms, so that equal weights are optimal: the value
is convex and does not change when arms are relabelled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.arms import ArmSet
from steadyarm.arms.generated import BundleRows, FactorialRows, fraction, walsh_of
from steadyarm.arms.rows import LARGE, DenseRows, Rows, is_large, subset_of
from steadyarm.decompositions import eigh, qr, spanning, svd
from steadyarm.designs.design import (
    Design,
    Status,
    check_among,
    check_directions,
    check_rank,
    check_tolerance,
    check_weights,
)
from steadyarm.designs.interior_point import (
    farthest,
    interior_point,
    largest_volume,
    purge,
    value_on_range,
)
from steadyarm.designs.passes import partners, span_of
from steadyarm.designs.pooled_g import FIRST, pooled_g
from steadyarm.designs.pooled_xy import pooled_xy
from steadyarm.errors import InvalidInputError
from steadyarm.linalg import factor, gram, matmul, row_dots, solve_lower

Kind = Literal["xy", "g"]
Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]

RANK_TOLERANCE = 1e-9  # in whitened coordinates; smaller singular values of a subset are rounding
LEAST_GAP = 0.1  # to which XY designs of large sets without symmetry are solved, at best
FEW_GAP = 0.01  # of G designs, from which few arms are preferred to equal weights on very many
THOROUGH = 100.0  # passes that the search for the worst pair may take where it begins anew


def g_optimal(
    arms: ArmSet | Rows, tol: float = 1e-6, *, among: ArrayLike | None = None, sparse: bool = False
) -> Design:
    """Design that minimises the largest variance of an arm's estimated value.

    Minimises max over x of ‖x‖² in the inverse of A(weights). The optimal value is the rank r of
    the arms, which is the lower bound given.

    Parameters
    ----------
    arms : the arm set, or rows of arms that need not be stored (then without the options below)
    tol : relative gap between value and lower bound to reach
    among : indices of arms. If given, the design of these arms alone, in their own span: other
        arms have weight zero, and the lower bound is the rank of these arms.
    sparse : reduce the support to at most r(r+1)/2 arms

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
        if among is not None or sparse:
            raise InvalidInputError(
                "among and sparse are not available for rows that are not an ArmSet; take the "
                "rows you want first."
            )
        return large_g(arms, tol)
    return _optimal(arms, "g", among, tol, sparse)


def xy_optimal(
    arms: ArmSet, among: ArrayLike | None = None, tol: float = 1e-6, sparse: bool = False
) -> Design:
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
    sparse : reduce the support to at most r(r+1)/2 arms, r the rank of the arms

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
    return _optimal(arms, "xy", among, tol, sparse)


def transductive(
    arms: ArmSet, directions: ArrayLike, tol: float = 1e-6, sparse: bool = False
) -> Design:
    """Design that minimises the largest variance of an estimate in one of the given directions.

    Minimises max over y of ‖y‖² in the inverse of A(weights).

    Parameters
    ----------
    arms : the arm set
    directions : (J, d) array in the features of the arms, each in the span of the arms. If all
        are zero there is nothing to learn: the value is 0 and the weights are uniform.
    tol : relative gap between value and lower bound to reach
    sparse : reduce the support to at most r(r+1)/2 arms, r the rank of the arms

    Returns
    -------
    Design : weights, value and a lower bound that proves how good they are

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
    B = solve_lower(L, Y)
    solution = solve_saddle(X, B, False, tol)
    if sparse and solution.value > 0.0:
        solution = _with_few_arms(solution, X, B, False, tol)
    return Design.of_weights(*solution)


# The choice of a solver


def _optimal(arms: ArmSet, kind: Kind, among: ArrayLike | None, tol: float, sparse: bool) -> Design:
    chosen = check_among(arms, among)
    if not sparse:
        return next(solve_subsets(arms, kind, [chosen], tol, whiten_anew=among is not None))
    check_rank(arms)
    X, _ = whiten(arms.coordinates)
    if kind == "g":
        alone = X if among is None else own_span(X[chosen])
        solution = _with_few_arms(solve_volume(alone, tol), alone, alone, False, tol)
        return _on_arms(arms.size, chosen, solution)
    solution = solve_pairs(X, chosen, tol)
    if solution.value > 0.0:
        solution = _with_few_arms(solution, X, X[chosen], True, tol)
    return Design.of_weights(*solution)


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
            yield _on_arms(K, chosen, solve_volume(alone, tol))


def _large(arms: ArmSet, kind: Kind, chosen: Indices, tol: float, known: Design | None) -> Design:
    rows, K = arms.rows, arms.size
    if kind == "xy":
        return _nothing_to_compare(K) if chosen.size == 1 else large_xy(rows, chosen, tol, known)
    if chosen.size == K:
        return large_g(rows, tol)
    if not is_large(chosen.size, arms.rank):
        return _on_arms(K, chosen, solve_volume(own_span(rows.take(chosen)), tol))
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
    A = gram(matmul(rows.take(g.support), span_of(rows)), g.shares)
    upper = value / float(eigh(A)[0][0])
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


# Raw matrices with all arms and directions in hand


OUTCOMES = (Status.OPTIMAL, Status.STEP_LIMIT, Status.STALLED)
MOST_STEPS = 120
SMALL = 48  # up to this many arms and directions everything is in the working set
MAX_ROUNDS = 100  # of adding arms and directions to it


class Solution(NamedTuple):
    """Weights over the rows of X, their value, a proven lower bound, and how it went."""

    weights: Matrix
    value: float
    lower_bound: float
    status: Status
    iterations: int


class _Certificate(NamedTuple):
    """What proves a lower bound over any arms x: ``strength / max x'Qx``."""

    Q: Matrix
    strength: float


def whiten(X: Matrix) -> tuple[Matrix, Matrix]:
    """Arms in coordinates where the uniform design is the identity, and the factor L of the map.

    Designs do not change under a linear map; near-dependent arms become well conditioned. Other
    vectors are mapped by `solve_lower(L, vectors)`.
    """
    orthonormal, R = qr(X)
    root = np.sqrt(len(X))
    return np.ascontiguousarray(orthonormal * root), np.ascontiguousarray(R.T / root)


def _saddle_point(X: Matrix, B: Matrix, pairs: bool, tol: float) -> tuple[Solution, _Certificate]:
    """Design on whitened arms X (K, r) for the rows of B (m, r), or all differences of them.

    First quickly to within half the tolerance; closer if the arms that carry nothing cannot be
    identified yet; and with short, careful steps if the quick way did not arrive.
    """
    K, r = X.shape
    best = Solution(np.full(K, 1 / K), np.inf, 0.0, Status.STALLED, 0)
    proof = _Certificate(np.zeros((r, r)), 0.0)
    steps = 0
    for aim, most, careful in (
        (0.5 * tol, 40, False),
        (0.02 * tol, 40, False),
        (0.5 * tol, MOST_STEPS, True),
    ):
        weights, slack = np.empty(K), np.empty(K)
        Q, bounds = np.empty((r, r)), np.empty(3)
        ended, more = interior_point(X, B, pairs, aim, most, careful, weights, slack, Q, bounds)
        steps += more
        if bounds[1] > best.lower_bound:
            best = best._replace(lower_bound=float(bounds[1]))
            proof = _Certificate(Q, float(bounds[2]))
        if bounds[0] < best.value:
            best = best._replace(
                weights=weights.copy(), value=float(bounds[0]), status=OUTCOMES[ended]
            )
        limit = best.lower_bound * (1 + tol)
        purged = purge(X, B, pairs, limit, weights, slack)
        if purged <= limit:
            best = best._replace(weights=weights, value=purged, status=Status.OPTIMAL)
            break
        if aim < 0.5 * tol and best.value <= limit:
            best = best._replace(status=Status.OPTIMAL)  # but no arm can be left out for certain
            break
    if best.value <= best.lower_bound * (1 + tol):
        best = best._replace(status=Status.OPTIMAL)
    return best._replace(iterations=steps), proof


def _most_volume(X: Matrix, tol: float) -> Solution:
    """G-optimal design on whitened arms X (K, r) of full column rank."""
    K, r = X.shape
    weights, slack = np.empty(K), np.empty(K)
    ended, steps, value = largest_volume(X, 0.1 * tol, MOST_STEPS, weights, slack)
    purged = purge(X, X, False, r * (1 + tol), weights, slack)
    value = purged if np.isfinite(purged) else value
    status = Status.OPTIMAL if value <= r * (1 + tol) else OUTCOMES[ended]
    return Solution(weights, value, float(r), status, steps)


def solve_pairs(X: Matrix, chosen: NDArray[np.bool_] | NDArray[np.int64], tol: float) -> Solution:
    """XY-optimal design on whitened arms X (K, r) to compare the chosen ones.

    If the arms are linearly independent, a difference x_i - x_j has the value 1/w_i + 1/w_j; its
    mean over all pairs of s arms is at least 2s, which equal weights on them attain.
    """
    K, r = X.shape
    weights = np.zeros(K)
    weights[chosen] = 1.0
    size = int(weights.sum())
    if r < K or size < 2:
        return solve_saddle(X, X[chosen], True, tol)
    return Solution(weights / size, 2.0 * size, 2.0 * size, Status.OPTIMAL, 0)


def solve_saddle(X: Matrix, B: Matrix, pairs: bool, tol: float) -> Solution:
    """Design on whitened arms X (K, r) for the rows of B (m, r), or all differences of them."""
    if pairs:
        B = B - B.mean(axis=0)  # differences stay; distances are computed with less rounding
    if not (np.ptp(B, axis=0) if pairs else B).any():
        return Solution(np.full(len(X), 1 / len(X)), 0.0, 0.0, Status.OPTIMAL, 0)
    if max(len(X), len(B)) <= SMALL:
        return _saddle_point(X, B, pairs, tol)[0]
    return _on_working_set(X, B, pairs, tol)


def _on_working_set(X: Matrix, B: Matrix, pairs: bool, tol: float) -> Solution:
    """The same for many arms or directions, which join a working set where the proof needs them."""
    K, r = X.shape
    distance, partner = np.empty(len(B)), np.empty(len(B), dtype=np.int64)
    farthest(B, pairs, distance, partner)
    rows = _spread(X, 3 * r)
    points = np.argsort(-distance, kind="stable")[: 3 * r]
    if pairs:
        points = np.union1d(points, partner[points])
    best = Solution(np.full(K, 1 / K), np.inf, 0.0, Status.STALLED, 0)
    aim, steps = max(tol, 1e-2), 0
    for _ in range(MAX_ROUNDS):
        local, proof = _saddle_point(X[rows], B[points], pairs, 0.5 * aim)
        steps += local.iterations
        g = row_dots(matmul(X, proof.Q), X)
        lower = max(best.lower_bound, proof.strength / g.max())
        weights = np.zeros(K)
        weights[rows] = local.weights
        # directions outside the range of a purged design have no value: keep a trace of all arms
        interior = 0.999 * weights[rows] + 0.001 / rows.size
        reached = value_on_range(X[rows], local.weights, B, pairs)
        probe = local.weights if np.isfinite(reached) else interior
        root = _regular_factor(X[rows], probe, interior)
        farthest(solve_lower(root, B), pairs, distance, partner)
        if reached < best.value:
            best = best._replace(weights=weights, value=reached)
        best = best._replace(lower_bound=lower, status=local.status, iterations=steps)
        if best.value <= lower * (1 + tol):
            return best._replace(status=Status.OPTIMAL)
        new_rows = _most_violating(g, g[rows].max() * (1 + 0.1 * aim), rows, 2 * r + rows.size // 4)
        bound = local.value * (1 + 0.1 * aim)
        new_points = _most_violating(distance, bound, points, 2 * r + points.size // 4)
        if pairs and new_points.size:
            new_points = np.setdiff1d(np.union1d(new_points, partner[new_points]), points)
        if not new_rows.size and not new_points.size:
            if aim <= 0.05 * tol:
                break
            aim = max(0.05 * tol, 1e-2 * aim)
        elif aim > tol:
            aim = max(tol, 0.1 * aim)
        rows, points = np.union1d(rows, new_rows), np.union1d(points, new_points)
    status = Status.STALLED if best.status is Status.OPTIMAL else best.status
    return best._replace(status=status)


def solve_volume(X: Matrix, tol: float) -> Solution:
    """G-optimal design on whitened arms X (K, r) of full column rank."""
    K, r = X.shape
    if K <= SMALL:
        return _most_volume(X, tol)
    rows = _spread(X, 4 * r)
    best = Solution(np.full(K, 1 / K), np.inf, float(r), Status.STALLED, 0)
    aim, steps = max(tol, 1e-2), 0
    for _ in range(MAX_ROUNDS):
        local = _most_volume(X[rows], 0.5 * aim)
        steps += local.iterations
        root = _regular_factor(X[rows], local.weights, local.weights)
        g = np.square(solve_lower(root, X)).sum(axis=1)
        if g.max() < best.value:
            weights = np.zeros(K)
            weights[rows] = local.weights
            best = best._replace(weights=weights, value=float(g.max()))
        best = best._replace(status=local.status, iterations=steps)
        if best.value <= r * (1 + tol):
            return best._replace(status=Status.OPTIMAL)
        new = _most_violating(g, g[rows].max() * (1 + 0.1 * aim), rows, 2 * r + rows.size // 4)
        if not new.size and aim <= 0.05 * tol:
            break
        aim = max(tol, 0.1 * aim) if new.size else max(0.05 * tol, 1e-2 * aim)
        rows = np.union1d(rows, new)
    status = Status.STALLED if best.status is Status.OPTIMAL else best.status
    return best._replace(status=status)


def _spread(X: Matrix, count: int) -> Indices:
    """At least r arms that span the space, and the longest ones, up to `count` in all."""
    basis = spanning(X)[0][: X.shape[1]]
    longest = np.argsort(-np.square(X).sum(axis=1), kind="stable")[:count]
    return np.union1d(basis, longest)


def _regular_factor(X: Matrix, weights: Matrix, interior: Matrix) -> Matrix:
    A = gram(X, weights)
    if eigh(A)[0][0] <= 1e-10 * np.trace(A):
        A = gram(X, interior)
    return factor(A)


def _most_violating(size: Matrix, bound: float, known: Indices, most: int) -> Indices:
    outside = np.setdiff1d(np.flatnonzero(size > bound), known)
    return outside[np.argsort(-size[outside], kind="stable")[:most]]


def own_span(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows of X in whitened coordinates of their own span: full column rank."""
    left, singular, _ = svd(X)
    rank = max(int((singular > RANK_TOLERANCE * max(singular[0], 1e-300)).sum()), 1)
    return np.ascontiguousarray(left[:, :rank] * np.sqrt(len(X)))


# Fewer arms with the same information


def sparsify(arms: ArmSet, weights: ArrayLike) -> NDArray[np.float64]:
    """Weights on at most r(r+1)/2 arms that carry at least the information of the given ones.

    A(weights) lies in a space of dimension r(r+1)/2, so a vertex of the linear program "least
    total weight with the same A" has no larger support. Scaled back to sum one, no variance is
    larger than before.

    Parameters
    ----------
    arms : the arm set
    weights : (K,) weights of a design; they need not sum to one

    Returns
    -------
    (K,) weights that sum to one

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
    return _sparsified(arms.coordinates, given / given.sum())


def _sparsified(X: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """`sparsify` on raw arms X (K, r). Returns the weights as they are if they are sparse."""
    support = np.flatnonzero(weights)
    r = X.shape[1]
    if support.size <= r * (r + 1) // 2:
        return weights
    from scipy.optimize import linprog, nnls

    A = gram(X[support], weights[support])
    V = _in_range_coordinates(A, X[support])
    r = V.shape[1]
    upper = np.triu_indices(r)
    products = (V[:, upper[0]] * V[:, upper[1]]).T
    target = np.eye(r)[upper]
    answer = linprog(
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
    exact, residual = nnls(products[:, basic], target)
    if residual > 1e-8:
        return weights
    sparse = np.zeros_like(weights)
    sparse[support[basic]] = exact / exact.sum()
    return sparse


def _with_few_arms(
    solution: Solution, X: NDArray[np.float64], B: NDArray[np.float64], pairs: bool, tol: float
) -> Solution:
    """The solution on at most r(r+1)/2 arms, unless rounding would make its value worse."""
    weights = _sparsified(X, solution.weights)
    value = value_on_range(X, weights, B, pairs)
    if value > max(solution.value * (1 + 1e-9), solution.lower_bound * (1 + tol)):
        return solution
    return solution._replace(weights=weights, value=value)


def _in_range_coordinates(A: NDArray[np.float64], X: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows of X in coordinates of the range of A where A is the identity."""
    values, vectors = eigh(A)
    kept = values > 1e-12 * values[-1]
    if kept.all():
        return solve_lower(factor(A), X)
    return np.asarray(matmul(X, vectors[:, kept] / np.sqrt(values[kept])))
