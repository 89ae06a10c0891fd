"""One-hot, factorial and bundle sets as recipes: names, features and rows of arms from their index.

Small sets are built from the recipe in full; of large ones only the recipe is kept, and names are
made on demand.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from math import comb, prod
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms.generated import BundleRows, FactorialRows
from steadyarm.arms.rows import IdentityRows
from steadyarm.errors import InvalidInputError
from steadyarm.validation import check_names, name_list, whole_number

CONSTANT = "(constant)"  # name of the feature that is 1 for every arm
BETWEEN = " + "  # between the items of a bundle
MAX_ARMS = 2**24  # eight bytes are kept for each of them

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class OneHot:
    """See `ArmSet.one_hot`."""

    names: tuple[str, ...]

    @property
    def rows(self) -> IdentityRows:
        """The features themselves."""
        return IdentityRows(len(self.names))

    def to_dict(self) -> dict[str, Any]:
        """Names in their order."""
        return {"one_hot": list(self.names)}


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
        _check_count(comb(n, size), f"bundles of {size} of {n} items")
        return cls(items, size, interactions)

    @property
    def names(self) -> BundleNames:
        """The items of each bundle."""
        return BundleNames(self.items, self.size)

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
        included = BundleRows(len(self.items), self.size, 1).block(0, len(self.names))
        return np.column_stack([included[:, subset].prod(axis=1) for subset in self._subsets])

    def to_dict(self) -> dict[str, Any]:
        """Items in their order."""
        return {"bundles": list(self.items), "size": self.size, "interactions": self.interactions}


Recipe = OneHot | Factorial | Bundles


def recipe_from_dict(data: Mapping[str, Any]) -> Recipe | None:
    """The recipe that `to_dict` wrote; None if these are other data."""
    if "one_hot" in data:
        return OneHot(tuple(data["one_hot"]))
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
    return CountedNames(len(data["features"]))


# Names made from the index


class LazyNames(Sequence[str]):
    """A sequence of distinct names that are not stored."""

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            return tuple(self.name(k) for k in range(*index.indices(len(self))))
        k = int(index) + (len(self) if index < 0 else 0)
        if not 0 <= k < len(self):
            raise IndexError(f"there is no name {index}; there are {len(self)}")
        return self.name(k)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.find(name) is not None

    def index(self, name: str, start: int = 0, stop: int | None = None) -> int:
        """Position of a name; ValueError if there is none."""
        found = self.find(name)
        if found is None or not start <= found < (len(self) if stop is None else stop):
            raise ValueError(f"there is no name {name!r}")
        return found

    def check(self) -> None:
        """Refuse what makes names that can be read in two ways."""

    @abstractmethod
    def name(self, k: int) -> str:
        """The name of the arm at a position."""

    @abstractmethod
    def find(self, name: str) -> int | None:
        """The position of a name, without a scan of all of them; None if there is none."""


@dataclass(frozen=True)
class CountedNames(LazyNames):
    """Names such as "arm 17".

    Examples
    --------
    >>> names = CountedNames(10**6)
    >>> names[-1], names.index("arm 17"), "arm 017" in names
    ('arm 999999', 17, False)
    """

    size: int

    def __len__(self) -> int:
        return self.size

    def name(self, k: int) -> str:
        """The number with a word before it."""
        return f"arm {k}"

    def find(self, name: str) -> int | None:
        """The number in the name."""
        digits = name.removeprefix("arm ")
        if not digits.isdecimal() or not digits.isascii() or int(digits) >= self.size:
            return None
        return int(digits) if self.name(int(digits)) == name else None


@dataclass(frozen=True)
class FactorialNames(LazyNames):
    """Names of `ArmSet.factorial`, the last factor varying fastest.

    Examples
    --------
    >>> names = FactorialNames({"size": ("S", "L"), "hat": ("no", "yes")})
    >>> names[1], names.index("size=L, hat=no")
    ('size=S, hat=yes', 2)
    """

    levels: Mapping[str, tuple[str, ...]]

    def check(self) -> None:
        """Refuse levels that make names which can be read in two ways."""
        for factor, values in self.levels.items():
            for other in self.levels:
                for level in values:
                    if f", {other}=" in level:
                        raise InvalidInputError(
                            f"level {level!r} of factor {factor!r} reads like a level of "
                            f"{other!r}, so names could not be told apart; rename it."
                        )

    def __len__(self) -> int:
        return prod(map(len, self.levels.values()))

    def name(self, k: int) -> str:
        """Factors with their levels."""
        return ", ".join(f"{factor}={level}" for factor, level in self.levels_of(k).items())

    def levels_of(self, k: int) -> dict[str, str]:
        """The level of each factor, at a position."""
        at = np.unravel_index(k, [len(values) for values in self.levels.values()])
        levels = zip(self.levels.items(), at, strict=True)
        return {factor: values[level] for (factor, values), level in levels}

    def find(self, name: str) -> int | None:
        """The levels that the name says, factor by factor."""
        parts = (
            f"{re.escape(factor)}=({'|'.join(map(re.escape, values))})"
            for factor, values in self.levels.items()
        )
        match, k = re.fullmatch(", ".join(parts), name), 0
        if match is None:
            return None
        for values, level in zip(self.levels.values(), match.groups(), strict=True):
            k = k * len(values) + values.index(level)
        return k


@dataclass(frozen=True)
class BundleNames(LazyNames):
    """Names of `ArmSet.bundles`, in lexicographic order of the items.

    Examples
    --------
    >>> names = BundleNames(("news", "sport", "weather", "games"), 2)
    >>> names[0], names.index("sport + games"), len(names)
    ('news + sport', 4, 6)
    """

    items: tuple[str, ...]
    size: int

    def check(self) -> None:
        """Refuse items that make names which can be read in two ways."""
        for item in self.items:
            if BETWEEN in f" {item} ":
                raise InvalidInputError(
                    f"item {item!r} has {BETWEEN!r} in it, which stands between the items of a "
                    "bundle, so names could not be told apart; rename it."
                )

    def __len__(self) -> int:
        return comb(len(self.items), self.size)

    def name(self, k: int) -> str:
        """The items of the bundle."""
        return BETWEEN.join(self.items_of(k))

    def items_of(self, k: int) -> tuple[str, ...]:
        """The items of the bundle at a position."""
        chosen, item, n = [], 0, len(self.items)
        for position in range(self.size):
            while k >= (ways := comb(n - item - 1, self.size - position - 1)):
                k -= ways
                item += 1
            chosen.append(self.items[item])
            item += 1
        return tuple(chosen)

    def find(self, name: str) -> int | None:
        """The number of bundles that come before these items."""
        chosen = name.split(BETWEEN)
        if len(chosen) != self.size or not set(chosen) <= set(self.items):
            return None
        places, n, k, after = list(map(self.items.index, chosen)), len(self.items), 0, 0
        for position, place in enumerate(places):
            if place < after:  # not in the order of the items, or twice
                return None
            k += sum(comb(n - item - 1, self.size - position - 1) for item in range(after, place))
            after = place + 1
        return k


# What factors must be


def check_factors(
    factors: Mapping[str, Sequence[str]], interactions: int
) -> dict[str, tuple[str, ...]]:
    """The levels of every factor, as texts."""
    if not isinstance(factors, Mapping):
        raise InvalidInputError(f"factors is {factors!r}; expected a mapping of names to levels.")
    if not factors:
        raise InvalidInputError("there are no factors; give at least one with its levels.")
    check_names(tuple(factors), len(factors), "factor", "factors")
    levels = {}
    for name, values in factors.items():
        levels[name] = tuple(map(str, name_list(values, f"the levels of factor {name!r}")))
        check_names(levels[name], len(levels[name]), f"level of factor {name!r}:", "levels")
        if len(levels[name]) < 2:
            raise InvalidInputError(
                f"factor {name!r} has {len(levels[name])} level; a factor needs at least 2."
            )
    whole_number(interactions, "interactions", least=1)
    count = int(np.prod([len(values) for values in levels.values()], dtype=object))
    _check_count(count, "combinations of the factors' levels")
    return levels


def _check_count(count: int, what: str) -> None:
    """Not more arms than can be worked with."""
    if count > MAX_ARMS:
        raise InvalidInputError(
            f"there are {count:,} {what}; at most {MAX_ARMS:,} are supported. "
            "Leave some out or build the arms you need with from_features."
        )


def listing(names: Sequence[str], most: int = 8) -> str:
    """The first few names, and how many more there are."""
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
