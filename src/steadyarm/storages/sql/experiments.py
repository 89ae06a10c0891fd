"""Experiments as a whole: created, found, moved, restored. Inside a transaction."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, bindparam, func, insert, select, update

from steadyarm.errors import (
    ExperimentExistsError,
    InvalidInputError,
    UnknownExperimentError,
    WrongStateError,
)
from steadyarm.storages.changes import MOVED, Trace, new_id
from steadyarm.storages.counting import Columns, RunningDays, columns_of
from steadyarm.storages.records import (
    MOVES,
    DaySums,
    ExperimentRecord,
    ExperimentState,
    LogRow,
    Snapshot,
    Summary,
    number_of,
    place_of,
)
from steadyarm.storages.sql.access import note, reserve_many
from steadyarm.storages.sql.assignments import keep, unused
from steadyarm.storages.sql.corrections import restore_trace
from steadyarm.storages.sql.schema import (
    AnyRow,
    assignments,
    corrections,
    dump,
    experiment_of,
    experiments,
    if_free,
    insert_rows,
    rewards,
    segment_of,
    segment_row,
    segments,
    tallies,
    tally_of,
)
from steadyarm.storages.sql.segments import portions

__all__ = ["create", "days", "find", "list_experiments", "move", "restore", "summaries"]

# Experiments as a whole: created, found, moved, restored. Inside a transaction.


CREATE = if_free(experiments, experiments.c.key)
BY_NAME = select(experiments).where(experiments.c.name == bindparam("name"))
BY_KEY = select(experiments).where(experiments.c.key == bindparam("key"))
NAMES = select(experiments.c.name).order_by(experiments.c.name)
ALL = select(experiments).order_by(experiments.c.key)
MOVE = (
    update(experiments)
    .where(experiments.c.key == bindparam("of"))
    .values(state=bindparam("to_state"))
)

SEGMENTS, TALLIES = insert(segments), insert(tallies)


def create(
    connection: Connection,
    name: str,
    tag: str,
    state: ExperimentState,
    config: Mapping[str, Any],
    policy_state: Mapping[str, Any],
    created: int,
    by: str,
) -> ExperimentRecord:
    """See `Storage.create`."""
    made = _made(connection, name, tag, state, config, policy_state, created)
    note(connection, created, by, "experiment.created", name, {"state": state})
    return made


def _made(
    connection: Connection,
    name: str,
    tag: str,
    state: ExperimentState,
    config: Mapping[str, Any],
    policy_state: Mapping[str, Any],
    created: int,
    version: int = 0,
    observed: int = 0,
) -> ExperimentRecord:
    row = {
        "name": name,
        "tag": tag,
        "state": state,
        "config": dump(config),
        "policy_state": dump(policy_state),
        "created": created,
        "version": version,
        "observed": observed,
    }
    key = connection.execute(CREATE[connection.dialect.name], row).scalar()
    if key is None:
        raise ExperimentExistsError(
            f"there is an experiment {name!r} in the storage already; choose another name."
        )
    return experiment_of(connection.execute(BY_KEY, {"key": key}).one())


def find(connection: Connection, name: str) -> ExperimentRecord:
    """See `Storage.find`."""
    row = connection.execute(BY_NAME, {"name": name}).one_or_none()
    if row is not None:
        return experiment_of(row)
    names = list(connection.execute(NAMES).scalars())
    near = difflib.get_close_matches(name, names)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
    raise UnknownExperimentError(f"there is no experiment {name!r} in the storage{hint}")


def list_experiments(connection: Connection) -> list[ExperimentRecord]:
    """See `Storage.experiments`."""
    return [experiment_of(row) for row in connection.execute(ALL)]


def move(
    connection: Connection, key: int, to: ExperimentState, now: int, by: str
) -> ExperimentRecord:
    """See `Storage.move`."""
    row = connection.execute(BY_KEY.with_for_update(), {"key": key}).one_or_none()
    if row is None:
        raise UnknownExperimentError(f"there is no experiment with key {key}.")
    if row.state != to:
        if row.state not in MOVES[to]:
            raise WrongStateError(
                f"experiment {row.name!r} is {row.state} and cannot become {to}; "
                f"that is for experiments that are {' or '.join(MOVES[to]) or 'new'}."
            )
        connection.execute(MOVE, {"of": key, "to_state": to})
        note(connection, now, by, MOVED[row.state, to], row.name)
    return experiment_of(connection.execute(BY_KEY, {"key": key}).one())


def restore(
    connection: Connection,
    name: str,
    snapshot: Snapshot,
    pages: Iterable[Sequence[LogRow]],
    trace: Trace,
    now: int,
    by: str,
) -> ExperimentRecord:
    """See `Storage.restore`."""
    old = snapshot.experiment
    made = _made(
        *(connection, name, old.tag, old.state, old.config, old.policy_state),
        *(old.created, old.version, old.observed),
    )
    key, sticky = made.key, old.config.get("sticky") == "unit"
    if snapshot.segments:
        connection.execute(SEGMENTS, [segment_row(key, record) for record, _ in snapshot.segments])
    handed = {record.index: record.handed for record, _ in snapshot.segments}
    counted = {
        record.index: RunningDays(columns_of(record.segment)) for record, _ in snapshot.segments
    }
    # Ids are reserved one by one; from here on others wait who write to the audit log.
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
                    f"which has handed out {handed.get(segment, 0)}; the log and the segments "
                    "do not belong together."
                )
            counted[segment].add(row)
        _insert_page(connection, key, sticky, page)
    arms = {record.index: record.segment.arm_at for record, _ in snapshot.segments}
    rows = [row for index in counted for row in _tallies(key, index, counted[index], arms[index])]
    if rows:
        connection.execute(TALLIES, rows)
    for segment in sorted(handed):
        if counted[segment].handed_out() < handed[segment]:
            span = number_of(segment, 0), number_of(segment, handed[segment])
            keep(connection, key, unused(connection, key, span))
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
    told = [
        {
            "key": key,
            "number": row.number,
            "reward": row.reward,
            "created": row.rewarded if row.received is None else row.received,
            "at": None if row.received is None else row.rewarded,
        }
        for row in page
        if row.reward is not None
    ]
    for table, rows in ((assignments, assigned), (rewards, told)):
        if rows and connection.dialect.name == "sqlite":
            connection.execute(insert(table), rows)
        elif rows:
            values = {"rows": json.dumps(rows, ensure_ascii=False)}
            connection.execute(insert_rows(table), values)


def _tallies(
    key: int, segment: int, counted: RunningDays, arm_at: Callable[[int], int]
) -> Iterator[dict[str, Any]]:
    """A row for every arm and day on which it was handed out."""
    for sums in counted.sums(segment):
        tally = sums.tally
        for column, assigned in enumerate(tally.assigned):
            if assigned:
                yield {
                    "key": key,
                    "segment": segment,
                    "arm": arm_at(column),
                    "shard": 0,
                    "day": sums.day,
                    "assigned": assigned,
                    "rewarded": tally.rewarded[column],
                    "sums": str(tally.sums[column]),
                    "squares": str(tally.squares[column]),
                    "last": tally.last,
                    "waited": sums.waited[column],
                    "excluded": tally.excluded[column],
                }


# Sums by day of one experiment, and all experiments in short; only read, for pages and lists.


DAYS = (
    select(tallies)
    .where(tallies.c.key == bindparam("key"))
    .order_by(tallies.c.segment, tallies.c.day)
)
OVERVIEW_SEGMENTS = select(segments).where(segments.c.key == bindparam("key"))

_first = (segments.c.key == experiments.c.key) & (segments.c.index == 0)


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
    return (
        select(
            experiments.c.key,
            experiments.c.name,
            experiments.c.tag,
            experiments.c.state,
            experiments.c.created,
            experiments.c.version,
            experiments.c.observed,
            counts.c.assigned,
            counts.c.rewarded,
            counts.c.late,
            segments.c.opened,
            counts.c.last,
            select(func.max(corrections.c.entry))
            .where(corrections.c.key == experiments.c.key)
            .scalar_subquery()
            .label("corrected"),
        )
        .select_from(
            experiments.outerjoin(segments, _first).outerjoin(
                counts, counts.c.key == experiments.c.key
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


def days(connection: Connection, key: int) -> tuple[DaySums, ...]:
    """See `Storage.days`."""
    records = map(segment_of, connection.execute(OVERVIEW_SEGMENTS, {"key": key}))
    columns = {record.index: columns_of(record.segment) for record in records}
    rows = connection.execute(DAYS, {"key": key})
    grouped = groupby(rows, lambda row: (row.segment, row.day))
    return tuple(_day(*place, [*group], columns[place[0]]) for place, group in grouped)


def _day(segment: int, day: int, rows: list[AnyRow], columns: Columns) -> DaySums:
    waited, late = [0] * len(columns), [0] * len(columns)
    for row in rows:
        waited[columns[row.arm]] += row.waited
        late[columns[row.arm]] += row.late
    return DaySums(segment, day, tally_of(rows, columns), tuple(waited), tuple(late))


def summaries(
    connection: Connection, configs: dict[int, Mapping[str, Any]], only: int | None = None
) -> list[Summary]:
    """See `Storage.summaries`; configs, which never change, are read into `configs` once."""
    found = connection.execute(SUMMARIES if only is None else SUMMARY, {"only": only})
    rows = found.all()
    for portion in portions([row.key for row in rows if row.key not in configs]):
        for key, config in connection.execute(CONFIGS, {"keys": portion}):
            configs[key] = json.loads(config)
    return [
        Summary(
            key=row.key,
            name=row.name,
            tag=row.tag,
            state=row.state,
            config=configs[row.key],
            created=row.created,
            version=row.version,
            observed=row.observed,
            assigned=int(row.assigned or 0),
            rewarded=int(row.rewarded or 0),
            late=int(row.late or 0),
            started=row.opened,
            last=row.last,
            corrected=row.corrected or 0,
        )
        for row in rows
    ]
