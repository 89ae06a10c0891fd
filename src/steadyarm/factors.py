"""Short names of variants, and the factors that factorial ones are made of."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from math import comb, prod
from typing import Any, Protocol

__all__ = ["factors_in", "factors_of", "labels_of"]

MOST_TRIES = 100  # ways to read names, beyond which they are taken as they are


class _Arms(Protocol):
    """What is asked of an arm set."""

    @property
    def names(self) -> Sequence[str]:
        """Of all arms."""
        ...

    @property
    def large(self) -> bool:
        """Whether there are too many to go through."""
        ...

    @property
    def recipe(self) -> Any:
        """How a large set was made."""
        ...


def factors_in(arms: _Arms) -> dict[str, tuple[str, ...]] | None:
    """The factors of an arm set; None if it is not factorial.

    A large set knows what it was made of, and is not read name by name.
    """
    if not arms.large:
        return factors_of(arms.names)
    levels = getattr(arms.recipe, "levels", None)
    return None if levels is None else dict(levels)


def factors_of(names: Sequence[str]) -> dict[str, tuple[str, ...]] | None:
    """The factors that `ArmSet.factorial` made variants of, told from their names; else None.

    Levels may have commas and signs of equality in them, as long as there is one way to read all
    names with the most factors, and their combinations are exactly the names again.

    Examples
    --------
    >>> factors_of(["size=S, hat=no", "size=S, hat=yes", "size=L, hat=no", "size=L, hat=yes"])
    {'size': ('S', 'L'), 'hat': ('no', 'yes')}
    >>> factors_of(["A", "B"])
    """
    first, equals, _ = names[0].partition("=") if names else ("", "", "")
    if not equals:
        return None
    others = _other_factors(names, len(first))
    for count in range(len(others), 0, -1):
        if comb(len(others), count) > MOST_TRIES:
            return None
        tried = (_parsed(names, (first, *chosen)) for chosen in combinations(others, count))
        found = [levels for levels in tried if levels is not None]
        if found:
            return found[0] if len(found) == 1 else None
    return None


def _other_factors(names: Sequence[str], start: int) -> list[str]:
    """What may be a factor after the first: stands between a comma and = in every name, once."""
    text, found = names[0], []
    while (start := text.find(", ", start) + 2) > 1:
        end = text.find("=", start)
        if end < 0:
            break
        factor = text[start:end]
        if all(name.count(f", {factor}=") == 1 for name in names):
            found.append(factor)
    return found


def _parsed(names: Sequence[str], factors: tuple[str, ...]) -> dict[str, tuple[str, ...]] | None:
    """The levels of these factors, if their combinations are exactly the names, in order."""
    if len(set(factors)) < len(factors):
        return None
    seen: list[dict[str, None]] = [{} for _ in factors]
    heads = [f"{factors[0]}=", *(f", {factor}=" for factor in factors[1:])]
    for name in names:
        if not name.startswith(heads[0]):
            return None
        rest = name.removeprefix(heads[0])
        for place, head in enumerate(heads[1:]):
            level, there, rest = rest.partition(head)
            if not there:
                return None
            seen[place][level] = None
        seen[-1][rest] = None
    sizes = list(map(len, seen))
    if min(sizes) < 2 or prod(sizes) != len(names):
        return None
    if not all(level.strip() for levels in seen for level in levels):
        return None
    made = (
        ", ".join(f"{factor}={level}" for factor, level in zip(factors, row, strict=True))
        for row in product(*seen)
    )
    if any(one != name for one, name in zip(made, names, strict=True)):
        return None
    return {factor: tuple(levels) for factor, levels in zip(factors, seen, strict=True)}


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
