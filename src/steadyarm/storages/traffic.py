"""Traffic of one experiment: assignments, rewards and events, and how their rows are locked.

SQLite has one writer at a time, who needs no further locks. On PostgreSQL rows are locked in one
order: the experiment, segments, assignments or rewards by unit or number, tallies, series.

Units take positions of the segment opened last. A reward has one row, which the first transaction
inserts. Events of one assignment add up, so whoever records one locks the assignment, and reads
what others have recorded before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import (
    ARRAY,
    BindParameter,
    Connection,
    Table,
    bindparam,
    case,
    exists,
    func,
    literal,
    select,
    union_all,
    update,
)
from sqlalchemy.dialects.postgresql import Insert, insert

from steadyarm.errors import UnknownExperimentError
from steadyarm.segments import Draws, Segment
from steadyarm.storages.counting import Metrics, RunningSeries, SeriesPlace
from steadyarm.storages.engine import CollisionError
from steadyarm.storages.records import (
    ArmDay,
    Assigned,
    AssignmentResult,
    EarlySums,
    Event,
    ExperimentState,
    LogRow,
    MetricEvent,
    Outcome,
    SegmentRecord,
    Target,
    day_of,
    is_of,
    load,
    number_of,
    place_of,
)
from steadyarm.storages.schema import (
    ASSIGNMENTS_UNIT,
    AnyRow,
    assignments,
    events,
    experiments,
    log_columns,
    rewards,
    same_assignment,
    segments,
    series,
    tallies,
)

T = TypeVar("T")

BATCH = 5_000  # values in one statement; SQLite allows 32,766 parameters
USE_UNITS = f"INDEXED BY {ASSIGNMENTS_UNIT}"
NUMBERS = 2**63  # no assignment has a number beyond what a database can hold

Place = tuple[int, int, int]  # segment, arm and day

_key: BindParameter[Any] = bindparam("key")
_values: BindParameter[Any] = bindparam("values", expanding=True)

STANDING = select(experiments.c.state, experiments.c.outside).where(experiments.c.key == _key)
# Held to the end of the transaction, so that `move` waits for transactions that have begun.
STANDING_HELD = STANDING.with_for_update(read=True, key_share=True)
# Against closing and corrections, not against each other.
OPEN = (
    select(segments.c.index)
    .where(segments.c.key == _key, segments.c.closed.is_(None))
    .order_by(segments.c.index)
    .with_for_update(read=True, key_share=True)
)
HOLD = (
    select(segments.c.index)
    .where(segments.c.key == _key, segments.c.index.in_(_values))
    .order_by(segments.c.index)
    .with_for_update(read=True, key_share=True)
)
SEGMENTS = select(segments).where(segments.c.key == _key, segments.c.index.in_(_values))
LOGGED = (
    select(*log_columns(assignments, rewards))
    .select_from(assignments.outerjoin(rewards, same_assignment(assignments)))
    .where(assignments.c.key == _key)
)
BY_NUMBER = LOGGED.where(assignments.c.number.in_(_values))
# SQLite takes an experiment to have a few assignments, and would read all of them.
BY_UNIT = LOGGED.where(assignments.c.unit.in_(_values), assignments.c.repeat == 0).with_hint(
    assignments, USE_UNITS, "sqlite"
)
# Against others who record events of the same assignments, and against their exclusion.
LOCK = (
    select(assignments.c.number)
    .where(assignments.c.key == _key, assignments.c.number.in_(_values))
    .order_by(assignments.c.number)
    .with_for_update(key_share=True)
)
EVENTS = select(
    events.c.number,
    events.c.metric,
    events.c.event,
    events.c.value,
    func.coalesce(events.c.at, events.c.created),
    case((events.c.at.is_not(None), events.c.created)),
).where(events.c.key == _key, events.c.number.in_(_values))
BELONGING = (
    select(assignments.c.unit, assignments.c.key)
    .where(
        assignments.c.unit.in_(_values),
        assignments.c.key.in_(bindparam("keys", expanding=True)),
        assignments.c.repeat == 0,
    )
    .with_hint(assignments, USE_UNITS, "sqlite")
)

_later = segments.alias("later")
LAST = (
    select(segments.c.index, segments.c.rounds, segments.c.handed)
    .where(segments.c.key == _key)
    .order_by(segments.c.index.desc())
    .limit(1)
    .with_for_update(key_share=True)
)
# Nothing is updated if another segment was opened while we waited for the lock.
TAKE = (
    update(segments)
    .where(
        segments.c.key == bindparam("of"),
        segments.c.index == bindparam("last"),
        ~exists().where(_later.c.key == bindparam("of"), _later.c.index > bindparam("last")),
    )
    .values(handed=bindparam("counted"))
)


@dataclass(frozen=True)
class Transaction:
    """A transaction on one experiment, and what never changes of it.

    Attributes
    ----------
    shard : of `tallies` and `series`, to which is added
    sticky : units keep their assignment
    """

    connection: Connection
    key: int
    shard: int
    seed: int
    sticky: bool
    metrics: Metrics


# Assignments


def assign(
    t: Transaction,
    draws: Draws,
    units: Sequence[str],
    values: Sequence[Mapping[str, float]],
    now: int,
    rows: Sequence[LogRow | None] | None = None,
) -> AssignmentResult:
    """The assignment of each unit, an old one or a new one; see `Storage.assign`.

    rows : the assignments that units had just now, if they were read already
    """
    state, outside = read_standing(t.connection, t.key, hold=True)
    rows = find_rows(t, units) if rows is None else rows
    assigned = [None if row is None else row.assigned() for row in rows]
    missing = [unit for unit, old in zip(units, assigned, strict=True) if old is None]
    if not missing or state != "running" or outside is not None:
        return AssignmentResult(tuple(assigned), state, outside)
    if any(values):
        hold_open_segments(t)  # first, as for rewards
    if t.sticky:
        by_unit = {new.unit: new for new in _take(t, draws, list(dict.fromkeys(missing)), now)}
        for i, unit in enumerate(units):
            if assigned[i] is None and unit in by_unit:
                assigned[i] = by_unit[unit]
                by_unit[unit] = replace(by_unit[unit], new=False)  # if it is named again
    else:
        taken = _take(t, draws, missing, now)
        assigned[: len(taken)] = taken
    entries = [
        Event(new.number, value, name)
        for new, named in zip(assigned, values, strict=False)
        if new is not None and new.new
        for name, value in named.items()
    ]
    if entries:
        record(t, entries, now)
    return AssignmentResult(tuple(assigned), state, outside)


def _take(t: Transaction, draws: Draws, units: Sequence[str], now: int) -> list[Assigned]:
    """Give units the next positions of the segment opened last, as far as there are any."""
    numbers = range(0)
    while (row := t.connection.execute(LAST, {"key": t.key}).one_or_none()) is not None:
        index, rounds, handed = row
        counted = min(rounds, handed + len(units))
        if counted == handed:
            break
        if t.connection.execute(TAKE, {"of": t.key, "last": index, "counted": counted}).rowcount:
            numbers = range(number_of(index, handed), number_of(index, counted))
            break
    if not numbers:
        return []
    drawn = draws.at(
        t.key,
        t.seed,
        map(place_of, numbers),
        lambda index: read_segments(t, [index])[index].segment,
    )
    new = [
        Assigned(number, unit, arm, probability, now)
        for number, unit, (arm, probability) in zip(numbers, units, drawn, strict=False)
    ]
    _store_assignments(t, new, now)
    return new


def _store_assignments(t: Transaction, new: Sequence[Assigned], now: int) -> None:
    counts: dict[Place, ArmDay] = {}
    for assigned in new:
        place = place_of(assigned.number)[0], assigned.arm, day_of(now)
        counts.setdefault(place, ArmDay(assigned.arm)).assign(now)
    rows = [
        {
            "key": t.key,
            "number": assigned.number,
            "unit": assigned.unit,
            "repeat": 0 if t.sticky else assigned.number + 1,
            "arm": assigned.arm,
            "probability": assigned.probability,
            "created": now,
            "excluded": None,
        }
        # Transactions that wait for each other do so in one order.
        for assigned in sorted(new, key=attrgetter("unit"))
    ]
    insert_new(t, ASSIGN, rows)
    add_tallies(t, counts)


def find_experiments(
    connection: Connection, units: Sequence[str], keys: Sequence[int]
) -> tuple[frozenset[int], ...]:
    """The keys of the experiments that each unit has an assignment in."""
    keys_of: dict[str, set[int]] = {unit: set() for unit in units}
    for batch in batches(keys_of):
        values = {"values": batch, "keys": sorted(set(keys))}
        for unit, key in connection.execute(BELONGING, values):
            keys_of[unit].add(key)
    return tuple(frozenset(keys_of[unit]) for unit in units)


# Rewards and events


def record(t: Transaction, reported: Sequence[Event], now: int) -> tuple[Outcome, ...]:
    """Record rewards and events of metrics, with one outcome each."""
    for event in reported:
        t.metrics.check(event)
    # Segments are locked first, so that what is read of their assignments stays true.
    state, _ = read_standing(t.connection, t.key, hold=True)
    still_open = hold_open_segments(t)
    rows = find_rows(t, [event.target for event in reported])
    if state == "archived":
        return tuple(Outcome("archived" if row else "unknown") for row in rows)
    before = {row.number: row for row in rows if row is not None}
    if t.metrics:
        hold_segments(t, {place_of(number)[0] for number in before} - still_open)
        before = lock_rows(t, before)
    after = dict(before)
    counts: defaultdict[Place, ArmDay] = defaultdict(lambda: ArmDay(0))
    running = RunningSeries(t.metrics)
    outcomes: list[Outcome] = []
    for found, event in zip(rows, reported, strict=True):
        if found is None:
            outcomes.append(Outcome("unknown"))
            continue
        row, index = after[found.number], place_of(found.number)[0]
        outcome, new = t.metrics.record(row, event, index not in still_open, now)
        outcomes.append(outcome)
        if new is not None:
            after[row.number] = new
        elif outcome.status in ("late", "closed") and row.excluded is None:
            rule = t.metrics.rule(event.metric)
            if rule is t.metrics.primary:
                counts[index, row.arm, day_of(row.created)].late += 1
            else:
                running.at(row, rule.name).late += 1
    changed = [
        (before[number], after[number])
        for number in sorted(after)
        if after[number] is not before[number]
    ]
    for old, row in changed:
        if (old.reward, old.rewarded) != (row.reward, row.rewarded):
            count = counts[place_of(row.number)[0], row.arm, day_of(row.created)]
            count.reward_of(old, -1)
            count.reward_of(row)
        if t.metrics:
            running.change(old, row)
    _store_events(t, changed)
    add_tallies(t, counts)
    add_series(t, running.counts)
    return tuple(outcomes)


def _store_events(t: Transaction, changed: Sequence[tuple[LogRow, LogRow]]) -> None:
    """Store new rewards and events; a collision if others have stored one of them meanwhile."""
    new_rewards = [
        reward_row(t.key, row)
        for old, row in changed
        if (old.reward, old.rewarded, old.received) != (row.reward, row.rewarded, row.received)
    ]
    new_events = [
        event_row(t.key, row.number, event)
        for old, row in changed
        for event in row.events
        if event not in old.events
    ]
    insert_new(t, MEASURE, new_events)
    insert_new(t, REPLACE if t.metrics.by_event else REWARD, new_rewards)


def reward_row(key: int, row: LogRow) -> dict[str, Any]:
    """A row of `rewards`."""
    on_time = row.received is None
    return {
        "key": key,
        "number": row.number,
        "reward": row.reward,
        "created": row.rewarded if on_time else row.received,
        "at": None if on_time else row.rewarded,
    }


def event_row(key: int, number: int, event: MetricEvent) -> dict[str, Any]:
    """A row of `events`."""
    return {
        "key": key,
        "number": number,
        "metric": event.metric,
        "event": event.event,
        "value": event.value,
        "created": event.arrived,
        "at": None if event.received is None else event.at,
    }


# What has arrived lately

MOST_ARRIVALS = 20  # of the latest events


class Arrival(NamedTuple):
    """An event that was counted.

    Attributes
    ----------
    unit : whose it was
    at : when it arrived
    values : what it counted as, by metric
    """

    unit: str
    at: int
    values: Mapping[str, float]


@dataclass(frozen=True)
class Arrivals:
    """What has arrived at an experiment lately.

    Attributes
    ----------
    assigned, counted : assignments, and events that were counted, since a time
    total, silent : assignments so far, and those of them without any event
    latest : the events that arrived last, the latest first
    """

    assigned: int
    counted: int
    total: int
    silent: int
    latest: tuple[Arrival, ...]


def read_arrivals(t: Transaction, metrics: Sequence[str], since: int, most: int) -> Arrivals:
    """See `Storage.arrivals`."""
    primary = t.metrics.primary.name
    parts = [
        select(events.c.number, events.c.metric, events.c.value, events.c.created).where(
            events.c.key == t.key, events.c.metric.in_(metrics)
        )
    ]
    if not t.metrics.by_event:
        named = literal(primary).label("metric"), rewards.c.reward.label("value")
        own = select(rewards.c.number, *named, rewards.c.created).where(rewards.c.key == t.key)
        parts.append(own)
    arrived = union_all(*parts).subquery()
    heard = func.count(func.distinct(arrived.c.number))
    lately = func.count().filter(arrived.c.created >= since)
    units, counted = t.connection.execute(select(heard, lately)).one()
    mine = assignments.c.key == t.key
    recent = func.count().filter(assignments.c.created >= since)
    total, assigned = t.connection.execute(select(func.count(), recent).where(mine)).one()
    latest = (
        select(assignments.c.unit, arrived)
        .join(arrived, mine & (assignments.c.number == arrived.c.number))
        .order_by(arrived.c.created.desc(), arrived.c.number.desc(), arrived.c.metric)
        .limit(most * len(metrics))
    )
    found: dict[tuple[int, int], Arrival] = {}
    for unit, number, metric, value, created in t.connection.execute(latest):
        arrival = found.setdefault((number, created), Arrival(unit, created, {}))
        found[number, created] = arrival._replace(values={**arrival.values, metric: value})
    return Arrivals(assigned, counted, total, total - units, tuple(found.values())[:most])


# Reading and locking


def require_experiment(key: int, value: T | None) -> T:
    """What was read of an experiment; UnknownExperimentError if there was nothing."""
    if value is None:
        raise UnknownExperimentError(f"there is no experiment with key {key}.")
    return value


def batches(values: Iterable[T]) -> Iterator[list[T]]:
    """Values, as many at a time as one statement takes."""
    rest = list(values)
    for start in range(0, len(rest), BATCH):
        yield rest[start : start + BATCH]


def read_standing(
    connection: Connection, key: int, hold: bool = False
) -> tuple[ExperimentState, Mapping[str, Any] | None]:
    """The state of an experiment, and what is shown outside of its test.

    hold : let those who change it wait until the transaction ends
    """
    statement = STANDING_HELD if hold else STANDING
    row = require_experiment(key, connection.execute(statement, {"key": key}).one_or_none())
    return row.state, None if row.outside is None else load(row.outside)


def hold_open_segments(t: Transaction) -> set[int]:
    """Indices of the open segments, which stay open until the transaction ends."""
    return set(t.connection.execute(OPEN, {"key": t.key}).scalars())


def hold_segments(t: Transaction, indices: Iterable[int]) -> None:
    """Let corrections of these segments wait until the transaction ends."""
    values = sorted(indices)
    if values and t.connection.dialect.name == "postgresql":
        t.connection.execute(HOLD, {"key": t.key, "values": values}).close()


def find_rows(t: Transaction, targets: Sequence[Target]) -> list[LogRow | None]:
    """The assignments of targets, without events; by unit only if units are sticky."""
    units = {target for target in targets if isinstance(target, str)} if t.sticky else set()
    numbers = {
        target if isinstance(target, int) else target[0]
        for target in targets
        if not isinstance(target, str)
    }
    rows: dict[int | str, LogRow] = {}
    for numbered in batches(sorted(number for number in numbers if 0 <= number < NUMBERS)):
        for row in t.connection.execute(BY_NUMBER, {"key": t.key, "values": numbered}):
            rows[row.number] = LogRow(*row)
    for named in batches(sorted(units)):
        for row in t.connection.execute(BY_UNIT, {"key": t.key, "values": named}):
            rows[row.unit] = LogRow(*row)
    found: list[LogRow | None] = []
    for target in targets:
        if isinstance(target, tuple):
            there = rows.get(target[0])
            found.append(there if there is not None and is_of(there.unit, target[1]) else None)
        else:
            found.append(rows.get(target))
    return found


def lock_rows(t: Transaction, numbers: Iterable[int]) -> dict[int, LogRow]:
    """Assignments with their events, locked, by number."""
    rows: dict[int, LogRow] = {}
    for batch in batches(sorted(numbers)):
        values = {"key": t.key, "values": batch}
        if t.connection.dialect.name == "postgresql":
            t.connection.execute(LOCK, values).close()
        read = [LogRow(*row) for row in t.connection.execute(BY_NUMBER, values)]
        rows |= {row.number: row for row in with_events(t, read)}
    return rows


def with_events(t: Transaction, rows: list[LogRow]) -> list[LogRow]:
    """Assignments with their events, which are only read if the experiment has any metrics."""
    if not t.metrics:
        return rows
    events_of: dict[int, list[MetricEvent]] = {}
    for batch in batches(row.number for row in rows):
        for number, *event in t.connection.execute(EVENTS, {"key": t.key, "values": batch}):
            events_of.setdefault(number, []).append(MetricEvent(*event))
    return [
        replace(row, events=tuple(sorted(events_of[row.number])))
        if row.number in events_of
        else row
        for row in rows
    ]


def read_segments(t: Transaction, indices: Iterable[int]) -> dict[int, SegmentRecord]:
    """Segments by their index."""
    values = {"key": t.key, "values": sorted(set(indices))}
    records = map(segment_of, t.connection.execute(SEGMENTS, values))
    return {record.index: record for record in records}


def segment_of(row: AnyRow) -> SegmentRecord:
    """A whole row of `segments`."""
    stored = dict(row._mapping)
    stored |= {name: load(stored[name]) for name in ("weights", "reference", "arms")}
    fields = {name: stored[name] for name in SegmentRecord.__dataclass_fields__ if name in stored}
    fields["early"] = EarlySums.read(load(stored["early"]))
    return SegmentRecord(segment=Segment.from_dict(stored), **fields)


# Writing


def insert_new(t: Transaction, insertion: _Insertion, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows; a collision if others have inserted one of them meanwhile.

    insertion : does nothing with rows that are there
    """
    if insertion.execute(t, rows) < len(rows):
        raise CollisionError


