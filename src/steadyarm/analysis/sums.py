"""Sums of a log by period and arm: one Ibis expression, which runs where the log lives.

Rows of equal probability are added up first, in numbers that need no division; the weighing by
1/p is done on the few rows that are left. Logs of ever-changing probabilities are weighed row by
row instead.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadyarm.analysis.log import COVARIATE, Log
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

    def start_of(self, time: datetime) -> datetime:
        """When the bucket of a time begins, if it is one of the calendar."""
        day = time.replace(hour=0, minute=0, second=0, microsecond=0)
        if self.unit in CLOCK:
            hour = day.replace(hour=time.hour)
            minute = hour if self.unit == "h" else hour.replace(minute=time.minute)
            return minute.replace(second=time.second) if self.unit == "s" else minute
        if self.unit == "W":
            return day - timedelta(days=day.weekday())
        return day.replace(day=1) if self.unit == "M" else day

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


def readable(log: Log, table: Any, zero: bool = False) -> Any:
    """The table with the columns time, arm and r, and p and z where there are any.

    The rest is as it was. The column given is the reward as it stands, where r may be null for
    other reasons than a missing reward, or 0 for a missing one (`zero`).
    """
    import ibis

    backend, reward = log.backend, table["reward"]
    new = {
        "time": as_time(log, table["timestamp"]),
        "arm": table["arm"].cast("string"),
        "r": as_number(log, reward),
    }
    if zero:
        new["r"] = ibis.ifelse(reward.isnull(), 0.0, new["r"])
    if zero or reward.type().is_string() or backend == "sqlite":
        new["given"] = reward
    if "probability" in table.columns:
        new["p"] = as_number(log, table["probability"])
    names = [name for name in table.columns if name.startswith(COVARIATE)]
    new |= row_covariates([_without_nan(log, as_number(log, table[name])) for name in names])
    return table.mutate(**new)


def as_number(log: Log, column: Any) -> Any:
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


def as_unit(log: Log, column: Any) -> Any:
    """A column of units; null where there is none, which empty text and nan mean, too."""
    return column.nullif("") if column.type().is_string() else _without_nan(log, column)


def _without_nan(log: Log, column: Any) -> Any:
    """The column with null for nan."""
    import ibis

    if log.backend == "sqlite" or not column.type().is_floating():  # SQLite has no nan
        return column
    return ibis.ifelse(column.isnan(), ibis.null(column.type()), column)


def as_time(log: Log, column: Any) -> Any:
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


# Sums: expressions that run where the log lives.

SAMPLE, FEW = 50_000, 2_000  # rows in which so many distinct probabilities count as few


def propensity_sums(
    table: Any, bucket: Any, few: bool, span: tuple[float, float] | None = None
) -> Any:
    """Sums by bucket and arm, each row weighed by one over its own probability.

    Parameters
    ----------
    table : as `readable` makes it; with a column given where rewards may be unreadable
    bucket : the fine period of a row
    few : whether there are few distinct probabilities
    span : rewards that can occur

    Returns
    -------
    Per bucket and arm: rows n and with reward m, sums s of r and ss of r²; over all rows i0 and
    i02 of 1/p and 1/p²; over rows with reward i1 and i2 of the same, w and w2 of r/p and r/p²,
    ww of r²/p², and what `moment_sums` and `weighed_moments` say; the least p, rows without a
    usable p, rewards given, and those beyond the span.
    """
    keys = {"bucket": bucket, "arm": table.arm}
    if few:
        return weighed(counts(table, keys | {"p": table.p}, span))
    p, r = usable(table), table.r
    there = r.notnull()
    return table.group_by(**keys).aggregate(
        **_counted(table, span),
        i0=(1 / p).sum(),
        i02=(1 / (p * p)).sum(),
        i1=(1 / p).sum(where=there),
        i2=(1 / (p * p)).sum(where=there),
        w=(r / p).sum(),
        w2=(r / (p * p)).sum(),
        ww=(r * r / (p * p)).sum(),
        least=p.min(),
        unusable=table.count() - p.count(),
        **weighed_moments(table, p),
    )


def allocation_sums(
    table: Any, keys: dict[str, Any], span: tuple[float, float] | None = None
) -> Any:
    """Counts and sums by the given keys, with the time of the first row and the range of p."""
    more: dict[str, Any] = {"first": table.time.min()}
    if "p" in table.columns:
        p = usable(table)
        unusable = table.count() - p.count()
        more |= {"least": p.min(), "largest": p.max(), "unusable": unusable}
    return table.group_by(**keys).aggregate(**_counted(table, span), **more)


def counts(table: Any, keys: dict[str, Any], span: tuple[float, float] | None) -> Any:
    """What is added up without weighing, by the given keys."""
    return table.group_by(**keys).aggregate(**_counted(table, span))


def counts_by_arm(table: Any, span: tuple[float, float] | None) -> Any:
    """The same by arm in DuckDB, with a probability of each, and whether it has several: mixed.

    Probabilities are compared by their hashes. Those of doubles are one-to-one, and the least and
    the largest of whole numbers are found several times as fast as those of doubles.
    """
    import ibis

    code = ibis.udf.scalar.builtin(_hash, name="hash", signature=(("float64",), "uint64"))(table.p)
    mixed = code.min() != code.max()
    return table.group_by(arm=table.arm).aggregate(
        p=table.p.arbitrary(), **_counted(table, span), mixed=mixed
    )


def _hash(number: Any) -> Any:
    """Stands for DuckDB's function."""


