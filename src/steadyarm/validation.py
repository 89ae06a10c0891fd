"""Shared validation. Each error says what was given and what was expected."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from steadyarm.errors import InvalidInputError


def whole_number(value: Any, what: str, least: int = 0, most: int | None = None) -> int:
    """Return `value` as an int if it is a whole number from `least` to `most`.

    Examples
    --------
    >>> whole_number(3, "trials", least=1)
    3
    """
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):
        limit = f"at most {most}" if whole and value > least else f"at least {least}"
        raise InvalidInputError.of(what, value, f"a whole number of {limit}")
    return int(value)


def finite_number(value: Any, what: str) -> float:
    """Return `value` as a float if it is a finite number."""
    try:
        number = math.nan if isinstance(value, (str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InvalidInputError.of(what, value, "a finite number")
    return number


def not_negative(value: Any, what: str) -> float:
    """Return `value` as a float if it is a finite number of at least 0."""
    number = finite_number(value, what)
    if number < 0:
        raise InvalidInputError.of(what, value, "a number of at least 0")
    return number


def check_positive(value: Any, what: str) -> float:
    """Return `value` as a float if it is a finite number above 0."""
    number = finite_number(value, what)
    if number <= 0:
        raise InvalidInputError.of(what, value, "a number above 0")
    return number


def check_fraction(value: Any, what: str) -> float:
    """Return `value` as a float if it lies strictly between 0 and 1."""
    number = finite_number(value, what)
    if not 0 < number < 1:
        raise InvalidInputError.of(what, value, "a number between 0 and 1")
    return number


def check_choice(value: Any, what: str, choices: Sequence[Any]) -> None:
    """Refuse a value that is none of the choices."""
    if value not in choices:
        raise InvalidInputError.of(what, value, f"one of {', '.join(map(repr, choices))}")


def validate_range(given: Any, what: str = "reward_range") -> tuple[float, float]:
    """Return the least and the largest reward that can occur as floats.

    Examples
    --------
    >>> validate_range([0, 1])
    (0.0, 1.0)
    """
    try:
        low, high = (finite_number(end, what) for end in given)
    except (TypeError, ValueError):  # not two of them, or not numbers
        expected = "two finite numbers, the least and the largest reward, such as (0, 1)"
        raise InvalidInputError.of(what, given, expected) from None
    if not low < high:
        expected = "the first to be below the second"
        raise InvalidInputError.of(what, given, expected)
    return low, high


def name_list(names: Any, what: str) -> tuple[str, ...]:
    """A tuple, of what is no single text."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise InvalidInputError(f"{what} is {names!r}; expected a list of strings.")
    return tuple(names)


def check_names(names: tuple[str, ...], count: int, what: str, of: str) -> None:
    """As many distinct names as there are things to name, each of them readable."""
    if len(names) != count:
        raise InvalidInputError(f"there are {len(names)} {what} names for {count} {of}.")
    seen: set[str] = set()
    for i, name in enumerate(names):
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise InvalidInputError(
                f"{what} name {i} is {name!r}; every name must be a string that can be read, in "
                "one line and not empty."
            )
        if name in seen:
            raise InvalidInputError(f"the {what} name {name!r} is listed twice; names must differ.")
        seen.add(name)


def length_error(units: Sequence[Any], given: Sequence[Any], what: str) -> InvalidInputError:
    """The error for a list of what is known of units that is longer or shorter than the units.

    what : "attributes", "covariates" or "expected"
    """
    return InvalidInputError(
        f"there are {what} of {len(given)} units, but {len(units)} units; give as many, with None "
        "for units of which nothing is known.",
        field=what,
    )
