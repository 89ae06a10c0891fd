"""Texts and numbers as charts show them."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from datetime import date, datetime, time

__all__ = ["days_of", "known", "number", "one_line", "per_cent", "plural", "shown"]

TURNING = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f")


def known(value: float) -> float | None:
    """For tables: None where nothing is known."""
    return float(value) if math.isfinite(value) else None


def number(value: float) -> str:
    """For sentences.

    Examples
    --------
    >>> number(0.123456), number(43100.2), number(float("inf"))
    ('0.1235', '43,100', 'unknown')
    """
    if not math.isfinite(value):
        return "unknown"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def per_cent(share: float) -> str:
    """A share in per cent, such as 37 %."""
    return f"{100 * share:.3g} %" if math.isfinite(share) else "unknown"


def plural(count: int, word: str) -> str:
    """Such as 1 variant, or 1,200 variants."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


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
