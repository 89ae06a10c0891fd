"""Rows of one experiment: how they are read, locked and counted.

SQLite has one writer at a time, who needs no further locks. On PostgreSQL rows are locked in one
order: the experiment, segments, assignments or rewards by unit or number, tallies, series.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from sqlalchemy import BindParameter, Connection, Table, bindparam, case, func, select
from sqlalchemy.dialects.postgresql import insert

from steadyarm.errors import UnknownExperimentError
from steadyarm.segments import Segment
from steadyarm.storages.engine import CollisionError
from steadyarm.storages.records import (
    ArmDay,
    EarlySums,
    ExperimentRecord,
    ExperimentState,
    LogRow,
    MetricEvent,
    SegmentRecord,
    Target,
    is_of,
)
from steadyarm.storages.schema import (
    AnyRow,
    assignments,
    dump,
    events,
    experiments,
    load,
    logged,
    rewards,
    same_assignment,
    segments,
    series,
    tallies,
)
from steadyarm.storages.series import Metrics, SeriesPlace

T = TypeVar("T")

BATCH = 5_000  # values in one statement; SQLite allows 32,766 parameters
NUMBERS = 2**63  # no assignment has a number beyond what a database can hold

Place = tuple[int, int, int]  # segment, arm and day

_key: BindParameter[Any] = bindparam("key")
_values: BindParameter[Any] = bindparam("values", expanding=True)

_standing = select(experiments.c.state, experiments.c.outside).where(experiments.c.key == _key)
# Held to the end of the transaction, so that `move` waits for transactions that have begun.
_standing_held = _standing.with_for_update(read=True, key_share=True)
# Against closing and corrections, not against each other.
_open = (
    select(segments.c.index)
    .where(segments.c.key == _key, segments.c.closed.is_(None))
    .order_by(segments.c.index)
    .with_for_update(read=True, key_share=True)
)
_some = (
    select(segments.c.index)
    .where(segments.c.key == _key, segments.c.index.in_(_values))
    .order_by(segments.c.index)
    .with_for_update(read=True, key_share=True)
)
_segments = select(segments).where(segments.c.key == _key, segments.c.index.in_(_values))
LOGGED = (
    select(*logged(assignments, rewards))
    .select_from(assignments.outerjoin(rewards, same_assignment(assignments)))
    .where(assignments.c.key == _key)
)
_by_number = LOGGED.where(assignments.c.number.in_(_values))
_by_unit = LOGGED.where(assignments.c.unit.in_(_values), assignments.c.repeat == 0)
# Against others who record events of the same assignments, and against their exclusion.
_lock = (
    select(assignments.c.number)
    .where(assignments.c.key == _key, assignments.c.number.in_(_values))
    .order_by(assignments.c.number)
    .with_for_update(key_share=True)
)
_events = select(
    events.c.number,
    events.c.metric,
    events.c.event,
    events.c.value,
    func.coalesce(events.c.at, events.c.created),
    case((events.c.at.is_not(None), events.c.created)),
).where(events.c.key == _key, events.c.number.in_(_values))


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


def known(key: int, found: T | None) -> T:
    """What was found of an experiment; UnknownExperimentError if nothing was."""
    if found is None:
        raise UnknownExperimentError(f"there is no experiment with key {key}.")
    return found


def batches(values: Iterable[T]) -> Iterator[list[T]]:
    """Values, as many at a time as one statement takes."""
    rest = list(values)
    for start in range(0, len(rest), BATCH):
        yield rest[start : start + BATCH]


# Reading


def read_standing(
    connection: Connection, key: int, hold: bool = False
) -> tuple[ExperimentState, Mapping[str, Any] | None]:
    """The state of an experiment, and what is shown outside of its test.

    hold : let those who change it wait until the transaction ends
    """
    row = connection.execute(_standing_held if hold else _standing, {"key": key}).one_or_none()
    state, outside = known(key, row)
    return state, load(outside)


def hold_open_segments(t: Transaction) -> set[int]:
    """Indices of the open segments, which stay open until the transaction ends."""
    return set(t.connection.execute(_open, {"key": t.key}).scalars())


def hold_segments(t: Transaction, indices: Iterable[int]) -> None:
    """Let corrections of these segments wait until the transaction ends."""
    values = sorted(indices)
    if values and t.connection.dialect.name == "postgresql":
        t.connection.execute(_some, {"key": t.key, "values": values}).close()


def read_segments(t: Transaction, indices: Iterable[int]) -> dict[int, SegmentRecord]:
    """Segments by their index."""
    values = {"key": t.key, "values": sorted(set(indices))}
    records = map(segment_of, t.connection.execute(_segments, values))
    return {record.index: record for record in records}


def find_rows(t: Transaction, targets: Sequence[Target]) -> list[LogRow | None]:
    """The assignments of targets, without events; by unit only if units are sticky."""
    numbers, units = set[int](), set[str]()
    for target in targets:
        if isinstance(target, str):
            units.add(target)
        else:
            numbers.add(target if isinstance(target, int) else target[0])
    possible = sorted(number for number in numbers if 0 <= number < NUMBERS)
    rows: dict[int | str, LogRow] = {}
    for statement, values in ((_by_number, possible), (_by_unit, sorted(units) * t.sticky)):
        for batch in batches(values):
            for found in t.connection.execute(statement, {"key": t.key, "values": batch}):
                row = LogRow(*found)
                rows[row.number] = rows[row.unit] = row

    def find(target: Target) -> LogRow | None:
        if isinstance(target, str):
            return rows.get(target) if t.sticky else None
        if isinstance(target, int):
            return rows.get(target)
        row = rows.get(target[0])
        return row if row is not None and is_of(row.unit, target[1]) else None

    return [find(target) for target in targets]


def lock_rows(t: Transaction, numbers: Iterable[int]) -> dict[int, LogRow]:
    """Assignments with their events, locked, by number."""
    rows: dict[int, LogRow] = {}
    for batch in batches(sorted(numbers)):
        values = {"key": t.key, "values": batch}
        if t.connection.dialect.name == "postgresql":
            t.connection.execute(_lock, values).close()
        found = [LogRow(*row) for row in t.connection.execute(_by_number, values)]
        rows |= {row.number: row for row in with_events(t, found)}
    return rows


def with_events(t: Transaction, rows: list[LogRow]) -> list[LogRow]:
    """Assignments with their events, which are only read if the experiment has any metrics."""
    if not t.metrics:
        return rows
    events_of: dict[int, list[MetricEvent]] = {}
    for batch in batches(row.number for row in rows):
        for number, *event in t.connection.execute(_events, {"key": t.key, "values": batch}):
            events_of.setdefault(number, []).append(MetricEvent(*event))
    return [
        replace(row, events=tuple(sorted(events_of[row.number])))
        if row.number in events_of
        else row
        for row in rows
    ]


# Records


def experiment_of(row: AnyRow) -> ExperimentRecord:
    """A whole row of `experiments`."""
    parsed = {name: load(row._mapping[name]) for name in ("config", "policy_state", "outside")}
    return ExperimentRecord(**dict(row._mapping) | parsed)


LISTS = ("weights", "reference", "arms")  # columns of a segment that hold JSON


def segment_of(row: AnyRow) -> SegmentRecord:
    """A whole row of `segments`."""
    stored = dict(row._mapping)
    stored |= {name: load(stored[name]) for name in LISTS if stored[name] is not None}
    fields = {name: stored[name] for name in SegmentRecord.__dataclass_fields__ if name in stored}
    fields["early"] = EarlySums.read(load(stored["early"]))
    return SegmentRecord(segment=Segment.from_dict(stored), **fields)


def segment_row(key: int, record: SegmentRecord) -> dict[str, Any]:
    """The row that `segment_of` reads."""
    fields = {name: value for name, value in vars(record).items() if name != "segment"}
    stored = record.segment.to_dict()
    lists = {name: dump(stored[name]) for name in LISTS if stored[name] is not None}
    early = None if record.early is None else dump(record.early)
    return fields | stored | lists | {"key": key, "early": early}


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


def insert_new(t: Transaction, statement: Any, rows: list[dict[str, Any]]) -> None:
    """Insert rows; a collision if others have inserted one of them meanwhile.

    statement : does nothing with rows that are there
    """
    if not rows:
        return
    options = {"preserve_rowcount": True}
    if t.connection.execute(statement, rows, execution_options=options).rowcount < len(rows):
        raise CollisionError


# Counts of segments, arms and days

PLACE = ("segment", "arm", "day", "series")
ADDED = ("assigned", "rewarded", "sums", "squares", "waited", "late", "excluded", "events")


def _adding(table: Table) -> Any:
    """The statement that adds counts to the rows of a table, or makes these rows."""
    statement = insert(table)
    new, old = statement.excluded, table.c
    values: dict[str, Any] = {name: old[name] + new[name] for name in ADDED if name in old}
    if "last" in old:
        newer = func.coalesce(new["last"], old["last"])
        values["last"] = case((old["last"] > new["last"], old["last"]), else_=newer)
    return statement.on_conflict_do_update(index_elements=table.primary_key, set_=values)


ADD_TALLIES, ADD_SERIES = _adding(tallies), _adding(series)


def add_tallies(t: Transaction, counts: Mapping[Place, ArmDay]) -> None:
    """Add counts to the tallies of our shard, in the order in which their rows are locked."""
    if rows := _count_rows(t, tallies, counts):
        t.connection.execute(ADD_TALLIES, rows)


def add_series(t: Transaction, counts: Mapping[SeriesPlace, ArmDay]) -> None:
    """Add counts to the series of our shard."""
    if rows := _count_rows(t, series, counts):
        t.connection.execute(ADD_SERIES, rows)


def _count_rows(t: Transaction, table: Table, counts: Mapping[Any, ArmDay]) -> list[dict[str, Any]]:
    names = table.c.keys()
    return [
        {name: value for name, value in vars(count).items() if name in names}
        | dict(zip(PLACE, place, strict=False))
        | {"key": t.key, "shard": t.shard}
        for place, count in sorted(counts.items(), key=lambda item: item[0])
        if count != ArmDay(count.arm)
    ]
