"""Corrections: rewards voided or changed, visits excluded and included, units erased.

Inside a transaction that holds all open segments: neither a reward nor a decision comes in between.
However many assignments are touched, they are not read into Python: the database says how often
each reward occurs among them, and exact sums are made of that.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
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
from steadyarm.storages.sql.rewards import More, Place, add
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
from steadyarm.storages.sql.segments import by_targets, log_row

__all__ = ["correct", "corrected_segments", "forget_corrected", "list_corrections", "restore_trace"]

ROWS = 20_000  # assignments in one statement; all in one would take a minute
Page = tuple[int, int]  # numbers above the first, up to the second

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
CLOSED = select(segments.c.index).where(
    segments.c.key == bindparam("key"), segments.c.closed.is_not(None)
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
        touched, segments_touched, more = 1, *_one_reward(connection, key, sticky, change, entry)
    elif change.kind == "erase":
        touched, segments_touched, more = _erase(connection, key, change, entry), set[int](), {}
    else:
        touched, more = _many(connection, key, change, entry)
        segments_touched = {segment for segment, _, _ in more}
    note(connection, now, by, change.action, found.name, change.detail(touched), id=entry)
    add(connection, key, shard, more)
    if segments_touched:
        closed = connection.execute(CLOSED, {"key": key}).scalars()
        _remember(connection, key, segments_touched.intersection(closed))
    return Corrected(entry, touched)


def _one_reward(
    connection: Connection, key: int, sticky: bool, change: Change, entry: int
) -> tuple[set[int], dict[Place, More]]:
    """Void or correct a reward; which segment that touches, and what it adds to the sums."""
    assert change.target is not None
    (there,) = by_targets(connection, key, sticky, [change.target])
    row, before, after = before_and_after(change, None if there is None else log_row(there))
    this = rewards.c.key == key, rewards.c.number == row.number
    if after is None:
        connection.execute(delete(rewards).where(*this))
    else:
        connection.execute(update(rewards).where(*this).values(reward=after))
    index = place_of(row.number)[0]
    closed = index in set(connection.execute(CLOSED, {"key": key}).scalars())
    made = Correction(entry, row.number, change.kind, before, after, closed)
    connection.execute(TRACE, _row(key, made))
    if row.excluded is not None:  # it counts nowhere
        return {index}, {}
    more = More()
    more.tell(before, -1)
    if after is None and row.rewarded is not None:
        more.waited = -waited_between(row.created, row.rewarded)
    elif after is not None:
        more.tell(after)
    return {index}, {(index, row.arm, day_of(row.created)): more}


def _erase(connection: Connection, key: int, change: Change, entry: int) -> int:
    """Give a unit another name; how many assignments it has."""
    mine, numbers, name = assignments.c.key == key, assignments.c.number, pseudonym()
    theirs, touched = and_(mine, assignments.c.unit == change.unit), 0
    for page in _pages(connection, numbers, theirs):
        here = _within(numbers, page)
        renamed = update(assignments).where(theirs, here).values(unit=name)
        touched += connection.execute(renamed).rowcount
        this = and_(mine, here, assignments.c.unit == name)
        _keep_trace(connection, this, entry, "erase", null(), null())
    check_found(change, touched, known=False)
    return touched


def _many(
    connection: Connection, key: int, change: Change, entry: int
) -> tuple[int, dict[Place, More]]:
    """Exclude or include; how many assignments that touches, and what it adds to the sums."""
    mine, numbers, excluded = assignments.c.key == key, assignments.c.number, assignments.c.excluded
    found: defaultdict[Place, More] = defaultdict(More)
    touched, known = 0, False
    if change.kind == "include":
        once = and_(corrections.c.key == key, corrections.c.entry == change.entry)
        for page in _pages(connection, corrections.c.number, once):
            these = and_(mine, excluded == change.entry, _within(numbers, page))
            _keep_trace(connection, these, entry, "include", null(), rewards.c.reward)
            counting = update(assignments).where(these).values(excluded=None)
            touched += connection.execute(counting).rowcount
            _add_sums(connection, key, entry, page, -1, found)
        check_found(change, touched, known=True)
        return touched, found
    which = within = and_(mine, assignments.c.unit == change.unit)
    if change.unit is None:
        created, which = assignments.c.created, mine
        within = and_(mine, created >= change.since, created < change.until)
    for page in _pages(connection, numbers, which):
        known, here = True, _within(numbers, page)
        leaving = update(assignments).where(within, excluded.is_(None), here)
        # First, since others may report further visits from a lease meanwhile.
        if count := connection.execute(leaving.values(excluded=entry)).rowcount:
            touched += count
            these = and_(mine, excluded == entry, here)
            _keep_trace(connection, these, entry, "exclude", rewards.c.reward, null())
            _add_sums(connection, key, entry, page, 1, found)
    check_found(change, touched, known)
    return touched, found


def _pages(
    connection: Connection, numbers: ColumnElement[int], which: ColumnElement[bool]
) -> Iterator[Page]:
    """Ranges of numbers, each with so many rows that a statement on it is short."""
    after = -1
    while True:
        next_ones = select(numbers.label("number")).where(which, numbers > after)
        few = next_ones.order_by(numbers).limit(ROWS).subquery()
        last = connection.execute(select(func.max(few.c.number))).scalar()
        if last is None:
            return
        yield after, int(last)
        after = int(last)


def _within(numbers: ColumnElement[int], page: Page) -> ColumnElement[bool]:
    return and_(numbers > page[0], numbers <= page[1])


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


def _add_sums(
    connection: Connection,
    key: int,
    entry: int,
    page: Page,
    sign: int,
    found: defaultdict[Place, More],
) -> None:
    """Add what leaves the sums (sign 1), or comes back (-1), by segment, arm and day."""
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
        .where(
            corrections.c.key == key,
            corrections.c.entry == entry,
            _within(corrections.c.number, page),
            assignments.c.key == key,  # as if the join did not say so, for the server's plan
            _within(assignments.c.number, page),
        )
        .group_by(*place, rewards.c.reward)
    )
    for segment, arm, day, reward, times, milliseconds in connection.execute(values):
        more = found[int(segment), arm, int(day)]
        more.excluded += sign * times
        if reward is not None:
            more.tell(reward, -sign * times)
            more.waited -= sign * int(milliseconds)


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


def forget_corrected(connection: Connection, key: int) -> None:
    """Remove what is remembered of an experiment that is deleted."""
    connection.execute(delete(marks).where(marks.c.name == _mark(key)))


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
