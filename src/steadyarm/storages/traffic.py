"""Traffic of one experiment: assignments, rewards and events, and how their rows are locked.

SQLite has one writer at a time, who needs no further locks. On PostgreSQL rows are locked in one
order: the experiment, segments, assignments or rewards by unit or number, tallies, series.

Units take positions of the segment opened last. A reward has one row, which the first transaction
inserts. Events of one assignment add up, so a transaction that records one locks the assignment
first and reads the events that were recorded before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import (
    JSON,
    BindParameter,
    Column,
    ColumnElement,
    Connection,
    Executable,
    Select,
    Table,
    bindparam,
    case,
    cast,
    column,
    func,
    literal,
    select,
    true,
    union_all,
    update,
)
from sqlalchemy.dialects.postgresql import Insert, insert
from sqlalchemy.dialects.sqlite.base import SQLiteDialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import ClauseElement
from sqlalchemy.sql.functions import FunctionElement

from steadyarm.errors import UnknownExperimentError
from steadyarm.segments import Draws, Segment
from steadyarm.storages.counting import Metrics, RunningSeries, SeriesPlace
from steadyarm.storages.engine import CollisionError
from steadyarm.storages.records import (
    ArmDay,
    AssignmentResult,
    EarlySums,
    Event,
    ExperimentState,
    LogRow,
    MetricEvent,
    Outcome,
    RecordResult,
    SegmentRecord,
    StoredAssignment,
    Target,
    day_of,
    is_hash_of,
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

USE_UNITS = f"INDEXED BY {ASSIGNMENTS_UNIT}"
NUMBERS = 2**63  # no assignment has a number beyond what a database can hold

Place = tuple[int, int, int]  # segment, arm and day
Position = tuple[int, int, int]  # index, rounds and counter of a segment

_key: BindParameter[Any] = bindparam("key")
_values: BindParameter[Any] = bindparam("values", type_=JSON)


class JsonValues(FunctionElement[Any]):
    """The values of a JSON list, as rows with one column `value`."""

    inherit_cache = True


@compiles(JsonValues, "sqlite")
def _values_in_sqlite(element: JsonValues, compiler: Any, **options: Any) -> str:
    return f"json_each{compiler.process(element.clause_expr, **options)}"


@compiles(JsonValues, "postgresql")
def _values_in_postgresql(element: JsonValues, compiler: Any, **options: Any) -> str:
    return f"json_array_elements_text{compiler.process(element.clause_expr, **options)}"


def is_among(value: Column[Any], values: BindParameter[Any] = _values) -> ColumnElement[bool]:
    """Whether a column has one of the values of a list, however long that is."""
    wanted = JsonValues(values).table_valued("value")
    return value.in_(select(cast(wanted.c.value, value.type)))


STANDING = select(experiments.c.state, experiments.c.outside).where(experiments.c.key == _key)
POSITIONS = select(segments.c.index, segments.c.rounds, segments.c.used).where(
    segments.c.key == _key
)
SEGMENTS = select(segments).where(segments.c.key == _key, is_among(segments.c.index))
LOGGED = (
    select(*log_columns(assignments, rewards))
    .select_from(assignments.outerjoin(rewards, same_assignment(assignments)))
    .where(assignments.c.key == _key)
)
EVENTS = select(
    events.c.number,
    events.c.metric,
    events.c.event,
    events.c.value,
    func.coalesce(events.c.at, events.c.created),
    case((events.c.at.is_not(None), events.c.created)),
).where(events.c.key == _key, is_among(events.c.number))
BELONGING = (
    select(assignments.c.unit, assignments.c.key)
    .where(
        is_among(assignments.c.unit),
        is_among(assignments.c.key, bindparam("keys", type_=JSON)),
        assignments.c.repeat == 0,
    )
    .with_hint(assignments, USE_UNITS, "sqlite")
)


def _find(by: Column[Any], *conditions: ColumnElement[bool], hint: str = "") -> dict[str, Any]:
    """Assignments by values of a column, for each database.

    Each value is looked up in the index. A database that believes an experiment to have a few
    assignments would read all of them: SQLite needs a hint, PostgreSQL limits.
    """
    wanted = JsonValues(_values).table_valued("value")
    this = assignments.c.key == _key, by == cast(wanted.c.value, by.type), *conditions
    assigned = select(assignments).where(*this).limit(1).lateral("assigned")
    rewarded = select(rewards).where(same_assignment(assigned)).limit(1).lateral("rewarded")
    both = wanted.join(assigned, true()).outerjoin(rewarded, true())
    return {
        "sqlite": LOGGED.where(is_among(by), *conditions).with_hint(assignments, hint, "sqlite"),
        "postgresql": select(*log_columns(assigned, rewarded)).select_from(both),
    }


def _with_standing(rows: Select[Any]) -> Select[Any]:
    """The state of an experiment, with rows beside it."""
    named = rows.subquery("named")
    beside = experiments.outerjoin(named, true())
    chosen = select(experiments.c.state, experiments.c.outside, *named.c)
    return chosen.select_from(beside).where(experiments.c.key == _key)


def _lock_rows(rows: Select[Any]) -> Select[Any]:
    """The same, locked; the state first, so that `move` waits for transactions that have begun."""
    standing = STANDING.with_for_update(read=True, key_share=True).cte("standing")
    beside = rows.cte("beside")
    return select(standing, beside).select_from(standing.outerjoin(beside, true()))


BY_NUMBER = _find(assignments.c.number)
BY_UNIT = _find(assignments.c.unit, assignments.c.repeat == 0, hint=USE_UNITS)
ASSIGNED = {dialect: _with_standing(rows) for dialect, rows in BY_UNIT.items()}
HOLD_LAST = _lock_rows(
    POSITIONS.order_by(segments.c.index.desc()).limit(1).with_for_update(key_share=True)
)
# Against closing and corrections, not against each other.
HOLD_OPEN = _lock_rows(
    POSITIONS.where(segments.c.closed.is_(None))
    .order_by(segments.c.index)
    .with_for_update(read=True, key_share=True)
)
# Against corrections of segments; against others who record events of the same assignments.
_segments = (
    POSITIONS.where(is_among(segments.c.index, bindparam("indices", type_=JSON)))
    .order_by(segments.c.index)
    .with_for_update(read=True, key_share=True)
)
_assignments = (
    select(assignments.c.number)
    .where(assignments.c.key == _key, is_among(assignments.c.number))
    .order_by(assignments.c.number)
    .with_for_update(key_share=True)
)


def _count_all(*rows: Any) -> Select[Any]:
    """Execute statements of PostgreSQL together; how many rows each of them has."""
    ctes = [statement.cte(f"part{i}") for i, statement in enumerate(rows)]
    return select(*(select(func.count()).select_from(cte).scalar_subquery() for cte in ctes))


LOCK = _count_all(_segments, _assignments)


@dataclass(frozen=True)
class Transaction:
    """A transaction on one experiment, and what never changes of it.

    Attributes
    ----------
    shard : the shard of `tallies` and `series`, to which is added
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
    before: Sequence[StoredAssignment | None] | None = None,
) -> AssignmentResult:
    """The assignment of each unit, an old one or a new one; see `Storage.assign`.

    before : the assignments that units had just now, if they were read already
    """
    state, outside, last = _hold(t, HOLD_LAST)
    if before is None:
        before = find_assigned(t, units).assigned
    assigned = list(before)
    missing = [unit for unit, old in zip(units, assigned, strict=True) if old is None]
    if not missing or state != "running" or outside is not None:
        return AssignmentResult(tuple(assigned), state, outside)
    if t.sticky:
        new = _draw(t, draws, last, list(dict.fromkeys(missing)), now)
        by_unit = {taken.unit: taken for taken in new}
        named = set[str]()
        for i, unit in enumerate(units):
            if assigned[i] is None and unit in by_unit:
                assigned[i] = by_unit[unit]._replace(new=False) if unit in named else by_unit[unit]
                named.add(unit)
    else:
        new = _draw(t, draws, last, missing, now)
        assigned[: len(new)] = new
    counts: _Counts = defaultdict(lambda: ArmDay(0))
    for taken in new:
        counts[place_of(taken.number)[0], taken.arm, day_of(now)].assign(now)
    entries = [
        (
            LogRow(drawn.number, drawn.unit, drawn.arm, drawn.probability, now, None, None),
            Event(drawn.number, value, name),
        )
        for drawn, named in zip(assigned, values, strict=False)
        if drawn is not None and drawn.new
        for name, value in named.items()
    ]
    changes: _Changes = {}
    if entries:
        rows, reported = zip(*entries, strict=True)
        changes = _count_events(t, rows, reported, {last[0][0]}, counts, now)[1]
    if new:
        changes |= {ADD_TALLIES: _count_rows(t, counts)}
        write(t, _store_assignments(t, last[0], new) | changes)
    return AssignmentResult(tuple(assigned), state, outside)