class _Insertion:
    """Inserts many rows of a table with one statement; all columns are given.

    SQLite's driver would let other threads in after each row. PostgreSQL takes an array for each
    column: a statement with a parameter for each value takes longer to read than to execute.

    complete : adds what is done with rows that are there
    """

    def __init__(self, table: Table, complete: Callable[[Insert], Insert]) -> None:
        self._names = table.c.keys()
        arrays = (
            func.unnest(bindparam(f"all_{column.name}", type_=ARRAY(column.type)))
            for column in table.c
        )
        from_arrays = insert(table).from_select(self._names, select(*arrays))
        returned = table.c.key  # with RETURNING, SQLAlchemy makes one statement of many rows
        self._by_row = complete(insert(table)).returning(returned)
        self._by_column = complete(from_arrays).returning(returned)

    def execute(self, t: Transaction, rows: Sequence[Mapping[str, Any]]) -> int:
        """Insert rows; the number of those that were inserted or changed."""
        if not rows:
            return 0
        if t.connection.dialect.name == "sqlite":
            return len(t.connection.execute(self._by_row, list(rows)).all())
        columns = {f"all_{name}": [row[name] for row in rows] for name in self._names}
        return len(t.connection.execute(self._by_column, columns).all())


def _replace_reward(statement: Insert) -> Insert:
    """Replace rewards that are made of events: whoever does has locked their assignment."""
    new = {name: statement.excluded[name] for name in ("reward", "created", "at")}
    return statement.on_conflict_do_update(index_elements=rewards.primary_key, set_=new)


