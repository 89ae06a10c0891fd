"""Exposures joined with events: a log with one row for every unit, for each metric.

A unit is in the log with its first exposure, and its reward is what its events brought within the
metric's window after that. All of it is one expression that runs where the tables are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from steadyarm.analysis import faults, row_groups
from steadyarm.analysis.clusters import CONTAMINATED
from steadyarm.analysis.event_metrics import EventMetric, Measure
from steadyarm.analysis.log import Log, Part, rows_by_time
from steadyarm.analysis.sums import as_number, as_time, as_unit
from steadyarm.analysis.two_tables import Tables
from steadyarm.errors import InvalidInputError
from steadyarm.inference.health import Finding
from steadyarm.live.metrics import duration_text
from steadyarm.wording import counted, did_you_mean, percent, strung

Contaminated = Literal["first", "drop"]

KEEPING = ("duckdb", "postgres", "sqlite")  # where a temporary table costs nobody anything
MOST_NAMES = 200  # of events that are looked at to say which one may be meant
LARGEST = 1e150  # values whose squares can be added up
FILE = '"FILE"'  # in the query that a message suggests
NO_UNIT = faults.Fault(
    "the unit is {value}", "every exposure needs one", "unit", lambda t: t.unit.isnull()
)


@dataclass(frozen=True)
class Exposed:
    """What the tables hold, as far as metrics do not matter.

    Attributes
    ----------
    rows, units : exposures that the filter kept, and different units among them
    several : units that were exposed to several variants
    tied : units whose first exposures, at one time, show several; they are left out
    contaminated : "first" if a unit counts for the variant that it saw first, "drop" if units with
        several variants are left out
    removed : exposures that the filter left out; None without one
    nobody : events without a unit
    end : the latest time in either table
    events, used : rows of events, and how many of them count for a metric, as they are of an
        exposed unit and within the longest window after its first exposure
    """

    rows: int
    units: int
    several: int
    tied: int
    contaminated: Contaminated
    removed: int | None
    nobody: int
    end: Any
    events: int
    used: int = 0

    @property
    def notes(self) -> list[str]:
        """What was left out, one sentence each."""
        said = []
        if self.removed is not None:
            out = counted(self.removed, "exposure")
            said.append(f"The condition left out {out} of {self.rows + self.removed:,}.")
        if self.rows > self.units:
            said.append(
                f"{self.units:,} units have {self.rows:,} exposures; the first of each counts."
            )
        if self.nobody:
            said.append(f"{counted(self.nobody, 'event has', 'events have')} no unit.")
        said.append(
            f"{self.used:,} of {counted(self.events, 'event')} ({percent(self.used / self.events)})"
            " count: they are of a metric, of an exposed unit, and not before its first exposure."
        )
        return said

    @property
    def finding(self) -> Finding:
        """Whether units saw several variants, and what was done with these."""
        name, total = "variants per unit", f"{self.units:,} units"
        if not self.several:
            return Finding(name, "ok", None, f"Each of {total} was exposed to one variant.")
        were = f"{self.several:,} of {total} were exposed to several variants"
        if self.contaminated == "drop":
            text = f"{were} and left out."
        else:
            text = f"{were}; each counts for the variant that it saw first"
            if self.tied:
                tied = counted(self.tied, "unit that saw", "units that saw")
                text += f", but {tied} two at the same time {_was(self.tied)} left out"
            text += "."
        if self.several <= CONTAMINATED * self.units:
            return Finding(name, "ok", None, text)
        if self.contaminated == "drop":
            advice = (
                "Who is left out may depend on the variant, which biases estimates: compare with "
                'contaminated="first" (--contaminated first), and find out why (lost cookies, '
                "several devices, a changed split)."
            )
        else:
            advice = (
                "Find out why (lost cookies, several devices, a changed split). Counted by the "
                "first variant, estimates stay unbiased for what it is to be assigned one, but "
                "differences are diluted."
            )
        return Finding(name, "warn", None, text, advice)


def _was(count: int) -> str:
    return "was" if count == 1 else "were"


def join_tables(
    tables: Tables, metrics: Sequence[EventMetric], contaminated: Contaminated = "first"
) -> Joined:
    """Units by their first exposure, with all that the metrics need."""
    measures = list(dict.fromkeys(part for metric in metrics for part in metric.parts))
    first, events, exposed = _read(tables, measures, contaminated)
    table = _measured(tables.exposures, first, events, measures)
    table = _kept(tables.exposures, "units and metrics", table)
    sums = {f"sum {i}": table[f"measure {i}"].sum() for i in range(len(measures))}
    [found] = tables.exposures.fetch(table.aggregate(used=table.used.sum(), **sums))
    empty = {}
    for i, one in enumerate(measures):
        total = float(found[f"sum {i}"] or 0.0)
        if not abs(total) < LARGEST:  # nan, too
            _refuse_values(tables.events, measures, 1)
        if not total:
            empty[one] = _why_nothing(tables, first, events, one)
    exposed = replace(exposed, used=int(found["used"] or 0))
    return Joined(tables, table.drop("used"), measures, exposed, empty)


def _why_nothing(tables: Tables, first: Any, events: Any, measure: Measure) -> str:
    """Why a measure is 0 for every unit; an event that is nowhere is an error."""
    left, right = _alike(first.unit, events.unit)
    log, starts = tables.exposures, first.select(key=left, start=first.time)
    named = events.mutate(key=right)
    if measure.event is not None:
        named = named.filter(named.event == measure.event)
    [seen] = log.fetch(named.aggregate(n=named.count(), unit=named.key.cast("string").max()))
    if not seen["n"] and measure.event is not None:
        raise _no_event(tables.events, measure.event)
    what = "event" if measure.event is None else f"event {measure.event}"
    both = named.join(starts, "key")
    [known] = log.fetch(both.aggregate(n=both.count(), later=(both.time >= both.start).sum()))
    if not known["n"]:
        [ours] = log.fetch(starts.aggregate(unit=starts.key.cast("string").max()))
        return (
            f"not one {what} of {tables.events.name} is of a unit of {log.name}. Units are "
            f"{seen['unit']!r} and the like there, and {ours['unit']!r} and the like here; they "
            "must be written alike in both tables."
        )
    if not known["later"]:
        return (
            f"every {what} of an exposed unit is before its first exposure. Is the time stamp of "
            "either table in another zone, or of another month?"
        )
    return (
        f"{measure.text} is 0 for every unit, though {known['later']:,} of {known['n']:,} events "
        "are not before the first exposure: they are after the window, or their values are 0."
    )


# What the tables hold.


def _read(
    tables: Tables, measures: Sequence[Measure], contaminated: Contaminated
) -> tuple[Any, Any, Exposed]:
    """First exposures, events with readable columns, and what both hold."""
    log = tables.exposures
    left, found = _checked_exposures(log)
    right, totals = _checked_events(tables.events, measures)
    if left.time.type().is_numeric() != right.time.type().is_numeric():
        raise InvalidInputError(
            f"times of {log.name} are {left.time.type()}, those of {tables.events.name} are "
            f"{right.time.type()}; both must be times, or both numbers."
        )
    if left.time.type().is_numeric() and any(one.window is not None for one in measures):
        raise InvalidInputError(
            "a window is given, but time stamps are plain numbers, whose unit is not known; "
            f"{faults.into_times(log, 'exposures', FILE)}.",
            field="window",
        )
    rows, units, several, tied = found["rows"], found["units"], 0, 0
    first = left
    if rows > units:
        each = _kept(log, "first exposures", _first_exposures(left))
        changed, unclear = each.low != each.high, each.arm != each.other
        [seen] = log.fetch(each.aggregate(several=changed.sum(), tied=unclear.sum()))
        several, tied = int(seen["several"] or 0), int(seen["tied"] or 0)
        first = each.filter(~changed if contaminated == "drop" else ~unclear)
        first = first.drop("low", "high", "other")
    times = [time for time in (found["last"], totals["last"]) if time is not None]
    exposed = Exposed(
        rows,
        units,
        several,
        tied,
        contaminated,
        tables.removed,
        totals["nobody"],
        max(times),
        totals["rows"],
    )
    return first, right, exposed


def _checked_exposures(log: Log) -> tuple[Any, dict[str, Any]]:
    """Exposures with the columns time, arm and unit, how many rows and units, and the last time.

    What is missing in a row is an error.
    """
    table = log.table
    new = {
        "time": as_time(log, table.timestamp),
        "arm": table.arm.cast("string").nullif(""),
        "unit": as_unit(log, table.unit),
    }
    out = [name for name in ("timestamp", "file_row_number") if name in table.columns]
    found = table.mutate(**new).drop(*out)
    [counts] = log.fetch(
        found.aggregate(
            rows=found.count(),
            time=found.time.count(),
            arm=found.arm.count(),
            unit=found.unit.count(),
            units=found.unit.nunique(),
            last=found.time.max(),
        )
    )
    if not counts["rows"]:
        raise InvalidInputError(f"{log.name} has no rows; expected one for each exposure.")
    kinds = {"time": faults.no_time(log, "exposures", FILE), "arm": faults.NO_ARM, "unit": NO_UNIT}
    broken = [(kinds[n], counts["rows"] - counts[n]) for n in kinds if counts[n] < counts["rows"]]
    faults.refuse(_locatable(log), broken)
    return found, counts


def _checked_events(log: Log, measures: Sequence[Measure]) -> tuple[Any, dict[str, Any]]:
    """Events that metrics are made of, with unit, time, event and value; the last time of any."""
    table = log.table
    names = sorted({one.event for one in measures if one.event is not None})
    if names and not log.has("event"):
        raise InvalidInputError(
            f"{log.name} has no column with names of events; its columns are "
            f"{strung([name for name in table.columns if name != 'file_row_number'], 40)}. Map it "
            "with --column event=NAME, or measure all rows, such as buyers = conversion().",
            field="metrics",
        )
    valued = [one for one in measures if one.kind in ("sum", "max")]
    if valued and not log.has("value"):
        raise InvalidInputError(
            f"{valued[0].text} needs the value of each event, and {log.name} has no column for it; "
            "map it with --column value=NAME.",
            field="metrics",
        )
    new: dict[str, Any] = {"unit": as_unit(log, table.unit), "time": as_time(log, table.timestamp)}
    if names:
        new["event"] = table.event.cast("string")
    if valued:
        new["value"] = as_number(log, table.value)
    if valued and (
        table.value.type().is_string()  # in which anything may stand
        or log.backend == "sqlite"
        or any(one.cap is not None for one in valued)  # which would hide what is too large
    ):
        new["bad"] = _bad_value(log, table, measures)
    found = table.select(**new)
    seen = None if "bad" in new else row_groups.totals(log)
    if seen is None:
        totals = {"rows": found.count(), "timed": found.time.count(), "last": found.time.max()}
        totals["nobody"] = found.unit.isnull().sum()
        if "bad" in new:
            totals["bad"] = found.bad.sum()
        [seen] = log.fetch(found.aggregate(**totals))
    if not seen["rows"]:
        raise InvalidInputError(f"{log.name} has no rows; expected one for each event.")
    if untimed := seen["rows"] - seen["timed"]:
        faults.refuse(_locatable(log), [(faults.no_time(log, "events", FILE), untimed)])
    if seen.get("bad"):
        _refuse_values(log, measures, int(seen["bad"]))
    found = found.drop("bad") if "bad" in new else found
    if _all_named(measures):
        found = found.filter(found.event.isin(names))
    seen["nobody"] = int(seen["nobody"] or 0)
    return found, seen


def _all_named(measures: Sequence[Measure]) -> bool:
    return all(one.event is not None for one in measures)


def _bad_value(log: Log, table: Any, measures: Sequence[Measure]) -> Any:
    """Whether what stands for a value that counts is no number, or one that cannot be added up."""
    number = as_number(log, table.value)
    large = number.abs() > LARGEST
    if log.backend != "sqlite":  # which has no nan
        large = large | number.isnan()
    bad = (table.value.notnull() & number.isnull()) | large.fill_null(False)
    if not _all_named(measures):
        return bad
    return bad & table.event.cast("string").isin([one.event for one in measures])


def _refuse_values(log: Log, measures: Sequence[Measure], count: int) -> None:
    """Raise the error that names the rows whose values cannot be added up."""
    fault = faults.Fault(
        "the value is {value}",
        "expected a finite number below 1e150 in size, or nothing",
        "value",
        lambda table: _bad_value(log, table, measures),
    )
    faults.refuse(_locatable(log), [(fault, count)])


def _no_event(log: Log, name: str) -> InvalidInputError:
    each = log.table.group_by(name=log.table.event.cast("string")).aggregate(n=log.table.count())
    rows = log.fetch(each.order_by([each.n.desc(), each.name]).limit(MOST_NAMES))
    there = [row["name"] for row in rows if row["name"]]
    events = f"its events are {strung(there, 12)}" if there else "none of its events has a name."
    return InvalidInputError(
        f"{log.name} has no event {name!r}; {events}{did_you_mean(name, there)}",
        field="metrics",
    )


def _locatable(log: Log) -> Log:
    """The log with empty columns for what it lacks, so that `faults.refuse` finds rows in it."""
    import ibis

    lacking = {
        name: ibis.null(kind)
        for name, kind in (("reward", "float64"), ("arm", "string"))
        if not log.has(name)
    }
    parts = [
        replace(part, table=part.table.mutate(unit=as_unit(log, part.table.unit), **lacking))
        for part in log.parts
    ]
    return replace(log, parts=tuple(parts))


# The one expression.


def _first_exposures(table: Any) -> Any:
    """One row for each unit, from its first exposure; low and high are its variants of all time.

    The columns arm and other differ where the first exposures show several variants.
    """
    each = table.group_by("unit").aggregate(
        time=table.time.min(), low=table.arm.min(), high=table.arm.max()
    )
    firsts = table.join(each, ["unit", "time"])
    rest = [name for name in table.columns if name not in ("unit", "time", "arm")]
    more = {name: _one_of(firsts[name]) for name in rest}
    return firsts.group_by("unit").aggregate(
        time=firsts.time.min(),
        arm=firsts.arm.min(),
        other=firsts.arm.max(),
        low=firsts.low.min(),
        high=firsts.high.max(),
        **more,
    )


def _one_of(column: Any) -> Any:
    kind = column.type()
    ordered = kind.is_numeric() or kind.is_string() or kind.is_temporal()
    return column.min() if ordered and not kind.is_boolean() else column.arbitrary()


def _measured(log: Log, first: Any, events: Any, measures: Sequence[Measure]) -> Any:
    """First exposures with a column for every measure."""
    left, right = _alike(first.unit, events.unit)
    starts = {"key": left, "start": _instant(log, first.time)}
    windows = sorted({one.window for one in measures if one.window is not None})
    longest = None if any(one.window is None for one in measures) else windows[-1]
    numbers = starts["start"].type().is_numeric()
    if not numbers:
        starts |= {f"until {w}": _later(log, first.time, w) for w in windows}
    happened = events.mutate(key=right, time=_instant(log, events.time)).drop("unit")
    both = happened.join(first.select(**starts), "key")

    def within(window: float) -> Any:
        if numbers:  # in microseconds
            return both.time - both.start <= round(window * 1e6)
        return both.time <= both[f"until {window}"]

    # A difference and not a comparison: DuckDB is much quicker if the join is by equal units alone.
    later = both.time - both.start >= 0 if numbers else both.time >= both.start
    both = both.filter(later if longest is None else later & within(longest))
    sums = {"used": both.count()}
    several = len({one.event for one in measures}) > 1  # else there are no other events
    for i, one in enumerate(measures):
        good = both.event == one.event if several and one.event is not None else None
        if one.window is not None and one.window != longest:
            soon = within(one.window)
            good = soon if good is None else good & soon
        sums[f"measure {i}"] = _sum(both, one, good)
    each = both.group_by("key").aggregate(**sums).rename(found="key")
    whole = first.mutate(key=left)
    whole = whole.left_join(each, whole.key == each.found).drop("key", "found")
    new = {f"measure {i}": _final(whole[f"measure {i}"], one) for i, one in enumerate(measures)}
    return whole.mutate(**new).rename(timestamp="time")


def _instant(log: Log, time: Any) -> Any:
    """A time as a number of microseconds, where that is quick; else as it is."""
    import ibis

    if log.backend != "duckdb" or time.type().is_numeric():
        return time

    def epoch_us(time):  # type: ignore[no-untyped-def]
        """DuckDB's own function."""

    return ibis.udf.scalar.builtin(epoch_us, signature=(("timestamp",), "int64"))(time)


