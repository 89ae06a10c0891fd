"""Values: what a variant stands for, as data that a page can use without reading its name.

A value is any JSON value. Users give one for each variant, or it follows from the variants:
combinations of factors are {factor: level}, bundles lists of items, all others their names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, overload

from steadyarm.arms.recipes import BETWEEN, BundleNames, FactorialNames
from steadyarm.errors import InvalidInputError
from steadyarm.wording import strung

LARGEST_VALUE = 16 * 1024  # bytes of a value as JSON
EXACT = 2**53  # up to here every program reads whole numbers exactly


def values_of(names: Sequence[str], given: Mapping[str, Any] | None = None) -> Sequence[Any]:
    """The value of each variant, in the order of their names.

    names : those of the recipe, if the set of variants has one

    Whoever gets a value shares it with others, and must not change it.

    Examples
    --------
    >>> values_of(FactorialNames({"size": ("S", "L"), "hat": ("no", "yes")}))[1]
    {'size': 'S', 'hat': 'yes'}
    >>> values_of(BundleNames(("a", "b", "c"), 2))[2], values_of(["A", "B"])[0]
    (['b', 'c'], 'A')
    >>> values_of(["A", "B"], {"A": {"price": 9}, "B": {"price": 12}})[1]
    {'price': 12}
    """
    if given is not None:
        return tuple(given[name] for name in names)
    if isinstance(names, (FactorialNames, BundleNames)):
        return _LazyValues(names)
    return names


class _LazyValues(Sequence[Any]):
    """Values of combinations or bundles, each computed when it is read."""

    def __init__(self, names: FactorialNames | BundleNames) -> None:
        self._names = names

    def __len__(self) -> int:
        return len(self._names)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Any, ...]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        if isinstance(self._names, BundleNames):
            return self._names[index].split(BETWEEN)
        return self._names.levels_of(index)


def validate_variant_values(
    given: Any, names: Sequence[str], large: bool = False
) -> dict[str, Any] | None:
    """Values by the names of the variants, if each variant has one and JSON can say it.

    given : a mapping by name, or a list in the order of the variants; None if none are given
    large : whether the set is too large to write down a value for each
    """
    if given is None:
        return None
    if large:
        raise InvalidInputError(
            f"values cannot be given for {len(names):,} variants; leave them out, and use what "
            "assignments return: factors with their levels, or the items of a bundle.",
            field="values",
        )
    if isinstance(given, (list, tuple)):
        if len(given) != len(names):
            raise InvalidInputError(
                f"there are {len(given)} values for {len(names)} variants; give one for each, in "
                "their order, or an object by their names.",
                field="values",
            )
        given = dict(zip(names, given, strict=True))
    if not isinstance(given, Mapping):
        expected = f"an object by the variants' names, such as {{{names[0]!r}: …}}, or a list"
        raise InvalidInputError.of("values", given, expected)
    known = set(names)
    if unknown := [name for name in given if name not in known]:
        raise InvalidInputError(
            f"values name {unknown[0]!r}, which is not one of the variants: {strung(names, 8)}.",
            field="values",
        )
    if missing := [name for name in names if name not in given]:
        raise InvalidInputError(
            f"values are missing for {strung(missing, 8)}; give one for every variant, or for "
            "none.",
            field="values",
        )
    return {name: _validate(given[name], name) for name in names}


def _validate(given: Any, name: str) -> Any:
    """Return a value in JSON's own types, if JSON can say it and every program reads it alike."""
    try:
        text = json.dumps(given, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        size = len(text.encode())
        value = json.loads(text, parse_int=_exact_int)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"the value of {name!r} is not valid JSON: {error}. Expected texts, numbers, true, "
            "false, null, lists and objects.",
            field="values",
        ) from None
    if size > LARGEST_VALUE:
        raise InvalidInputError(
            f"the value of {name!r} has {size:,} bytes as JSON; expected at most "
            f"{LARGEST_VALUE:,}. Store large content elsewhere and give its address.",
            field="values",
        )
    return value


def _exact_int(digits: str) -> int:
    if abs(number := int(digits)) > EXACT:
        raise ValueError(f"{digits} is above 2**53, which not every program reads exactly")
    return number
