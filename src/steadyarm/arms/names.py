"""Names of many arms, made from the index when they are asked for.

Made by `recipes` and `ArmSet`; of few arms they become a plain tuple.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb, prod
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.errors import InvalidInputError
from steadyarm.validation import whole_number

__all__ = [
    "BETWEEN",
    "LARGE",
    "BundleNames",
    "CountedNames",
    "FactorialNames",
    "LazyNames",
    "check_count",
    "check_factors",
    "check_names",
    "check_shape",
    "feature_matrix",
    "is_large",
    "listing",
    "name_list",
]

# What names, factors and tables of features must be, with errors that say what is wrong.


MAX_ARMS = 2**24  # numbers for each of them are kept, eight bytes each
MANY, LARGE = 2**12, 2**18  # arms, and numbers in their table, above which a set is large


def is_large(arms: int, columns: int) -> bool:
    """Whether a set is worked on in passes over its arms, with few of them in play at a time."""
    return arms > MANY and arms * columns > LARGE


def feature_matrix(X: ArrayLike) -> NDArray[np.float64]:
    """A checked copy; a large array of float64, or a memory map, as it is."""
    try:
        features = np.asarray(X)
        if features.dtype != np.float64 or features.size <= LARGE:
            features = np.array(features, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"the features are not a table of numbers ({error}); "
            "give one row per arm, all of the same length."
        ) from None
    check_shape(features.shape)
    _check_values(features)
    return features


def check_shape(shape: tuple[int, ...]) -> None:
    """One row per arm, one column per feature, at least two arms and a feature."""
    if len(shape) != 2:
        raise InvalidInputError(
            f"the features have {len(shape)} axes (shape {shape}); "
            "expected 2: one row per arm, one column per feature."
        )
    K, d = shape
    if K < 2:
        raise InvalidInputError(f"there are {K} arms; a test needs at least 2.")
    if d < 1:
        raise InvalidInputError("the arms have no features; give at least one column.")


def _check_values(features: NDArray[np.float64]) -> None:
    K, d = features.shape
    step, something = max(LARGE // d, 1), False
    for start in range(0, K, step):
        block = features[start : start + step]
        if not np.isfinite(block).all():
            k, j = np.argwhere(~np.isfinite(block))[0]
            raise InvalidInputError(
                f"the feature in row {start + k}, column {j} is {block[k, j]}; all must be "
                "finite numbers."
            )
        something = something or bool(block.any())
    if not something:
        raise InvalidInputError("all features are zero; nothing tells the arms apart.")


def name_list(names: Any, what: str) -> tuple[str, ...]:
    """A tuple, of what is no single text."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise InvalidInputError(f"{what} is {names!r}; expected a list of strings.")
    return tuple(names)


def check_names(names: tuple[str, ...], count: int, what: str, of: str) -> None:
    """As many distinct names as there are things to name, each of them readable."""
    if len(names) != count:
        raise InvalidInputError(f"there are {len(names)} {what} names for {count} {of}.")
    seen: dict[str, int] = {}
    for i, name in enumerate(names):
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise InvalidInputError(
                f"{what} name {i} is {name!r}; every name must be a string that can be read, in "
                "one line and not empty."
            )
        if name in seen:
            raise InvalidInputError(
                f"the {what} name {name!r} stands at {seen[name]} and again at {i}; "
                "names must differ."
            )
        seen[name] = i


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
    check_count(count, "combinations of the factors' levels")
    return levels


def check_count(count: int, what: str) -> None:
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


BETWEEN = " + "  # the items of a bundle


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
        """The position of a name, without looking at all of them; None if there is none."""


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
        parts = []
        for factor, values in reversed(list(self.levels.items())):
            k, level = divmod(k, len(values))
            parts.append(f"{factor}={values[level]}")
        return ", ".join(reversed(parts))

    def find(self, name: str) -> int | None:
        """The levels that the name says, factor by factor."""
        k, heads = 0, list(self.levels)
        rest = name
        for place, factor in enumerate(heads):
            if not rest.startswith(f"{factor}="):
                return None
            rest = rest.removeprefix(f"{factor}=")
            if place + 1 < len(heads):
                level, there, rest = rest.partition(f", {heads[place + 1]}=")
                if not there:
                    return None
                rest = f"{heads[place + 1]}={rest}"
            else:
                level = rest
            if level not in self.levels[factor]:
                return None
            k = k * len(self.levels[factor]) + self.levels[factor].index(level)
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
        chosen, item, n = [], 0, len(self.items)
        for slot in range(self.size):
            while k >= (ways := comb(n - item - 1, self.size - slot - 1)):
                k -= ways
                item += 1
            chosen.append(self.items[item])
            item += 1
        return BETWEEN.join(chosen)

    def find(self, name: str) -> int | None:
        """How many bundles come before these items."""
        chosen = name.split(BETWEEN)
        if len(chosen) != self.size or not set(chosen) <= set(self.items):
            return None
        places, n, k, after = list(map(self.items.index, chosen)), len(self.items), 0, 0
        for slot, place in enumerate(places):
            if place < after:  # not in the order of the items, or twice
                return None
            k += sum(comb(n - item - 1, self.size - slot - 1) for item in range(after, place))
            after = place + 1
        return k
