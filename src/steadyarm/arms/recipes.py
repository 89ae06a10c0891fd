"""Recipes: arm sets that a few words describe, factorial and bundles.

Each knows the names, the features and the rows of its arms. Small sets are built from them in
full; of large ones only the recipe is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from math import comb
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms.names import (
    BundleNames,
    CountedNames,
    FactorialNames,
    LazyNames,
    check_count,
    check_factors,
    check_names,
    name_list,
)
from steadyarm.arms.rows import BundleRows, FactorialRows, Rows
from steadyarm.errors import InvalidInputError
from steadyarm.validation import whole_number

__all__ = ["CONSTANT", "Bundles", "Factorial", "Recipe", "names_in", "recipe_from_dict"]

CONSTANT = "(constant)"  # name of the feature that is 1 for every arm

Floats = NDArray[np.float64]


class Recipe(Protocol):
    """How the arms of a set are made from their index."""

    @property
    def names(self) -> LazyNames:
        """Of the arms."""
        ...

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Of the features, in the user's order."""
        ...

    @property
    def rows(self) -> Rows | None:
        """Coordinates of the arms in their span; None if there is no short way to make them."""
        ...

    @property
    def basis(self) -> Floats:
        """(d, r) array: features are ``coordinates @ basis.T``."""
        ...

    @property
    def dual(self) -> Floats:
        """(d, r) array: ``coordinates = features @ dual``."""
        ...

    def features(self) -> Floats:
        """(K, d) all features."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Lists, texts and numbers that `recipe_from_dict` reads."""
        ...


@dataclass(frozen=True, eq=False)
class Factorial:
    """See `ArmSet.factorial`."""

    factors: Mapping[str, Sequence[str]]
    interactions: int
    constant: bool

    @cached_property
    def levels(self) -> dict[str, tuple[str, ...]]:
        """The checked levels of every factor."""
        return check_factors(self.factors, self.interactions)

    @property
    def names(self) -> FactorialNames:
        """Factors with their levels."""
        return FactorialNames(self.levels)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Main effects, then products of them."""
        columns = {
            factor: [f"{factor}={level}" for level in levels[1:]]
            for factor, levels in self.levels.items()
        }
        found = [CONSTANT] if self.constant else []
        for order in range(1, min(self.interactions, len(columns)) + 1):
            for subset in combinations(columns.values(), order):
                found += [":".join(terms) for terms in product(*subset)]
        return tuple(found)

    @cached_property
    def rows(self) -> FactorialRows:
        """The features themselves, which are independent."""
        counts = [len(levels) for levels in self.levels.values()]
        return FactorialRows(counts, self.interactions, self.constant)

    @property
    def basis(self) -> Floats:
        """Coordinates are features."""
        return np.eye(self.rows.shape[1])

    @property
    def dual(self) -> Floats:
        """Features are coordinates."""
        return np.eye(self.rows.shape[1])

    def features(self) -> Floats:
        """(K, d) all features."""
        return self.rows.block(0, self.rows.shape[0])

    def to_dict(self) -> dict[str, Any]:
        """Factors in their order."""
        return {
            "factorial": [[factor, list(levels)] for factor, levels in self.levels.items()],
            "interactions": self.interactions,
            "constant": self.constant,
        }


@dataclass(frozen=True, eq=False)
class Bundles:
    """See `ArmSet.bundles`."""

    items: tuple[str, ...]
    size: int
    interactions: int

    @classmethod
    def of(cls, items: Sequence[str], size: int, interactions: int) -> Bundles:
        """The checked recipe."""
        items = name_list(items, "items")
        check_names(items, len(items), "item", "items")
        n, size = len(items), whole_number(size, "size")
        if not 1 <= size < n:
            raise InvalidInputError(
                f"size is {size} for {n} items; a bundle has at least 1 item and not all of them."
            )
        whole_number(interactions, "interactions", least=1)
        check_count(comb(n, size), f"bundles of {size} of {n} items")
        return cls(items, size, interactions)

    @property
    def names(self) -> BundleNames:
        """The items of each bundle."""
        return BundleNames(self.items, self.size)

    def items_of(self, k: int) -> tuple[str, ...]:
        """The items of the bundle at a position."""
        inside = BundleRows(len(self.items), self.size, 1).take(np.array([k], dtype=np.int64))[0]
        return tuple(self.items[i] for i in np.flatnonzero(inside))

    @cached_property
    def _subsets(self) -> list[tuple[int, ...]]:
        """The items that each feature multiplies."""
        orders = range(min(self.interactions, self.size) + 1)
        return [
            subset for order in orders for subset in combinations(range(len(self.items)), order)
        ]

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The constant, items, and products of them."""
        named = (":".join(self.items[i] for i in subset) for subset in self._subsets)
        return tuple(name or CONSTANT for name in named)

    @cached_property
    def rows(self) -> BundleRows | None:
        """Products of the highest order, which span the others unless few items are left out."""
        rows = BundleRows(len(self.items), self.size, self.interactions)
        return rows if rows.order == min(self.interactions, self.size) else None

    @property
    def basis(self) -> Floats:
        """A product over S is the sum of those over larger sets, divided by how many there are."""
        assert self.rows is not None
        order, place = self.rows.order, {subset: i for i, subset in enumerate(self._subsets)}
        highest = self._subsets[-self.rows.shape[1] :]
        basis = np.zeros((len(self._subsets), len(highest)))
        for fewer in range(order + 1):
            share = 1 / comb(self.size - fewer, order - fewer)
            for j, larger in enumerate(highest):
                basis[[place[subset] for subset in combinations(larger, fewer)], j] = share
        return basis

    @property
    def dual(self) -> Floats:
        """Coordinates are the last features."""
        assert self.rows is not None
        d, r = len(self._subsets), self.rows.shape[1]
        return np.eye(d)[:, d - r :]

    def features(self) -> Floats:
        """(K, d) all features."""
        chosen = list(combinations(range(len(self.items)), self.size))
        included = np.zeros((len(chosen), len(self.items)))
        included[np.repeat(np.arange(len(chosen)), self.size), np.ravel(chosen)] = 1.0
        return np.column_stack([included[:, subset].prod(axis=1) for subset in self._subsets])

    def to_dict(self) -> dict[str, Any]:
        """Items in their order."""
        return {"bundles": list(self.items), "size": self.size, "interactions": self.interactions}


def recipe_from_dict(data: Mapping[str, Any]) -> Recipe | None:
    """The recipe that `to_dict` wrote; None if these are other data."""
    if "factorial" in data:
        return Factorial(dict(data["factorial"]), data["interactions"], data["constant"])
    if "bundles" in data:
        return Bundles.of(data["bundles"], data["size"], data["interactions"])
    return None


def names_in(data: Mapping[str, Any]) -> Sequence[str]:
    """The names of the arms that `ArmSet.to_dict` wrote down, without making their features."""
    recipe = recipe_from_dict(data)
    if recipe is not None:
        return recipe.names
    if data["names"] is not None:
        return tuple(data["names"])
    rows = data["features"] if "features" in data else data["sparse"]["ends"]
    return CountedNames(len(rows))