ASSIGN = _Insertion(
    assignments,
    lambda statement: statement.on_conflict_do_nothing(index_elements=["key", "unit", "repeat"]),
)
REWARD = _Insertion(rewards, lambda statement: statement.on_conflict_do_nothing())
MEASURE = _Insertion(events, lambda statement: statement.on_conflict_do_nothing())
REPLACE = _Insertion(rewards, _replace_reward)

PLACE = ("segment", "arm", "day", "series")
ADDED = ("assigned", "rewarded", "sums", "squares", "waited", "late", "excluded", "events")


def _add(statement: Insert) -> Insert:
    """Add counts to the rows that are there."""
    table: Any = statement.table
    new, old = statement.excluded, table.c
    values: dict[str, Any] = {name: old[name] + new[name] for name in ADDED if name in old}
    if "last" in old:
        newer = func.coalesce(new["last"], old["last"])
        values["last"] = case((old["last"] > new["last"], old["last"]), else_=newer)
    return statement.on_conflict_do_update(index_elements=table.primary_key, set_=values)


ADD_TALLIES, ADD_SERIES = _Insertion(tallies, _add), _Insertion(series, _add)


def add_tallies(t: Transaction, counts: Mapping[Place, ArmDay]) -> None:
    """Add counts to the tallies of our shard, in the order in which their rows are locked."""
    ADD_TALLIES.execute(t, _count_rows(t, tallies, counts))


def add_series(t: Transaction, counts: Mapping[SeriesPlace, ArmDay]) -> None:
    """Add counts to the series of our shard."""
    ADD_SERIES.execute(t, _count_rows(t, series, counts))


def _count_rows(t: Transaction, table: Table, counts: Mapping[Any, ArmDay]) -> list[dict[str, Any]]:
    names = table.c.keys()
    return [
        {name: value for name, value in vars(count).items() if name in names}
        | dict(zip(PLACE, place, strict=False))
        | {"key": t.key, "shard": t.shard}
        for place, count in sorted(counts.items(), key=lambda item: item[0])
        if count != ArmDay(count.arm)
    ]