def _sum(table: Any, measure: Measure, good: Any) -> Any:
    if measure.kind == "sum":
        return table.value.sum(where=good)
    return table.value.max(where=good) if measure.kind == "max" else table.count(where=good)


def _final(column: Any, measure: Measure) -> Any:
    """What a unit counts as; without an event 0."""
    import ibis

    value = column.cast("float64").fill_null(0.0)
    if measure.kind == "conversion":
        value = ibis.ifelse(value > 0, 1, 0).cast("float64")
    return value if measure.cap is None else ibis.ifelse(value > measure.cap, measure.cap, value)


def _alike(left: Any, right: Any) -> tuple[Any, Any]:
    """Two columns of units, so that equal ones are equal."""
    kinds = left.type(), right.type()
    if kinds[0] == kinds[1] or all(kind.is_numeric() for kind in kinds):
        return left, right

    def text(column: Any) -> Any:
        kind = column.type()
        whole = column.cast("int64") if kind.is_floating() or kind.is_decimal() else column
        return whole if kind.is_string() else whole.cast("string")

    return text(left), text(right)


def _later(log: Log, time: Any, seconds: float) -> Any:
    """The time so many seconds later."""
    import ibis

    if log.backend == "sqlite":  # Ibis adds intervals there only in newer versions of it
        return _strftime()("%Y-%m-%d %H:%M:%f", time, f"+{seconds:.3f} seconds")
    return time + ibis.interval(microseconds=round(seconds * 1e6))


