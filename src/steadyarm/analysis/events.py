"""Metrics of a log: columns of one table, or sums of the events after an exposure.

Metrics are those of live tests; people write them in a line:

    converted                                  a column, or an event: did it happen?
    revenue = sum(purchase) within 14 days
    basket = revenue / count(purchase)
    refunds = count(refund), minimize

Of two tables, exposures and events, a unit is in the log with its first exposure, and its reward is
the sum of its events within the metric's window after that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from steadyarm.analysis.query import (
    NO_ARM,
    NO_UNIT,
    Fault,
    Floats,
    as_number,
    as_time,
    as_unit,
    no_time,
    refuse,
)
from steadyarm.analysis.source import MEASURE, Columns, Source, open_log, open_tables
from steadyarm.analysis.units import CONTAMINATED
from steadyarm.arms import ArmSet
from steadyarm.errors import InvalidInputError, RewardsPendingError
from steadyarm.inference.health import Finding
from steadyarm.live.measured import ratio_widening
from steadyarm.live.metrics import DURATION, Metric, check_name, duration_text, seconds_of
from steadyarm.segments import Direction
from steadyarm.validation import finite_number
from steadyarm.wording import counted, did_you_mean, percent, shortened, strung

if TYPE_CHECKING:
    from steadyarm.analysis.analyze import Question

Kind = Literal["column", "conversion", "count", "sum", "max"]

FORMS = (
    'expected a column, the name of an event such as "purchase", or NAME = conversion(EVENT), '
    "count(EVENT), sum(EVENT), max(EVENT) or a ratio of two, such as basket = revenue / "
    'count(purchase); optionally followed by "within 14 days", "capped at 500" or "minimize"'
)
CALL = re.compile(r"(conversion|count|sum|max)\s*\(([^()]*)\)", re.IGNORECASE)
WITHIN = rf"within\s+(?P<window>{DURATION.pattern})"
CAPPED = r"capped\s+at\s+(?P<cap>\S+)"
ENDING = re.compile(
    rf"(?:^|[\s,]\s*)(?:{WITHIN}|{CAPPED}|(?P<direction>minimize|maximize))\s*$", re.IGNORECASE
)
LARGEST = 1e150  # values whose squares can be added up


@dataclass(frozen=True, eq=False)
class Events:
    """A table of events: its columns, and the metrics that are computed from it.

    Parameters
    ----------
    table : files, a DataFrame, an Ibis table, or a table or query of the database that is the
        source; with the columns unit, timestamp, event and value
    metrics : names of events (did it happen?), texts such as "revenue = sum(purchase)", "orders =
        count(purchase) within 7 days", "basket = revenue / orders" and "refunds = count(refund),
        minimize", or `Metric` objects, whose events are called like them. The first is what the
        verdict is about
    window : within which time after a unit's first exposure events count, for metrics without a
        window of their own; by default all later events count
    columns : what the columns of the table are called

    Examples
    --------
    >>> Events("events.csv", ["purchase", "revenue = sum(purchase)"], window="7 days").window
    '7 days'
    """

    table: Any
    metrics: Sequence[str | Metric] | Mapping[str, str]
    window: float | str | timedelta | None = None
    columns: Columns = field(default_factory=Columns)


@dataclass(frozen=True)
class Measure:
    """One number of every unit: a metric, and the column or event that it is made of."""

    metric: Metric
    kind: Kind
    of: str | None  # None for all events

    @property
    def window(self) -> float | None:
        """Seconds after the first exposure within which events count; None for all later ones."""
        return self.metric.times[0]

    @property
    def text(self) -> str:
        """The metric as people write it."""
        within = "" if self.window is None else f" within {duration_text(self.window)}"
        cap = "" if self.metric.cap is None else f" capped at {self.metric.cap:g}"
        what = self.of if self.kind == "column" else f"{self.kind}({self.of or ''})"
        return f"{what}{within}{cap}"


@dataclass(frozen=True)
class Measured:
    """The metrics that were asked for, and the measures that they are made of, by name."""

    metrics: tuple[Metric, ...]
    measures: Mapping[str, Measure]

    def parts(self, metric: Metric) -> tuple[Measure, ...]:
        """The measures of a metric: two of a ratio."""
        return tuple(self.measures[name] for name in metric.ratio or (metric.name,))

    def text(self, metric: Metric) -> str:
        """The metric as people write it."""
        return " / ".join(part.text for part in self.parts(metric))

    def without_cap(self, metric: Metric) -> str:
        """What declares the metric, which is no ratio, if it has no cap."""
        measure = self.measures[metric.name]
        text = replace(measure, metric=replace(measure.metric, cap=None)).text
        return text if text == metric.name else f"{metric.name} = {text}"

    def window(self, metric: Metric) -> float | None:
        """Seconds after the first exposure until the metric is final; None if it never is."""
        windows = [part.window for part in self.parts(metric)]
        return None if None in windows else max(w for w in windows if w is not None)

    def column(self, measure: Measure) -> str:
        """Our name of the column with a measure."""
        return f"{MEASURE}{list(self.measures.values()).index(measure)}"


def parse_metrics(
    given: Any, window: Any = None, direction: Direction = "maximize", events: bool = True
) -> Measured:
    """The metrics that were given as texts, as a mapping of names to texts, or as they are.

    window, direction : of metrics that have none of their own
    events : whether they are of events; else of columns

    Examples
    --------
    >>> found = parse_metrics(["purchase", "basket = sum(purchase) / purchase"], "7 days")
    >>> [found.text(metric) for metric in found.metrics]
    ['conversion(purchase) within 7d', 'sum(purchase) within 7d / conversion(purchase) within 7d']
    >>> parse_metrics(["refunds, minimize"], events=False).metrics[0].direction
    'minimize'
    """
    usual = None if window is None else seconds_of(window, "window")
    if isinstance(given, Mapping):
        given = [f"{name} = {text}" for name, text in given.items()]
    elif isinstance(given, (str, Metric)):
        given = [given]
    entries = list(given) if isinstance(given, Sequence) else []
    if not entries or not all(isinstance(entry, (str, Metric)) for entry in entries):
        raise InvalidInputError(f"metrics is {shortened(given)}; {FORMS}.", field="metrics")
    parser = _Parser(usual, direction, events, {})
    metrics: list[Metric] = []
    for entry in entries:
        metric = parser.add(entry) if isinstance(entry, Metric) else parser.parse(entry)
        if any(metric.name == other.name for other in metrics):
            raise InvalidInputError(f"two metrics are called {metric.name!r}.", field="metrics")
        metrics.append(metric)
    return Measured(tuple(metrics), parser.measures)


@dataclass(frozen=True)
class _Parser:
    """Reads metrics one after the other; ratios are of measures that were read before."""

    window: float | None
    direction: Direction
    events: bool
    measures: dict[str, Measure]

    def add(self, metric: Metric) -> Metric:
        """Add a metric as it is."""
        if self.events and not metric.window and self.window:
            metric = replace(metric, window=self.window)
        for name in metric.ratio or ():
            if name not in self.measures:
                raise _wrong(metric.name, f"is a ratio of {name!r}, which is not an earlier metric")
        if metric.ratio is None:
            kinds: dict[str, Kind] = {"yes/no": "conversion", "count": "count"}
            kind = kinds.get(metric.kind) or cast(Kind, metric.several)
            if not self.events:
                kind = "column"
            elif kind not in ("conversion", "count", "sum", "max"):
                raise _wrong(
                    metric.name,
                    f'combines several events by {kind!r}; logs support "sum" and "max"',
                )
            self.measures[metric.name] = Measure(metric, kind, metric.event or metric.name)
        return metric

    def parse(self, text: str) -> Metric:
        """Add a metric that somebody wrote."""
        rest, said = text.strip(), dict[str, str]()
        while (ending := ENDING.search(rest)) is not None:
            for name, value in ending.groupdict().items():
                if value is not None and name in said:
                    raise _wrong(text, f"says twice what its {name} is")
                said |= {} if value is None else {name: value}
            rest = rest[: ending.start()].rstrip(" ,")
        settings: dict[str, Any] = {"direction": said.get("direction", self.direction).lower()}
        settings["window"] = said.get("window", self.window)
        if "window" in said and not self.events:
            raise _wrong(text, "has a window, which metrics of events have")
        if "cap" in said:
            settings["cap"] = finite_number(_number(said["cap"]), f"the cap of {text!r}")
        name, equals, what = (part.strip() for part in rest.partition("="))
        check_name(name, "a metric", "metrics")
        halves = re.split(r"/(?![^(]*\))", what)  # not at a stroke in the name of an event
        if len(halves) == 2:
            if "cap" in said:
                raise _wrong(text, "is a ratio with a cap; give the cap to its metrics")
            parts = [self._half(half.strip(), settings["window"], text) for half in halves]
            return Metric(name, direction=settings["direction"], ratio=(parts[0], parts[1]))
        call = CALL.fullmatch(what if equals or not self.events else f"conversion({name})")
        if self.events == (call is None):
            raise _wrong(text, "cannot be read")
        if call is None:
            measure = Measure(Metric(name, **settings), "column", what if equals else name)
        else:
            measure = _measure(name, call, settings)
        self.measures[name] = measure
        return measure.metric

    def _half(self, half: str, window: float | str | None, text: str) -> str:
        """The name of the measure that is a half of a ratio; one in place gets a name."""
        call = CALL.fullmatch(half) if self.events else None
        if call is not None:
            name = f"{call[1].lower()} of {re.sub(r'[^A-Za-z0-9_. -]', '', call[2]) or 'all'}"[:64]
            self.measures[name] = _measure(name, call, {"window": window})
            return name
        if half not in self.measures and not self.events:
            check_name(half, "a column in a ratio", "metrics")
            self.measures[half] = Measure(Metric(half), "column", half)
        if half not in self.measures:
            raise _wrong(
                text, f"is a ratio of {half!r}, which is neither a measure nor a metric of one"
            )
        return half


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _measure(name: str, call: re.Match[str], settings: dict[str, Any]) -> Measure:
    kind, event = cast(Kind, call[1].lower()), call[2].strip()
    if len(event) > 1 and event[0] == event[-1] and event[0] in "'\"":
        event = event[1:-1]
    if kind in ("conversion", "count"):
        metric = Metric(name, kind="yes/no" if kind == "conversion" else "count", **settings)
    else:
        metric = Metric(name, several=cast(Any, kind), missing="zero", **settings)
    return Measure(metric, kind, event if event not in ("", "*") else None)


def _wrong(text: str, why: str) -> InvalidInputError:
    return InvalidInputError(f"the metric {shortened(text)} {why}; {FORMS}.", field="metrics")


# Tables with a column for every measure.


@dataclass(frozen=True, eq=False)
class Measures:
    """Rows with what was measured of them; of two tables a row is a unit.

    Attributes
    ----------
    log : with a column for each measure
    measured : the metrics
    end : the latest time in either table; None for one table
    findings : on units that saw several variants
    notes : what was left out
    empty : measures, as people write them, that are 0 for every unit, and why
    """

    log: Source
    measured: Measured
    end: Any = None
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    empty: Mapping[str, str] = field(default_factory=dict)

    def close(self) -> None:
        """End the connection."""
        self.log.close()

    def bounds(self, metric: Metric) -> tuple[float, float] | None:
        """(least, largest) value of a row; None if not declared. Columns may be negative."""
        return metric.bounds if self.end is not None or metric.range is not None else None

    def log_of(
        self, metric: Metric, reward: Callable[..., Any] = lambda _, value: value
    ) -> tuple[Source, int]:
        """The log of rows whose window is over, and how many others there are.

        reward : makes it from the table and the columns of the metric's measures
        """
        parts = self.measured.parts(metric)
        for part in parts:
            if part.text in self.empty:
                raise RewardsPendingError(self.empty[part.text])
        table, waiting = self._mature(metric)
        columns = [table[self.measured.column(part)] for part in parts]
        if self.end is None and len(parts) > 1:  # a row without the one half has no ratio
            values = [
                _cap(as_number(self.log, column), part.metric.cap)
                for column, part in zip(columns, parts, strict=True)
            ]
            whole = values[0].notnull() & values[1].notnull()
            columns = [whole.ifelse(value, None) for value in values]
        made = table.mutate(reward=reward(table, *columns))
        made = made.drop(*(name for name in table.columns if name.startswith(MEASURE)))
        names = {**self.log.columns, "reward": metric.name}
        return replace(self.log, table=made, columns=names), waiting

    def _mature(self, metric: Metric) -> tuple[Any, int]:
        window, table = self.measured.window(metric), self.log.table
        if window is None:
            return table, 0
        latest: Any = self.end - timedelta(seconds=window)
        time = table.timestamp
        over = time <= latest
        [found] = self.log.fetch(table.aggregate(units=table.count(), over=over.sum()))
        if not found["over"]:
            raise InvalidInputError(
                f"the window of {metric.name} ({duration_text(window)}) is over for no unit: the "
                f"data end at {self.end}. Use a shorter window, or wait.",
                field="window",
            )
        return table.filter(over), int(found["units"]) - int(found["over"])

    def about(self, metric: Metric, waiting: int) -> list[str]:
        """Describe the metric and the units that are left out."""
        text, window = self.measured.text(metric), self.measured.window(metric)
        said = [f"{metric.name} is {text}; a unit without such an event counts as 0."]
        if self.end is None:
            said = [] if text == metric.name else [f"{metric.name} is the mean of {text}."]
        if metric.ratio is not None:
            said = [
                f"{metric.name} is {text}, as a ratio of two sums over all rows; errors use the "
                "delta method."
            ]
        if window is None and self.end is not None:
            said.append(
                "There is no window. All events after the first exposure count, so units that "
                "came late had less time."
            )
        elif window is not None and waiting:
            who = counted(waiting, "unit was", "units were")
            said.append(
                f"{who} exposed less than {duration_text(window)} before the data end "
                f"({self.end:%Y-%m-%d %H:%M}) and left out, since more may come."
            )
        return said


def open_measures(
    source: Any,
    query: str | None,
    events: Any,
    metrics: Any,
    columns: Columns,
    question: Question,
) -> Measures:
    """The measures of one table, or of two if there are events."""
    direction: Direction = question.direction or "maximize"
    if events is None:
        measured = parse_metrics(metrics, None, direction, events=False)
        extra = {measured.column(part): str(part.of) for part in measured.measures.values()}
        columns = replace(columns, reward=None)
        log = open_log(source, query, columns, question.extra | extra)
        return Measures(log, measured)
    if not isinstance(events, Events):
        raise InvalidInputError.of(
            "events", events, 'Events, such as sa.Events("events.csv", ["purchase"])'
        )
    if metrics:
        raise InvalidInputError("give the metrics to Events, not to analyze.", field="metrics")
    measured = parse_metrics(events.metrics, events.window, direction)
    both = columns, events.columns
    left, right = open_tables(source, query, events.table, both, question.extra)
    try:
        return join_tables(left, right, measured)
    except Exception:
        left.close()
        raise


def join_tables(exposures: Source, events: Source, measured: Measured) -> Measures:
    """Units by their first exposure, with all that the metrics need.

    A unit that saw several variants counts for the first one, which keeps estimates unbiased.
    """
    left, seen = _check_exposures(exposures)
    right, totals = _check_events(events, measured)
    first, several, tied = left, 0, 0
    if seen["rows"] > seen["units"]:
        each = exposures.keep("first exposures", _first_exposures(left))
        changed, unclear = each.low != each.high, each.arm != each.other
        [found] = exposures.fetch(each.aggregate(several=changed.sum(), tied=unclear.sum()))
        several, tied = int(found["several"] or 0), int(found["tied"] or 0)
        first = each.filter(~unclear).drop("low", "high", "other")
    table = exposures.keep("units and metrics", _measure_units(first, right, measured))
    sums = {
        measured.column(one): table[measured.column(one)].sum()
        for one in measured.measures.values()
    }
    [found] = exposures.fetch(table.aggregate(used=table.used.sum(), **sums))
    empty = {}
    for one in measured.measures.values():
        total = float(found[measured.column(one)] or 0.0)
        if not abs(total) < LARGEST:  # nan, too
            _refuse_values(events, measured, 1)
        if not total:
            empty[one.text] = _why_nothing(exposures, events, first, right, one)
    times = [time for time in (seen["last"], totals["last"]) if time is not None]
    notes = []
    if seen["rows"] > seen["units"]:
        notes.append(
            f"{seen['units']:,} units have {seen['rows']:,} exposures; the first of each counts."
        )
    if nobody := int(totals["nobody"] or 0):
        notes.append(f"{counted(nobody, 'event has', 'events have')} no unit.")
    used = int(found["used"] or 0)
    notes.append(
        f"{used:,} of {counted(totals['rows'], 'event')} ({percent(used / totals['rows'])}) "
        "count: they belong to a metric and an exposed unit, and happened after its first "
        "exposure."
    )
    notes += filter(None, (exposures.mapping, events.mapping))
    log = replace(
        exposures,
        name=f"{exposures.name} with {events.name}",
        table=table.drop("used"),
        ordered=False,
        single=True,
    )
    finding = _contamination(seen["units"], several, tied)
    return Measures(log, measured, max(times), (finding,), tuple(notes), empty)


def _contamination(units: int, several: int, tied: int) -> Finding:
    """Whether units saw several variants, and what was done with these."""
    name = "variants per unit"
    if not several:
        return Finding(name, "ok", None, f"Each of {units:,} units was exposed to one variant.")
    were = f"{several:,} of {units:,} units were exposed to several variants"
    text = f"{were}; each counts for the variant that it saw first"
    advice = (
        "Find out why (lost cookies, several devices, a changed split). Estimates by the first "
        "variant stay unbiased, but differences are diluted."
    )
    if tied:
        text += f", but {counted(tied, 'unit')} that saw two at the same time left out"
    if several <= CONTAMINATED * units:
        return Finding(name, "ok", None, f"{text}.")
    return Finding(name, "warn", None, f"{text}.", advice)


def _check_exposures(log: Source) -> tuple[Any, dict[str, Any]]:
    """Exposures with the columns time, arm and unit; how many rows and units, and the last time."""
    table = log.table
    new = {
        "time": as_time(log, table.timestamp),
        "arm": table.arm.cast("string").nullif(""),
        "unit": as_unit(table.unit),
    }
    found = table.mutate(**new)
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
    kinds = {"time": no_time(log), "arm": NO_ARM, "unit": NO_UNIT}
    broken = [(kinds[n], counts["rows"] - counts[n]) for n in kinds if counts[n] < counts["rows"]]
    refuse(log, broken, found)
    return found.drop("timestamp"), counts


def _check_events(log: Source, measured: Measured) -> tuple[Any, dict[str, Any]]:
    """Events that metrics are made of, with unit, time, event and value; the last time of any."""
    table, measures = log.table, list(measured.measures.values())
    names = sorted({one.of for one in measures if one.of is not None})
    if names and not log.has("event"):
        raise InvalidInputError(
            f"{log.name} has no column with names of events; its columns are "
            f"{strung(log.there, 40)}. Map one with --column event=NAME, or measure all rows, "
            "such as buyers = conversion().",
            field="metrics",
        )
    valued = [one for one in measures if one.kind in ("sum", "max")]
    if valued and not log.has("value"):
        raise InvalidInputError(
            f"{valued[0].text} needs the value of each event, and {log.name} has no column for "
            "it; map one with --column value=NAME.",
            field="metrics",
        )
    new: dict[str, Any] = {"unit": as_unit(table.unit), "time": as_time(log, table.timestamp)}
    if names:
        new["event"] = table.event.cast("string")
    if valued:
        new |= {"value": as_number(log, table.value), "bad": _bad_value(log, table, measures)}
    found = table.select(**new)
    totals = {"rows": found.count(), "timed": found.time.count(), "last": found.time.max()}
    totals["nobody"] = found.unit.isnull().sum()
    if valued:
        totals["bad"] = found.bad.sum()
    [seen] = log.fetch(found.aggregate(**totals))
    if not seen["rows"]:
        raise InvalidInputError(f"{log.name} has no rows; expected one for each event.")
    if untimed := seen["rows"] - seen["timed"]:
        whole = table.mutate(time=new["time"], unit=new["unit"])
        refuse(log, [(no_time(log), untimed)], whole)
    if seen.get("bad"):
        _refuse_values(log, measured, int(seen["bad"]))
    found = found.drop("bad") if valued else found
    if all(one.of is not None for one in measures):
        found = found.filter(found.event.isin(names))
    return found, seen


def _bad_value(log: Source, table: Any, measures: Sequence[Measure]) -> Any:
    """Whether what stands for a value that counts is no number, or one that cannot be added up."""
    value = table.value.nullif("") if table.value.type().is_string() else table.value
    number = as_number(log, value)
    large = (number.abs() > LARGEST) | number.isnan()
    bad = (value.notnull() & number.isnull()) | large.fill_null(False)
    if any(one.of is None for one in measures):
        return bad
    return bad & table.event.cast("string").isin([one.of for one in measures])


def _refuse_values(log: Source, measured: Measured, count: int) -> None:
    """Raise the error that names the rows whose values cannot be added up."""
    fault = Fault(
        "the value is {value}",
        "expected a finite number below 1e150 in size, or nothing",
        "value",
        lambda table: _bad_value(log, table, list(measured.measures.values())),
    )
    refuse(log, [(fault, count)], log.table)


def _why_nothing(
    exposures: Source, events: Source, first: Any, happened: Any, measure: Measure
) -> str:
    """Why a measure is 0 for every unit; an event that is nowhere is an error."""
    left, right = _alike(first.unit, happened.unit)
    named = happened.mutate(key=right)
    if measure.of is not None:
        named = named.filter(named.event == measure.of)
    [seen] = exposures.fetch(named.aggregate(n=named.count(), unit=named.key.cast("string").max()))
    if not seen["n"] and measure.of is not None:
        each = events.table.group_by(name=events.table.event.cast("string"))
        rows = events.fetch(each.aggregate(n=events.table.count()).limit(200))
        there = sorted(row["name"] for row in rows if row["name"])
        raise InvalidInputError(
            f"{events.name} has no event {measure.of!r}; its events are {strung(there, 12)}"
            f"{did_you_mean(measure.of, there)}",
            field="metrics",
        )
    [ours] = exposures.fetch(first.aggregate(unit=left.cast("string").max()))
    return (
        f"{measure.text} is 0 for every unit of {exposures.name}. Compare the units of both tables "
        f"({ours['unit']!r} and {seen['unit']!r}), the zones of their times, and the window; only "
        "events after the first exposure count."
    )


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


def _measure_units(first: Any, events: Any, measured: Measured) -> Any:
    """First exposures with a column for every measure, and how many events count: used."""
    left, right = _alike(first.unit, events.unit)
    measures = list(measured.measures.values())
    windows = sorted({one.window for one in measures if one.window is not None})
    longest = None if any(one.window is None for one in measures) else windows[-1]
    starts = {"key": left, "start": first.time}
    starts |= {f"until {w}": _later(first.time, w) for w in windows}
    both = events.mutate(key=right).drop("unit").join(first.select(**starts), "key")
    later = both.time >= both.start
    both = both.filter(
        later if longest is None else later & (both.time <= both[f"until {longest}"])
    )
    sums = {"used": both.count()}
    for one in measures:
        good = None if one.of is None else both.event == one.of
        if one.window is not None and one.window != longest:
            soon = both.time <= both[f"until {one.window}"]
            good = soon if good is None else good & soon
        sums[measured.column(one)] = _aggregate(both, one, good)
    each = both.group_by("key").aggregate(**sums).rename(found="key")
    whole = first.mutate(key=left)
    whole = whole.left_join(each, whole.key == each.found).drop("key", "found")
    new = {measured.column(one): _final(whole[measured.column(one)], one) for one in measures}
    return whole.mutate(**new).rename(timestamp="time")


def _aggregate(table: Any, measure: Measure, good: Any) -> Any:
    if measure.kind == "sum":
        return table.value.sum(where=good)
    return table.value.max(where=good) if measure.kind == "max" else table.count(where=good)


def _final(column: Any, measure: Measure) -> Any:
    """The value of a unit; 0 without an event."""
    import ibis

    value = column.cast("float64").fill_null(0.0)
    if measure.kind == "conversion":
        value = ibis.ifelse(value > 0, 1, 0).cast("float64")
    return _cap(value, measure.metric.cap)


def _cap(value: Any, cap: float | None) -> Any:
    import ibis

    return value if cap is None else ibis.ifelse(value > cap, cap, value)


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


def _later(time: Any, seconds: float) -> Any:
    """The time so many seconds later."""
    import ibis

    return time + ibis.interval(microseconds=round(seconds * 1e6))


def ratio_reward(log: Source, name: str, below: str, arms: ArmSet, parts: Sequence[Floats]) -> Any:
    """R + (a - R b) / B of every unit: a mean of these is the ratio R = A / B of two means.

    Its error is that of the ratio to first order, the delta method. See `live.measured`, which has
    the same for live tests.

    Parameters
    ----------
    log : whose reward is what the ratio is divided by, called `below`
    parts : (K,) estimates of A and B

    Returns
    -------
    What makes the column, from a table and the columns a and b
    """
    import ibis

    numerators, denominators = parts
    if not (denominators > 0).all():
        nothing = arms.names[int(np.argmin(denominators))]
        raise RewardsPendingError(f"{name} is divided by {below}, of which {nothing} has none.")
    table = log.table.mutate(b=as_number(log, log.table.reward))
    rows = log.fetch(
        table.group_by(arm=table.arm.cast("string")).aggregate(
            total=table.b.sum(), squares=(table.b * table.b).sum()
        )
    )
    by_arm = {row["arm"]: row for row in rows}
    sums, squares = (
        np.array([float(by_arm[arm][key]) for arm in arms.names]) for key in ("total", "squares")
    )
    widening = ratio_widening(name, below, sums, squares)

    def reward(table: Any, a: Any, b: Any) -> Any:
        def per_arm(values: Floats) -> Any:
            each = zip(arms.names, values.tolist(), strict=True)
            return ibis.cases(
                *((table.arm.cast("string") == arm, value) for arm, value in each), else_=0.0
            )

        ratio = per_arm(numerators / denominators)
        return ratio + (a - ratio * b) * per_arm(widening / denominators)

    return reward
