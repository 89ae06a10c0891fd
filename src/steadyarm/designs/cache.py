"""Designs of subsets of an arm set, remembered: eliminations ask for the same ones again.

Where policies get designs of small sets; `nested` is the same for large ones.

A design depends on its subset alone, never on what was solved before it, so remembering changes
the time and nothing else. What is kept is bounded; the arm sets unused for longest go first.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.arms.rows import BundleRows, FactorialRows, walsh_of
from steadyarm.designs.design import FewArms, mixed
from steadyarm.designs.farthest import farthest_pair
from steadyarm.designs.fractions import fraction
from steadyarm.designs.frank_wolfe import frank_wolfe_on
from steadyarm.designs.optimal import (
    LARGE,
    independent_arms,
    own_span,
    solve_pairs,
    solve_volume,
    whiten,
)
from steadyarm.designs.pooled_g import solve_g
from steadyarm.designs.pooled_xy import solve_xy
from steadyarm.errors import InvalidInputError
from steadyarm.linalg import gram, inverse_root

__all__ = [
    "TOLERANCE",
    "Kind",
    "Solver",
    "SubsetDesigns",
    "designs_for",
    "forget_designs",
    "forget_large_designs",
    "large_g",
    "nested_xy",
]

# Designs of subsets of an arm set, remembered: eliminations ask for the same ones again.


Kind = Literal["xy", "g"]
Solver = Literal["exact", "frank-wolfe"]

TOLERANCE = 1e-6
MOST_FLOATS = 2**23  # 64 MB of weights over all arm sets


@dataclass(frozen=True, eq=False)
class SubsetDesigns:
    """Designs of u distinct subsets, for n requests.

    Attributes
    ----------
    weights : (u, K) array, one design a row, on all arms
    values : (u,) array, what a policy reads as the value of the design: the achieved value for
        the exact solver; for Frank-Wolfe, as in the published runs, that of the iterate before
        the last
    index : (n,) array; request i has design ``weights[index[i]]``
    """

    weights: NDArray[np.float64]
    values: NDArray[np.float64]
    index: NDArray[np.intp]


@dataclass
class _Shelf:
    """The remembered designs of one arm set, one kind and one solver."""

    rows: dict[int | bytes, int] = field(default_factory=dict)
    weights: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0)))
    values: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))


_shelves: OrderedDict[tuple[str, str, str], _Shelf] = OrderedDict()
_lock = Lock()


def designs_for(
    arms: ArmSet, masks: NDArray[np.bool_], kind: Kind = "xy", solver: Solver = "exact"
) -> SubsetDesigns:
    """Designs of the subsets of `arms` given by `masks` (n, K), each distinct one solved once.

    Kind "xy" compares the arms of the subset using all arms; kind "g" is the design of the subset
    alone in its own span. Safe to call from many threads.

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
    first, index, keys = _distinct(masks)
    shelf_key = (arms.coordinates_fingerprint, kind, solver)
    with _lock:
        shelf = _shelves.setdefault(shelf_key, _Shelf())
        _shelves.move_to_end(shelf_key)
        rows = np.array([shelf.rows.get(key, -1) for key in keys], dtype=np.intp)
        stored_weights, stored_values = shelf.weights, shelf.values
    missing = np.flatnonzero(rows < 0)
    if not missing.size:
        return SubsetDesigns(stored_weights[rows], stored_values[rows], index)
    weights, values = np.empty((len(keys), arms.size)), np.empty(len(keys))
    known = np.flatnonzero(rows >= 0)
    if known.size:
        weights[known], values[known] = stored_weights[rows[known]], stored_values[rows[known]]
    weights[missing], values[missing] = _solve(arms, masks[first[missing]], kind, solver)
    _remember(shelf_key, [keys[i] for i in missing], weights[missing], values[missing])
    return SubsetDesigns(weights, values, index)


def forget_designs() -> None:
    """Empty the memory of designs, those of large sets included."""
    with _lock:
        _shelves.clear()
    forget_large_designs()


