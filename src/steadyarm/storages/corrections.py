"""The audit log, and corrections: rewards are voided, visits excluded, and units erased.

Entries of the audit log are only ever appended. They become visible in the order of their ids, so a
reader who goes on after the last id seen misses none.

A correction locks all segments, so that no reward and no decision comes in between. Sums are not
subtracted but computed again from the remaining rows, because the precision of the other rewards
is lost next to a very large wrong one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, replace
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Double,
    and_,
    bindparam,
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

from steadyarm.errors import InvalidInputError, UnknownAssignmentError, WrongStateError
from steadyarm.storages.counting import RunningSeries
from steadyarm.storages.records import (
    ACTIONS,
    DAY,
    POSITIONS,
    REWARD,
    ArmDay,
    AuditEntry,
    Change,
    Correction,
    CorrectionResult,
    Kind,
    LogRow,
    day_of,
    dump,
    load,
    place_of,
    pseudonym,
)
from steadyarm.storages.schema import (
    assignments,
    audit,
    corrections,
    events,
    experiments,
    rewards,
    same_assignment,
    segments,
    series,
    tallies,
)
from steadyarm.storages.traffic import (
    LOGGED,
    Place,
    Transaction,
    add_counts,
    find_rows,
    lock_rows,
    require_experiment,
    with_events,
)

TURN = 0x57EAD7A4  # PostgreSQL's advisory lock for writing to the audit log
NEXT = {
    "sqlite": text(f"SELECT 1 + max(seq) FROM sqlite_sequence WHERE name = '{audit.name}'"),
    "postgresql": text(f"SELECT nextval(pg_get_serial_sequence('{audit.name}', 'id'))"),
}

ROWS = 20_000  # assignments in one statement; all in one would take a minute

NAMED = (
    select(experiments.c.name, experiments.c.state)
    .where(experiments.c.key == bindparam("key"))
    .with_for_update(read=True, key_share=True)  # so that `move` waits
)
HOLD = (
    select(segments.c.index)
    .where(segments.c.key == bindparam("key"))
    .order_by(segments.c.index)
    .with_for_update()
)
_with_rewards = assignments.outerjoin(rewards, same_assignment(assignments))
_segment = assignments.c.number // POSITIONS
_day = assignments.c.created // DAY
_closed = (
    select(segments.c.closed.is_not(None))
    .where(segments.c.key == assignments.c.key, segments.c.index == _segment)
    .scalar_subquery()
)


# The audit log


def note(
    connection: Connection,
    now: int,
    author: str,
    action: str,
    experiment: str | None = None,
    detail: Mapping[str, Any] | None = None,
    *,
    id: int | None = None,
) -> None:
    """Append an entry to the audit log. The arguments are those of `AuditEntry`.

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
    connection.execute(insert(audit), row)


def reserve(connection: Connection) -> int:
    """The id of an entry that follows in this transaction; others wait until its end."""
    _take_turn(connection)
    return int(connection.execute(NEXT[connection.dialect.name]).scalar() or 1)


def read_entries(
    connection: Connection, after: int, most: int, experiment: str | None
) -> list[AuditEntry]:
    """The next entries after an id; only those of an experiment if its name is given."""
    page = select(audit).where(audit.c.id > after).order_by(audit.c.id).limit(most)
    if experiment is not None:
        page = page.where(audit.c.experiment == experiment)
    entries = [AuditEntry(*row) for row in connection.execute(page)]
    return [replace(entry, detail=load(str(entry.detail))) for entry in entries]


def _take_turn(connection: Connection) -> None:
    """Wait for others who write to the audit log, so that entries appear in the order of ids."""
    if connection.dialect.name == "postgresql":  # where an id is taken before it is committed
        connection.execute(text("SELECT pg_advisory_xact_lock(:turn)"), {"turn": TURN})


# Corrections


