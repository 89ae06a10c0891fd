"""Numbers, times and names as people read them, the same on pages, in charts and in reports."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from difflib import get_close_matches
from math import isfinite, isnan

__all__ = [
    "counted",
    "did_you_mean",
    "listed",
    "number",
    "p_value",
    "percent",
    "reach",
    "strung",
    "when",
]

WHOLE = 10_000  # numbers from here on are shown without decimals


def number(value: float, digits: int = 4) -> str:
    """A few digits that matter.

    Examples
    --------
    >>> number(0.123456), number(123456.7), number(float("nan")), number(float("inf"))
    ('0.1235', '123,457', 'unknown', '∞')
    """
    if isnan(value):
        return "unknown"
    if not isfinite(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:,.0f}" if WHOLE <= abs(value) < 1e15 else f"{value:.{digits}g}"


def reach(low: float, high: float) -> str:
    """An interval.

    Examples
    --------
    >>> reach(0.1, 0.25), reach(float("-inf"), 2), reach(float("-inf"), float("inf"))
    ('0.1 to 0.25', '-∞ to 2', 'unknown')
    """
    if isfinite(low) or isfinite(high):
        return f"{number(low)} to {number(high)}"
    return "unknown"


def percent(share: float) -> str:
    """A share, with a decimal where it is needed.

    Examples
    --------
    >>> percent(0.95), percent(0.1234), percent(1), percent(0.0004)
    ('95 %', '12.3 %', '100 %', '0.04 %')
    """
    value = 100 * share
    digits = 1 if abs(value) >= 0.1 or value == 0 else 2
    return f"{value:.{digits}f}".removesuffix(".0") + " %"


def p_value(value: float) -> str:
    """A probability from a test."""
    return "< 0.0001" if value < 1e-4 else f"{value:.2g}"


def counted(count: int, one: str, many: str = "") -> str:
    """A number with its noun.

    Examples
    --------
    >>> counted(1, "variant"), counted(1200, "visit"), counted(2, "day was", "days were")
    ('1 variant', '1,200 visits', '2 days were')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def listed(names: Sequence[str], most: int = 8) -> str:
    """Names in a sentence, the first of them if there are many.

    Examples
    --------
    >>> listed(["A"]), listed(["A", "B", "C"]), listed("ABCDEF", most=2)
    ('A', 'A, B and C', 'A, B and 4 more')
    >>> listed(["size=S, hat=no", "size=L, hat=no"])
    'size=S, hat=no; and size=L, hat=no'
    """
    if len(names) > most:
        return strung(names, most)
    _, last = _between(names)
    return last.join(filter(None, [strung(names[:-1]), *names[-1:]]))


def strung(names: Sequence[str], most: int | None = None) -> str:
    """Names one after the other, with semicolons if a name has commas itself.

    Examples
    --------
    >>> strung(["A", "B", "C"]), strung(["A", "B", "C"], most=2)
    ('A, B, C', 'A, B and 1 more')
    >>> strung(["size=S, hat=no", "size=L, hat=no"])
    'size=S, hat=no; size=L, hat=no'
    """
    shown = names[:most]
    comma, last = _between(shown)
    more = len(names) - len(shown)
    return comma.join(shown) + (f"{last}{more:,} more" if more else "")


def _between(names: Sequence[str]) -> tuple[str, str]:
    """What stands between names, and before the last."""
    return ("; ", "; and ") if any("," in name for name in names) else (", ", " and ")


def when(moment: datetime) -> str:
    """A time, in UTC as stored."""
    return f"{moment:%Y-%m-%d %H:%M} UTC"


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
