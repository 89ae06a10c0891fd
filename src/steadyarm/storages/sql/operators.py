"""What operators do: corrections, tokens, sessions, and the audit log.

A correction locks all open segments, so that no reward and no decision comes in between. The
assignments that it touches are not read into Python, however many there are: the database says how
often each reward occurs among them, and exact sums are computed from that.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from math import inf
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Double,
    Row,
    Select,
    and_,
    bindparam,
    case,
    cast,
    delete,
    func,
    insert,
    literal,
    null,
    select,
    text,
    tuple_,
    update,
)

from steadyarm.storages.changes import (
    AuditEntry,
    Change,
    Corrected,
    Correction,
    Kind,
    SessionRecord,
    TokenRecord,
    Trace,
    before_and_after,
    check_found,
    check_open,
    known_assignment,
    removable,
    token_removed,
    token_taken,
)
from steadyarm.storages.records import (
    DAY,
    POSITIONS,
    ArmDay,
    LogRow,
    day_of,
    place_of,
    pseudonym,
)
from steadyarm.storages.series import RunningSeries
from steadyarm.storages.sql.base import (
    SERIES,
    Place,
    SQLBase,
    by_targets,
    dump,
    event_row,
    known,
    read_events,
    reads,
    writes,
)
from steadyarm.storages.sql.engine import Statement
from steadyarm.storages.sql.rewards import add, locked_rows, reward_row
from steadyarm.storages.sql.schema import (
    CLOSED,
    assignments,
    audit,
    corrections,
    events,
    experiments,
    if_free,
    logged,
    marks,
    rewards,
    same_assignment,
    segments,
    sessions,
    tokens,
)

# The audit log


TURN = 0x57EAD7A4  # PostgreSQL's advisory lock for writing to the audit log
NOTE = insert(audit).returning(audit.c.id)
_entries = (
    select(audit)
    .where(audit.c.id > bindparam("after"))
    .order_by(audit.c.id)
    .limit(bindparam("most"))
)
ENTRIES = Statement(_entries)
ENTRIES_OF = Statement(_entries.where(audit.c.experiment == bindparam("experiment")))
NEXT = {
    "sqlite": text(f"SELECT 1 + max(seq) FROM sqlite_sequence WHERE name = '{audit.name}'"),
    "postgresql": text(f"SELECT nextval(pg_get_serial_sequence('{audit.name}', 'id'))"),
}


def note(
    connection: Connection,
    now: int,
    author: str,
    action: str,
    experiment: str | None = None,
    detail: Mapping[str, Any] | None = None,
    *,
    id: int | None = None,
) -> int:
    """Append an entry to the audit log; its id. The arguments are those of `AuditEntry`.

    id : one that was reserved; by default the next one
    """
    row: dict[str, Any] = {
        "created": now,
        "author": author,
        "action": action,
        "experiment": experiment,
        "detail": dump(detail or {}),
    }
    if id is None:
        _take_turn(connection)
    else:
        row["id"] = id
    return int(connection.execute(NOTE, row).scalar_one())


def reserve(connection: Connection) -> int:
    """The id of an entry that follows in this transaction; others wait until its end."""
    _take_turn(connection)
    return int(connection.execute(NEXT[connection.dialect.name]).scalar() or 1)


def reserve_many(connection: Connection, old: Sequence[int]) -> dict[int, int]:
    """New ids for imported entries, in their order."""
    if not old:
        return {}
    if connection.dialect.name == "sqlite":
        first = reserve(connection)
        return {entry: first + i for i, entry in enumerate(old)}
    return {entry: reserve(connection) for entry in old}


def _take_turn(connection: Connection) -> None:
    """Wait for others who write to the audit log, so that entries appear in the order of ids."""
    if connection.dialect.name == "postgresql":  # where an id is taken before it is committed
        connection.execute(text("SELECT pg_advisory_xact_lock(:turn)"), {"turn": TURN})


# Corrections


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
CLOSED_SEGMENTS = select(segments.c.index).where(
    segments.c.key == bindparam("key"), segments.c.closed.is_not(None)
)
TRACE = insert(corrections)

_with_rewards = assignments.outerjoin(rewards, same_assignment(assignments))
_segment = assignments.c.number // POSITIONS


def _one_value(
    connection: Connection,
    key: int,
    sticky: bool,
    change: Change,
    entry: int,
    series: RunningSeries,
) -> dict[Place, ArmDay]:
    """Void or correct a value of an assignment; what that adds to the sums of its segment."""
    assert change.target is not None
    (there,) = by_targets(connection, key, sticky, [change.target])
    number = known_assignment(there).number
    row, index = locked_rows(connection, key, [number])[number], place_of(number)[0]
    closed = index in set(connection.execute(CLOSED_SEGMENTS, {"key": key}).scalars())
    after, made = before_and_after(change, row, series.metrics, entry, closed)
    _replace(connection, key, row, after)
    connection.execute(TRACE, {"key": key, **asdict(made)})
    series.change(row, after)
    change_of = ArmDay(row.arm)
    change_of.reward_of(row, -1)
    change_of.reward_of(after)
    return {(index, row.arm, day_of(row.created)): change_of} if row.reward != after.reward else {}


def _replace(connection: Connection, key: int, before: LogRow, after: LogRow) -> None:
    """Store the reward and the events of an assignment as they are after a correction."""
    this = rewards.c.key == key, rewards.c.number == after.number
    if after.reward is None:
        connection.execute(delete(rewards).where(*this))
    elif after.reward != before.reward:
        connection.execute(update(rewards).where(*this).values(reward_row(key, after)))
    gone, new = set(before.events) - set(after.events), set(after.events) - set(before.events)
    mine = events.c.key == key, events.c.number == after.number
    for event in gone:
        this_one = events.c.metric == event.metric, events.c.event == event.event
        connection.execute(delete(events).where(*mine, *this_one))
    if new:
        connection.execute(insert(events), [event_row(key, after.number, each) for each in new])


def _erase(connection: Connection, key: int, change: Change, entry: int) -> int:
    """Give a unit another name; the number of its assignments."""
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
    connection: Connection, key: int, change: Change, entry: int, series: RunningSeries
) -> tuple[int, dict[Place, ArmDay]]:
    """Exclude or include; the number of assignments, and what that adds to the sums."""
    mine, numbers, excluded = assignments.c.key == key, assignments.c.number, assignments.c.excluded
    found: defaultdict[Place, ArmDay] = defaultdict(lambda: ArmDay(0))
    touched, known = 0, False
    if change.kind == "include":
        once = and_(corrections.c.key == key, corrections.c.entry == change.entry)
        for page in _pages(connection, corrections.c.number, once):
            these = and_(mine, excluded == change.entry, _within(numbers, page))
            _keep_trace(connection, these, entry, "include", null(), rewards.c.reward)
            counting = update(assignments).where(these).values(excluded=None)
            touched += connection.execute(counting).rowcount
            _add_sums(connection, key, entry, page, -1, found)
            _add_series(connection, key, entry, page, 1, series)
        check_found(change, touched, known=True)
        return touched, found
    which = within = and_(mine, assignments.c.unit == change.unit)
    if change.unit is None:
        created, which = assignments.c.created, mine
        within = and_(mine, created >= change.since, created < change.until)
    for page in _pages(connection, numbers, which):
        known, here = True, _within(numbers, page)
        leaving = update(assignments).where(within, excluded.is_(None), here)
        # First, because others may report further visits from a lease meanwhile.
        if count := connection.execute(leaving.values(excluded=entry)).rowcount:
            touched += count
            these = and_(mine, excluded == entry, here)
            _keep_trace(connection, these, entry, "exclude", rewards.c.reward, null())
            _add_sums(connection, key, entry, page, 1, found)
            _add_series(connection, key, entry, page, -1, series)
    check_found(change, touched, known)
    return touched, found


def _pages(
    connection: Connection, numbers: ColumnElement[int], which: ColumnElement[bool]
) -> Iterator[Page]:
    """Ranges of numbers, each with as many rows as one statement should touch."""
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
    """Store the correction of each assignment that a change touches."""
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
    found: defaultdict[Place, ArmDay],
) -> None:
    """Add what leaves the sums (sign 1) or comes back (-1), by segment, arm and day."""
    at = func.coalesce(rewards.c.at, rewards.c.created)
    waited = case((at > assignments.c.created, (at - assignments.c.created) // 1000), else_=0)
    place = (
        _segment.label("segment"),
        assignments.c.arm,
        (assignments.c.created // DAY).label("day"),
    )
    columns = *place, rewards.c.reward, func.count(), func.sum(waited)
    values = _traced(key, entry, page, *columns).group_by(*place, rewards.c.reward)
    for segment, arm, day, reward, times, milliseconds in connection.execute(values):
        more = found[int(segment), arm, int(day)]
        more.excluded += sign * times
        if reward is not None:
            more.reward(reward, times=-sign * times)
            more.waited -= sign * int(milliseconds)


def _add_series(
    connection: Connection, key: int, entry: int, page: Page, times: int, series: RunningSeries
) -> None:
    """Add what comes back to the series (1 times) or leaves them (-1).

    Sums of events are exact only if they are added here, so these assignments are read.
    """
    if not series.metrics:
        return
    found = connection.execute(_traced(key, entry, page, *logged(assignments, rewards)))
    rows = [LogRow(*row) for row in found]
    for row in read_events(connection, key, series.metrics, rows):
        series.add(replace(row, excluded=None), times)


def _traced(key: int, entry: int, page: Page, *columns: ColumnElement[Any]) -> Select[Any]:
    """Columns of the assignments that an entry has changed, and of their rewards."""
    traced = and_(
        assignments.c.key == corrections.c.key, assignments.c.number == corrections.c.number
    )
    return (
        select(*columns)
        .select_from(corrections.join(_with_rewards, traced))
        .where(
            corrections.c.key == key,
            corrections.c.entry == entry,
            _within(corrections.c.number, page),
            assignments.c.key == key,  # implied by the join, but the server plans better with it
            _within(assignments.c.number, page),
        )
    )


def _remember(connection: Connection, key: int, indices: Iterable[int]) -> None:
    """Store which closed segments were corrected, so that nobody has to read all corrections."""
    before = corrected_segments(connection, key)
    after = sorted({*before, *indices})
    if len(after) == len(before):
        return
    # The lock of the audit log is held, so nobody else is here.
    row = {"name": _mark(key), "value": len(after), "note": dump(after)}
    connection.execute(delete(marks).where(marks.c.name == row["name"]))
    connection.execute(insert(marks), row)


def _mark(key: int) -> str:
    return f"corrected {key}"


def corrected_segments(connection: Connection, key: int) -> tuple[int, ...]:
    """Indices of the segments that were corrected after they were closed."""
    mark = select(marks.c.note).where(marks.c.name == _mark(key))
    note_of = connection.execute(mark).scalar()
    return () if note_of is None else tuple(json.loads(note_of))


def forget_corrected(connection: Connection, key: int) -> None:
    """Remove the mark of an experiment that is deleted."""
    connection.execute(delete(marks).where(marks.c.name == _mark(key)))


def restore_trace(
    connection: Connection, key: int, name: str, trace: Trace, ids: Mapping[int, int]
) -> None:
    """Append the entries and corrections of an imported experiment; their ids were reserved."""
    for old in trace.entries:
        detail = trace.detail(old, ids)
        note(connection, old.created, old.author, old.action, name, detail, id=ids[old.id])
    rows = [{"key": key, **asdict(each)} for each in trace.renumbered(ids)]
    if rows:
        connection.execute(TRACE, rows)
    _remember(connection, key, trace.segments())


# Tokens and sessions


CLOSE = if_free(marks, marks.c.name)
IS_CLOSED = select(marks.c.value).where(marks.c.name == CLOSED)

ADD_TOKEN = if_free(tokens, tokens.c.name)
TOKENS = select(tokens).order_by(tokens.c.created, tokens.c.name)
LISTS = ("experiments", "origins")  # of a token, stored as JSON


def _token_row(token: TokenRecord) -> dict[str, Any]:
    return asdict(token) | {name: json.dumps(getattr(token, name)) for name in LISTS}


def _token_of(row: Row[Any]) -> TokenRecord:
    found = dict(row._mapping)
    return TokenRecord(**found | {name: tuple(json.loads(found[name] or "[]")) for name in LISTS})


class Operators(SQLBase):
    """The part of the storage that operators use."""

    def correct(self, key: int, change: Change, *, now: int, by: str = "") -> Corrected:
        """Take any time for a unit or a period, which may have a million visits."""
        return self._write(
            lambda connection: self._correct(connection, key, change, now, by),
            inf if change.target is None else None,
        )

    def _correct(
        self, connection: Connection, key: int, change: Change, now: int, by: str
    ) -> Corrected:
        facts = self._facts(connection, key)
        found = known(key, connection.execute(NAMED, {"key": key}).one_or_none())
        check_open(change, found.name, found.state, now)
        if change.kind != "erase":  # which changes no sums
            connection.execute(HOLD, {"key": key}).all()
        entry = reserve(connection)
        touched, counts, series = 1, dict[Place, ArmDay](), RunningSeries(facts.metrics)
        if change.target is not None:
            counts = _one_value(connection, key, facts.sticky, change, entry, series)
        elif change.kind == "erase":
            touched = _erase(connection, key, change, entry)
        else:
            touched, counts = _many(connection, key, change, entry, series)
        indices = {segment for segment, _, _ in counts}
        note(connection, now, by, change.action, found.name, change.detail(touched), id=entry)
        add(connection, key, self._database.shard, counts)
        add(connection, key, self._database.shard, series.changed(), sums=SERIES)
        if indices:
            closed = connection.execute(CLOSED_SEGMENTS, {"key": key}).scalars()
            _remember(connection, key, indices.intersection(closed))
        return Corrected(entry, touched)

    @reads
    def corrections(
        self, connection: Connection, key: int, after: tuple[int, int] = (0, -1), most: int = 10_000
    ) -> list[Correction]:
        self._facts(connection, key)
        place = tuple_(corrections.c.entry, corrections.c.number)
        page = (
            select(*(corrections.c[field.name] for field in fields(Correction)))
            .where(corrections.c.key == key, place > tuple_(*map(literal, after)))
            .order_by(*place)
            .limit(most)
        )
        return [Correction(*row) for row in connection.execute(page)]

    def closed(self) -> bool:
        """Read the mark that the first token has left."""
        mark = self._database.read_one(lambda connection: connection.execute(IS_CLOSED).scalar())
        return mark is not None

    @writes
    def add_token(self, connection: Connection, token: TokenRecord, *, by: str = "") -> None:
        if connection.execute(ADD_TOKEN, _token_row(token)).scalar() is None:
            raise token_taken(token.name)
        connection.execute(CLOSE, {"name": CLOSED, "value": token.created})
        note(connection, token.created, by, "token.created", detail=token.detail)

    @reads
    def tokens(self, connection: Connection) -> list[TokenRecord]:
        return [_token_of(row) for row in connection.execute(TOKENS)]

    @writes
    def remove_token(
        self, connection: Connection, name: str, *, now: int, by: str = "", lock_out: bool = False
    ) -> TokenRecord:
        # All are locked: if two callers remove the last two, the second sees one left.
        kept = [_token_of(row) for row in connection.execute(TOKENS.with_for_update())]
        token = removable(name, kept, lock_out)
        connection.execute(delete(tokens).where(tokens.c.name == name))
        connection.execute(delete(sessions).where(sessions.c.token == token.hash))
        note(connection, now, by, "token.removed", detail=token.detail)
        return token

    @writes
    def add_session(self, connection: Connection, session: SessionRecord) -> None:
        token = select(tokens).where(tokens.c.hash == session.token).with_for_update(read=True)
        if connection.execute(token).first() is None:
            raise token_removed()
        connection.execute(delete(sessions).where(sessions.c.expires <= session.created))
        connection.execute(insert(sessions), asdict(session))

    def find_session(self, id: str, now: int) -> SessionRecord | None:
        """Read one row, without a transaction."""
        this = select(sessions).where(sessions.c.id == id, sessions.c.expires > now)
        row = self._database.read_one(lambda c: c.execute(this).one_or_none())
        return None if row is None else SessionRecord(*row)

    @writes
    def remove_session(self, connection: Connection, id: str) -> None:
        connection.execute(delete(sessions).where(sessions.c.id == id))

    def audit(
        self, after: int = 0, most: int = 10_000, experiment: str | None = None
    ) -> list[AuditEntry]:
        """Read rows without a transaction: services often ask whether there are any."""
        reading = ENTRIES if experiment is None else ENTRIES_OF
        values = {"after": after, "most": most, "experiment": experiment}
        found = self._database.read_one(lambda c: reading(c, values))
        return [replace(AuditEntry(*row), detail=json.loads(row[-1])) for row in found]