def _strftime() -> Any:
    """SQLite's own function, which writes a time that it changes before."""
    import ibis

    kinds = ("string", "timestamp", "string"), "timestamp"

    def strftime(form, time, change):  # type: ignore[no-untyped-def]
        """The signature says what it takes."""

    return ibis.udf.scalar.builtin(strftime, signature=kinds)


def _kept(log: Log, name: str, expression: Any) -> Any:
    """The expression as a temporary table, where we may make one: several queries read it.

    In a connection of somebody else Ibis keeps it for as long as we need it.
    """
    if log.backend not in KEEPING:
        return expression
    try:
        return log.kept(name, expression) if log.ours else log.cached(expression)
    except InvalidInputError:
        if log.backend == "duckdb":  # a fault of the data; others may not let us make tables
            raise
        return expression


@dataclass(frozen=True, eq=False)
class Joined:
    """Units with what was measured of them.

    table : unit, timestamp, arm, further columns of exposures, and a column for each of `measures`
    empty : measures that are 0 for every unit, and why
    """

    tables: Tables
    table: Any
    measures: list[Measure]
    exposed: Exposed
    empty: dict[Measure, str]

    def mature(self, metric: EventMetric) -> tuple[Any, int]:
        """The units whose window is over at the end of the data, and how many others there are."""
        log, table, window = self.tables.exposures, self.table, metric.window
        if window is None:
            return table, 0
        latest = self.exposed.end - timedelta(seconds=window)
        over = _no_later(log, table.timestamp, latest)
        [found] = log.fetch(
            table.aggregate(units=table.count(), over=over.sum(), first=table.timestamp.min())
        )
        if not found["over"]:
            raise InvalidInputError(
                f"the window of {duration_text(window)} of {metric.name} is over for no unit: the "
                f"first exposure is of {found['first']} and the data end at {self.exposed.end}. "
                "Take a shorter window, or wait.",
                field="window",
            )
        return table.filter(over), int(found["units"]) - int(found["over"])

    def value(self, table: Any, measure: Measure) -> Any:
        """The column of a measure."""
        return table[f"measure {self.measures.index(measure)}"]

    def log(self, table: Any) -> Log:
        """A log of that table, which has a row for every unit."""
        left, right = self.tables.exposures, self.tables.events
        return Log(
            f"{left.name} with {right.name}",
            table,
            left.columns,
            (Part("", table, rows_by_time),),
            False,
            "in order of time and unit",
            left.secret,
            left.ours,
            left.there,
            single=True,
        )


def _no_later(log: Log, time: Any, latest: datetime) -> Any:
    if log.backend == "sqlite":  # times are text there
        return time.cast("string") <= latest.isoformat(" ", "milliseconds")
    return time <= latest
