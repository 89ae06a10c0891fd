"""Designs of a large arm set and of nested subsets of it, each begun from the one before.

Where policies get designs of large sets; `memo` is the same for small ones.

A design depends on the chain of subsets that leads to it, never on what else was solved, so that
remembering changes the time and nothing else.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.arms.rows import BundleRows, FactorialRows
from steadyarm.arms.walsh import walsh_of
from steadyarm.designs.farthest import farthest_pair
from steadyarm.designs.few_arms import FewArms, mixed
from steadyarm.designs.fractions import fraction
from steadyarm.designs.large_g import solve_g
from steadyarm.designs.large_xy import solve_xy
from steadyarm.linalg import gram, inverse_root

__all__ = ["forget_large_designs", "large_g", "nested_xy"]

Indices = NDArray[np.int64]

PROVEN = 0.25  # gap to which designs of large sets are solved for policies
G_PROVEN = 0.01
MOST_FLOATS = 2**22  # 32 MB of arms and weights
PASSES = 5.0  # that a farthest pair may take; then its distance is bounded
KEPT = 0.5  # share of the arms of a design from which a subset does not get its own
FIRST = 8  # times the rank: random arms from which a G-optimal design is begun

_known: OrderedDict[tuple[str, bytes], FewArms] = OrderedDict()
_lock = Lock()


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
        found = _remember(key, _solved_g(arms))
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
            found = _remember(key, _solved_xy(arms, subset, designs[-1] if designs else None))
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


def _remember(key: tuple[str, bytes], design: FewArms) -> FewArms:
    with _lock:
        _known[key] = design
        while sum(2 * kept.arms.size for kept in _known.values()) > MOST_FLOATS:
            _known.popitem(last=False)
    return design