def _draw(
    t: Transaction, draws: Draws, last: Sequence[Position], units: Sequence[str], now: int
) -> list[StoredAssignment]:
    """Assign the next positions of the segment opened last to units, as far as there are any."""
    if not last:
        return []
    index, rounds, used = last[0]
    numbers = range(number_of(index, used), number_of(index, min(rounds, used + len(units))))
    drawn = draws.at(
        t.key,
        t.seed,
        map(place_of, numbers),
        lambda index: read_segments(t, [index])[index].segment,
    )
    return [
        StoredAssignment(number, unit, arm, probability, now)
        for number, unit, (arm, probability) in zip(numbers, units, drawn, strict=False)
    ]


def _store_assignments(t: Transaction, last: Position, new: Sequence[StoredAssignment]) -> _Changes:
    index, _, used = last
    rows = [
        {
            "key": t.key,
            "number": assigned.number,
            "unit": assigned.unit,
            "repeat": 0 if t.sticky else assigned.number + 1,
            "arm": assigned.arm,
            "probability": assigned.probability,
            "created": assigned.created,
            "excluded": None,
        }
        # Transactions that wait for each other do so in one order.
        for assigned in sorted(new, key=attrgetter("unit"))
    ]
    taken = {"of": t.key, "last": index, "counted": used + len(new)}
    return {TAKE: [taken], ASSIGN: rows}


