"""Optimal designs: what users and policies call, and where the solver is chosen.

Small sets go to the interior point of `solvers.py`, on all arms or on a working set that grows
until the proof holds for all; large ones to `pooled_g.py` and `pooled_xy.py`. Full factorial
and bundle sets look the same from each of their arms, so that equal weights are optimal: the value
is convex and does not change when arms are relabelled.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.arms import ArmSet
from steadyarm.arms.generated import BundleRows, FactorialRows, fraction, walsh_of
from steadyarm.arms.rows import DenseRows, Rows, is_large, subset_of
from steadyarm.designs.design import (
    Design,
    Status,
    check_among,
    check_rank,
    check_tolerance,
)
from steadyarm.designs.frank_wolfe import frank_wolfe
from steadyarm.designs.pooled_g import FIRST, pooled_g, span_of
from steadyarm.designs.pooled_xy import partners, pooled_xy
from steadyarm.designs.rounding import Allocation
from steadyarm.designs.solvers import Solution, own_span, solve_g, solve_saddle, whiten, whiten_arms
from steadyarm.errors import InvalidInputError
from steadyarm.kernels import gram, solve_lower
from steadyarm.validation import check_choice

Kind = Literal["xy", "g"]
Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]

LEAST_GAP = 0.1  # to which XY designs of large sets without symmetry are solved, at best
FEW_GAP = 0.01  # of G designs, from which few arms are preferred to equal weights on very many
THOROUGH = 100.0  # passes that the search for the worst pair may take where it begins anew


def g_optimal(arms: ArmSet, tol: float = 1e-6, *, among: ArrayLike | None = None) -> Design:
    """Design that minimises the largest variance of an arm's estimated value.

    Minimises max over x of ‖x‖² in the inverse of A(weights). The optimal value is the rank r of
    the arms, which is the lower bound given. With `ArmSet.targets`, x are the targets.

    Parameters
    ----------
    arms : the arm set
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
    return next(solve_subsets(arms, "g", [check_among(arms, among)], tol))


