"""Words that settings are made of: a value that is none of them is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from steadyarm.errors import InvalidInputError
from steadyarm.wording import did_you_mean

__all__ = ["check_word"]


def check_word(value: Any, what: str, known: Sequence[str]) -> None:
    """Refuse a value that is none of the known words, and name the nearest of them."""
    if value not in known:
        listed = f"{', '.join(known[:-1])} or {known[-1]}"
        raise InvalidInputError(
            f"{what} is {value!r}; expected {listed}{did_you_mean(str(value).lower(), known)}"
        )