def _counted(table: Any, span: tuple[float, float] | None) -> dict[str, Any]:
    """What is added up without weighing."""
    r = table.r
    sums = {"n": table.count(), "m": r.count(), "s": r.sum(), "ss": (r * r).sum()}
    if "given" in table.columns:
        sums["given"] = table.given.count()
    if span is not None:
        sums["beyond"] = ((r < span[0]) | (r > span[1])).sum()
    return sums | moment_sums(table)


def weighed(c: Any) -> Any:
    """The same by bucket and arm, from counts by bucket, arm and probability."""
    p = usable(c)
    plain = {name: c[name].sum() for name in c.columns if name not in ("bucket", "arm", "p")}
    return c.group_by("bucket", "arm").aggregate(
        **plain,
        i0=(c.n / p).sum(),
        i02=(c.n / (p * p)).sum(),
        i1=(c.m / p).sum(),
        i2=(c.m / (p * p)).sum(),
        w=(c.s / p).sum(),
        w2=(c.s / (p * p)).sum(),
        ww=(c.ss / (p * p)).sum(),
        least=p.min(),
        unusable=c.n.sum(where=p.isnull()),
        **weighed_sums(c, p),
    )


def usable(table: Any) -> Any:
    """The probability p, null where it is none, so that no database divides by zero."""
    import ibis

    p = table.p
    good = (p > 0) & (p <= 1)
    if table.get_backend().name == "duckdb":  # which may conclude the above from a file's
        good = good & ~p.isnan()  # statistics, and these leave nan out
    return ibis.ifelse(good, p, ibis.null("float64"))


# Sums of covariates: over rows with a reward, as all others.


def row_covariates(numbers: Sequence[Any]) -> dict[str, Any]:
    """Columns z0 (whether any is known), z1, … of a row, from its numbers or nulls."""
    import ibis

    if not numbers:
        return {}
    known = numbers[0].notnull()
    for number in numbers[1:]:
        known = known | number.notnull()
    found = {"z0": ibis.ifelse(known, 1, 0).cast("float64")}  # 1.0 is a decimal to PostgreSQL
    return found | {f"z{a}": number.fill_null(0.0) for a, number in enumerate(numbers, 1)}


def _columns_in(table: Any) -> list[Any]:
    """The columns z0, z1, … of a table."""
    count = sum(name.startswith(COVARIATE) for name in table.columns)
    return [table[f"z{a}"] for a in range(count + 1)] if count else []


def moment_sums(table: Any) -> dict[str, Any]:
    """Sums of covariates over rows with a reward: z, zz and zr with the numbers of columns."""
    z, r = _columns_in(table), table.r
    there = r.notnull()
    found = {}
    for a, one in enumerate(z):
        found[f"z{a}"] = one.sum(where=there)
        found[f"zr{a}"] = (one * r).sum()
        for b in range(a + 1):
            found[f"zz{a}_{b}"] = (one * z[b]).sum(where=there)
    return found


def weighed_moments(table: Any, p: Any) -> dict[str, Any]:
    """Row by row: the same over p², with the ending w, and z over p, with the ending v."""
    z, r = _columns_in(table), table.r
    there, pp = r.notnull(), p * p
    found = {}
    for a, one in enumerate(z):
        found[f"z{a}v"] = (one / p).sum(where=there)
        found[f"z{a}w"] = (one / pp).sum(where=there)
        found[f"zr{a}w"] = (one * r / pp).sum()
        for b in range(a + 1):
            found[f"zz{a}_{b}w"] = (one * z[b] / pp).sum(where=there)
    return found


def weighed_sums(c: Any, p: Any) -> dict[str, Any]:
    """As `weighed_moments`, from sums by probability."""
    found = {}
    for name in c.columns:
        if name.startswith("z"):
            found[f"{name}w"] = (c[name] / (p * p)).sum()
            if name[1:].isdigit():
                found[f"{name}v"] = (c[name] / p).sum()
    return found
