"""Experiments: created, found, moved and restored; their snapshots, decisions and overviews."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from math import inf
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    bindparam,
    func,
    insert,
    or_,
    select,
    update,
)

from steadyarm.errors import InvalidInputError
from steadyarm.storages.changes import (
    NO_TRACE,
    Trace,
    moved,
    name_taken,
    new_id,
    unknown_experiment,
)
from steadyarm.storages.records import (
    ArmDay,
    DaySums,
    Decision,
    ExperimentRecord,
    ExperimentState,
    LogRow,
    Pages,
    RunningTally,
    SegmentRecord,
    SeriesSums,
    Snapshot,
    Summary,
    Tally,
    Target,
    columns_of,
    day_sums,
    place_of,
    tally_of,
)
from steadyarm.storages.series import Metrics, RunningSeries, SeriesPlace, series_sums
from steadyarm.storages.sql.base import (
    SERIES,
    TALLIES,
    SQLBase,
    by_targets,
    counts_at,
    dump,
    event_row,
    experiment_of,
    known,
    loaded,
    read_events,
    reads,
    segment_of,
    segment_row,
    segments_of,
    writes,
)
from steadyarm.storages.sql.engine import Statement
from steadyarm.storages.sql.operators import corrected_segments, note, reserve_many, restore_trace
from steadyarm.storages.sql.rewards import reward_row
from steadyarm.storages.sql.schema import (
    Among,
    assignments,
    corrections,
    events,
    experiments,
    if_free,
    inserting,
    logged,
    rewards,
    same_assignment,
    segments,
    series,
    tallies,
)

INSERT_ASSIGNMENTS, INSERT_REWARDS = inserting(assignments), inserting(rewards)
INSERT_EVENTS = inserting(events)
CREATE = if_free(experiments, experiments.c.key)
BY_KEY = select(experiments).where(experiments.c.key == bindparam("key"))
BY_NAME = select(experiments).where(experiments.c.name == bindparam("name"))

_of = segments.c.key == bindparam("key")
_others = segments.alias("others")
_last = select(func.max(_others.c.index)).where(_others.c.key == bindparam("key"))

LOCKED = BY_KEY.with_for_update(key_share=True)  # traffic goes on, only `move` waits
SEGMENTS = select(segments).where(_of).order_by(segments.c.index)
OPEN_AND_LAST = SEGMENTS.where(
    or_(segments.c.closed.is_(None), segments.c.index == _last.scalar_subquery())
)
LOCKED_SEGMENTS = Statement(SEGMENTS.where(Among(segments.c.index, "indices")).with_for_update())
COUNTS = Statement(
    select(tallies).where(tallies.c.key == bindparam("key"), Among(tallies.c.segment, "indices"))
)
DAYS = (
    select(tallies)
    .where(tallies.c.key == bindparam("key"))
    .order_by(tallies.c.segment, tallies.c.day)
)
COUNTED = select(series).where(series.c.key == bindparam("key"))
STEERING = COUNTED.where(
    series.c.segment.in_(bindparam("segments", expanding=True)),
    series.c.series.in_(bindparam("names", expanding=True)),
)
OPEN = insert(segments)
LOG = (
    select(*logged(assignments, rewards))
    .select_from(assignments.outerjoin(rewards, same_assignment(assignments)))
    .where(assignments.c.key == bindparam("key"), assignments.c.number > bindparam("after"))
    .order_by(assignments.c.number)
    .limit(bindparam("most"))
)
EXTREME = (
    select(assignments.c.unit, rewards.c.reward)
    .select_from(rewards.join(assignments, same_assignment(assignments)))
    .where(rewards.c.key == bindparam("key"), assignments.c.excluded.is_(None))
    .order_by(func.abs(rewards.c.reward).desc(), rewards.c.number)
    .limit(1)
)


LONG = ("config", "policy_state")  # columns that lists do without
# Nothing if there was nothing to add up.
TOTALS = ("assigned", "rewarded", "late", "corrected", "measured")


def _summaries(*conditions: ColumnElement[bool]) -> Select[Any]:
    """Experiments with their sums; conditions are on keys of tallies."""
    counts = (
        select(
            tallies.c.key,
            func.sum(tallies.c.assigned).label("assigned"),
            func.sum(tallies.c.rewarded).label("rewarded"),
            func.sum(tallies.c.late).label("late"),
            func.max(tallies.c.last).label("last"),
        )
        .where(*conditions)
        .group_by(tallies.c.key)
        .subquery("counts")
    )
    first = (segments.c.key == experiments.c.key) & (segments.c.index == 0)
    return (
        select(
            *(column for column in experiments.c if column.name not in LONG),
            counts.c.assigned,
            counts.c.rewarded,
            counts.c.late,
            segments.c.opened.label("started"),
            counts.c.last,
            select(func.max(corrections.c.entry))
            .where(corrections.c.key == experiments.c.key)
            .scalar_subquery()
            .label("corrected"),
            select(func.sum(series.c.events))
            .where(series.c.key == experiments.c.key)
            .scalar_subquery()
            .label("measured"),
        )
        .select_from(
            experiments.outerjoin(segments, first).outerjoin(
                counts, counts.c.key == experiments.c.key
            )
        )
        .order_by(experiments.c.key)
    )


SUMMARIES = _summaries()
SUMMARY = _summaries(tallies.c.key == bindparam("only")).where(
    experiments.c.key == bindparam("only")
)
CONFIGS = Statement(
    select(experiments.c.key, experiments.c.config).where(Among(experiments.c.key, "keys"))
)


class Experiments(SQLBase):
    """The part of the storage that keeps experiments, their segments and sums."""

    @writes
    def create(
        self, connection: Connection, record: ExperimentRecord, *, by: str = ""
    ) -> ExperimentRecord:
        made, detail = _insert(connection, record), {"state": record.state}
        note(connection, record.created, by, "experiment.created", record.name, detail)
        return made

    @reads
    def find(self, connection: Connection, name: str) -> ExperimentRecord:
        row = connection.execute(BY_NAME, {"name": name}).one_or_none()
        if row is None:
            raise unknown_experiment(name, connection.execute(select(experiments.c.name)).scalars())
        return experiment_of(row)

    @reads
    def summaries(self, connection: Connection, only: int | None = None) -> list[Summary]:
        found = connection.execute(SUMMARIES if only is None else SUMMARY, {"only": only}).all()
        configs = self._configs  # they never change
        new = [row.key for row in found if row.key not in configs]
        for key, config in CONFIGS(connection, {"keys": new}) if new else ():
            configs[key] = json.loads(config)
        return [
            Summary(
                **dict(row._mapping)
                | {name: int(row._mapping[name] or 0) for name in TOTALS}
                | {"config": configs[row.key], "outside": loaded(row.outside)}
            )
            for row in found
        ]

    @writes
    def move(
        self,
        connection: Connection,
        key: int,
        to: ExperimentState,
        now: int,
        *,
        by: str = "",
        detail: Mapping[str, Any] | None = None,
    ) -> ExperimentRecord:
        row = known(key, connection.execute(BY_KEY.with_for_update(), {"key": key}).one_or_none())
        if row.state != to:
            action = moved(row.name, row.state, to)
            moving = update(experiments).where(experiments.c.key == key)
            connection.execute(moving.values(state=to))
            note(connection, now, by, action, row.name, detail)
        return replace(experiment_of(row), state=to)

    @writes
    def show_outside(
        self,
        connection: Connection,
        key: int,
        before: Mapping[str, Any] | None,
        after: Mapping[str, Any],
        action: str,
        now: int,
        *,
        by: str = "",
        detail: Mapping[str, Any] | None = None,
    ) -> bool:
        row = known(key, connection.execute(BY_KEY.with_for_update(), {"key": key}).one_or_none())
        if loaded(row.outside) != before:
            return False
        setting = update(experiments).where(experiments.c.key == key)
        connection.execute(setting.values(outside=dump(after)))
        note(connection, now, by, action, row.name, detail)
        return True

    def restore(
        self, name: str, snapshot: Snapshot, rows: Pages, trace: Trace = NO_TRACE, *, by: str = ""
    ) -> ExperimentRecord:
        """Try only once, because rows can be read once, and take any time."""
        now = self.now()
        return self._database.write(
            lambda c: _restore(c, name, snapshot, rows, trace, now, by),
            tries=1,
            seconds=inf,
        )

    # Decisions

    @reads
    def snapshot(self, connection: Connection, key: int, everything: bool = False) -> Snapshot:
        row = known(key, connection.execute(BY_KEY, {"key": key}).one_or_none())
        statement = SEGMENTS if everything else OPEN_AND_LAST
        records = [segment_of(found) for found in connection.execute(statement, {"key": key})]
        sums = _tallies(connection, key, records)
        corrected = corrected_segments(connection, key) if everything else ()
        found = tuple((record, sums[record.index]) for record in records)
        return Snapshot(
            experiment_of(row), found, corrected, self._steering(connection, key, records)
        )

    def _steering(
        self, connection: Connection, key: int, records: Sequence[SegmentRecord]
    ) -> tuple[SeriesSums, ...]:
        """Sums of covariates of some segments, summed over all shards."""
        names = self._facts(connection, key).metrics.steering
        if not names or not records:
            return ()
        columns = {record.index: columns_of(record.segment) for record in records}
        wanted = {"key": key, "segments": sorted(columns), "names": sorted(names)}
        return series_sums(_by_place(connection.execute(STEERING, wanted)), columns)

    @writes
    def decide(
        self, connection: Connection, key: int, version: int, decision: Decision, now: int
    ) -> bool:
        row = known(key, connection.execute(LOCKED, {"key": key}).one_or_none())
        if row.version != version:
            return False
        found = connection.execute(_last, {"key": key}).scalar()
        last = -1 if found is None else found
        if decision.supersede is not None and (last < 0 or decision.supersede != last):
            return False
        if decision.opened is not None and decision.opened.index != last + 1:
            return False
        closed = {index for index, _ in decision.closed}
        # The last segment is locked even if another is opened, to wait for who moves its counter.
        locked = {"key": key, "indices": sorted({last, *closed})}
        records = {r.index: r for r in map(segment_of, LOCKED_SEGMENTS(connection, locked))}
        if len(closed) < len(decision.closed) or not closed <= records.keys():
            return False
        sums = _tallies(connection, key, [records[index] for index in closed])
        for index, tally in decision.closed:
            open_ = records[index].closed is None
            if not open_ or sums[index] != tally or tally.total_assigned != records[index].rounds:
                return False
        if not decision.rests_on(self._steering(connection, key, [records[i] for i in closed])):
            return False
        mine = update(segments).where(segments.c.key == key)
        for i, (index, _) in enumerate(decision.closed, row.observed + 1):
            this = mine.where(segments.c.index == index)
            connection.execute(this.values(closed=i, closed_at=now))
        if decision.supersede is not None:
            this = mine.where(segments.c.index == last)
            rounds = decision.cut(records[last]).rounds
            connection.execute(this.values(rounds=rounds, superseded=True))
        if decision.opened is not None:
            connection.execute(OPEN, segment_row(key, decision.opened))
        connection.execute(
            update(experiments)
            .where(experiments.c.key == key)
            .values(
                version=version + 1,
                observed=row.observed + len(decision.closed),
                policy_state=dump(decision.policy_state),
            )
        )
        return True

    # Reading

    @reads
    def days(self, connection: Connection, key: int) -> tuple[DaySums, ...]:
        self._facts(connection, key)
        records = map(segment_of, connection.execute(SEGMENTS, {"key": key}))
        columns = {record.index: columns_of(record.segment) for record in records}
        rows = connection.execute(DAYS, {"key": key})
        return tuple(
            day_sums(segment, day, [*group], columns[segment])
            for (segment, day), group in groupby(rows, lambda row: (row.segment, row.day))
        )

    @reads
    def series(self, connection: Connection, key: int) -> tuple[SeriesSums, ...]:
        metrics = self._facts(connection, key).metrics
        if not metrics:
            return ()
        records = map(segment_of, connection.execute(SEGMENTS, {"key": key}))
        columns = {record.index: columns_of(record.segment) for record in records}
        return series_sums(_by_place(connection.execute(COUNTED, {"key": key})), columns)

    @reads
    def log(
        self, connection: Connection, key: int, after: int = -1, most: int = 10_000
    ) -> list[LogRow]:
        metrics = self._facts(connection, key).metrics
        values = {"key": key, "after": after, "most": most}
        rows = [LogRow(*row) for row in connection.execute(LOG, values)]
        return read_events(connection, key, metrics, rows)

    @reads
    def extreme(self, connection: Connection, key: int) -> tuple[str, float] | None:
        self._facts(connection, key)
        row = connection.execute(EXTREME, {"key": key}).first()
        return None if row is None else (row.unit, row.reward)

    @reads
    def segments(
        self, connection: Connection, key: int, indices: Iterable[int]
    ) -> dict[int, SegmentRecord]:
        self._facts(connection, key)
        return segments_of(connection, key, indices)

    @reads
    def find_assignments(
        self, connection: Connection, key: int, targets: Sequence[Target]
    ) -> list[LogRow | None]:
        facts = self._facts(connection, key)
        rows = by_targets(connection, key, facts.sticky, targets)
        if not facts.metrics:
            return rows
        known_ones = [row for row in rows if row is not None]
        whole = {row.number: row for row in read_events(connection, key, facts.metrics, known_ones)}
        return [None if row is None else whole[row.number] for row in rows]


def _by_place(rows: Iterable[Any]) -> Iterator[tuple[SeriesPlace, Any]]:
    """Rows of `series` with their places."""
    return (((row.segment, row.arm, row.day, row.series), row) for row in rows)


def _tallies(
    connection: Connection, key: int, records: Sequence[SegmentRecord]
) -> dict[int, Tally]:
    """Tallies of segments, summed over all shards."""
    counts: dict[int, list[ArmDay]] = {record.index: [] for record in records}
    for _, segment, arm, _, _, *values in COUNTS(connection, {"key": key, "indices": [*counts]}):
        counts[segment].append(ArmDay(arm, *values))
    return {r.index: tally_of(counts[r.index], columns_of(r.segment)) for r in records}


def _insert(connection: Connection, record: ExperimentRecord) -> ExperimentRecord:
    """Store a record under a new key."""
    texts = {
        "config": dump(record.config),
        "policy_state": dump(record.policy_state),
        "outside": None if record.outside is None else dump(record.outside),
    }
    row = {name: value for name, value in (vars(record) | texts).items() if name != "key"}
    key = connection.execute(CREATE, row).scalar()
    if key is None:
        raise name_taken(record.name)
    return experiment_of(connection.execute(BY_KEY, {"key": key}).one())


def _restore(
    connection: Connection,
    name: str,
    snapshot: Snapshot,
    pages: Pages,
    trace: Trace,
    now: int,
    by: str,
) -> ExperimentRecord:
    old, records = snapshot.experiment, [record for record, _ in snapshot.segments]
    made = _insert(connection, replace(old, name=name))
    key, sticky = made.key, old.config.get("sticky") == "unit"
    if records:
        connection.execute(OPEN, [segment_row(key, record) for record in records])
    handed = {record.index: record.handed for record in records}
    counted = {record.index: RunningTally(columns_of(record.segment)) for record in records}
    measured = RunningSeries(Metrics.of(old.config))
    # From here on others wait who write to the audit log.
    ids = reserve_many(connection, [entry.id for entry in trace.entries])
    for given in pages:
        page = [
            row if row.excluded is None else replace(row, excluded=new_id(ids, row.excluded))
            for row in given
        ]
        for row in page:
            segment, position = place_of(row.number)
            if position >= handed.get(segment, 0):
                raise InvalidInputError(
                    f"assignment {row.number} is at position {position} of segment {segment}, "
                    f"which has assigned {handed.get(segment, 0)}; the log and the segments "
                    "do not belong together."
                )
            counted[segment].add(row)
            if measured.metrics or row.events:
                measured.add(row)
        _insert_page(connection, key, sticky, page)
    _insert_tallies(connection, key, counted)
    if rows_of_series := counts_at(key, 0, measured.counts.items()):
        SERIES.count_exactly(connection, rows_of_series)
    restore_trace(connection, key, name, trace, ids)
    note(connection, now, by, "experiment.imported", name, {"from": old.name})
    return made


def _insert_page(connection: Connection, key: int, sticky: bool, page: Sequence[LogRow]) -> None:
    assigned = [
        {
            "key": key,
            "number": row.number,
            "unit": row.unit,
            "repeat": 0 if sticky else row.number + 1,
            "arm": row.arm,
            "probability": row.probability,
            "created": row.created,
            "excluded": row.excluded,
        }
        for row in page
    ]
    rewarded = [reward_row(key, row) for row in page if row.reward is not None]
    recorded = [event_row(key, row.number, event) for row in page for event in row.events]
    if assigned:
        INSERT_ASSIGNMENTS(connection, assigned)
    if rewarded:
        INSERT_REWARDS(connection, rewarded)
    if recorded:
        INSERT_EVENTS(connection, recorded)


def _insert_tallies(connection: Connection, key: int, counted: dict[int, RunningTally]) -> None:
    """Store a row for every arm and day on which it was assigned."""
    rows = counts_at(
        key,
        0,
        (
            ((segment, count.arm, day), count)
            for segment, tally in counted.items()
            for day, counts in tally.days.items()
            for count in counts.values()
        ),
    )
    if rows:
        TALLIES.count_exactly(connection, rows)
