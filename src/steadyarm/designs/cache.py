"""The design cache: designs of subsets of an arm set, each distinct one solved once.

Eliminations ask for the same subsets again and again. A design depends on its subset alone, never
on what was solved before it, so that the cache changes the time and nothing else. Its size is
bounded; the designs that were unused for longest go first.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.designs.design import Design, Status
from steadyarm.designs.frank_wolfe import PUBLISHED_STEPS, frank_wolfe_on
from steadyarm.designs.optimal import Kind, solve_subsets
from steadyarm.designs.rounding import Allocation
from steadyarm.designs.solvers import own_span, whiten
from steadyarm.errors import InvalidInputError

Solver = Literal["exact", "frank-wolfe"]
"""How designs are found: "exact" to a proven gap, or "frank-wolfe" with the steps of the paper's
published runs."""

TOLERANCE = 1e-6
LARGE_TOLERANCE: dict[Kind, float] = {"xy": 0.25, "g": 0.01}  # of designs of large sets
KEPT = 0.5  # share of a large set above which a subset gets the design that compares all arms
MOST_FLOATS = 2**23  # 64 MB of weights over all arm sets
MOST_BITS = 62  # arms whose subsets are numbers of 64 bits

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
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

    weights: Floats
    values: Floats
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
    masks : (n, K) boolean: which arms belong to each subset
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
    designs, index = _cached(arms, masks, kind, solver)
    values = np.array([design.value for design in designs])
    if solver != "exact" or not arms.large:
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


def _cached(
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
    (whole,), _ = _cached(arms, np.ones((1, arms.size), dtype=bool), kind, "exact")
    for chosen in subsets:
        if chosen.size > KEPT * arms.size:
            yield whole
        else:
            yield from solve_subsets(arms, kind, [chosen], tol, whole)


def _frank_wolfe(arms: ArmSet, kind: Kind, subsets: Sequence[Indices]) -> Iterator[Design]:
    X, _ = whiten(arms.coordinates)
    for chosen in subsets:
        weights, columns = np.zeros(arms.size), slice(None) if kind == "xy" else chosen
        if kind == "xy":
            found = frank_wolfe_on(X, X[chosen], True)
        else:
            alone = own_span(X[chosen])
            found = frank_wolfe_on(alone, alone, False)
        weights[columns] = found.weights
        yield Design.of_weights(weights, found.value, 0.0, Status.STEPS_DONE, PUBLISHED_STEPS)
