"""Texts and numbers as charts show them."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from datetime import date, datetime, time

__all__ = ["days_of", "known", "one_line", "shown"]

TURNING = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f")


def known(value: float) -> float | None:
    """For tables: None where nothing is known."""
    return float(value) if math.isfinite(value) else None


def one_line(name: str) -> str:
    """A name without line breaks and without signs that turn the direction of writing."""
    kept = "".join(
        " " if unicodedata.category(sign) in ("Cc", "Cs", "Zl", "Zp") else sign
        for sign in name
        if sign not in TURNING
    )
    return " ".join(kept.split())


def shown(name: str, most: int = 28) -> str:
    """A name on one line, its middle left out if it is long.

    Examples
    --------
    >>> shown("short headline"), shown("a very long headline with a dog", most=20)
    ('short headline', 'a very long…h a dog')
    """
    line = one_line(name)
    if len(line) <= most:
        return line
    tail = (most - 1) * 2 // 5
    return f"{line[: most - 1 - tail].rstrip()}…{line[len(line) - tail :].lstrip()}"


def days_of(labels: Sequence[str]) -> tuple[datetime, ...] | None:
    """The labels as days, if all of them are such as 2026-11-15."""
    try:
        return tuple(datetime.combine(date.fromisoformat(label), time()) for label in labels)
    except ValueError:
        return None
