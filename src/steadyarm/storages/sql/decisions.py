"""Snapshots are read, and decisions made on them stored, if nothing has changed meanwhile."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    Connection,
    bindparam,
    func,
    insert,
    or_,
    select,
    update,
)

from steadyarm.errors import UnknownExperimentError
from steadyarm.storages.counting import Columns, columns_of, superseded
from steadyarm.storages.records import (
    Decision,
    Progress,
    Snapshot,
    Tally,
)
from steadyarm.storages.sql.corrections import corrected_segments
from steadyarm.storages.sql.schema import (
    AnyRow,
    dump,
    experiment_of,
    experiments,
    segment_of,
    segment_row,
    segments,
    tallies,
    tally_of,
)
from steadyarm.storages.sql.segments import (
    portions,
)

__all__ = ["decide", "progress", "snapshot"]

_of = segments.c.key == bindparam("key")
_others = segments.alias("others")
_last = select(func.max(_others.c.index)).where(_others.c.key == bindparam("key"))

EXPERIMENT = select(experiments).where(experiments.c.key == bindparam("key"))
LOCKED = EXPERIMENT.with_for_update(key_share=True)  # beside traffic, which only minds `move`
ALL = select(segments).where(_of).order_by(segments.c.index)
SOME = ALL.where(or_(segments.c.closed.is_(None), segments.c.index == _last.scalar_subquery()))
LAST = select(func.max(segments.c.index)).where(_of)
FACTS = ALL.where(segments.c.index.in_(bindparam("indices", expanding=True))).with_for_update()
TALLIES = select(tallies).where(
    tallies.c.key == bindparam("key"), tallies.c.segment.in_(bindparam("indices", expanding=True))
)
_sums = (tallies.c.key == segments.c.key) & (tallies.c.segment == segments.c.index)
PROGRESS = (
    select(
        segments.c.index,
        segments.c.rounds,
        func.sum(tallies.c.assigned),
        func.sum(tallies.c.rewarded + tallies.c.excluded),
        func.max(tallies.c.last),
    )
    .select_from(segments.outerjoin(tallies, _sums))
    .where(_of, segments.c.closed.is_(None))
    .group_by(segments.c.index, segments.c.rounds)
    .order_by(segments.c.index)
)
EXHAUSTED = PROGRESS.where(segments.c.handed >= segments.c.rounds)
_this = (segments.c.key == bindparam("of"), segments.c.index == bindparam("at"))
CLOSE = (
    update(segments)
    .where(*_this)
    .values(closed=bindparam("closed_as"), closed_at=bindparam("closed_when"))
)
CUT = update(segments).where(*_this).values(superseded=True, rounds=bindparam("last_round"))
OPEN = insert(segments)
DECIDED = (
    update(experiments)
    .where(experiments.c.key == bindparam("of"))
    .values(
        version=experiments.c.version + 1,
        observed=experiments.c.observed + bindparam("more"),
        policy_state=bindparam("new_state"),
    )
)


def snapshot(connection: Connection, key: int, everything: bool) -> Snapshot:
    """See `Storage.snapshot`."""
    row = _experiment(connection, key, EXPERIMENT)
    records = [segment_of(r) for r in connection.execute(ALL if everything else SOME, {"key": key})]
    columns = {record.index: columns_of(record.segment) for record in records}
    sums = tallies_of(connection, key, columns)
    found = tuple((record, sums[record.index]) for record in records)
    corrected = corrected_segments(connection, key) if everything else ()
    return Snapshot(experiment_of(row), found, corrected)


def progress(connection: Connection, key: int, exhausted: bool) -> tuple[Progress, ...]:
    """See `Storage.progress`."""
    rows = connection.execute(EXHAUSTED if exhausted else PROGRESS, {"key": key})
    return tuple(
        Progress(index, rounds, int(assigned or 0), int(told or 0), last)
        for index, rounds, assigned, told, last in rows
    )


def decide(connection: Connection, key: int, version: int, decision: Decision, now: int) -> bool:
    """See `Storage.decide`."""
    row = _experiment(connection, key, LOCKED)
    if row.version != version:
        return False
    last = connection.execute(LAST, {"key": key}).scalar()
    last = -1 if last is None else last
    if decision.supersede is not None and (last < 0 or decision.supersede != last):
        return False
    if decision.opened is not None and decision.opened.index != last + 1:
        return False
    # The last segment also if another is opened: who moves its counter is waited for.
    indices = {last, *(index for index, _ in decision.closed)}
    found = connection.execute(FACTS, {"key": key, "indices": sorted(indices)})
    records = {record.index: record for record in map(segment_of, found)}
    closed = {index for index, _ in decision.closed}
    if len(closed) < len(decision.closed) or not closed <= records.keys():
        return False
    columns = {index: columns_of(records[index].segment) for index in closed}
    sums = tallies_of(connection, key, columns)
    for index, tally in decision.closed:
        record = records[index]
        if record.closed is not None or sums[index] != tally or tally.handed_out != record.rounds:
            return False
    closing = [
        {"of": key, "at": index, "closed_as": row.observed + i, "closed_when": now}
        for i, (index, _) in enumerate(decision.closed, 1)
    ]
    if closing:
        connection.execute(CLOSE, closing)
    if decision.supersede is not None:
        cut = superseded(decision, records[last])
        connection.execute(CUT, {"of": key, "at": last, "last_round": cut.rounds})
    if decision.opened is not None:
        connection.execute(OPEN, segment_row(key, decision.opened))
    state = dump(decision.policy_state)
    connection.execute(DECIDED, {"of": key, "more": len(closing), "new_state": state})
    return True


def tallies_of(connection: Connection, key: int, columns: dict[int, Columns]) -> dict[int, Tally]:
    """Tallies of segments, over all shards, given their columns."""
    rows: dict[int, list[AnyRow]] = {index: [] for index in columns}
    for portion in portions(sorted(columns)):
        for row in connection.execute(TALLIES, {"key": key, "indices": portion}):
            rows[row.segment].append(row)
    return {index: tally_of(rows[index], columns[index]) for index in columns}


def _experiment(connection: Connection, key: int, statement: Any) -> AnyRow:
    row: AnyRow | None = connection.execute(statement, {"key": key}).one_or_none()
    if row is None:
        raise UnknownExperimentError(f"there is no experiment with key {key}.")
    return row
