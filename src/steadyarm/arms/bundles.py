"""The items that the arms of a set are bundles of."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms.arm_set import ArmSet
from steadyarm.arms.recipes import CONSTANT, Bundles
from steadyarm.linalg import matmul

__all__ = ["bundles_in", "with_and_without"]

Floats = NDArray[np.float64]


def bundles_in(arms: ArmSet) -> Bundles | None:
    """What `ArmSet.bundles` made the set of; None if it was made otherwise.

    Small sets do not keep it. Their features begin with those of the items, so it is found by
    making names and features again, whatever signs names have in them.

    Examples
    --------
    >>> bundles_in(ArmSet.bundles(["tea + milk", "cake", "fruit"], size=2)).items
    ('tea + milk', 'cake', 'fruit')
    >>> bundles_in(ArmSet.one_hot(["tea + cake", "tea + fruit", "cake + fruit"]))
    """
    if arms.recipe is not None:
        return arms.recipe if isinstance(arms.recipe, Bundles) else None
    return _found_in(arms) if arms.feature_names[0] == CONSTANT else None


@lru_cache(maxsize=32)  # every look at a test asks
def _found_in(arms: ArmSet) -> Bundles | None:
    for n, order in _shapes(arms.dimension):
        for size in range(order, n):
            recipe = Bundles(arms.feature_names[1 : n + 1], size, order)
            if comb(n, size) == arms.size and _makes(recipe, arms):
                return recipe
    return None


def _shapes(columns: int) -> list[tuple[int, int]]:
    """Numbers of items, and orders up to which their products are this many columns."""
    found = []
    for n in range(2, columns):
        total, order = 1, 0
        while total < columns and order < n - 1:
            order += 1
            total += comb(n, order)
        if total == columns:
            found.append((n, order))
    return found


def _makes(recipe: Bundles, arms: ArmSet) -> bool:
    return (
        recipe.feature_names == arms.feature_names
        and all(a == b for a, b in zip(recipe.names, arms.names, strict=True))
        and np.array_equal(recipe.features(), arms.features)
    )


def with_and_without(arms: ArmSet, recipe: Bundles) -> tuple[Floats, Floats]:
    """(n, r) coordinates averaged over all bundles with each item, and over those without it."""
    n, size = len(recipe.items), recipe.size
    rows = None if arms.recipe is None else recipe.rows
    highest = min(recipe.interactions, size)
    # Of large sets the products of the highest order are the coordinates.
    orders = range(highest + 1) if rows is None else (highest,)
    parts = [_averages(n, size, order) for order in orders]
    included, left_out = (np.hstack(columns) for columns in zip(*parts, strict=True))
    if rows is not None:
        return included, left_out
    return matmul(included, arms.dual), matmul(left_out, arms.dual)


def _averages(n: int, size: int, order: int) -> tuple[Floats, Floats]:
    """(n, C(n, order)) shares of the bundles with, and without, each item that have all of S.

    Of C(n - 1, size - 1) bundles with an item and C(n - 1, size) without it, those that have the
    sets S of `order` items too are counted.
    """
    subsets = np.array(list(combinations(range(n), order)), dtype=np.int64)
    inside = np.zeros((n, len(subsets)), dtype=bool)
    inside[subsets.T, np.arange(len(subsets))] = True
    both = comb(n - order, size - order)
    beside = comb(n - 1 - order, size - 1 - order) if order < size else 0
    others = comb(n - 1 - order, size - order)
    included = np.where(inside, both, beside) / comb(n - 1, size - 1)
    return included, np.where(inside, 0.0, others) / comb(n - 1, size)
