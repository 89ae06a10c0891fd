"""Columns of a log as times, names, numbers and probabilities; its periods, sums and faults.

Everything is an Ibis expression that runs where the log lives. What cannot be read is null.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadyarm.analysis.source import COVARIATE, Source, nearest_column
from steadyarm.arms import ArmSet
from steadyarm.errors import InvalidInputError
from steadyarm.wording import counted, did_you_mean, shortened, strung

Floats = NDArray[np.float64]
Row = dict[str, Any]
Rows = list[Row]

# Periods: calendar units or equal shares of the rows, made of buckets that a database can make.

UNITS = {"hour": "h", "day": "D", "week": "W", "month": "M"}
LABELS = {"hour": "%Y-%m-%d %H:00", "day": "%Y-%m-%d", "week": "week of %Y-%m-%d", "month": "%Y-%m"}
FINE = (("s", 1), ("m", 60), ("h", 3600), ("D", 86400))
MOST_BUCKETS = 1500
SHARES = 20
MOST_DAYS = 366


@dataclass(frozen=True)
class Plan:
    """How rows are put into buckets, and buckets into periods.

    Attributes
    ----------
    name : "hour", "day", "week", "month" or "shares"; "all" if rows have no times
    unit : calendar unit of a bucket
    shares : number of equal shares of the rows, if name is "shares"
    """

    name: str
    unit: str
    shares: int = SHARES

    def bucket(self, time: Any) -> Any:
        """The bucket of a time, as a column."""
        return time.date() if self.unit == "D" else time.truncate(self.unit)  # quicker

    def periods(
        self, buckets: list[Any], rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], list[str]]:
        """The period of each bucket in order, and the periods' labels."""
        if self.name == "all":
            return np.zeros(len(buckets), dtype=np.int64), ["all rows"]
        if self.name != "shares":
            return np.arange(len(buckets)), [_label(bucket, self.name) for bucket in buckets]
        middle = np.cumsum(rows) - rows / 2
        share = np.minimum(middle * self.shares / max(int(rows.sum()), 1), self.shares - 1)
        _, index = np.unique(share.astype(np.int64), return_inverse=True)
        firsts = [buckets[int(np.argmax(index == j))] for j in range(int(index.max()) + 1)]
        clock = "" if self.unit == "D" else " %H:%M:%S"
        return index, [f"from {bucket:%Y-%m-%d{clock}}" for bucket in firsts]


def plan_periods(period: str, first: datetime, last: datetime) -> Plan:
    """The plan for a log from `first` to `last`; "auto" is days where that makes sense."""
    shares = re.fullmatch(r"shares(?::([1-9]\d*))?", period)
    if not shares and period not in (*UNITS, "auto"):
        raise InvalidInputError.of("period", period, f"auto, {', '.join(UNITS)} or shares:20")
    days = (last.date() - first.date()).days + 1
    if period == "auto" and 3 <= days <= MOST_DAYS:
        period = "day"
    if period in UNITS:
        return Plan(period, UNITS[period])
    span = (last - first) / timedelta(seconds=1)
    unit = next((name for name, size in FINE if span / size <= MOST_BUCKETS), "D")
    return Plan("shares", unit, int(shares[1]) if shares and shares[1] else SHARES)


def _label(bucket: Any, name: str) -> str:
    if name == "week":
        bucket = bucket - timedelta(days=bucket.weekday())
    return f"{bucket:{LABELS[name]}}"


# Columns.

