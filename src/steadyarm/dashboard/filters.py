"""Filters of the templates: numbers and times as people read them."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime
from typing import Any
from urllib.parse import quote

from steadyarm.answers import moment
from steadyarm.storages.records import AuditEntry

__all__ = ["FILTERS", "amount", "cell", "corrected", "count", "day", "percent", "segment", "when"]

UNKNOWN = "\u2013"  # a dash


def segment(name: str) -> str:
    """A name as one part of an address.

    Examples
    --------
    >>> segment("a/b?")
    'a%2Fb%3F'
    """
    return quote(name, safe="")


def count(number: int) -> str:
    """A whole number with separators.

    Examples
    --------
    >>> count(1234567)
    '1,234,567'
    """
    return f"{number:,}"


def percent(share: float, digits: int = 1) -> str:
    """A share of 1.

    Examples
    --------
    >>> percent(0.0623), percent(1.0), percent(0.00004), percent(float("nan"))
    ('6.2 %', '100 %', '<0.1 %', '–')
    """
    if not math.isfinite(share):
        return UNKNOWN
    least = 10.0**-digits
    if 0 < 100 * share < least / 2:
        return f"<{least:.{digits}f} %"
    text = f"{100 * share:.{digits}f}"
    return (text.rstrip("0").rstrip(".") if float(text) in (0.0, 100.0) else text) + " %"


def amount(value: float, shares: bool = False) -> str:
    """A reward: in per cent if rewards are shares (0 or 1), else with four digits.

    Examples
    --------
    >>> amount(0.12345, shares=True), amount(12.3456), amount(-1234567.8), amount(float("inf"))
    ('12.35 %', '12.35', '-1,234,568', '–')
    """
    if not math.isfinite(value):
        return UNKNOWN
    if shares:
        return f"{100 * value:.2f} %"
    if abs(value) >= 1000:
        return f"{value:,.0f}" if abs(value) < 1e15 else f"{value:.3e}"
    return f"{value:.4g}"


def when(time: datetime | None) -> str:
    """A time; a dash if there is none.

    Examples
    --------
    >>> when(datetime(2026, 11, 5, 9, 30))
    '5 Nov 2026, 09:30'
    """
    return UNKNOWN if time is None else f"{time.day} {time:%b %Y, %H:%M}"


def day(time: datetime | date | None) -> str:
    """A date; a dash if there is none.

    Examples
    --------
    >>> day(date(2026, 11, 5))
    '5 Nov 2026'
    """
    return UNKNOWN if time is None else f"{time.day} {time:%b %Y}"


def cell(value: Any) -> str:
    """A value of a table.

    Examples
    --------
    >>> cell(None), cell(0.123456789), cell(1200), cell("A"), cell(datetime(2026, 11, 5, 9, 30))
    ('–', '0.1235', '1,200', 'A', '5 Nov 2026, 09:30')
    """
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return count(value)
    if isinstance(value, float):
        return amount(value)
    if isinstance(value, datetime):
        return when(value)
    return day(value) if isinstance(value, date) else str(value)


def corrected(entry: AuditEntry) -> str:
    """What a correction did.

    Examples
    --------
    >>> corrected(AuditEntry(7, 0, "ada", "visits.included", "shop", {"entry": 5}))
    'Visits included, see entry 5'
    """
    said, detail = entry.action.replace(".", " ").capitalize(), entry.detail
    if "since" in detail and "until" in detail:
        return f"{said}, {when(moment(detail['since']))} to {when(moment(detail['until']))}"
    return f"{said}, see entry {detail['entry']}" if "entry" in detail else said


FILTERS: dict[str, Callable[..., Any]] = {
    "amount": amount,
    "cell": cell,
    "corrected": corrected,
    "count": count,
    "day": day,
    "moment": moment,
    "percent": percent,
    "segment": segment,
    "when": when,
}
