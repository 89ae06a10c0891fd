"""Metrics: what assignments bring beside their reward, and rewards that are made of events.

A metric is what one assignment brings, made of one event or of several: the first that was
recorded, the one that happened last, their sum or the largest. Events are kept as they were
reported. A *series* has the sums of one metric, or of the products of several, by segment, arm and
day. The rules here are the same in every storage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import fsum, prod
from typing import Any, Literal

from steadyarm.errors import InvalidInputError
from steadyarm.storages.records import (
    ArmDay,
    Columns,
    Event,
    LogRow,
    Measured,
    MetricEvent,
    Outcome,
    SeriesSums,
    day_of,
    happened,
    place_of,
    rewarded,
)

Several = Literal["first", "last", "sum", "max"]
SeriesPlace = tuple[int, int, int, str]  # segment, arm, day and series

REWARD = "reward"  # names the primary metric, whatever its own name is
REWARDED = "reward?"  # as a factor of products: 1 where there is a reward, no value elsewhere
COVARIATE = "covariate"  # the role of metrics that steer, though they are no rewards
ONLY = ""  # the event of a metric that has one for each assignment


@dataclass(frozen=True)
class Rule:
    """How the events of one metric count.

    Attributes
    ----------
    several : which of an assignment's events count: the "first", the "last", their "sum" or "max"
    window, grace : as in `Storage.reward`
    cap : larger values of an assignment count as this
    steers : decisions rest on it, so it is refused once the policy has observed the segment
    """

    name: str
    several: Several = "first"
    window: int | None = None
    grace: int = 0
    cap: float | None = None
    steers: bool = False

    def value(self, events: Iterable[MetricEvent]) -> float | None:
        """What an assignment with these events counts as; None if none is of this metric.

        The order of events does not matter: a sum is rounded once.

        Examples
        --------
        >>> bought = [MetricEvent("revenue", f"order {i}", 0.1, at=i) for i in range(10)]
        >>> Rule("revenue", "sum").value(bought), Rule("revenue", "sum", cap=0.5).value(bought)
        (1.0, 0.5)
        """
        mine = {event.event: event for event in events if event.metric == self.name}
        if not mine:
            return None
        if self.several == "sum":
            value = fsum(event.value for event in mine.values())
        elif self.several == "max":
            value = max(event.value for event in mine.values())
        else:
            value = max(mine.values(), key=lambda event: (event.at, event.event)).value
        return value if self.cap is None else min(value, self.cap)


@dataclass(frozen=True)
class Metrics:
    """The metrics of an experiment, as its config declares them.

    Attributes
    ----------
    primary : the reward
    further : the other metrics, by name
    products : the name of the series and the names of its factors, for each product that is summed
    by_event : the reward is made of events, which are kept; otherwise its one value is
    alone : a reward changes no series and is not made of events, as without any metrics
    steering : the series that decisions rest on: covariates, and their products with each other and
        with the reward
    """

    primary: Rule = Rule(REWARD, steers=True)
    further: Mapping[str, Rule] = field(default_factory=dict)
    products: tuple[tuple[str, tuple[str, ...]], ...] = ()
    by_event: bool = False
    alone: bool = True
    steering: frozenset[str] = frozenset()

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Metrics:
        """The metrics that the config of an experiment declares; see `Metric`.

        Examples
        --------
        >>> found = Metrics.of({
        ...     "metrics": [{"name": "orders", "role": "primary"}, {"name": "revenue"}],
        ...     "products": [["revenue", "reward"]],
        ... })
        >>> found.primary.name, list(found.further), found.products
        ('orders', ['revenue'], (('revenue*reward', ('revenue', 'orders')),))
        """
        primary, further = Rule(REWARD, steers=True), {}
        for each in config.get("metrics") or ():
            role = each.get("role")
            rule = Rule(
                each["name"],
                each.get("several", "first"),
                # Where nothing may be missing a late value is better than none.
                None if each.get("missing") == "fail" else each.get("window"),
                each.get("grace") or 0,
                each.get("cap"),
                steers=role in ("primary", COVARIATE),
            )
            if role == "primary":
                primary = rule
            else:
                further[rule.name] = rule
        own = {REWARD: primary.name}
        products = tuple(
            ("*".join(names), tuple(own.get(name, name) for name in names))
            for names in config.get("products") or ()
        )
        by_event = primary.several != "first" or primary.cap is not None
        rewards = {primary.name, REWARDED}
        alone = not by_event and all(rewards.isdisjoint(names) for _, names in products)
        known = {name for name, rule in further.items() if rule.steers}
        steering = {name for name, names in products if not known.isdisjoint(names)}
        return cls(primary, further, products, by_event, alone, frozenset(known | steering))

    def __bool__(self) -> bool:
        """Whether there are events or series."""
        return bool(self.further) or not self.alone

    def rule(self, name: str | None) -> Rule:
        """The metric of that name; None and "reward" name the primary one."""
        if name in (None, REWARD, self.primary.name):
            return self.primary
        if name not in self.further:
            known = ", ".join([self.primary.name, *self.further])
            raise InvalidInputError(
                f"the experiment has no metric {name!r}; its metrics are {known}.", field="metric"
            )
        return self.further[name]

    def event_of(self, given: Measured) -> str:
        """What identifies an event among those of its assignment and metric."""
        rule = self.rule(given.metric)
        if rule.several == "first":
            return ONLY
        if not given.event:
            raise InvalidInputError(
                f"an event of the metric {rule.name!r} has no key, but an assignment may have "
                "several of them; give each event a key, such as the number of an order.",
                field="event",
            )
        return given.event

    def value(self, row: LogRow, rule: Rule) -> float | None:
        """What an assignment counts as in a metric; None if it has no value."""
        return row.reward if rule is self.primary else rule.value(row.events)

    def series_of(self, row: LogRow) -> dict[str, float]:
        """What an assignment adds to each series; nothing if it is excluded."""
        if row.excluded is not None:
            return {}
        rules = (self.primary, *self.further.values())
        values = {rule.name: self.value(row, rule) for rule in rules}
        known = {name: value for name, value in values.items() if value is not None}
        found = {name: value for name, value in known.items() if name in self.further}
        if self.primary.name in known:
            known[REWARDED] = 1.0
        for series, names in self.products:
            if all(name in known for name in names):
                found[series] = prod((known[name] for name in names), start=1.0)
        return found

    def measured(
        self,
        row: LogRow,
        given: Measured,
        closed: bool,
        now: int,
        limits: tuple[int | None, int] | None = None,
    ) -> tuple[Outcome, LogRow | None]:
        """What happens to an event, and its assignment with it if it is to be stored.

        closed : whether the policy has observed the segment already; what steers is refused then
        limits : window and grace of a reward, if they are not those of the metric
        """
        rule, key = self.rule(given.metric), self.event_of(given)
        event: Event = given.target, float(given.value)
        if given.at is not None:
            event = (*event[:2], given.at)
        window, grace = rule.window, rule.grace
        if rule is self.primary:
            window, grace = limits or (window, grace)
            if not self.by_event:
                return rewarded(row, event, closed, window, grace, now)
        there = {each.event: each.value for each in row.events if each.metric == rule.name}
        if key in there:
            same = there[key] == event[1]
            return Outcome("repeated" if same else "conflict", row.number, there[key]), None
        at = happened(event, row.created, window, grace, now)
        if at == "early":
            return Outcome(at, row.number), None
        closed = closed and rule.steers
        if closed or at == "late":
            return Outcome("closed" if closed else "late", row.number, created=row.created), None
        new = MetricEvent(rule.name, key, event[1], at, None if at == now else now)
        return Outcome("stored", row.number), self._with(row, rule, (*row.events, new))

    def _with(self, row: LogRow, rule: Rule, events: Iterable[MetricEvent]) -> LogRow:
        row = replace(row, events=tuple(sorted(events)))
        mine = [event for event in row.events if event.metric == rule.name]
        if rule is not self.primary:
            return row
        if not mine:
            return replace(row, reward=None, rewarded=None, received=None)
        at, received = _when(mine)
        return replace(row, reward=rule.value(mine), rewarded=at, received=received)


def _when(events: Iterable[MetricEvent]) -> tuple[int, int | None]:
    """When the last of some events happened, and when the last arrived if that was later."""
    at = max(event.at for event in events)
    arrived = max(event.arrived for event in events)
    return at, None if arrived == at else arrived


def as_measured(event: Event) -> Measured:
    """A reward as an event of the primary metric."""
    return Measured(event[0], REWARD, event[1], event[2] if len(event) == 3 else None)


def series_sums(
    counts: Iterable[tuple[SeriesPlace, ArmDay | Any]], columns: Mapping[int, Columns]
) -> tuple[SeriesSums, ...]:
    """Sums by segment, day and series, in this order, from counts of places.

    counts : any objects with the attributes of `ArmDay`, such as the rows of a table
    columns : of the segments, by index
    """

    def place(item: tuple[SeriesPlace, Any]) -> tuple[int, int, str]:
        (segment, _, day, series), _ = item
        return segment, day, series

    found = []
    for at, group in groupby(sorted(counts, key=place), place):
        column_of = columns[at[0]]
        rewarded, late = ([0] * len(column_of) for _ in range(2))
        sums, squares = ([0.0] * len(column_of) for _ in range(2))
        for (_, arm, _, _), count in group:
            column = column_of[arm]
            rewarded[column] += count.rewarded
            sums[column] += count.sums
            squares[column] += count.squares
            late[column] += count.late
        if any(rewarded) or any(late):  # otherwise what was there has been excluded
            found.append(SeriesSums(*at, tuple(rewarded), tuple(sums), tuple(squares), tuple(late)))
    return tuple(found)


class RunningSeries:
    """Counts of all series of an experiment, or what is to be added to them.

    Attributes
    ----------
    counts : by place; those of a reward that is made of events have nothing but their number

    Examples
    --------
    >>> counted = RunningSeries(Metrics.of({"metrics": [{"name": "revenue"}]}))
    >>> spent = (MetricEvent("revenue", "", 35.5, at=7),)
    >>> counted.add(LogRow(0, "u", 1, 0.5, 5, None, None, events=spent))
    >>> [(sums.series, sums.sums) for sums in counted.sums({0: range(2)})]
    [('revenue', (0.0, 35.5))]
    """

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self.counts: dict[SeriesPlace, ArmDay] = {}

    def at(self, row: LogRow, series: str) -> ArmDay:
        """The counts to which an assignment adds."""
        place = place_of(row.number)[0], row.arm, day_of(row.created), series
        return self.counts.setdefault(place, ArmDay(row.arm))

    def add(self, row: LogRow) -> None:
        """Count the values of an assignment, unless it is excluded."""
        for name, value in self.metrics.series_of(row).items():
            self.at(row, name).reward(value)
        for event in row.events if row.excluded is None else ():
            self.at(row, self.metrics.rule(event.metric).name).events += 1

    def change(self, before: LogRow, after: LogRow) -> None:
        """Count an assignment that got further events."""
        old, new = self.metrics.series_of(before), self.metrics.series_of(after)
        for name, value in new.items():
            if name in old and old[name] != value:
                self.at(after, name).reward(old[name], times=-1)
            if old.get(name) != value:
                self.at(after, name).reward(value)
        for event in after.events if after.excluded is None else ():
            if event not in before.events:
                self.at(after, self.metrics.rule(event.metric).name).events += 1

    def sums(self, columns: Mapping[int, Columns]) -> tuple[SeriesSums, ...]:
        """The sums of all series."""
        return series_sums(self.counts.items(), columns)
