"""Short names of variants, and the factors that factorial ones are made of."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

__all__ = ["factors_of", "labels_of"]


def factors_of(names: Sequence[str]) -> dict[str, tuple[str, ...]] | None:
    """The factors that `ArmSet.factorial` made variants of, told from their names; else None.

    Examples
    --------
    >>> factors_of(["size=S, hat=no", "size=S, hat=yes", "size=L, hat=no", "size=L, hat=yes"])
    {'size': ('S', 'L'), 'hat': ('no', 'yes')}
    >>> factors_of(["A", "B"])
    """
    factors: dict[str, dict[str, None]] = {}
    for name in names:
        for part in name.split(", "):
            factor, equals, level = part.partition("=")
            if not equals:
                return None
            factors.setdefault(factor, {})[level] = None
    levels = {factor: tuple(values) for factor, values in factors.items()}
    if len(levels) < 2 or prod(map(len, levels.values())) != len(names):
        return None
    made = (
        ", ".join(f"{factor}={level}" for factor, level in zip(levels, row, strict=True))
        for row in product(*levels.values())
    )
    return levels if all(one == name for one, name in zip(made, names, strict=True)) else None


def labels_of(names: Sequence[str]) -> tuple[str, ...]:
    """Names as people say them: of factorial variants the levels alone, if that is clear.

    Examples
    --------
    >>> labels_of(["size=S, hat=no", "size=S, hat=yes", "size=L, hat=no", "size=L, hat=yes"])
    ('S + no', 'S + yes', 'L + no', 'L + yes')
    >>> labels_of(["A", "B"])
    ('A', 'B')
    """
    factors = factors_of(names)
    if factors is None:
        return tuple(names)
    labels = tuple(" + ".join(row) for row in product(*factors.values()))
    return labels if len(set(labels)) == len(labels) else tuple(names)