NUMBER = r"^\s*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?\s*$"
TIME = (
    r"^\s*[1-9][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
    r"([ T]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]+)?)?"
    r"(Z|[-+](0[0-9]|1[0-4])(:?[0-5][0-9])?)?)?\s*$"
)
DATES = ("%d.%m.%Y", "%Y/%m/%d", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y")
CLOCKS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
EPOCH = 1e8  # seconds since 1970 are at least that many: from 1973 on


def readable(log: Source, table: Any, zero: bool = False, cap: float | None = None) -> Any:
    """The table with columns time, arm, r, given, and p and z0, z1, … where there are any.

    The reward stays as it stands in `given`, where r may be null for other reasons than a missing
    reward, or 0 for a missing one (`zero`), and is at most `cap`. z0 says whether any covariate is
    known.
    """
    import ibis

    reward = table["reward"]
    if reward.type().is_string():
        reward = reward.nullif("")
    time = ibis.literal(datetime(1970, 1, 1))
    new = {
        "time": as_time(log, table["timestamp"]) if "timestamp" in table.columns else time,
        "arm": table["arm"].cast("string"),
        "r": as_number(log, reward),
        "given": reward,
    }
    if zero:
        new["r"] = ibis.ifelse(reward.isnull(), 0.0, new["r"])
    if cap is not None:
        new["r"] = ibis.ifelse(new["r"] > cap, cap, new["r"])
    if "probability" in table.columns:
        new["p"] = as_number(log, table["probability"])
    names = [name for name in table.columns if name.startswith(COVARIATE)]
    numbers = [without_nan(as_number(log, table[name])) for name in names]
    if numbers:
        known = ibis.or_(*(number.notnull() for number in numbers))
        new["z0"] = ibis.ifelse(known, 1, 0).cast("float64")  # 1.0 is a decimal to PostgreSQL
        new |= {f"z{a}": number.fill_null(0.0) for a, number in enumerate(numbers, 1)}
    return table.mutate(**new)


def as_number(log: Source, column: Any) -> Any:
    """A column of float64; null where there is no number."""
    import ibis

    kind = column.type()
    if kind.is_string():
        if log.backend == "duckdb":
            truth = column.try_cast("boolean").cast("int32").cast("float64")
            return ibis.coalesce(column.try_cast("float64"), truth)
        number = column.re_search(NUMBER)
        return ibis.ifelse(number, column.cast("float64"), ibis.null("float64"))
    if kind.is_boolean():
        return column.cast("int32").cast("float64")  # PostgreSQL has no cast to int64
    if not (kind.is_numeric() or kind.is_null()):
        raise InvalidInputError(
            f"the column {log.their(column.get_name())!r} of {log.name} has "
            f"type {kind}; expected numbers."
        )
    return column if kind.is_float64() else column.cast("float64")


def as_unit(column: Any) -> Any:
    """A column of units; null where there is none, which empty text and nan mean, too."""
    return column.nullif("") if column.type().is_string() else without_nan(column)


def without_nan(column: Any) -> Any:
    """The column with null for nan."""
    import ibis

    if not column.type().is_floating():
        return column
    return ibis.ifelse(column.isnan(), ibis.null(column.type()), column)


def as_time(log: Source, column: Any) -> Any:
    """A column of times in UTC; null where there is none."""
    import ibis

    kind = column.type()
    if kind.is_numeric():
        return _since_1970(as_number(log, column))
    if kind.is_string():
        if log.backend == "duckdb":
            formats = [log.time_format] if log.time_format else _formats()
            time = _try_strptime(column, ibis.literal(formats, type="array<string>"))
            if log.time_format:
                return time
            iso = column.try_cast("timestamp('UTC')").cast("timestamp")
            return ibis.coalesce(iso, time, _since_1970(as_number(log, column)))
        if log.time_format:
            return column.as_timestamp(log.time_format).cast("timestamp")
        time = column.cast("timestamp('UTC')").cast("timestamp")
        return ibis.ifelse(column.re_search(TIME), time, ibis.null("timestamp"))
    if kind.is_date() or (kind.is_timestamp() and kind.timezone is not None):
        return column.cast("timestamp")
    if not kind.is_timestamp():
        raise InvalidInputError(
            f"the column {log.their('timestamp')!r} of {log.name} has type {kind}; expected time "
            "stamps, text such as 2026-03-01T12:30:00Z, or seconds since 1970."
        )
    return column


def _formats() -> list[str]:
    return [day + clock for day in DATES for clock in CLOCKS]


def _try_strptime(column: Any, formats: Any) -> Any:
    import ibis

    def try_strptime(text, formats):  # type: ignore[no-untyped-def]
        """DuckDB's own function, which tries formats in their order."""

    signature = ("string", "array<string>"), "timestamp"
    return ibis.udf.scalar.builtin(try_strptime, signature=signature)(column, formats)


def _since_1970(number: Any) -> Any:
    """The time of seconds since 1970; large numbers are milli-, micro- or nanoseconds."""
    import ibis

    steps = [(number >= EPOCH * 10**k, number / 10**k) for k in (9, 6, 3)]
    seconds = ibis.cases(*steps, (number >= EPOCH, number), else_=ibis.null("float64"))
    return ibis.literal(datetime(1970, 1, 1)) + seconds.floor().cast("int64").as_interval("s")


# Splits: the shares with which variants were drawn, where the log does not say probabilities.

FORMS = (
    'expected "equal", shares such as {"A": 0.5, "B": 0.5} or "A=0.5,B=0.5", or a list of these '
    'with the time from which each holds, such as ["equal", "2026-03-08: A=0.9,B=0.1"]'
)
FROM = re.compile(  # what begins a split that holds from some time on
    r"\s*(?P<time>\d{4}-\d{2}-\d{2}(?:[ T]\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?)?"
    r"(?:Z|[-+]\d{2}:?\d{2})?)\s*:\s*(?P<shares>.*)",
    re.DOTALL,
)


@dataclass(frozen=True)
class Period:
    """Shares that held from some time in UTC on (None: from the start); None if all were equal."""

    since: datetime | None
    shares: Mapping[str, float] | None

    @property
    def start(self) -> str:
        """Since when, in words."""
        at = "" if self.since is None else self.since.isoformat(" ", "minutes")
        return at.removesuffix(" 00:00")

    def __str__(self) -> str:
        shares = "equal shares"
        if self.shares is not None:
            named = [f"{name} {share:.4g}" for name, share in self.shares.items()]
            shares = f"shares {strung(named, 8)}"
        return f"{shares} from {self.start} on" if self.start else shares


@dataclass(frozen=True)
class Split:
    """The shares with which variants were drawn, in order of time."""

    periods: tuple[Period, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the variants, as far as shares name them."""
        return next((tuple(p.shares) for p in self.periods if p.shares is not None), ())

    @property
    def note(self) -> str:
        """Describe in a sentence how variants were drawn."""
        return f"Variants were drawn with {', '.join(map(str, self.periods))}, as given."

    def allocations(self, arms: ArmSet) -> list[Floats]:
        """(K,) the allocation of each period."""
        found = []
        for period in self.periods:
            shares = period.shares or dict.fromkeys(arms.names, 1.0)
            weights = np.array([shares[name] for name in arms.names])
            found.append(weights / weights.sum())
        return found

    def to_list(self, arms: ArmSet) -> list[dict[str, Any]]:
        """Plain values: since when, and the share of every variant."""
        return [
            {
                "since": period.start or None,
                "shares": dict(zip(arms.names, w.tolist(), strict=True)),
            }
            for period, w in zip(self.periods, self.allocations(arms), strict=True)
        ]


def validate_split(given: Any) -> Split | None:
    """The split that was given in any of its forms.

    Examples
    --------
    >>> validate_split("A=1/3,B=2/3").names
    ('A', 'B')
    >>> validate_split(["equal", "2026-03-08: A=0.9,B=0.1"]).note
    'Variants were drawn with equal shares, shares A 0.9, B 0.1 from 2026-03-08 on, as given.'
    """
    if given is None:
        return None
    entries = list(given) if isinstance(given, (list, tuple)) else [given]
    if not entries:
        raise _wrong_split(f"the split is empty; {FORMS}.")
    periods = tuple(map(_period, entries))
    starts = [period.since for period in periods]
    dated = [start for start in starts[1:] if start is not None]
    if starts[0] is not None or len(dated) < len(starts) - 1 or dated != sorted(set(dated)):
        raise _wrong_split(
            "only the first split may have no time. The others need the time from which they "
            f"hold, in rising order; {FORMS}."
        )
    named = [set(period.shares) for period in periods if period.shares is not None]
    for other in named[1:]:
        if other != named[0]:
            names = strung(list(map(repr, sorted(other ^ named[0]))), 8)
            raise _wrong_split(
                f"the splits do not name the same arms: {names}. Give every arm a share above 0 "
                "in each, or leave out other times with a query."
            )
    return Split(periods)


def _wrong_split(text: str) -> InvalidInputError:
    return InvalidInputError(text, field="split")


def _period(entry: Any) -> Period:
    since: Any = None
    if isinstance(entry, (list, tuple)) and len(entry) == 2:
        since, entry = entry
    elif isinstance(entry, str) and (match := FROM.fullmatch(entry)):
        since, entry = match["time"], match["shares"]
    if isinstance(since, str):
        try:
            since = datetime.fromisoformat(since)
        except ValueError:
            raise _wrong_split(
                f"the split holds from {since!r} on; expected a time such as 2026-03-08."
            ) from None
    elif isinstance(since, date) and not isinstance(since, datetime):
        since = datetime(since.year, since.month, since.day)
    if isinstance(since, datetime) and since.tzinfo is not None:
        since = since.astimezone(UTC).replace(tzinfo=None)
    return Period(since, _shares(entry))


def _shares(given: Any) -> Mapping[str, float] | None:
    """The shares that were given as a mapping or as text; None for equal ones."""
    if isinstance(given, str):
        if given.strip().lower() == "equal":
            return None
        parts = [part.rpartition("=") for part in given.split(",")]
        if not all(equals and name.strip() for name, equals, _ in parts):
            raise _wrong_split(f"the split is {shortened(given)}; {FORMS}.")
        if len({name.strip() for name, *_ in parts}) < len(parts):
            raise _wrong_split(f"the split {shortened(given)} names an arm twice.")
        given = {name.strip(): share.strip() for name, _, share in parts}
    if not isinstance(given, Mapping) or len(given) < 2:
        raise _wrong_split(f"the split is {shortened(given)}; {FORMS}. Name every arm of the log.")
    shares = {_arm_name(name): _share(name, value) for name, value in given.items()}
    total = math.fsum(shares.values())
    if abs(total - 1) > 1e-6:
        advice = "write 0.5 for 50 %" if abs(total - 100) < 1 else "write 1/3 for a third"
        raise _wrong_split(
            f"the shares {shortened(given)} add up to {total:.6g}; expected 1 ({advice}). Name "
            "every arm, also arms that you do not compare."
        )
    return shares


def _arm_name(given: Any) -> str:
    """The name of an arm as databases write it."""
    return str(given).lower() if isinstance(given, (bool, np.bool_)) else str(given)


def _share(name: Any, value: Any) -> float:
    try:
        share = float(Fraction(value) if isinstance(value, str) else value)
    except (TypeError, ValueError, ZeroDivisionError):
        share = math.nan
    if not 0 < share < math.inf:
        raise _wrong_split(
            f"the share of {str(name)!r} is {value!r}; expected a number above 0, such as 0.5 or "
            "1/3."
        )
    return share


def with_split(log: Source, split: Split | None) -> Source:
    """The log with the number of the split's period in a column `split`, if there is one."""
    import ibis

    if split is None:
        if log.has("probability"):
            return log
        near = nearest_column("probability", "probability", log.there) or "NAME"
        raise _wrong_split(
            f"{log.name} has no column 'probability'; its columns are "
            f"{strung(list(map(repr, log.there)), 40)}. Map it (--column probability={near}, in "
            f'Python Columns(probability="{near}")), or give the fixed shares of the arms: '
            '--split equal, in Python split="equal".'
        )
    if log.has("probability"):
        raise _wrong_split(
            f"a split is given, but {log.name} has the column {log.their('probability')!r} with "
            "probabilities of its own; leave the split out, or leave the column out: "
            "--column probability= (in Python Columns(probability=None))."
        )
    later = list(enumerate(split.periods))[:0:-1]
    if later and not log.has("timestamp"):
        raise _wrong_split(f"the shares changed, but {log.name} has no times.")
    place = ibis.literal(0)
    if later:
        time = as_time(log, log.table["timestamp"])
        cases = [(time >= ibis.literal(period.since), number) for number, period in later]
        place = ibis.cases(*cases, else_=0)
    return replace(log, table=log.table.mutate(split=place))


def own_probability(table: Any, split: Split, arms: ArmSet) -> Any:
    """A column with the probability of each row's own arm."""
    import ibis

    cases = [
        ((table.split == place) & (table.arm == name), share)
        for place, shares in enumerate(split.allocations(arms))
        for name, share in zip(arms.names, shares.tolist(), strict=True)
    ]
    return ibis.cases(*cases, else_=ibis.null("float64"))


def check_arms(log: Source, split: Split, counts: Mapping[str, int]) -> None:
    """Refuse a log with arms that the split does not name; `counts` are rows by arm."""
    names = split.names
    others = {name: count for name, count in counts.items() if name not in names}
    if not names or not others:
        return
    most = max(others, key=lambda name: others[name])
    each = [f"{name!r} ({counted(count, 'row')})" for name, count in sorted(others.items())]
    raise _wrong_split(
        f"{log.name} has {strung(each, 8)}, which the split does not name. It names "
        f"{strung(list(map(repr, names)), 8)}{did_you_mean(most, names)}"
    )


# Sums by period and arm.


def row_sums(table: Any, keys: dict[str, Any]) -> Any:
    """Sums over the rows of each period and arm.

    Parameters
    ----------
    table : as `readable` makes it, with a probability p
    keys : what rows are grouped by

    Returns
    -------
    Rows n, rewards given and readable ones m, sums s, ss and sss of r, r² and r³, the lowest and
    the highest reward, and the time of the first row; the sums i0 and i02 of 1/p and 1/p²; over
    rows with a reward i1, i2 and i3 of the powers of 1/p, w, w2 and w3 of r times these, ww and ww3
    of r²/p² and r²/p³, and www of r³/p³; the least p, and rows whose p is not usable.
    """
    r, p = table.r, usable(table)
    i = 1 / p
    there = r.notnull()
    return table.group_by(**keys).aggregate(
        n=table.count(),
        given=table.given.count(),
        m=r.count(),
        s=r.sum(),
        ss=(r * r).sum(),
        sss=(r * r * r).sum(),
        lowest=r.min(),
        highest=r.max(),
        first=table.time.min(),
        i0=i.sum(),
        i02=(i * i).sum(),
        i1=i.sum(where=there),
        i2=(i * i).sum(where=there),
        i3=(i * i * i).sum(where=there),
        w=(r * i).sum(),
        w2=(r * i * i).sum(),
        w3=(r * i * i * i).sum(),
        ww=(r * r * i * i).sum(),
        ww3=(r * r * i * i * i).sum(),
        www=(r * r * r * i * i * i).sum(),
        least=p.min(),
        unusable=table.count() - p.count(),
    )


def usable(table: Any) -> Any:
    """The probability p, null where it is none, so that no database divides by zero."""
    import ibis

    p = table.p
    good = (p > 0) & (p <= 1)
    if table.get_backend().name == "duckdb":  # which may conclude the above from a file's
        good = good & ~p.isnan()  # statistics, and these leave nan out
    return ibis.ifelse(good, p, ibis.null("float64"))


# Faults that stop an analysis, with the rows that have them. Nothing is repaired or guessed; all
# are named at once.

SHOWN = 5  # rows that a message names


@dataclass(frozen=True)
class Fault:
    """One kind of fault.

    Attributes
    ----------
    says : what is wrong, with {value} for what stands there
    advice : what to do
    column : whose value is shown
    where : the rows that have it, as a function of the table
    """

    says: str
    advice: str
    column: str
    where: Callable[[Any], Any]


Faults = list[tuple[Fault, int]]  # with the number of rows

NO_ARM = Fault(
    "the arm is {value}", "every row needs one", "arm", lambda t: t.arm.isnull() | (t.arm == "")
)
NO_PROBABILITY = Fault(
    "the probability is {value}",
    "expected a number above 0 and at most 1: the probability of the row's arm",
    "probability",
    lambda t: usable(t).isnull(),
)
NO_NUMBER = Fault(
    "the reward is {value}",
    "expected a number, or nothing if it is missing",
    "reward",
    lambda t: t.given.notnull() & t.r.isnull(),
)
INFINITE = Fault(  # nan counts as larger than any number
    "the reward is {value}",
    "expected a finite number below 1e150 in size",
    "reward",
    lambda t: t.r.abs() > 1e150,
)
MISSING = Fault(
    "the reward is missing",
    'use missing="drop" to leave these rows out, or missing="zero" to count them as 0',
    "reward",
    lambda t: t.given.isnull(),
)


NO_UNIT = Fault(
    "the unit is {value}",
    "every exposure needs one",
    "unit",
    lambda t: t.unit.isnull() | (t.unit.cast("string") == ""),
)


def no_time(log: Source) -> Fault:
    """The fault of a row without a time stamp."""
    expected = "a time such as 2026-03-01T12:30:00Z, or seconds since 1970, in every row"
    if log.time_format:
        expected = f"a time like {log.time_format!r} in every row"
    return Fault(
        "the time stamp is {value}",
        f"expected {expected}; give the format, such as --time-format '%d/%m/%Y %H:%M', or leave "
        "the column out: --column timestamp=",
        "timestamp",
        lambda t: t.time.isnull(),
    )


def without_cluster(log: Source, table: Any, names: Mapping[str, str]) -> Faults:
    """Rows that say of no cluster which they are of."""
    faults: Faults = []
    for ours, theirs in names.items():
        if ours not in table.columns:
            continue
        where = partial(_is_empty, ours)
        [found] = log.fetch(table.aggregate(n=where(table).sum()))
        if found["n"]:
            advice = "every row needs a cluster; give rows without one a name of their own"
            fault = Fault(f"the cluster {theirs!r} is {{value}}", advice, ours, where)
            faults.append((fault, int(found["n"])))
    return faults


def _is_empty(name: str, table: Any) -> Any:
    column = table[name]
    return column.isnull() | (column == "") if column.type().is_string() else column.isnull()


def faults_in(rows: Rows, missing: str) -> Faults:
    """Find faults in the sums of a log."""

    def count(name: str, among: Rows = rows) -> int:
        return sum(int(row.get(name) or 0) for row in among)

    faults: Faults = []
    if nameless := count("n", [row for row in rows if not row["arm"]]):
        faults.append((NO_ARM, nameless))
    if unusable := count("unusable"):
        faults.append((NO_PROBABILITY, unusable))
    n, m, given = count("n"), count("m"), count("given")
    if broken := n - m if missing == "zero" else given - m:
        faults.append((NO_NUMBER, broken))
    if any(not np.isfinite([row["s"] or 0.0, row["ss"] or 0.0]).all() for row in rows):
        faults.append((INFINITE, 1))
    if missing == "fail" and n > given:
        faults.append((MISSING, n - given))
    return faults


def refuse(log: Source, faults: Faults, table: Any = None) -> None:
    """Raise one error that names all faults, each with its number of rows and the first of them.

    table : with the columns that faults are about; by default the readable log
    """
    lines = []
    for fault, count in faults:
        rows = _rows_with(log, fault, table)
        groups: dict[str, list[str]] = {}
        for place, value in rows:
            groups.setdefault("missing" if value is None else repr(value), []).append(place)
        for value, places in groups.items():
            lines.append(f"{', '.join(places)}: {fault.says.replace('{value}', value)}")
        if not rows:
            lines.append(f"{fault.says.replace('{value}', 'not usable')} somewhere")
        rest = f" {count:,} rows in all." if count > len(rows) else ""
        lines[-1] += f"; {fault.advice}.{rest}"
    if lines:
        order = "counted from 1" if log.ordered else "in order of time and unit"
        raise InvalidInputError(
            f"{log.name} cannot be analysed (rows are {order}).\n  " + "\n  ".join(lines)
        )


def _rows_with(log: Source, fault: Fault, table: Any) -> list[tuple[str, Any]]:
    """Find the first rows with a fault, and their values."""
    table = number_rows(log, readable(log, log.table) if table is None else table)
    shown: dict[str, Any] = {"row": table.row}
    if fault.column in table.columns:
        shown["value"] = table[fault.column]
    if "unit" in table.columns and not log.ordered:
        shown["unit"] = table.unit.cast("string")
    rows = table.filter(fault.where(table)).select(**shown)
    found = []
    for row in log.fetch(rows.order_by("row").limit(SHOWN)):
        unit = "" if row.get("unit") is None else f" (unit {row['unit']})"
        found.append((f"row {row['row']}{unit}", row.get("value")))
    return found


def number_rows(log: Source, table: Any) -> Any:
    """The table with numbers of rows from 1: in their own order, or by time and unit."""
    import ibis

    if log.ordered:
        return table.mutate(row=ibis.row_number() + 1)
    order = [table[key] for key in ("timestamp", "unit") if key in table.columns]
    return table.mutate(row=ibis.row_number().over(order_by=order) + 1)
