"""Corrections: rewards voided or changed, visits excluded and included, units erased.

Inside a transaction that holds all open segments: neither a reward nor a decision comes in between.
However many assignments are touched, they are not read into Python: the database says how often
each reward occurs among them, and exact sums are made of that.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Double,
    and_,
    bindparam,
    case,
    cast,
    delete,
    func,
    insert,
    literal,
    null,
    or_,
    select,
    update,
)

from steadyarm.errors import UnknownExperimentError
from steadyarm.storages.changes import (
    Change,
    Corrected,
    Correction,
    Kind,
    Trace,
    before_and_after,
    check_found,
    check_open,
)
from steadyarm.storages.counting import DAY, day_of, waited_between
from steadyarm.storages.records import POSITIONS, place_of, pseudonym
from steadyarm.storages.sql.access import note, reserve
from steadyarm.storages.sql.lookups import by_targets, log_row
from steadyarm.storages.sql.schema import (
    AnyRow,
    assignments,
    corrections,
    dump,
    experiments,
    marks,
    rewards,
    segments,
)
from steadyarm.storages.sql.summing import More, Place, add

__all__ = ["correct", "corrected_segments", "list_corrections", "restore_trace"]

NAMED = (
    select(experiments.c.name, experiments.c.state)
    .where(experiments.c.key == bindparam("key"))
    .with_for_update(read=True, key_share=True)  # so that `move` waits
)
# Against rewards, which share these rows; against counters, and against closing.
HOLD = (
    select(segments.c.index)
    .where(segments.c.key == bindparam("key"), segments.c.closed.is_(None))
    .order_by(segments.c.index)
    .with_for_update()
)
PAGE = (
    select(corrections)
    .where(
        corrections.c.key == bindparam("key"),
        or_(
            corrections.c.entry > bindparam("entry"),
            and_(
                corrections.c.entry == bindparam("entry"),
                corrections.c.number > bindparam("number"),
            ),
        ),
    )
    .order_by(corrections.c.entry, corrections.c.number)
    .limit(bindparam("most"))
)
MARK = select(marks.c.note).where(marks.c.name == bindparam("mark"))
TRACE = insert(corrections)

_told = and_(rewards.c.key == assignments.c.key, rewards.c.number == assignments.c.number)
_with_rewards = assignments.outerjoin(rewards, _told)
_segment = assignments.c.number // POSITIONS


def correct(
    connection: Connection,
    key: int,
    sticky: bool,
    shard: int,
    change: Change,
    now: int,
    by: str,
) -> Corrected:
    """See `Storage.correct`."""
    found = connection.execute(NAMED, {"key": key}).one_or_none()
    if found is None:
        raise UnknownExperimentError(f"there is no experiment with key {key}.")
    check_open(change, found.name, found.state, now)
    if change.kind != "erase":  # which changes no sums
        connection.execute(HOLD, {"key": key}).all()
    entry = reserve(connection)
    if change.target is not None:
        touched, more = 1, _one_reward(connection, key, sticky, change, entry)
    else:
        touched, more = _many(connection, key, change, entry)
    note(connection, now, by, change.action, found.name, change.detail(touched), id=entry)
    add(connection, key, shard, more)
    if change.kind != "erase":
        _remember(connection, key, _closed_segments(connection, key, entry))
    return Corrected(entry, touched)


def _one_reward(
    connection: Connection, key: int, sticky: bool, change: Change, entry: int
) -> dict[Place, More]:
    """Void or correct a reward; what that adds to the sums."""
    assert change.target is not None
    (there,) = by_targets(connection, key, sticky, [change.target])
    row, before, after = before_and_after(change, None if there is None else log_row(there))
    this = rewards.c.key == key, rewards.c.number == row.number
    if after is None:
        connection.execute(delete(rewards).where(*this))
    else:
        connection.execute(update(rewards).where(*this).values(reward=after))
    index = place_of(row.number)[0]
    is_closed = select(segments.c.closed.is_not(None)).where(
        segments.c.key == key, segments.c.index == index
    )
    closed = bool(connection.execute(is_closed).scalar_one())
    made = Correction(entry, row.number, change.kind, before, after, closed)
    connection.execute(TRACE, _row(key, made))
    if row.excluded is not None:  # it counts nowhere
        return {}
    more = More()
    more.tell(before, -1)
    if after is None and row.rewarded is not None:
        more.waited = -waited_between(row.created, row.rewarded)
    elif after is not None:
        more.tell(after)
    return {(index, row.arm, day_of(row.created)): more}


def _many(
    connection: Connection, key: int, change: Change, entry: int
) -> tuple[int, dict[Place, More]]:
    """Exclude, include or erase; how many assignments that touched, and what it adds to sums."""
    mine = assignments.c.key == key
    out, back = assignments.c.excluded == entry, assignments.c.excluded == change.entry
    theirs = and_(mine, assignments.c.unit == change.unit)
    if change.kind == "erase":
        name = pseudonym()
        result = connection.execute(update(assignments).where(theirs).values(unit=name))
        touched = result.rowcount
        check_found(change, touched, known=False)
        renamed = and_(mine, assignments.c.unit == name)
        _keep_trace(connection, renamed, entry, "erase", null(), null())
        return touched, {}
    if change.kind == "include":
        once = select(corrections.c.number).where(
            corrections.c.key == key, corrections.c.entry == change.entry
        )
        excluded = and_(mine, assignments.c.number.in_(once), back)
        _keep_trace(connection, excluded, entry, "include", null(), rewards.c.reward)
        result = connection.execute(update(assignments).where(excluded).values(excluded=None))
        touched = result.rowcount
        check_found(change, touched, known=True)
        return touched, _sums(connection, key, entry, -1)
    which = theirs
    if change.unit is None:
        created = assignments.c.created
        which = and_(mine, created >= change.since, created < change.until)
    free = assignments.c.excluded.is_(None)
    result = connection.execute(update(assignments).where(which, free).values(excluded=entry))
    touched = result.rowcount
    known = bool(touched) or bool(connection.execute(select(1).where(which).limit(1)).first())
    check_found(change, touched, known)
    _keep_trace(connection, and_(which, out), entry, "exclude", rewards.c.reward, null())
    return touched, _sums(connection, key, entry, 1)


def _keep_trace(
    connection: Connection,
    which: ColumnElement[bool],
    entry: int,
    kind: Kind,
    before: ColumnElement[Any],
    after: ColumnElement[Any],
) -> None:
    """Store what is kept of each assignment that a change touches."""
    closed = (
        select(segments.c.closed.is_not(None))
        .where(segments.c.key == assignments.c.key, segments.c.index == _segment)
        .scalar_subquery()
    )
    values: dict[str, Any] = {
        "key": assignments.c.key,
        "entry": literal(entry),
        "number": assignments.c.number,
        "kind": literal(kind),
        "before": cast(before, Double),
        "after": cast(after, Double),
        "closed": closed,
    }
    chosen = select(*values.values()).select_from(_with_rewards).where(which)
    connection.execute(insert(corrections).from_select(list(values), chosen))


def _sums(connection: Connection, key: int, entry: int, sign: int) -> dict[Place, More]:
    """What leaves the sums (sign 1), or comes back (-1), by segment, arm and day."""
    at = func.coalesce(rewards.c.at, rewards.c.created)
    waited = case((at > assignments.c.created, (at - assignments.c.created) // 1000), else_=0)
    place = (
        _segment.label("segment"),
        assignments.c.arm,
        (assignments.c.created // DAY).label("day"),
    )
    traced = and_(
        assignments.c.key == corrections.c.key, assignments.c.number == corrections.c.number
    )
    values = (
        select(*place, rewards.c.reward, func.count(), func.sum(waited))
        .select_from(corrections.join(_with_rewards, traced))
        .where(corrections.c.key == key, corrections.c.entry == entry)
        .group_by(*place, rewards.c.reward)
        .execution_options(yield_per=10_000)
    )
    found: defaultdict[Place, More] = defaultdict(More)
    for segment, arm, day, reward, times, milliseconds in connection.execute(values):
        more = found[int(segment), arm, int(day)]
        more.excluded += sign * times
        if reward is not None:
            more.tell(reward, -sign * times)
            more.waited -= sign * int(milliseconds)
    return found


def _closed_segments(connection: Connection, key: int, entry: int) -> Iterable[int]:
    """Segments that had been handed to the policy before an entry corrected them."""
    touched = (
        select(corrections.c.number // POSITIONS)
        .where(corrections.c.key == key, corrections.c.entry == entry, corrections.c.closed)
        .distinct()
    )
    return map(int, connection.execute(touched).scalars())


def _remember(connection: Connection, key: int, indices: Iterable[int]) -> None:
    """Keep which closed segments were corrected, so that nobody has to go through all traces."""
    before = corrected_segments(connection, key)
    after = sorted({*before, *indices})
    if len(after) == len(before):
        return
    # Whoever corrects has the turn of the audit log, so nobody else is here.
    row = {"name": _mark(key), "value": len(after), "note": dump(after)}
    connection.execute(delete(marks).where(marks.c.name == row["name"]))
    connection.execute(insert(marks), row)


def _mark(key: int) -> str:
    return f"corrected {key}"


def corrected_segments(connection: Connection, key: int) -> tuple[int, ...]:
    """Indices of the segments that were corrected after they were handed to the policy."""
    note_of = connection.execute(MARK, {"mark": _mark(key)}).scalar()
    return () if note_of is None else tuple(json.loads(note_of))


def list_corrections(
    connection: Connection, key: int, after: tuple[int, int], most: int
) -> list[Correction]:
    """See `Storage.corrections`."""
    values = {"key": key, "entry": after[0], "number": after[1], "most": most}
    return [_correction(row) for row in connection.execute(PAGE, values)]


def restore_trace(
    connection: Connection, key: int, name: str, trace: Trace, ids: Mapping[int, int]
) -> None:
    """Append entries and corrections that came with an experiment; ids are reserved before."""
    for old in trace.entries:
        detail = trace.detail(old, ids)
        note(connection, old.created, old.author, old.action, name, detail, id=ids[old.id])
    rows = [_row(key, each) for each in trace.renumbered(ids)]
    if rows:
        connection.execute(TRACE, rows)
    _remember(connection, key, trace.segments())


def _row(key: int, made: Correction) -> dict[str, Any]:
    return {
        "key": key,
        "entry": made.entry,
        "number": made.number,
        "kind": made.kind,
        "metric": made.metric,
        "before": made.before,
        "after": made.after,
        "closed": made.closed,
    }


def _correction(row: AnyRow) -> Correction:
    return Correction(
        row.entry, row.number, row.kind, row.before, row.after, row.closed, row.metric
    )