def find_experiments(
    connection: Connection, units: Sequence[str], keys: Sequence[int]
) -> tuple[frozenset[int], ...]:
    """The keys of the experiments that each unit has an assignment in."""
    keys_of: dict[str, set[int]] = {unit: set() for unit in units}
    values = {"values": list(keys_of), "keys": sorted(set(keys))}
    for unit, key in connection.execute(BELONGING, values):
        keys_of[unit].add(key)
    return tuple(frozenset(keys_of[unit]) for unit in units)


# Rewards and events


def record(t: Transaction, reported: Sequence[Event], now: int) -> RecordResult:
    """Record rewards and events of metrics; see `Storage.record`."""
    for event in reported:
        t.metrics.check(event)
    # Segments are locked first, so that what is read of their assignments stays true.
    state, _, positions = _hold(t, HOLD_OPEN)
    rows = find_rows(t, [event.target for event in reported])
    exhausted = any(used >= rounds for _, rounds, used in positions)
    if state == "archived":
        outcomes = [Outcome("archived" if row else "unknown") for row in rows]
        return RecordResult(tuple(outcomes), exhausted)
    if t.metrics:
        locked = lock_rows(t, {row.number for row in rows if row is not None})
        rows = [None if row is None else locked[row.number] for row in rows]
    counts: _Counts = defaultdict(lambda: ArmDay(0))
    still_open = {index for index, _, _ in positions}
    outcomes, changes = _count_events(t, rows, reported, still_open, counts, now)
    write(t, changes | {ADD_TALLIES: _count_rows(t, counts)})
    return RecordResult(tuple(outcomes), exhausted)


def _count_events(
    t: Transaction,
    rows: Sequence[LogRow | None],
    reported: Sequence[Event],
    still_open: set[int],
    counts: _Counts,
    now: int,
) -> tuple[list[Outcome], _Changes]:
    """Decide the outcome of each event, and the rows to store; rewards are added to the counts.

    rows : the assignment of each event, with its events
    still_open : indices of the segments that the policy has not observed
    """
    before = {row.number: row for row in rows if row is not None}
    after = dict(before)
    running = RunningSeries(t.metrics)
    outcomes: list[Outcome] = []
    for target, event in zip(rows, reported, strict=True):
        if target is None:
            outcomes.append(Outcome("unknown"))
            continue
        row, index = after[target.number], place_of(target.number)[0]
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
    sums = {ADD_SERIES: _count_rows(t, running.counts)}
    return outcomes, _store_events(t, changed) | sums