def correct(t: Transaction, change: Change, now: int, by: str) -> CorrectionResult:
    """Make a correction; see `Storage.correct`."""
    name, state = require_experiment(
        t.key, t.connection.execute(NAMED, {"key": t.key}).one_or_none()
    )
    if state == "archived" and change.kind != "erase":
        raise WrongStateError(
            f"the experiment {name!r} is archived and can no longer be corrected. The identity of "
            "a unit can still be erased."
        )
    if change.until is not None and change.until > now:
        raise InvalidInputError(
            "the period to exclude ends in the future; exclude what has passed, and pause the "
            "experiment if visits are bad right now."
        )
    if change.kind != "erase":  # which changes no sums
        t.connection.execute(HOLD, {"key": t.key}).all()
    entry = reserve(t.connection)
    if change.kind == "void":
        touched = _void(t, change, entry)
    elif change.kind == "exclude":
        touched = _exclude(t, change, entry)
    else:
        touched = _erase(t, change, entry)
    note(t.connection, now, by, ACTIONS[change.kind], name, change.detail(touched), id=entry)
    if change.kind != "erase":
        _count_anew(t, entry)
    return CorrectionResult(entry, touched)


def read_corrections(t: Transaction, after: tuple[int, int], most: int) -> list[Correction]:
    """The next corrections after an entry and number, in the order of these."""
    place = tuple_(corrections.c.entry, corrections.c.number)
    page = (
        select(*(corrections.c[field.name] for field in fields(Correction)))
        .where(corrections.c.key == t.key, place > tuple_(*map(literal, after)))
        .order_by(*place)
        .limit(most)
    )
    return [Correction(*row) for row in t.connection.execute(page)]