def _check(arms: ArmSet, masks: NDArray[np.bool_], kind: str, solver: str) -> None:
    if masks.ndim != 2 or masks.shape[1] != arms.size or masks.dtype != np.bool_:
        raise InvalidInputError(
            f"the masks are {masks.dtype} of shape {masks.shape}; expected booleans of shape "
            f"(n, {arms.size}), one row per subset and one column per arm."
        )
    empty = np.flatnonzero(~masks.any(axis=1))
    if empty.size:
        raise InvalidInputError(f"mask {empty[0]} names no arm; every subset needs at least one.")
    if kind not in ("xy", "g"):
        raise InvalidInputError(f"kind is {kind!r}; expected 'xy' or 'g'.")
    if solver not in ("exact", "frank-wolfe"):
        raise InvalidInputError(f"solver is {solver!r}; expected 'exact' or 'frank-wolfe'.")


def _distinct(
    masks: NDArray[np.bool_],
) -> tuple[NDArray[np.intp], NDArray[np.intp], list[int] | list[bytes]]:
    """A row for each distinct mask, which of them each request is, and their keys."""
    n, K = masks.shape
    packed = np.packbits(masks, axis=1)
    if K <= 16:  # a table of all subsets is quicker than sorting
        codes = packed[:, 0].astype(np.intp)
        if packed.shape[1] == 2:
            codes = codes * 256 + packed[:, 1]
        row_of = np.full(2**16, -1, dtype=np.intp)
        row_of[codes[::-1]] = np.arange(n - 1, -1, -1)
        present = np.flatnonzero(row_of >= 0)
        first = row_of[present]
        row_of[present] = np.arange(present.size)
        return first, row_of[codes], present.tolist()
    width = packed.shape[1]
    unique, first, index = np.unique(
        packed.view(np.dtype((np.void, width))).ravel(), return_index=True, return_inverse=True
    )
    return first, index, [code.tobytes() for code in unique]


