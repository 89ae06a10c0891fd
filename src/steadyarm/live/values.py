"""Values: what a variant stands for, as data that a page can use without reading its name.

A value is any JSON value. Users give one for each variant, or it follows from the variants:
combinations of factors are {factor: level}, bundles lists of items, all others their names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import product
from math import comb, isfinite
from typing import Any, overload

from steadyarm.arms.recipes import BETWEEN, BundleNames, FactorialNames, LazyNames
from steadyarm.errors import InvalidInputError
from steadyarm.wording import factors_of, shortened, strung

LARGEST_VALUE = 16 * 1024  # bytes of a value as JSON
DEEPEST = 32  # lists and objects in each other
EXACT = 2**53  # up to here every program reads whole numbers exactly


def values_of(names: Sequence[str], given: Mapping[str, Any] | None = None) -> Sequence[Any]:
    """The value of each variant, in the order of their names.

    Whoever gets a value shares it with others, and must not change it.

    Examples
    --------
    >>> values_of(["size=S, hat=no", "size=S, hat=yes", "size=L, hat=no", "size=L, hat=yes"])[1]
    {'size': 'S', 'hat': 'yes'}
    >>> values_of(["a + b", "a + c", "b + c"])[2], values_of(["A", "B"])[0]
    (['b', 'c'], 'A')
    >>> values_of(["A", "B"], {"A": {"price": 9}, "B": {"price": 12}})[1]
    {'price': 12}
    """
    if given is not None:
        return tuple(given[name] for name in names)
    if isinstance(names, (FactorialNames, BundleNames)):
        return _LazyValues(names)
    if isinstance(names, LazyNames):
        return names
    factors = factors_of(names)
    if factors is not None:
        rows = product(*factors.values())
        return tuple(dict(zip(factors, row, strict=True)) for row in rows)
    if _are_bundles(names):
        return tuple(name.split(BETWEEN) for name in names)
    return tuple(names)


class _LazyValues(Sequence[Any]):
    """Values of a large set, each made when somebody asks for it."""

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


def _are_bundles(names: Sequence[str]) -> bool:
    """Whether these are the names that `ArmSet.bundles` gives, for two items or more in each."""
    if not names or BETWEEN not in names[0]:
        return False
    bundles = [name.split(BETWEEN) for name in names]
    items, size = tuple(dict.fromkeys(item for each in bundles for item in each)), len(bundles[0])
    if comb(len(items), size) != len(names):
        return False
    made = BundleNames(items, size)
    return all(made[k] == name for k, name in enumerate(names))


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
            f"values are given, but {len(names):,} variants are too many for a value of each; "
            "leave them out, and use what assignments return: factors with their levels, or the "
            "items of a bundle.",
            field="values",
        )
    if isinstance(given, (list, tuple)):
        if len(given) != len(names):
            raise InvalidInputError(
                f"values are {len(given)} for {len(names)} variants; give one for each, in their "
                "order, or an object by their names.",
                field="values",
            )
        given = dict(zip(names, given, strict=True))
    if not isinstance(given, Mapping):
        expected = f"an object by the variants' names, such as {{{names[0]!r}: …}}, or a list"
        raise InvalidInputError.of("values", given, expected)
    known = set(names)
    if unknown := [name for name in given if name not in known]:
        raise InvalidInputError(
            f"values name {unknown[0]!r}, which is no variant; they are {strung(names, 8)}.",
            field="values",
        )
    if missing := [name for name in names if name not in given]:
        raise InvalidInputError(
            f"there is no value for {strung(missing, 8)}; give one for every variant, or for none.",
            field="values",
        )
    return {name: _checked(given[name], name) for name in names}


def _checked(given: Any, name: str) -> Any:
    value = _plain(given, name, 0)
    size = len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
    if size > LARGEST_VALUE:
        raise InvalidInputError(
            f"the value of {name!r} has {size:,} bytes as JSON; expected at most "
            f"{LARGEST_VALUE:,}. Keep large content elsewhere, and give its address.",
            field="values",
        )
    return value


def _plain(given: Any, name: str, depth: int) -> Any:
    """The value in JSON's own types; refused if JSON cannot say it, or not in the same way."""
    why = "expected texts, numbers, true, false, null, lists and objects with texts as keys"
    if depth > DEEPEST:
        why = f"expected at most {DEEPEST} lists and objects in each other"
    elif given is None or isinstance(given, bool):
        return given
    elif isinstance(given, str):
        try:
            given.encode()
            return str(given)
        except UnicodeEncodeError:
            why = "expected a text without halves of characters"
    elif isinstance(given, int):
        if abs(given) <= EXACT:
            return int(given)
        why = "expected whole numbers up to 2**53, which every program reads exactly"
    elif isinstance(given, float):
        if isfinite(given):
            return float(given)
        why = "JSON has no such number"
    elif isinstance(given, (list, tuple)):
        return [_plain(each, name, depth + 1) for each in given]
    elif isinstance(given, Mapping) and all(isinstance(key, str) for key in given):
        return {
            _plain(key, name, depth): _plain(each, name, depth + 1) for key, each in given.items()
        }
    raise InvalidInputError(
        f"the value of {name!r} has {shortened(given)} in it; {why}.", field="values"
    )
