"""Columns of a log as times, names and numbers, its periods, and sums by period and arm.

Everything is an Ibis expression that runs where the log lives.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadyarm.analysis.source import COVARIATE, Source
from steadyarm.errors import InvalidInputError

# Periods of a log: calendar units or equal shares, made of buckets that a database can make.


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
        raise InvalidInputError.of("period", period, f"auto, {', '.join(UNITS)} or shares:20")
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
        raise InvalidInputError.of("period", period, "at least one share")
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


# Columns as numbers, names and times, the same on every database; what cannot be read is null.

NUMBER = r"^\s*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?\s*$"
LEAP = r"([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)"
DATE = (  # only days there are: SQLite and PostgreSQL move others into the next month, or stop
    r"[1-9][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])"
    r"|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
)
TIME = (
    rf"^\s*({DATE}|{LEAP}-02-29)"
    r"([ T]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]+)?)?"
    r"(Z|[-+](0[0-9]|1[0-4])(:?[0-5][0-9])?)?)?\s*$"
)


def readable(log: Source, table: Any, zero: bool = False) -> Any:
    """The table with columns time, arm, r, given, and p and z0, z1, … where there are any.

    The reward stays as it stands in `given`, where r may be null for other reasons than a missing
    reward, or 0 for a missing one (`zero`). z0 says whether any covariate is known.
    """
    import ibis

    reward = table["reward"]
    if reward.type().is_string():
        reward = reward.nullif("")
    new = {
        "time": as_time(log, table["timestamp"]),
        "arm": table["arm"].cast("string"),
        "r": as_number(log, reward),
        "given": reward,
    }
    if zero:
        new["r"] = ibis.ifelse(reward.isnull(), 0.0, new["r"])
    if "probability" in table.columns:
        new["p"] = as_number(log, table["probability"])
    names = [name for name in table.columns if name.startswith(COVARIATE)]
    numbers = [without_nan(log, as_number(log, table[name])) for name in names]
    if numbers:
        known = ibis.or_(*(number.notnull() for number in numbers))
        new["z0"] = ibis.ifelse(known, 1, 0).cast("float64")  # 1.0 is a decimal to PostgreSQL
        new |= {f"z{a}": number.fill_null(0.0) for a, number in enumerate(numbers, 1)}
    return table.mutate(**new)


def as_number(log: Source, column: Any) -> Any:
    """A column of float64; null where there is no number."""
    import ibis

    kind, backend = column.type(), log.backend
    if kind.is_string():
        if backend == "duckdb":
            return column.try_cast("float64")
        number = column.re_search(NUMBER)
        return ibis.ifelse(number, column.cast("float64"), ibis.null("float64"))
    if kind.is_boolean():
        return column.cast("int32").cast("float64")  # PostgreSQL has no cast to int64
    if not (kind.is_numeric() or kind.is_null()):
        raise InvalidInputError(
            f"the column {log.their(column.get_name())} of {log.name} has "
            f"type {kind}; expected numbers."
        )
    if backend == "sqlite":  # a column of any type may hold anything
        number = column.typeof().isin(["integer", "real"])
        return ibis.ifelse(number, column.cast("float64"), ibis.null("float64"))
    return column if kind.is_float64() else column.cast("float64")


def as_unit(log: Source, column: Any) -> Any:
    """A column of units; null where there is none, which empty text and nan mean, too."""
    return column.nullif("") if column.type().is_string() else without_nan(log, column)


def without_nan(log: Source, column: Any) -> Any:
    """The column with null for nan."""
    import ibis

    if log.backend == "sqlite" or not column.type().is_floating():  # SQLite has no nan
        return column
    return ibis.ifelse(column.isnan(), ibis.null(column.type()), column)


def as_time(log: Source, column: Any) -> Any:
    """A column of times in UTC, or of numbers; null where there is no time."""
    import ibis

    kind, backend = column.type(), log.backend
    if kind.is_numeric():
        return as_number(log, column)
    if backend == "sqlite":
        text = column.cast("string")
        good = (column.typeof() == "text") & text.re_search(TIME)
        return ibis.ifelse(good, text.cast("timestamp"), ibis.null("timestamp"))
    if kind.is_string():
        if backend == "duckdb":
            return column.try_cast("timestamp('UTC')").cast("timestamp")
        time = column.cast("timestamp('UTC')").cast("timestamp")
        return ibis.ifelse(column.re_search(TIME), time, ibis.null("timestamp"))
    if kind.is_date() or (kind.is_timestamp() and kind.timezone is not None):
        return column.cast("timestamp")
    if not kind.is_timestamp():
        raise InvalidInputError(
            f"the column {log.their('timestamp')} of {log.name} has type {kind}; expected time "
            "stamps, ISO 8601 text such as 2026-03-01T12:30:00Z, or numbers that only give the "
            "order."
        )
    return column


# Sums by period, arm and allocation.


def row_sums(table: Any, keys: dict[str, Any]) -> Any:
    """Sums over the rows of each period, arm and allocation.

    Parameters
    ----------
    table : as `readable` makes it
    keys : what rows are grouped by

    Returns
    -------
    Rows n, rewards given and readable ones m, sums s, ss and sss of r, r² and r³, the lowest and
    the highest reward, and the time of the first row. With a probability p the sums i0 and i02 of
    1/p and 1/p²; over rows with a reward i1, i2 and i3 of the powers of 1/p, w, w2 and w3 of r
    times these, ww and ww3 of r²/p² and r²/p³, and www of r³/p³; the least and the largest p, and
    rows whose p is not usable.
    """
    r = table.r
    there = r.notnull()
    sums = {
        "n": table.count(),
        "given": table.given.count(),
        "m": r.count(),
        "s": r.sum(),
        "ss": (r * r).sum(),
        "sss": (r * r * r).sum(),
        "lowest": r.min(),
        "highest": r.max(),
        "first": table.time.min(),
    }
    if "p" in table.columns:
        p = usable(table)
        sums |= {
            "i0": (1 / p).sum(),
            "i02": (1 / (p * p)).sum(),
            "i1": (1 / p).sum(where=there),
            "i2": (1 / (p * p)).sum(where=there),
            "i3": (1 / (p * p * p)).sum(where=there),
            "w": (r / p).sum(),
            "w2": (r / (p * p)).sum(),
            "w3": (r / (p * p * p)).sum(),
            "ww": (r * r / (p * p)).sum(),
            "ww3": (r * r / (p * p * p)).sum(),
            "www": (r * r * r / (p * p * p)).sum(),
            "least": p.min(),
            "largest": p.max(),
            "unusable": table.count() - p.count(),
        }
    return table.group_by(**keys).aggregate(**sums)


def usable(table: Any) -> Any:
    """The probability p, null where it is none, so that no database divides by zero."""
    import ibis

    p = table.p
    good = (p > 0) & (p <= 1)
    if table.get_backend().name == "duckdb":  # which may conclude the above from a file's
        good = good & ~p.isnan()  # statistics, and these leave nan out
    return ibis.ifelse(good, p, ibis.null("float64"))