def _solve(
    arms: ArmSet, masks: NDArray[np.bool_], kind: Kind, solver: Solver
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    weights, values = np.zeros(masks.shape), np.zeros(len(masks))
    if solver == "exact" and arms.size * arms.rank > LARGE and arms.rank == arms.size:
        for row, mask in enumerate(masks):  # nothing is to be solved, as in `g_optimal`
            weights[row], values[row] = _independent(mask, kind)
        return weights, values
    X, _ = whiten(arms.coordinates)
    for row, mask in enumerate(masks):
        if kind == "xy":
            design = (
                solve_pairs(X, mask, TOLERANCE)
                if solver == "exact"
                else frank_wolfe_on(X, X[mask], True)
            )
            weights[row] = design.weights
        else:
            alone = own_span(X[mask])
            design = (
                solve_volume(alone, TOLERANCE)
                if solver == "exact"
                else frank_wolfe_on(alone, alone, False)
            )
            weights[row, mask] = design.weights
        values[row] = design.value
    return weights, values


def _independent(mask: NDArray[np.bool_], kind: Kind) -> tuple[NDArray[np.float64], float]:
    """The design of a subset of many arms none of which tells anything about another."""
    chosen = np.flatnonzero(mask)
    if kind == "xy" and chosen.size == 1:  # nothing to compare
        return np.full(mask.size, 1.0 / mask.size), 0.0
    design = independent_arms(mask.size, chosen, 2.0 if kind == "xy" else 1.0)
    return design.weights, design.value


def _remember(
    shelf_key: tuple[str, str, str],
    keys: list[int | bytes],
    weights: NDArray[np.float64],
    values: NDArray[np.float64],
) -> None:
    if weights.size > MOST_FLOATS:
        return
    with _lock:
        shelf = _shelves.setdefault(shelf_key, _Shelf())
        new = [i for i, key in enumerate(keys) if key not in shelf.rows]
        if shelf.weights.size + weights.size > MOST_FLOATS:
            shelf = _shelves[shelf_key] = _Shelf()  # one arm set fills the memory: start afresh
            new = list(range(len(keys)))
        start = len(shelf.values)
        old = shelf.weights if start else np.empty((0, weights.shape[1]))
        # new arrays, never written again: other threads may still read the old ones
        shelf.weights = np.concatenate([old, weights[new]])
        shelf.values = np.concatenate([shelf.values, values[new]])
        shelf.rows.update((keys[i], start + row) for row, i in enumerate(new))
        _shelves.move_to_end(shelf_key)
        while sum(shelf.weights.size for shelf in _shelves.values()) > MOST_FLOATS:
            _shelves.popitem(last=False)


# Designs of a large arm set and of nested subsets of it, each begun from the one before.


Indices = NDArray[np.int64]

PROVEN = 0.25  # gap to which designs of large sets are solved for policies
G_PROVEN = 0.01
NESTED_MOST_FLOATS = 2**22  # 32 MB of arms and weights
PASSES = 5.0  # that a farthest pair may take; then its distance is bounded
KEPT = 0.5  # share of the arms of a design from which a subset does not get its own
FIRST = 8  # times the rank: random arms from which a G-optimal design is begun

_known: OrderedDict[tuple[str, bytes], FewArms] = OrderedDict()


def large_g(arms: ArmSet) -> FewArms:
    """The G-optimal design of a large set, on few arms; its value is at most 1 % above the rank.

    Examples
    --------
    >>> arms = ArmSet.factorial({f"slot {i}": ["off", "on"] for i in range(16)})
    >>> design = large_g(arms)
    >>> arms.size, design.arms.size, round(design.value)
    (65536, 256, 137)
    """
    key = (arms.coordinates_fingerprint, b"g")
    found = _recall(key)
    if found is None:
        found = _nested_remember(key, _solved_g(arms))
    return found


def nested_xy(arms: ArmSet, subsets: Sequence[Indices]) -> list[FewArms]:
    """XY-optimal designs of the whole set and of subsets, each within the one before.

    The worst pair found is proven to be within a quarter of the best value, and the value given
    is above every pair; where all pairs of a subset are too many to look at, by more than that. A
    subset that leaves out less than half of the arms that a design was made for keeps it, with a
    value that is above every pair of the subset as well.
    """
    chain = hashlib.sha256()
    designs: list[FewArms] = []
    size = 0
    for subset in (None, *subsets):
        if designs and subset is not None and subset.size > KEPT * size:
            designs.append(designs[-1])
            continue
        if subset is not None:
            chain.update(subset.tobytes())
        key = (arms.coordinates_fingerprint, b"xy" + chain.digest())
        found = _recall(key)
        if found is None:
            found = _nested_remember(
                key, _solved_xy(arms, subset, designs[-1] if designs else None)
            )
        designs.append(found)
        size = arms.size if subset is None else subset.size
    return designs


def forget_large_designs() -> None:
    """Empty the memory; `forget_designs` calls it."""
    with _lock:
        _known.clear()


def _solved_g(arms: ArmSet) -> FewArms:
    rows = arms.rows
    if isinstance(rows, FactorialRows):
        few = fraction(rows)
        if not _has_no_fraction(arms):
            return FewArms(few, np.full(few.size, 1 / few.size), float(arms.rank))
    count = min(FIRST * arms.rank, arms.size)
    first = np.sort(np.random.default_rng(0).choice(arms.size, count, replace=False))
    design = solve_g(rows, G_PROVEN, start=(first, np.full(count, 1 / count)))
    return FewArms(design.indices, design.weights, design.value)


def _solved_xy(arms: ArmSet, subset: Indices | None, before: FewArms | None) -> FewArms:
    if subset is None and (isinstance(arms.rows, BundleRows) or _has_no_fraction(arms)):
        # Equal weights are optimal by symmetry; so is what has their information on few arms.
        few = large_g(arms)
        X = arms.coordinates_of(few.arms)
        root = inverse_root(gram(X, few.weights))
        return few._replace(value=farthest_pair(arms.rows, root, effort=PASSES).upper_bound)
    start = large_g(arms) if before is None else before
    if before is not None and walsh_of(arms.rows) is None:
        start = mixed([(0.5, before), (0.5, large_g(arms))])  # spans well
    given = start.arms, start.weights
    effort = PASSES if subset is None else None  # for subsets it is small by default
    design = solve_xy(arms.rows, PROVEN, among=subset, start=given, effort=effort)
    return FewArms(design.indices, design.weights, design.value)


def _has_no_fraction(arms: ArmSet) -> bool:
    """Whether it is a factorial set, but none of its arms can be left out of a regular fraction."""
    rows = arms.rows
    return isinstance(rows, FactorialRows) and fraction(rows).size > FIRST * arms.rank


def _recall(key: tuple[str, bytes]) -> FewArms | None:
    with _lock:
        if key in _known:
            _known.move_to_end(key)
        return _known.get(key)


def _nested_remember(key: tuple[str, bytes], design: FewArms) -> FewArms:
    with _lock:
        _known[key] = design
        while sum(2 * kept.arms.size for kept in _known.values()) > NESTED_MOST_FLOATS:
            _known.popitem(last=False)
    return design