def find_corrected_segments(connection: Connection, key: int) -> tuple[int, ...]:
    """Indices of the segments whose rewards were corrected after they were closed."""
    index = (corrections.c.number // POSITIONS).label("index")
    late = select(index).where(
        corrections.c.key == key,
        corrections.c.closed.is_(True),
        corrections.c.kind != "erase",
        corrections.c.metric == REWARD,
    )
    return tuple(int(row[0]) for row in connection.execute(late.distinct().order_by(index)))


def _void(t: Transaction, change: Change, entry: int) -> int:
    """Remove a value of an assignment."""
    assert change.target is not None
    (found,) = find_rows(t, [change.target])
    if found is None:
        raise UnknownAssignmentError(
            "there is no such assignment; give its id, or the unit if units keep their variant."
        )
    row = lock_rows(t, [found.number])[found.number]
    rule = t.metrics.rule(change.metric or REWARD)
    is_reward = rule is t.metrics.primary
    what = REWARD if is_reward else f"value of {rule.name!r}"
    if rule.steers and not is_reward:
        raise InvalidInputError(
            f"{rule.name!r} is a covariate, which was known before the assignment and stays as it "
            "was given; exclude the visit if it is wrong.",
            field="metric",
        )
    before = t.metrics.value(row, rule)
    if before is None:
        raise InvalidInputError(
            f"the assignment has no {what} to void; report the {what} if there is one."
        )
    closed = select(segments.c.closed.is_not(None)).where(
        segments.c.key == t.key, segments.c.index == place_of(row.number)[0]
    )
    is_closed = bool(t.connection.execute(closed).scalar_one())
    if is_reward:
        this = delete(rewards).where(rewards.c.key == t.key, rewards.c.number == row.number)
        t.connection.execute(this)
    of_metric = events.c.number == row.number, events.c.metric == rule.name
    t.connection.execute(delete(events).where(events.c.key == t.key, *of_metric))
    named = REWARD if is_reward else rule.name
    correction = Correction(entry, row.number, "void", before, is_closed, named)
    t.connection.execute(insert(corrections), {"key": t.key, **asdict(correction)})
    return 1


def _exclude(t: Transaction, change: Change, entry: int) -> int:
    """Exclude the assignments of a unit or of a period; their number."""
    mine, excluded = assignments.c.key == t.key, assignments.c.excluded
    which = within = and_(mine, assignments.c.unit == change.unit)
    if change.unit is None:
        created, which = assignments.c.created, mine
        within = and_(mine, created >= change.since, created < change.until)
    touched, exists = 0, False
    for here in _pages(t.connection, which):
        exists = True
        leaving = update(assignments).where(within, excluded.is_(None), here)
        if count := t.connection.execute(leaving.values(excluded=entry)).rowcount:
            touched += count
            _trace(t, and_(mine, excluded == entry, here), entry, "exclude", rewards.c.reward)
    if touched:
        return touched
    if change.unit is None:
        raise InvalidInputError("no assignment of that period counts; there is nothing to exclude.")
    if not exists:
        raise _unknown_unit()
    raise InvalidInputError("all assignments of the unit are excluded already.")


def _erase(t: Transaction, change: Change, entry: int) -> int:
    """Give a unit another name; the number of its assignments."""
    mine, name, touched = assignments.c.key == t.key, pseudonym(), 0
    theirs = and_(mine, assignments.c.unit == change.unit)
    for here in _pages(t.connection, theirs):
        renaming = update(assignments).where(theirs, here).values(unit=name)
        touched += t.connection.execute(renaming).rowcount
        _trace(t, and_(mine, here, assignments.c.unit == name), entry, "erase", null())
    if not touched:
        raise _unknown_unit()
    return touched


def _unknown_unit() -> UnknownAssignmentError:
    return UnknownAssignmentError("the unit has no assignment in this experiment.")


def _pages(connection: Connection, which: ColumnElement[bool]) -> Iterator[ColumnElement[bool]]:
    """Conditions for ranges of assignments, each with as many as one statement should touch."""
    numbers, after = assignments.c.number, -1
    while True:
        following = select(numbers.label("number")).where(which, numbers > after)
        page = following.order_by(numbers).limit(ROWS).subquery()
        last = connection.execute(select(func.max(page.c.number))).scalar()
        if last is None:
            return
        yield and_(numbers > after, numbers <= last)
        after = int(last)


def _trace(
    t: Transaction,
    which: ColumnElement[bool],
    entry: int,
    kind: Kind,
    before: ColumnElement[Any],
) -> None:
    """Store the correction of each assignment that a change touches."""
    values: dict[str, Any] = {
        "key": assignments.c.key,
        "entry": literal(entry),
        "number": assignments.c.number,
        "kind": literal(kind),
        "before": cast(before, Double),
        "closed": _closed,
    }
    chosen = select(*values.values()).select_from(_with_rewards).where(which)
    t.connection.execute(insert(corrections).from_select(list(values), chosen))


# Sums


def _count_anew(t: Transaction, entry: int) -> None:
    """Count the segments, arms and days again whose assignments an entry has changed."""
    touched = (
        select(_segment, assignments.c.arm, _day)
        .select_from(corrections.join(assignments, same_assignment(assignments, corrections)))
        .where(corrections.c.key == t.key, corrections.c.entry == entry)
        .distinct()
    )
    places: defaultdict[int, set[tuple[int, int]]] = defaultdict(set)
    for segment, arm, day in t.connection.execute(touched).all():
        places[int(segment)].add((int(arm), int(day)))
    for segment, arms_and_days in sorted(places.items()):
        arms, days = (sorted(set(values)) for values in zip(*arms_and_days, strict=True))
        for table in (tallies, series) if t.metrics else (tallies,):
            there = (
                table.c.key == t.key,
                table.c.segment == segment,
                table.c.arm.in_(arms),
                table.c.day.between(days[0], days[-1]),
            )
            counted = ("rewarded", "sums", "squares", "waited", "excluded", "events")
            zero = {name: 0 for name in counted if name in table.c}
            t.connection.execute(update(table).where(*there).values(zero))
        first = segment * POSITIONS
        # Of every arm on every one of these days, which may be some more than were touched.
        _count_rows(
            t,
            segment,
            and_(
                assignments.c.key == t.key,
                assignments.c.number.between(first, first + POSITIONS - 1),
                assignments.c.arm.in_(arms),
                assignments.c.created.between(DAY * days[0], DAY * (days[-1] + 1) - 1),
            ),
        )


def _count_rows(t: Transaction, segment: int, which: ColumnElement[bool]) -> None:
    """Add the rewards, exclusions and metrics of assignments of a segment to its sums."""
    counts: defaultdict[Place, ArmDay] = defaultdict(lambda: ArmDay(0))
    metrics = RunningSeries(t.metrics)
    for here in _pages(t.connection, which):
        page = t.connection.execute(LOGGED.where(which, here), {"key": t.key})
        for row in with_events(t, [LogRow(*columns) for columns in page]):
            count = counts[segment, row.arm, day_of(row.created)]
            count.excluded += row.excluded is not None
            count.reward_of(row)
            if t.metrics:
                metrics.add(row)
    add_counts(t, counts, metrics.counts)
