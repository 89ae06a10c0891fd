"""Experiments and decisions: what is created, listed, moved, and decided."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Select,
    bindparam,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert as upsert

from steadyarm.storages.audit import note
from steadyarm.storages.changes import moved, name_taken, unknown_experiment
from steadyarm.storages.corrections import corrected_segments
from steadyarm.storages.records import (
    DaySums,
    Decision,
    ExperimentRecord,
    ExperimentState,
    Progress,
    SegmentRecord,
    SeriesSums,
    Snapshot,
    Summary,
    Tally,
    columns_of,
    day_sums,
    tally_of,
)
from steadyarm.storages.rows import Transaction, experiment_of, known, segment_of, segment_row
from steadyarm.storages.schema import (
    corrections,
    dump,
    experiments,
    load,
    marks,
    segments,
    series,
    tallies,
)
from steadyarm.storages.series import SeriesPlace, series_sums

_mark = upsert(marks)
SET_MARK = _mark.on_conflict_do_update(
    index_elements=["name"], set_={"value": _mark.excluded.value}
)
UNMATCHED = "event "  # marks of events that no experiment measures begin so; the time follows
MOST_UNMATCHED = 20  # of these are kept
IS_UNMATCHED = marks.c.name.startswith(UNMATCHED)
CREATE = upsert(experiments).on_conflict_do_nothing().returning(experiments.c.key)
BY_KEY = select(experiments).where(experiments.c.key == bindparam("key"))
BY_NAME = select(experiments).where(experiments.c.name == bindparam("name"))
LOCKED = BY_KEY.with_for_update(key_share=True)  # traffic goes on, only `move` waits

_others = segments.alias("others")
LAST = select(func.max(_others.c.index)).where(_others.c.key == bindparam("key"))
_some: BindParameter[Any] = bindparam("indices", expanding=True)
ALL_SEGMENTS = select(segments).where(segments.c.key == bindparam("key")).order_by(segments.c.index)
OPEN_AND_LAST = ALL_SEGMENTS.where(
    or_(segments.c.closed.is_(None), segments.c.index == LAST.scalar_subquery())
)
LOCKED_SEGMENTS = ALL_SEGMENTS.where(segments.c.index.in_(_some)).with_for_update()
# In one order, because sums of floats depend on it.
COUNTS = (
    select(tallies)
    .where(tallies.c.key == bindparam("key"))
    .order_by(tallies.c.segment, tallies.c.day, tallies.c.arm, tallies.c.shard)
)
SOME_COUNTS = COUNTS.where(tallies.c.segment.in_(_some))
SERIES = (
    select(series)
    .where(series.c.key == bindparam("key"))
    .order_by(series.c.segment, series.c.arm, series.c.day, series.c.series, series.c.shard)
)
STEERING = SERIES.where(
    series.c.segment.in_(_some), series.c.series.in_(bindparam("names", expanding=True))
)
_tallied = (tallies.c.key == segments.c.key) & (tallies.c.segment == segments.c.index)
PROGRESS = (
    select(
        segments.c.index,
        segments.c.rounds,
        func.sum(tallies.c.assigned),
        func.sum(tallies.c.rewarded + tallies.c.excluded),
        func.max(tallies.c.last),
    )
    .select_from(segments.outerjoin(tallies, _tallied))
    .where(segments.c.key == bindparam("key"), segments.c.closed.is_(None))
    .group_by(segments.c.index, segments.c.rounds)
    .order_by(segments.c.index)
)
EXHAUSTED = PROGRESS.where(segments.c.handed >= segments.c.rounds)

TOTALS = ("assigned", "rewarded", "late", "corrected", "measured")
LONG = ("config", "policy_state")  # columns that lists do without


def _summaries(*which: ColumnElement[bool]) -> Select[Any]:
    """Experiments with their totals; `which` says of which tallies."""
    totals = (
        select(
            tallies.c.key,
            *(func.sum(tallies.c[name]).label(name) for name in ("assigned", "rewarded", "late")),
            func.max(tallies.c.last).label("last"),
        )
        .where(*which)
        .group_by(tallies.c.key)
        .subquery()
    )
    first = (segments.c.key == experiments.c.key) & (segments.c.index == 0)
    last_correction = (
        select(func.max(corrections.c.entry))
        .where(corrections.c.key == experiments.c.key)
        .scalar_subquery()
    )
    recorded = (
        select(func.sum(series.c.events)).where(series.c.key == experiments.c.key).scalar_subquery()
    )
    return (
        select(
            *(column for column in experiments.c if column.name not in LONG),
            totals.c.assigned,
            totals.c.rewarded,
            totals.c.late,
            segments.c.opened.label("started"),
            totals.c.last,
            last_correction.label("corrected"),
            recorded.label("measured"),
        )
        .select_from(
            experiments.outerjoin(segments, first).outerjoin(
                totals, totals.c.key == experiments.c.key
            )
        )
        .order_by(experiments.c.key)
    )


SUMMARIES = _summaries()
SUMMARY = _summaries(tallies.c.key == bindparam("only")).where(
    experiments.c.key == bindparam("only")
)
CONFIGS = select(experiments.c.key, experiments.c.config).where(
    experiments.c.key.in_(bindparam("keys", expanding=True))
)


def create(connection: Connection, record: ExperimentRecord, by: str) -> ExperimentRecord:
    """Add an experiment under a new key."""
    texts = {
        "config": dump(record.config),
        "policy_state": dump(record.policy_state),
        "outside": None if record.outside is None else dump(record.outside),
    }
    row = {name: value for name, value in (vars(record) | texts).items() if name != "key"}
    key = connection.execute(CREATE, row).scalar()
    if key is None:
        raise name_taken(record.name)
    detail = {"state": record.state}
    note(connection, record.created, by, "experiment.created", record.name, detail)
    return experiment_of(connection.execute(BY_KEY, {"key": key}).one())


def find(connection: Connection, name: str) -> ExperimentRecord:
    """The experiment of that name."""
    row = connection.execute(BY_NAME, {"name": name}).one_or_none()
    if row is None:
        raise unknown_experiment(name, connection.execute(select(experiments.c.name)).scalars())
    return experiment_of(row)


def read_summaries(
    connection: Connection, only: int | None, configs: dict[int, Mapping[str, Any]]
) -> list[Summary]:
    """Experiments and their totals.

    configs : known ones, by key; they never change, and new ones are added
    """
    rows = connection.execute(SUMMARIES if only is None else SUMMARY, {"only": only}).all()
    new = [row.key for row in rows if row.key not in configs]
    for key, config in connection.execute(CONFIGS, {"keys": new}) if new else ():
        configs[key] = load(config)
    return [
        Summary(
            **dict(row._mapping)
            | {name: int(row._mapping[name] or 0) for name in TOTALS}
            | {"config": configs[row.key], "outside": load(row.outside)}
        )
        for row in rows
    ]


def move(
    connection: Connection,
    key: int,
    to: ExperimentState,
    now: int,
    by: str,
    detail: Mapping[str, Any] | None,
) -> ExperimentRecord:
    """Move an experiment to another state."""
    row = known(key, connection.execute(BY_KEY.with_for_update(), {"key": key}).one_or_none())
    if row.state != to:
        action = moved(row.name, row.state, to)
        this = update(experiments).where(experiments.c.key == key)
        connection.execute(this.values(state=to))
        note(connection, now, by, action, row.name, detail)
    return replace(experiment_of(row), state=to)


def show_outside(
    connection: Connection,
    key: int,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any],
    action: str,
    now: int,
    by: str,
    detail: Mapping[str, Any] | None,
) -> bool:
    """Set what is shown outside of the test, if it is still what the caller saw."""
    row = known(key, connection.execute(BY_KEY.with_for_update(), {"key": key}).one_or_none())
    if load(row.outside) != before:
        return False
    this = update(experiments).where(experiments.c.key == key)
    connection.execute(this.values(outside=dump(after)))
    note(connection, now, by, action, row.name, detail)
    return True


def read_snapshot(t: Transaction, everything: bool) -> Snapshot:
    """The experiment with the segments that are open and the last one; or with all of them."""
    row = t.connection.execute(BY_KEY, {"key": t.key}).one()
    statement = ALL_SEGMENTS if everything else OPEN_AND_LAST
    records = [segment_of(found) for found in t.connection.execute(statement, {"key": t.key})]
    sums = _tallies(t, records, everything)
    corrected = corrected_segments(t.connection, t.key) if everything else ()
    pairs = tuple((record, sums[record.index]) for record in records)
    experiment = experiment_of(row)
    unmatched = read_unmatched(t.connection, experiment.created) if everything else ()
    return Snapshot(experiment, pairs, corrected, _steering(t, records), unmatched)


def note_unmatched(connection: Connection, events: Sequence[str], now: int) -> None:
    """Keep the names of events that no experiment measures; the latest of all stay."""
    connection.execute(SET_MARK, [{"name": UNMATCHED + event, "value": now} for event in events])
    latest = select(marks.c.name).where(IS_UNMATCHED).order_by(marks.c.value.desc(), marks.c.name)
    kept = latest.limit(MOST_UNMATCHED).subquery()
    connection.execute(delete(marks).where(IS_UNMATCHED, marks.c.name.not_in(select(kept.c.name))))


def read_unmatched(connection: Connection, since: int) -> tuple[str, ...]:
    """Names of events that no experiment measured, received since a time."""
    found = select(marks.c.name).where(IS_UNMATCHED, marks.c.value >= since).order_by(marks.c.name)
    return tuple(name.removeprefix(UNMATCHED) for name in connection.execute(found).scalars())


def read_progress(connection: Connection, key: int, exhausted: bool) -> tuple[Progress, ...]:
    """How far the open segments have come."""
    rows = connection.execute(EXHAUSTED if exhausted else PROGRESS, {"key": key})
    return tuple(
        Progress(index, rounds, int(assigned or 0), int(done or 0), last)
        for index, rounds, assigned, done, last in rows
    )


def decide(t: Transaction, version: int, decision: Decision, now: int) -> bool:
    """Store a decision made on a version; False if something has changed, and then nothing."""
    row = t.connection.execute(LOCKED, {"key": t.key}).one()
    if row.version != version:
        return False
    last = t.connection.execute(LAST, {"key": t.key}).scalar()
    last = -1 if last is None else last
    if decision.supersede is not None and (last < 0 or decision.supersede != last):
        return False
    if decision.opened is not None and decision.opened.index != last + 1:
        return False
    closing = {index for index, _ in decision.closed}
    # The last segment is locked even if another is opened, to wait for who moves its counter.
    values = {"key": t.key, "indices": sorted({last, *closing})}
    rows = t.connection.execute(LOCKED_SEGMENTS, values)
    records = {record.index: record for record in map(segment_of, rows)}
    if len(closing) < len(decision.closed) or not closing <= records.keys():
        return False
    closed = [records[index] for index in closing]
    sums = _tallies(t, closed)
    for index, tally in decision.closed:
        is_open = records[index].closed is None
        if not is_open or sums[index] != tally or tally.total_assigned != records[index].rounds:
            return False
    if not decision.rests_on(_steering(t, closed)):
        return False
    mine = update(segments).where(segments.c.key == t.key)
    for rank, (index, _) in enumerate(decision.closed, row.observed + 1):
        this = mine.where(segments.c.index == index)
        t.connection.execute(this.values(closed=rank, closed_at=now))
    if decision.supersede is not None:
        rounds = decision.cut(records[last]).rounds
        this = mine.where(segments.c.index == last)
        t.connection.execute(this.values(rounds=rounds, superseded=True))
    if decision.opened is not None:
        t.connection.execute(insert(segments), segment_row(t.key, decision.opened))
    changes = {
        "version": version + 1,
        "observed": row.observed + len(decision.closed),
        "policy_state": dump(decision.policy_state),
    }
    t.connection.execute(update(experiments).where(experiments.c.key == t.key).values(changes))
    return True


def read_days(t: Transaction) -> tuple[DaySums, ...]:
    """Sums by segment and day."""
    records = map(segment_of, t.connection.execute(ALL_SEGMENTS, {"key": t.key}))
    columns = {record.index: columns_of(record.segment) for record in records}
    rows = t.connection.execute(COUNTS, {"key": t.key})
    return tuple(
        day_sums(segment, day, [*group], columns[segment])
        for (segment, day), group in groupby(rows, lambda row: (row.segment, row.day))
    )


def read_series(t: Transaction) -> tuple[SeriesSums, ...]:
    """Sums of metrics by segment, day and name."""
    if not t.metrics:
        return ()
    records = map(segment_of, t.connection.execute(ALL_SEGMENTS, {"key": t.key}))
    columns = {record.index: columns_of(record.segment) for record in records}
    return series_sums(_by_place(t.connection.execute(SERIES, {"key": t.key})), columns)


def _steering(t: Transaction, records: Sequence[SegmentRecord]) -> tuple[SeriesSums, ...]:
    """Sums of covariates of some segments."""
    if not t.metrics.steering or not records:
        return ()
    columns = {record.index: columns_of(record.segment) for record in records}
    values = {"key": t.key, "indices": sorted(columns), "names": sorted(t.metrics.steering)}
    return series_sums(_by_place(t.connection.execute(STEERING, values)), columns)


def _by_place(rows: Iterable[Any]) -> Iterator[tuple[SeriesPlace, Any]]:
    """Rows of `series` with their places."""
    return (((row.segment, row.arm, row.day, row.series), row) for row in rows)


def _tallies(
    t: Transaction, records: Sequence[SegmentRecord], everything: bool = False
) -> dict[int, Tally]:
    """Tallies of segments, summed over days and shards.

    everything : of all segments
    """
    values = {"key": t.key, "indices": [record.index for record in records]}
    counts: dict[int, list[Any]] = {record.index: [] for record in records}
    for row in t.connection.execute(COUNTS if everything else SOME_COUNTS, values):
        if row.segment in counts:  # not so if rows are damaged
            counts[row.segment].append(row)
    return {r.index: tally_of(counts[r.index], columns_of(r.segment)) for r in records}
