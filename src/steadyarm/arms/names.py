"""Names of many arms, made from the index when they are asked for.

Made by `recipes` and `ArmSet`; of few arms they become a plain tuple.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb, prod
from typing import overload

from steadyarm.errors import InvalidInputError

__all__ = ["BETWEEN", "BundleNames", "CountedNames", "FactorialNames", "LazyNames"]

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
