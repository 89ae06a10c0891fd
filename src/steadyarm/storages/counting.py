"""Counting: the values of rewards and events, and their sums by segment, arm and day.

A metric is a value of one assignment, computed from one event or from several: the first that was
recorded, the one that happened last, their sum or the largest. Events are stored as they were
reported. A *series* has the sums of one metric, or of the products of several.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import fsum, prod
from typing import Any, Literal, TypeAlias

from steadyarm.errors import InvalidInputError
from steadyarm.segments import Segment
from steadyarm.storages.records import (
    REWARD,
    SKEW,
    ArmDay,
    DaySums,
    Event,
    LogRow,
    MetricEvent,
    Outcome,
    SeriesSums,
    Tally,
    day_of,
    place_of,
)

Several = Literal["first", "last", "sum", "max"]
SeriesPlace = tuple[int, int, int, str]  # segment, arm, day and series
Columns: TypeAlias = Sequence[int] | Mapping[int, int]  # the column of each arm that is played

REWARDED = "reward?"  # as a factor of products: 1 where there is a reward, no value elsewhere
COVARIATE = "covariate"  # the role of metrics that steer, though they are no rewards
ONLY = ""  # the key of an event of a metric that has one for each assignment
SECOND = 1_000_000  # microseconds


# What an event counts as


@dataclass(frozen=True)
class Rule:
    """The rule by which the events of one metric count.

    Attributes
    ----------
    several : which of an assignment's events count: the "first", the "last", their "sum" or "max"
    window : microseconds after an assignment in which its event must happen; None for no limit
    grace : microseconds after its window in which the event may still arrive
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
        """The value of an assignment in a metric; None if it has none.

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

    def date_event(self, at: int | None, created: int, now: int) -> int | Literal["early", "late"]:
        """When an event happened, or why it does not count.

        It counts if it happened within the window after its assignment and arrived within the grace
        after that window. Its segment is not closed before.

        Examples
        --------
        >>> Rule("reward", window=50, grace=50).date_event(130, created=100, now=190)
        130
        >>> Rule("reward", window=50, grace=50).date_event(160, created=100, now=190)
        'late'
        """
        if at is None:
            at = now
        elif at < min(created, now) - SKEW:  # the clock may have been set back meanwhile
            return "early"
        at = max(min(at, now), created)
        if self.window is not None and (
            at - created > self.window or now - created > self.window + self.grace
        ):
            return "late"
        return at


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
        >>> metrics = Metrics.of({
        ...     "metrics": [{"name": "orders", "role": "primary"}, {"name": "revenue"}],
        ...     "products": [["revenue", "reward"]],
        ... })
        >>> metrics.primary.name, list(metrics.further), metrics.products
        ('orders', ['revenue'], (('revenue*reward', ('revenue', 'orders')),))
        """
        window, grace = config.get("reward_window"), config.get("reward_grace")
        if window is None or config.get("missing") == "fail":
            # Where nothing may be missing a late value is better than none.
            primary = Rule(REWARD, steers=True)
        else:
            limits = round(window * SECOND), round((grace or 0) * SECOND)
            primary = Rule(REWARD, "first", *limits, steers=True)
        further: dict[str, Rule] = {}
        for metric in config.get("metrics") or ():
            role = metric.get("role")
            rule = Rule(
                metric["name"],
                metric.get("several", "first"),
                None if metric.get("missing") == "fail" else metric.get("window"),
                metric.get("grace") or 0,
                metric.get("cap"),
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
        covariates = {name for name, rule in further.items() if rule.steers}
        steering = {name for name, names in products if not covariates.isdisjoint(names)}
        return cls(primary, further, products, by_event, alone, frozenset(covariates | steering))

    def __bool__(self) -> bool:
        """Whether there are events or series."""
        return bool(self.further) or not self.alone

    def rule(self, name: str) -> Rule:
        """The metric of that name; "reward" names the primary one."""
        if name in (REWARD, self.primary.name):
            return self.primary
        if name not in self.further:
            known = ", ".join([self.primary.name, *self.further])
            raise InvalidInputError(
                f"the experiment has no metric {name!r}; its metrics are {known}.", field="metric"
            )
        return self.further[name]

    def check(self, event: Event) -> None:
        """Refuse an event of no metric, and one without the key that it needs."""
        rule = self.rule(event.metric)
        if rule.several != "first" and not event.key:
            raise InvalidInputError(
                f"an event of the metric {rule.name!r} has no key, but an assignment may have "
                "several of them; give each event a key, such as the number of an order.",
                field="event",
            )

    def value(self, row: LogRow, rule: Rule) -> float | None:
        """The value of an assignment in a metric; None if it has none."""
        return row.reward if rule is self.primary else rule.value(row.events)

    def series_of(self, row: LogRow) -> dict[str, float]:
        """The amounts that an assignment adds to each series; none if it is excluded."""
        if row.excluded is not None:
            return {}
        values: dict[str, float] = {}
        for rule in (self.primary, *self.further.values()):
            if (value := self.value(row, rule)) is not None:
                values[rule.name] = value
        series = {name: value for name, value in values.items() if name in self.further}
        if self.primary.name in values:
            values[REWARDED] = 1.0
        for product, names in self.products:
            if all(name in values for name in names):
                series[product] = prod((values[name] for name in names), start=1.0)
        return series

    def record(
        self, row: LogRow, event: Event, closed: bool, now: int
    ) -> tuple[Outcome, LogRow | None]:
        """Decide the outcome of an event, and update its assignment if it is to be stored.

        closed : whether the policy has observed the segment already; what steers is refused then
        """
        rule, value = self.rule(event.metric), float(event.value)
        key = ONLY if rule.several == "first" else event.key or ONLY
        plain = rule is self.primary and not self.by_event
        if plain:
            previous = row.reward
        else:
            previous = next((e.value for e in row.events if e[:2] == (rule.name, key)), None)
        if previous is not None:
            status: Literal["repeated", "conflict"] = "repeated"
            if previous != value:
                status = "conflict"
            return Outcome(status, row.number, previous), None
        at = rule.date_event(event.at, row.created, now)
        if at == "early":
            return Outcome(at, row.number), None
        if closed and rule.steers:
            return Outcome("closed", row.number, created=row.created), None
        if at == "late":
            return Outcome("late", row.number, created=row.created), None
        received = None if at == now else now
        stored = Outcome("stored", row.number)
        if plain:
            return stored, row._replace(reward=value, rewarded=at, received=received)
        events = tuple(sorted((*row.events, MetricEvent(rule.name, key, value, at, received))))
        row = row._replace(events=events)
        if rule is not self.primary:
            return stored, row
        mine = [event for event in events if event.metric == rule.name]
        last, arrived = max(event.at for event in mine), max(event.arrived for event in mine)
        return stored, row._replace(
            reward=rule.value(mine),
            rewarded=last,
            received=None if arrived == last else arrived,
        )


# Sums


class _SomeArms(dict[int, int]):
    """Columns of some of the arms."""

    def __missing__(self, arm: int) -> int:
        raise InvalidInputError(
            f"arm {arm} was not assigned from this segment, which plays {len(self)} others; the "
            "log and the segments do not belong together."
        )


def columns_of(segment: Segment) -> Columns:
    """The column in which a segment keeps the sums of each arm that it plays.

    Examples
    --------
    >>> import numpy as np
    >>> some = Segment(np.array([[0.5, 0.5]]), np.array([9]), arms=np.array([3, 7000]))
    >>> columns_of(some)[7000]
    1
    """
    if segment.arms is None:
        return range(segment.columns)
    return _SomeArms((arm, column) for column, arm in enumerate(segment.arms.tolist()))


def sum_tally(counts: Iterable[ArmDay | Any], columns: Columns) -> Tally:
    """The tally of a segment, or of one of its days, from the counts of its arms and days.

    counts : any objects with the attributes of `ArmDay`, such as the rows of a table
    """
    m = len(columns)
    totals: list[list[Any]] = [[0] * m, [0] * m, [0.0] * m, [0.0] * m, [0] * m]
    last: int | None = None
    for row in counts:
        column = columns[row.arm]
        counts_of = row.assigned, row.rewarded, row.sums, row.squares, row.excluded
        for total, value in zip(totals, counts_of, strict=True):
            total[column] += value
        if row.last is not None:
            last = row.last if last is None else max(last, row.last)
    assigned, rewarded, sums, squares, excluded = map(tuple, totals)
    return Tally(assigned, rewarded, sums, squares, last, excluded)


def day_sums(segment: int, day: int, counts: Sequence[ArmDay | Any], columns: Columns) -> DaySums:
    """The sums of one day of a segment, from the counts of its arms."""
    waited, late = [0] * len(columns), [0] * len(columns)
    for row in counts:
        waited[columns[row.arm]] += row.waited
        late[columns[row.arm]] += row.late
    return DaySums(segment, day, sum_tally(counts, columns), tuple(waited), tuple(late))


class RunningTally:
    """Counts of one segment, to which the rows of a log are added.

    Examples
    --------
    >>> counts = RunningTally(range(2))
    >>> day = 86_400_000_000
    >>> counts.add(LogRow(0, "u", 1, 0.5, created=3 * day, reward=0.5, rewarded=4 * day))
    >>> counts.tally().sums
    (0.0, 0.5)
    >>> [(sums.day, sums.tally.rewarded, sums.waited) for sums in counts.day_sums(segment=0)]
    [(3, (0, 1), (0, 86400000))]
    """

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self.days: dict[int, dict[int, ArmDay]] = {}

    def add(self, row: LogRow) -> None:
        """Count an assignment, and its reward if it has one, unless it was excluded."""
        self._columns[row.arm]  # refuses an arm that is not played
        day = self.days.setdefault(day_of(row.created), {})
        count = day.setdefault(row.arm, ArmDay(row.arm))
        count.assign(row.created)
        count.excluded += row.excluded is not None
        count.reward_of(row)

    def tally(self) -> Tally:
        """The sums of all days."""
        counts = (count for day in self.days.values() for count in day.values())
        return sum_tally(counts, self._columns)

    def day_sums(self, segment: int) -> tuple[DaySums, ...]:
        """The sums of each day, in order."""
        return tuple(
            day_sums(segment, day, list(counts.values()), self._columns)
            for day, counts in sorted(self.days.items())
        )


def series_sums(
    counts: Iterable[tuple[SeriesPlace, ArmDay | Any]], columns: Mapping[int, Columns]
) -> tuple[SeriesSums, ...]:
    """Sums by segment, day and series, in this order, from counts of places.

    counts : any objects with the attributes of `ArmDay`, such as the rows of a table
    columns : the columns of the segments, by index
    """

    def place(item: tuple[SeriesPlace, Any]) -> tuple[int, int, str]:
        (segment, _, day, series), _ = item
        return segment, day, series

    sums_of: list[SeriesSums] = []
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
            totals = SeriesSums(*at, tuple(rewarded), tuple(sums), tuple(squares), tuple(late))
            sums_of.append(totals)
    return tuple(sums_of)


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
        nothing = row._replace(reward=None, rewarded=None, received=None, events=())
        self.change(nothing, row)

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