def _store_events(t: Transaction, changed: Sequence[tuple[LogRow, LogRow]]) -> _Changes:
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
    return {MEASURE: new_events, REPLACE if t.metrics.by_event else REWARD: new_rewards}


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
    """The latest assignments, rewards and events of an experiment.

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
    arrivals: dict[tuple[int, int], Arrival] = {}
    for unit, number, metric, value, created in t.connection.execute(latest):
        arrival = arrivals.setdefault((number, created), Arrival(unit, created, {}))
        arrivals[number, created] = arrival._replace(values={**arrival.values, metric: value})
    return Arrivals(assigned, counted, total, total - units, tuple(arrivals.values())[:most])


# Reading and locking


def require_experiment(key: int, value: T | None) -> T:
    """The rows of an experiment; UnknownExperimentError if there are none."""
    if value is None:
        raise UnknownExperimentError(f"there is no experiment with key {key}.")
    return value


def _hold(
    t: Transaction, statement: Executable
) -> tuple[ExperimentState, Mapping[str, Any] | None, list[Position]]:
    """Execute `HOLD_LAST` or `HOLD_OPEN`: state, what is shown outside, and segments."""
    rows = t.connection.execute(statement, {"key": t.key}).all()
    state, outside, *_ = require_experiment(t.key, rows[0] if rows else None)
    return state, load(outside), [tuple(row[2:]) for row in rows if row[2] is not None]


def find_assigned(t: Transaction, units: Sequence[str]) -> AssignmentResult:
    """The assignments that units have (none if they are not sticky), in one statement."""
    values = {"key": t.key, "values": sorted(set(units))}
    by_unit = t.sticky and bool(units)
    statement = ASSIGNED[t.connection.dialect.name] if by_unit else STANDING
    rows = t.connection.execute(statement, values).all()
    state, outside, *_ = require_experiment(t.key, rows[0] if rows else None)
    logged = [LogRow(*row[2:]) for row in rows if by_unit and row[2] is not None]
    assigned = {row.unit: row.assigned() for row in logged}
    return AssignmentResult(tuple(map(assigned.get, units)), state, load(outside))


def find_rows(t: Transaction, targets: Sequence[Target]) -> list[LogRow | None]:
    """The assignments of targets, without events; by unit only if units are sticky."""
    units = {target for target in targets if isinstance(target, str)} if t.sticky else set()
    numbers = {
        target if isinstance(target, int) else target[0]
        for target in targets
        if not isinstance(target, str)
    }
    rows: dict[int | str, LogRow] = {}
    for row in _look_up(t, BY_NUMBER, sorted(n for n in numbers if 0 <= n < NUMBERS)):
        rows[row.number] = row
    for row in _look_up(t, BY_UNIT, sorted(units)):
        rows[row.unit] = row
    matches: list[LogRow | None] = []
    for target in targets:
        match = rows.get(target[0] if isinstance(target, tuple) else target)
        if isinstance(target, tuple) and match and not is_hash_of(match.unit, target[1]):
            match = None
        matches.append(match)
    return matches


def _look_up(t: Transaction, statement: Mapping[str, Any], values: Sequence[Any]) -> list[LogRow]:
    if not values:
        return []
    this = statement[t.connection.dialect.name]
    return [LogRow(*row) for row in t.connection.execute(this, {"key": t.key, "values": values})]


def lock_rows(t: Transaction, numbers: Iterable[int]) -> dict[int, LogRow]:
    """Assignments with their events, by number; they and their segments are locked."""
    values = sorted(numbers)
    if t.connection.dialect.name == "postgresql":
        indices = sorted({place_of(number)[0] for number in values})
        t.connection.execute(LOCK, {"key": t.key, "values": values, "indices": indices}).close()
    return {row.number: row for row in with_events(t, _look_up(t, BY_NUMBER, values))}


def with_events(t: Transaction, rows: list[LogRow]) -> list[LogRow]:
    """Assignments with their events, which are only read if the experiment has any metrics."""
    if not t.metrics or not rows:
        return rows
    events_of: dict[int, list[MetricEvent]] = {}
    values = {"key": t.key, "values": [row.number for row in rows]}
    for number, *event in t.connection.execute(EVENTS, values):
        events_of.setdefault(number, []).append(MetricEvent(*event))
    return [
        row._replace(events=tuple(sorted(events_of[row.number])))
        if row.number in events_of
        else row
        for row in rows
    ]


def read_segments(t: Transaction, indices: Iterable[int]) -> dict[int, SegmentRecord]:
    """Segments by their index."""
    values = {"key": t.key, "values": sorted(set(indices))}
    records = map(read_segment, t.connection.execute(SEGMENTS, values))
    return {record.index: record for record in records}


def read_segment(row: AnyRow) -> SegmentRecord:
    """A whole row of `segments`."""
    stored = dict(row._mapping)
    stored |= {name: load(stored[name]) for name in ("weights", "reference", "arms")}
    fields = {name: stored[name] for name in SegmentRecord.__dataclass_fields__ if name in stored}
    fields["early"] = EarlySums.read(load(stored["early"]))
    return SegmentRecord(segment=Segment.from_dict(stored), **fields)


# Writing


@dataclass(frozen=True, eq=False)
class _Change:
    """One statement that writes rows.

    SQLite's driver takes them as they are. PostgreSQL takes them as JSON, because a statement with
    a parameter for each value takes longer to read than to execute.

    Attributes
    ----------
    sqlite : its text
    rows : the parameter that has the rows on PostgreSQL; "" if parameters are those of one row
    """

    sqlite: str
    postgresql: Any
    rows: str = ""


_Changes = dict[_Change, list[dict[str, Any]]]
_Counts = defaultdict[Place, ArmDay]


def write(t: Transaction, changes: _Changes) -> None:
    """Make changes, on PostgreSQL with one statement.

    A collision if others have inserted one of the rows meanwhile.
    """
    changes = {change: rows for change, rows in changes.items() if rows}
    wanted = [len(rows) for rows in changes.values()]
    if t.connection.dialect.name == "sqlite":
        written = [
            t.connection.exec_driver_sql(change.sqlite, rows).rowcount
            for change, rows in changes.items()
        ]
    elif changes:
        parameters: dict[str, Any] = {}
        for change, rows in changes.items():
            parameters |= {change.rows: rows} if change.rows else rows[0]
        written = list(t.connection.execute(_write_all(*changes), parameters).one())
    else:
        written = []
    if written != wanted:
        raise CollisionError


@cache
def _write_all(*changes: _Change) -> Select[Any]:
    return _count_all(*(change.postgresql for change in changes))


def _inserting(table: Table, complete: Callable[[Insert], Insert]) -> _Change:
    """Insert rows with all columns.

    complete : adds what is done with rows that are there
    """
    name = f"{table.name}_rows"
    columns = (column(c.name, c.type) for c in table.c)
    rows = func.json_to_recordset(bindparam(name, type_=JSON)).table_valued(*columns)
    chosen = select(*rows.render_derived(with_types=True).c)
    of_json = insert(table).from_select(table.c.keys(), chosen)
    return _Change(_text(complete(insert(table))), complete(of_json).returning(table.c.key), name)


def _text(statement: ClauseElement) -> str:
    """A statement for SQLite's driver, with named parameters."""
    return str(statement.compile(dialect=SQLiteDialect(paramstyle="named")))


