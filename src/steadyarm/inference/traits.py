"""Ways to take many arms together: by the levels of a factor, by an item, by their place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms.names import BETWEEN, BundleNames, FactorialNames

__all__ = ["Trait", "traits_of"]

Indices = NDArray[np.int64]

RANGES = 50  # groups of neighbouring arms
MOST_ITEMS = 200  # of bundles that are looked at one by one


@dataclass(frozen=True, eq=False)
class Trait:
    """Groups that many arms fall into.

    Attributes
    ----------
    groups : what the arms of each group have in common, such as "variants with hat=yes"
    labels : (U,) the group of each arm
    """

    groups: tuple[str, ...]
    labels: Indices


def traits_of(names: Sequence[str], arms: Indices) -> list[Trait]:
    """By the levels of each factor or by each item, and by neighbours.

    Examples
    --------
    >>> names = FactorialNames({"size": ("S", "L"), "hat": ("no", "yes")})
    >>> size, hat, near = traits_of(names, np.arange(4))
    >>> hat.groups, hat.labels.tolist()
    (('variants with hat=no', 'variants with hat=yes'), [0, 1, 0, 1])
    """
    if isinstance(names, FactorialNames):
        return [*_by_level(names, arms), _by_place(names, arms)]
    if isinstance(names, BundleNames) and len(names.items) <= MOST_ITEMS:
        return [*_by_item(names, arms), _by_place(names, arms)]
    return [_by_place(names, arms)]


def _by_level(names: FactorialNames, arms: Indices) -> list[Trait]:
    found, rest = [], arms
    for factor, levels in reversed(list(names.levels.items())):
        rest, labels = np.divmod(rest, len(levels))
        groups = tuple(f"variants with {factor}={level}" for level in levels)
        found.append(Trait(groups, labels))
    return found[::-1]


def _by_item(names: BundleNames, arms: Indices) -> list[Trait]:
    held = [set(names[k].split(BETWEEN)) for k in arms.tolist()]
    return [
        Trait(
            (f"variants without {item}", f"variants with {item}"),
            np.array([item in one for one in held], dtype=np.int64),
        )
        for item in names.items
    ]


def _by_place(names: Sequence[str], arms: Indices) -> Trait:
    labels = np.arange(len(arms)) * min(RANGES, len(arms)) // len(arms)
    firsts = np.flatnonzero(np.diff(labels, prepend=-1))
    lasts = np.append(firsts[1:], len(arms)) - 1
    groups = tuple(
        f"the {last - first + 1:,} variants from {names[int(arms[first])]} to "
        f"{names[int(arms[last])]}"
        for first, last in zip(firsts, lasts, strict=True)
    )
    return Trait(groups, labels.astype(np.int64))
