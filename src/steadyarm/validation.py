"""Checks that many parts share; each error says what was given, what was expected, what to do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from steadyarm.errors import InvalidInputError

__all__ = ["check_choice", "check_fraction", "checked_range", "finite_number", "whole_number"]


def whole_number(value: Any, what: str, least: int = 0) -> int:
    """`value` as an int, if it is a whole number of at least `least`.

    Examples
    --------
    >>> whole_number(3, "trials", least=1)
    3
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise InvalidInputError(
            f"{what} is {value!r}; expected a whole number of at least {least}."
        )
    return int(value)


def finite_number(value: Any, what: str) -> float:
    """`value` as a float, if it is a finite number."""
    try:
        number = math.nan if isinstance(value, (str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InvalidInputError(f"{what} is {value!r}; expected a finite number.")
    return number


def check_fraction(value: Any, what: str) -> float:
    """`value` as a float, if it lies strictly between 0 and 1."""
    number = finite_number(value, what)
    if not 0 < number < 1:
        raise InvalidInputError(f"{what} is {value!r}; expected a number between 0 and 1.")
    return number


def check_choice(value: Any, what: str, choices: Sequence[Any]) -> None:
    """Refuse a value that is none of the choices."""
    if value not in choices:
        expected = ", ".join(repr(choice) for choice in choices)
        raise InvalidInputError(f"{what} is {value!r}; expected one of {expected}.")


def checked_range(given: Any) -> tuple[float, float]:
    """The least and the largest reward that can occur, if they are given as such.

    Examples
    --------
    >>> checked_range([0, 1])
    (0.0, 1.0)
    """
    try:
        low, high = given
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"reward_range is {given!r}; expected the least and the largest reward that can "
            "occur, such as (0, 1)."
        ) from None
    low, high = (finite_number(end, "an end of reward_range") for end in (low, high))
    if not low < high:
        raise InvalidInputError(
            f"reward_range is ({low:g}, {high:g}); the first must be below the second."
        )
    return low, high