def _replace_reward(statement: Insert) -> Insert:
    """Replace rewards that are made of events. The caller has locked their assignments."""
    new = {name: statement.excluded[name] for name in ("reward", "created", "at")}
    return statement.on_conflict_do_update(index_elements=rewards.primary_key, set_=new)


_move_counter = (
    update(segments)
    .where(segments.c.key == bindparam("of"), segments.c.index == bindparam("last"))
    .values(used=bindparam("counted"))
)
TAKE = _Change(_text(_move_counter), _move_counter.returning(segments.c.index))
ASSIGN = _inserting(
    assignments,
    lambda statement: statement.on_conflict_do_nothing(index_elements=["key", "unit", "repeat"]),
)
REWARD = _inserting(rewards, lambda statement: statement.on_conflict_do_nothing())
MEASURE = _inserting(events, lambda statement: statement.on_conflict_do_nothing())
REPLACE = _inserting(rewards, _replace_reward)

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


ADD_TALLIES, ADD_SERIES = _inserting(tallies, _add), _inserting(series, _add)


def add_counts(
    t: Transaction, counts: Mapping[Place, ArmDay], metrics: Mapping[SeriesPlace, ArmDay]
) -> None:
    """Add counts to the tallies and series of our shard."""
    sums = {ADD_SERIES: _count_rows(t, metrics)}
    write(t, {ADD_TALLIES: _count_rows(t, counts)} | sums)


def _count_rows(t: Transaction, counts: Mapping[Any, ArmDay]) -> list[dict[str, Any]]:
    """Rows of counts, in the order in which they are locked."""
    return [
        {**vars(count), **dict(zip(PLACE, place, strict=False)), "key": t.key, "shard": t.shard}
        for place, count in sorted(counts.items(), key=lambda item: item[0])
        if count != ArmDay(count.arm)
    ]