def xy_optimal(arms: ArmSet, among: ArrayLike | None = None, tol: float = 1e-6) -> Design:
    """Design that minimises the largest variance of an estimated difference between two arms.

    Minimises max over x, x' in `among` of ‖x - x'‖² in the inverse of A(weights). The weights lie
    on all arms: to compare a few arms it can pay to play others. With `ArmSet.targets`, x and x'
    are targets, and `among` has indices of targets.

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
) -> Iterator[Design]:
    """A design for each subset, given by rising indices of arms: the one place that picks a solver.

    Kind "xy" compares the arms of the subset using all arms; kind "g" is the design of the subset
    alone in its own span.

    Parameters
    ----------
    known : an XY design to compare all arms, from which large XY problems begin
    """
    K, r = arms.size, arms.rank
    if r == K and arms.targets is None:
        # No arm tells anything about another: a difference has the value 1/w_i + 1/w_j, whose mean
        # over all pairs of s arms is at least 2s, which equal weights attain.
        for chosen in subsets:
            if kind == "xy" and chosen.size == 1:
                yield _nothing_to_compare(K)
            else:
                yield Design.equal(K, chosen, (2.0 if kind == "xy" else 1.0) * chosen.size)
        return
    check_rank(arms)
    if arms.large:
        for chosen in subsets:
            yield _large(arms, kind, chosen, tol, known)
        return
    X, Z = whiten_arms(arms)
    for chosen in subsets:
        if kind == "xy" or arms.targets is not None:
            yield Design.of_weights(*solve_saddle(X, Z[chosen], kind == "xy", tol))
        else:
            yield _on_arms(K, chosen, solve_g(own_span(X[chosen]), tol))


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


# Designs of subsets, each distinct one solved once. Eliminations ask for the same subsets again and
# again. A design depends on its subset alone, never on what was solved before it, so that the cache
# changes the time and nothing else. The designs that were unused for longest are dropped first.


Solver = Literal["exact", "frank-wolfe"]
"""How designs are found: "exact" to a proven gap, or "frank-wolfe" with the steps of the paper's
published runs. Designs of large sets are always exact."""

TOLERANCE = 1e-6
LARGE_TOLERANCE: dict[Kind, float] = {"xy": 0.25, "g": 0.01}  # of designs of large sets
KEPT = 0.5  # share of a large set above which a subset gets the design that compares all arms
MOST_FLOATS = 2**23  # 64 MB of weights over all arm sets
MOST_BITS = 62  # arms whose subsets are numbers of 64 bits

Key = int | bytes


@dataclass(frozen=True, eq=False)
class SubsetDesigns:
    """Designs of u distinct subsets, for n requests.

    `designs_for` makes it.

    Attributes
    ----------
    weights : (u, m) array, one design a row
    values : (u,) array, what a policy reads as the value of the design: the achieved value for
        the exact solver; for Frank-Wolfe, as in the published runs, that of the iterate before
        the last
    index : (n,) array; request i has design ``weights[index[i]]``
    arms : (m,) indices of the arms that the columns are; None if they are all arms

    Examples
    --------
    >>> arms = ArmSet.one_hot(["a", "b", "c"])
    >>> found = designs_for(arms, np.array([[True, True, False]]), kind="g")
    >>> found.allocation().weights.tolist()
    [[0.5, 0.5, 0.0]]
    """

    weights: Matrix
    values: Matrix
    index: NDArray[np.intp]
    arms: Indices | None = None

    def allocation(self) -> Allocation:
        """The design of every request."""
        return Allocation(self.weights[self.index], self.arms)


class _Cache:
    """Designs by arm set, kind, solver and subset; those used last stay.

    Attributes
    ----------
    designs : those used last come last
    floats : how many numbers they hold, with weights on all arms
    """

    def __init__(self) -> None:
        self.designs: OrderedDict[tuple[str, str, str, Key], Design] = OrderedDict()
        self.floats = 0

    def add(self, key: tuple[str, str, str, Key], design: Design) -> None:
        """Keep a design, and drop others that were unused for longest if there is no room."""
        if key not in self.designs:
            self.floats += _floats(design)
        self.designs[key] = design
        while self.floats > MOST_FLOATS:
            self.floats -= _floats(self.designs.popitem(last=False)[1])


_cache = _Cache()
_lock = Lock()


def _floats(design: Design) -> int:
    return 2 * design.support.size + design.size


def designs_for(
    arms: ArmSet, masks: NDArray[np.bool_], kind: Kind = "xy", solver: Solver = "exact"
) -> SubsetDesigns:
    """Designs of the subsets of `arms` given by `masks` (n, K), each distinct one solved once.

    Kind "xy" compares the arms of the subset using all arms; kind "g" is the design of the subset
    alone in its own span. Safe to call from many threads.

    Designs of small sets are solved to a gap of 1e-6. Those of large sets (`ArmSet.large`) have
    columns for the arms that some design plays, and gaps of 1 % (G) or, where the worst pair can
    be found for certain, 25 % (XY). A subset with more than half of a large set gets the design
    that compares all arms, whose value is above every pair of the subset as well.

    Parameters
    ----------
    arms : the arm set
    masks : (n, K) boolean: which arms, or targets if the set has them, belong to each subset
    kind : "xy" or "g"
    solver : how designs are found, see `Solver`

    Returns
    -------
    SubsetDesigns : the distinct designs, and which of them belongs to each subset

    Examples
    --------
    >>> arms = ArmSet.one_hot(["a", "b", "c"])
    >>> masks = np.array([[True, True, False], [True, True, True], [True, True, False]])
    >>> found = designs_for(arms, masks)
    >>> found.index.tolist(), found.values.round(3).tolist()
    ([0, 1, 0], [4.0, 6.0])
    """
    masks = np.ascontiguousarray(masks)
    _check(arms, masks, kind, solver)
    solver = "exact" if arms.large else solver
    designs, index = _solve_distinct(arms, masks, kind, solver)
    values = np.array([design.value for design in designs])
    if not arms.large:
        return SubsetDesigns(np.array([design.weights for design in designs]), values, index)
    columns = np.unique(np.concatenate([design.support for design in designs]))
    weights = np.zeros((len(designs), columns.size))
    for row, design in zip(weights, designs, strict=True):
        row[np.searchsorted(columns, design.support)] = design.shares
    return SubsetDesigns(weights, values, index, columns)


def forget_designs() -> None:
    """Empty the cache of `designs_for`, for example to measure how long designs take.

    Examples
    --------
    >>> forget_designs()
    """
    with _lock:
        _cache.designs.clear()
        _cache.floats = 0


def _solve_distinct(
    arms: ArmSet, masks: NDArray[np.bool_], kind: Kind, solver: Solver
) -> tuple[list[Design], NDArray[np.intp]]:
    """The designs of the distinct masks, and which of them each request has."""
    first, index, keys = _distinct(masks)
    of = arms.coordinates_fingerprint, kind, solver
    with _lock:
        known = _cache.designs
        found = {key: known[*of, key] for key in keys if (*of, key) in known}
        for key in found:
            known.move_to_end((*of, key))
    missing = [i for i, key in enumerate(keys) if key not in found]
    if missing:
        solve = _exact if solver == "exact" else _frank_wolfe
        subsets = [np.flatnonzero(masks[first[i]]) for i in missing]
        solved = dict(zip([keys[i] for i in missing], solve(arms, kind, subsets), strict=True))
        with _lock:
            for key, design in solved.items():
                _cache.add((*of, key), design)
        found |= solved
    return [found[key] for key in keys], index


def _check(arms: ArmSet, masks: NDArray[np.bool_], kind: str, solver: str) -> None:
    size = arms.recommendable.size
    if masks.ndim != 2 or masks.shape[1] != size or masks.dtype != np.bool_:
        raise InvalidInputError(
            f"the masks are {masks.dtype} of shape {masks.shape}; expected booleans of shape "
            f"(n, {size}), one row per subset and one column per arm."
        )
    empty = np.flatnonzero(~masks.any(axis=1))
    if empty.size:
        raise InvalidInputError(f"mask {empty[0]} names no arm; every subset needs at least one.")
    check_choice(kind, "kind", get_args(Kind))
    check_choice(solver, "solver", get_args(Solver))


def _distinct(
    masks: NDArray[np.bool_],
) -> tuple[NDArray[np.intp], NDArray[np.intp], Sequence[Key]]:
    """A row for each distinct mask, which of them each request is, and their keys."""
    if masks.shape[1] <= MOST_BITS:  # numbers are sorted quicker than bytes
        codes = masks @ (1 << np.arange(masks.shape[1], dtype=np.int64))[::-1]
        unique, first, index = np.unique(codes, return_index=True, return_inverse=True)
        return first, index, unique.tolist()
    packed = np.packbits(masks, axis=1)
    rows = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    unique, first, index = np.unique(rows, return_index=True, return_inverse=True)
    return first, index, [hashlib.sha256(row.tobytes()).digest() for row in unique]


def _exact(arms: ArmSet, kind: Kind, subsets: Sequence[Indices]) -> Iterator[Design]:
    if not arms.large:
        yield from solve_subsets(arms, kind, subsets, TOLERANCE)
        return
    tol = LARGE_TOLERANCE[kind]
    if kind == "g" or all(chosen.size == arms.size for chosen in subsets):
        yield from solve_subsets(arms, kind, subsets, tol)
        return
    (whole,), _ = _solve_distinct(arms, np.ones((1, arms.size), dtype=bool), kind, "exact")
    for chosen in subsets:
        if chosen.size > KEPT * arms.size:
            yield whole
        else:
            yield from solve_subsets(arms, kind, [chosen], tol, whole)


def _frank_wolfe(arms: ArmSet, kind: Kind, subsets: Sequence[Indices]) -> Iterator[Design]:
    X, Z = whiten_arms(arms)
    for chosen in subsets:
        if kind == "xy" or arms.targets is not None:
            yield frank_wolfe(X, Z[chosen], pairs=kind == "xy", prove=False)
        else:
            alone = own_span(X[chosen])
            design = frank_wolfe(alone, alone, pairs=False, prove=False)
            yield replace(design, size=arms.size, support=chosen[design.support])
