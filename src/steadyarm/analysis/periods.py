"""Periods of a log: calendar units or equal shares, made of buckets that a database can make."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadyarm.errors import InvalidInputError

__all__ = ["Plan", "plan_periods"]

UNITS = {"hour": "h", "day": "D", "week": "W", "month": "M"}
LABELS = {"hour": "%Y-%m-%d %H:00", "day": "%Y-%m-%d", "week": "week of %Y-%m-%d", "month": "%Y-%m"}
CLOCK = {"s": "%Y-%m-%d %H:%M:%S", "m": "%Y-%m-%d %H:%M:00", "h": "%Y-%m-%d %H:00:00"}
FINE = (("s", 1), ("m", 60), ("h", 3600), ("D", 86400))
MOST_BUCKETS = 1500
SHARES = 20
MOST_DAYS = 366


@dataclass(frozen=True)
class Plan:
    """How rows are put into buckets, and buckets into periods.

    Attributes
    ----------
    name : "hour", "day", "week", "month" or "shares"
    unit : calendar unit of a bucket; empty if times are numbers
    start, width : of a bucket of numbers
    shares : number of equal shares of the rows, if name is "shares"
    """

    name: str
    unit: str
    start: float = 0.0
    width: float = 1.0
    shares: int = SHARES

    def bucket(self, time: Any, backend: str) -> Any:
        """The bucket of a time, as a column."""
        if self.unit == "D":
            return time.date()  # quicker than to truncate
        if backend == "sqlite" and self.unit in CLOCK:  # Ibis cannot truncate to these there
            return time.strftime(CLOCK[self.unit]).cast("timestamp")
        if self.unit:
            return time.truncate(self.unit)
        return ((time - self.start) / self.width).floor().cast("int64")

    def periods(
        self, buckets: list[Any], rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], list[str]]:
        """The period of each bucket in order, and the periods' labels."""
        if self.name != "shares":
            return np.arange(len(buckets)), [_label(bucket, self.name) for bucket in buckets]
        middle = np.cumsum(rows) - rows / 2
        share = np.minimum(middle * self.shares / max(int(rows.sum()), 1), self.shares - 1)
        _, index = np.unique(share.astype(np.int64), return_inverse=True)
        firsts = [buckets[int(np.argmax(index == j))] for j in range(int(index.max()) + 1)]
        return index, [self._from(bucket) for bucket in firsts]

    def _from(self, bucket: Any) -> str:
        if not self.unit:
            digits = max(0, -math.floor(math.log10(self.width)))  # as many as tell buckets apart
            return f"from {self.start + bucket * self.width:.{digits}f}"
        return f"from {bucket:%Y-%m-%d}" + ("" if self.unit == "D" else f" {bucket:%H:%M:%S}")


def plan_periods(period: str, first: Any, last: Any) -> Plan:
    """The plan for a log from `first` to `last`; "auto" is days where that makes sense."""
    number = not isinstance(first, datetime)
    shares = re.fullmatch(r"shares(?::(\d+))?", period)
    if not shares and period not in (*UNITS, "auto"):
        raise InvalidInputError(
            f"period is {period!r}; expected auto, {', '.join(UNITS)} or shares:20."
        )
    if not number:
        days = (last.date() - first.date()).days + 1
        if period == "auto" and 3 <= days <= MOST_DAYS:
            period = "day"
        if period in UNITS:
            return Plan(period, UNITS[period])
    elif period in UNITS:
        raise InvalidInputError(
            f"period is {period!r}, but time stamps are plain numbers, whose unit is not known; "
            "take shares:20."
        )
    count = int(shares[1]) if shares and shares[1] else SHARES
    if count < 1:
        raise InvalidInputError(f"period is {period!r}; expected at least one share.")
    if number:
        width = (last - first) / MOST_BUCKETS or 1.0
        return Plan("shares", "", float(first), float(width), count)
    span = (last - first) / timedelta(seconds=1)
    unit = next((name for name, size in FINE if span / size <= MOST_BUCKETS), "D")
    return Plan("shares", unit, shares=count)


def _label(bucket: Any, name: str) -> str:
    if name == "week":
        bucket = bucket - timedelta(days=bucket.weekday())
    return f"{bucket:{LABELS[name]}}"
