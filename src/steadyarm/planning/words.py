"""Words that settings are made of, and what was probably meant by others."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from steadyarm.errors import InvalidInputError

__all__ = ["check_word", "did_you_mean"]


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """The end of a sentence that lists the known words: the nearest of them, if one is near.

    Examples
    --------
    >>> did_you_mean("weekends", ["none", "weekend"])
    '; did you mean weekend?'
    >>> did_you_mean("tides", ["none", "weekend"])
    '.'
    """
    near = get_close_matches(word, known, 1)
    return f"; did you mean {near[0]}?" if near else "."


def check_word(value: Any, what: str, known: Sequence[str]) -> None:
    """Refuse a value that is none of the known words, and name the nearest of them."""
    if value not in known:
        listed = f"{', '.join(known[:-1])} or {known[-1]}"
        raise InvalidInputError(
            f"{what} is {value!r}; expected {listed}{did_you_mean(str(value).lower(), known)}"
        )
