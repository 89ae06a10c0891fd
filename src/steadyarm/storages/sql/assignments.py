"""Assignments: positions of segments are assigned, leased, reported and released.

A span is a pair of assignment numbers (see `number_of`), from the first to before the second.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import Connection, and_, bindparam, case, delete, exists, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from steadyarm.storages.records import (
    ArmDay,
    Assigned,
    Handed,
    Lease,
    check_not_archived,
    check_running,
    day_of,
    number_of,
    place_of,
    room_ahead,
)
from steadyarm.storages.sql.base import (
    Facts,
    SQLBase,
    by_numbers,
    by_units,
    one_or_many,
    portions,
    reads,
    segments_of,
    state_of,
    writes,
)
from steadyarm.storages.sql.schema import (
    RELEASED,
    AnyRow,
    assignments,
    insert_new,
    leases,
    segments,
    tallies,
)

Span = tuple[int, int]

PORTION = 100  # rows of released positions that are read together
KEPT = 24 * 3600 * 10**6  # microseconds for which the empty row of an ended lease stays
NEVER = 2**63 - 1  # time at which such rows of earlier versions expire

_key = leases.c.key == bindparam("key")
_ids = leases.c.id.in_(bindparam("ids", expanding=True))
_columns = (
    leases.c.id,
    leases.c.segment,
    leases.c.start,
    leases.c.stop,
    leases.c.expires,
    leases.c.holes,
)
_leased = leases.c.expires > RELEASED
_out = and_(_leased, leases.c.start < leases.c.stop)
_one = and_(leases.c.key == bindparam("of"), leases.c.id == bindparam("lease"))

OUT = select(*_columns).where(_key, _out).order_by(leases.c.id)
HELD = select(*_columns).where(_key, _ids, _out).order_by(leases.c.id).with_for_update()
FREE = (
    select(*_columns)
    .where(_key, leases.c.expires <= bindparam("now"))
    .order_by(leases.c.segment, leases.c.start)
    .limit(bindparam("most"))
    .with_for_update(skip_locked=True)
)
FREE_OTHERS = FREE.where(leases.c.id.not_in(bindparam("ids", expanding=True)))
DROP = delete(leases).where(_key, _ids)
EMPTY = update(leases).where(_one).values(start=leases.c.stop, expires=leases.c.expires + KEPT)
MOVE = update(leases).where(_one).values(start=bindparam("first"))
MARK = (
    update(leases)
    .where(_one, _leased)
    .values(holes=True)
    .returning(leases.c.segment, leases.c.start, leases.c.stop)
)
KEEP = insert(leases).returning(leases.c.id)
RELEASE = insert(leases)
USED = (
    select(assignments.c.number)
    .where(
        assignments.c.key == bindparam("key"),
        assignments.c.number >= bindparam("first"),
        assignments.c.number < bindparam("end"),
    )
    .order_by(assignments.c.number)
)

_later = segments.alias("later")
LAST = (
    select(segments.c.index, segments.c.rounds, segments.c.handed)
    .where(segments.c.key == bindparam("key"))
    .order_by(segments.c.index.desc())
    .limit(1)
    .with_for_update(key_share=True)
)
COUNT = (
    update(segments)
    .where(
        segments.c.key == bindparam("of"),
        segments.c.index == bindparam("last"),
        ~exists().where(_later.c.key == bindparam("of"), _later.c.index > bindparam("last")),
    )
    .values(handed=bindparam("counted"))
)


class Holding(NamedTuple):
    """The part of a lease that a caller holds: the locked row, and the spans it may use."""

    row: AnyRow
    spans: list[Span]


def split(spans: Iterable[Span], wanted: int) -> tuple[list[Span], list[Span]]:
    """The first `wanted` positions, and the others."""
    first: list[Span] = []
    rest: list[Span] = []
    for start, stop in spans:
        middle = min(stop, start + wanted)
        wanted -= middle - start
        if start < middle:
            first.append((start, middle))
        if middle < stop:
            rest.append((middle, stop))
    return first, rest


def without(spans: Iterable[Span], used: Set[int]) -> list[Span]:
    """Spans less the numbers that are used."""
    found: list[Span] = []
    for start, stop in spans:
        at = start
        for number in sorted(number for number in used if start <= number < stop):
            if at < number:
                found.append((at, number))
            at = number + 1
        if at < stop:
            found.append((at, stop))
    return found


def numbers_in(spans: Iterable[Span]) -> list[int]:
    """All numbers of spans."""
    return list(chain.from_iterable(range(*span) for span in spans))


def size(spans: Iterable[Span]) -> int:
    """Number of positions in spans."""
    return sum(stop - start for start, stop in spans)


def unused(connection: Connection, key: int, span: Span) -> list[Span]:
    """The parts of a span that no assignment uses."""
    found, at = [], span[0]
    for (number,) in connection.execute(USED, {"key": key, "first": span[0], "end": span[1]}):
        if at < number:
            found.append((at, number))
        at = number + 1
    return found + ([(at, span[1])] if at < span[1] else [])


def held_by(connection: Connection, key: int, held: Sequence[Lease]) -> list[Holding]:
    """What is left of the leases that a caller claims to hold, and no more than it claims."""
    said: dict[int, list[Span]] = {}
    for lease in held:
        start = number_of(lease.segment, lease.start)
        said.setdefault(lease.id, []).append((start, start + len(lease)))
    rows = {
        row.id: row
        for ids in portions(sorted(said))
        for row in connection.execute(HELD, {"key": key, "ids": ids})
    }
    holdings = []
    for number in said:
        if number in rows:
            left = _left(connection, key, rows[number])
            spans = {(max(a, c), min(b, d)) for a, b in left for c, d in said[number]}
            holdings.append(Holding(rows[number], sorted(s for s in spans if s[0] < s[1])))
    return holdings


def settle(
    connection: Connection, key: int, holdings: list[Holding], used: Set[int]
) -> list[Lease]:
    """Store what was used of leases; what the caller holds of them from now on."""
    left = []
    for row, spans in holdings:
        mine = without(spans, used)
        left += _pieces(row, mine)
        if mine == spans:
            continue
        first = number_of(row.segment, row.start)
        whole = not row.holes and spans == [(first, first + row.stop - row.start)]
        if whole and not mine:
            connection.execute(DROP, {"key": key, "ids": [row.id]})
        elif whole and len(mine) == 1 and mine[0][1] == spans[0][1]:  # used from its beginning
            start = place_of(mine[0][0])[1]
            connection.execute(MOVE, {"of": key, "lease": row.id, "first": start})
        elif not row.holes:
            connection.execute(MARK, {"of": key, "lease": row.id})
    return left


def take(
    connection: Connection,
    key: int,
    wanted: int,
    now: int,
    holdings: Sequence[Holding] = (),
    ahead: int = 0,
) -> tuple[list[Span], list[Span]]:
    """Up to `wanted` positions: released ones, those of expired leases, then from the counter.

    holdings : of the caller, who may go on using them although they may have expired
    ahead : positions to take beyond these, as far as `room_ahead` allows; returned separately
    """
    spans: list[Span] = []
    values: dict[str, Any] = {"key": key, "now": now}
    if holdings:
        values["ids"] = [holding.row.id for holding in holdings]
    statement = FREE_OTHERS if holdings else FREE
    while wanted > 0:
        most = min(wanted, PORTION)
        rows = connection.execute(statement, values | {"most": most}).all()
        first, rest = split(_emptied(connection, key, rows), wanted)
        keep(connection, key, rest)
        spans += first
        wanted -= size(first)
        if len(rows) < most:
            counted = _count(connection, key, wanted, ahead)
            first, rest = split(counted, wanted)
            return spans + first, rest
    return spans, []


def release(connection: Connection, key: int, ids: Iterable[int]) -> int:
    """Release what is left of leases; the number of positions."""
    released = 0
    for portion in portions(sorted(set(ids))):
        rows = connection.execute(HELD, {"key": key, "ids": portion}).all()
        spans = _emptied(connection, key, rows)
        keep(connection, key, spans)
        released += size(spans)
    return released


def keep(
    connection: Connection, key: int, spans: Sequence[Span], expires: int = RELEASED
) -> tuple[Lease, ...]:
    """Store spans as leases, or as released."""
    rows: list[dict[str, Any]] = []
    for start, stop in spans:
        segment, position = place_of(start)
        place = {"segment": segment, "start": position, "stop": position + stop - start}
        rows.append({"key": key, "expires": expires, "holes": False, **place})
    if expires == RELEASED:
        if rows:
            connection.execute(RELEASE, rows)
        return ()
    kept = []
    for row in rows:
        number = connection.execute(KEEP, row).scalar_one()
        kept.append(Lease(number, row["segment"], row["start"], row["stop"], expires))
    return tuple(kept)


def _emptied(connection: Connection, key: int, rows: Sequence[AnyRow]) -> list[Span]:
    """What is left of leases, which are removed."""
    if not rows:
        return []
    spans = [span for row in rows for span in _left(connection, key, row)]
    marked = {row.id for row in rows if row.holes and row.start < row.stop}
    connection.execute(DROP, {"key": key, "ids": [row.id for row in rows if row.id not in marked]})
    for row in rows:
        if row.id in marked:
            connection.execute(EMPTY, {"of": key, "lease": row.id})
    return spans


def _left(connection: Connection, key: int, row: AnyRow) -> list[Span]:
    start = number_of(row.segment, row.start)
    span = start, start + row.stop - row.start
    return unused(connection, key, span) if row.holes else [span]


def _pieces(row: AnyRow, spans: Iterable[Span]) -> list[Lease]:
    first = number_of(row.segment, 0)
    return [Lease(row.id, row.segment, a - first, b - first, row.expires) for a, b in spans]


def _count(connection: Connection, key: int, wanted: int, ahead: int) -> list[Span]:
    """Take positions from the counter of the segment opened last."""
    while wanted > 0:
        row = connection.execute(LAST, {"key": key}).one_or_none()
        if row is None or row.handed >= row.rounds:
            break
        index, handed = row[0], row.handed
        counted = min(row.rounds, handed + wanted)
        counted += min(ahead, room_ahead(row.rounds - counted))
        values = {"of": key, "last": index, "counted": counted}
        # Nothing is updated if another segment was opened while we waited for the lock.
        if connection.execute(COUNT, values).rowcount:
            return [(number_of(index, handed), number_of(index, counted))]
    return []


# Assignments


INSERT_NEW = {
    "sqlite": sqlite.insert(assignments).on_conflict_do_nothing(
        index_elements=["key", "unit", "repeat"]
    ),
    "postgresql": insert_new(assignments, assignments.c.number),
}


def _add(dialect: Any) -> Any:
    statement = dialect.insert(tallies)
    new = statement.excluded
    later = case((tallies.c.last > new.last, tallies.c.last), else_=new.last)
    return statement.on_conflict_do_update(
        index_elements=["key", "segment", "arm", "shard", "day"],
        set_={"assigned": tallies.c.assigned + new.assigned, "last": later},
    )


ADD = {"sqlite": _add(sqlite), "postgresql": _add(postgresql)}


class Assignments(SQLBase):
    """The part of the storage that assigns positions to units."""

    def assign(
        self,
        key: int,
        units: Sequence[str],
        held: Sequence[Lease] = (),
        ahead: int = 0,
        *,
        expires: int,
        now: int,
    ) -> Handed:
        """Assign variants; known units are only read, since SQLite readers wait for no writer."""
        known: dict[str, Assigned] | None = None
        if self._database.sqlite and self._known_facts(key).sticky:
            known = self._existing(key, units)
            if all(unit in known for unit in units):
                return Handed(tuple(known[unit] for unit in units), tuple(held))
        return self._assign(key, units, known, held, ahead, expires, now)

    @reads
    def _existing(
        self, connection: Connection, key: int, units: Sequence[str]
    ) -> dict[str, Assigned]:
        return _existing(connection, key, self._facts(connection, key), units)

    @writes
    def _assign(
        self,
        connection: Connection,
        key: int,
        units: Sequence[str],
        known: dict[str, Assigned] | None,
        held: Sequence[Lease],
        ahead: int,
        expires: int,
        now: int,
    ) -> Handed:
        facts = self._facts(connection, key)
        if known is None:
            known = _existing(connection, key, facts, units)
        missing = [unit for unit in units if unit not in known]
        if facts.sticky:
            missing = list(dict.fromkeys(missing))
        if not missing:
            return Handed(tuple(known[unit] for unit in units), tuple(held))
        check_running(state_of(connection, key))
        holdings = held_by(connection, key, held) if held else []
        spans = [span for holding in holdings for span in holding.spans]
        lacking = len(missing) - size(spans)
        taken: list[Span] = []
        more: list[Span] = []
        if lacking > 0:
            taken, more = take(connection, key, lacking, now, holdings, ahead)
        numbers = numbers_in(split(spans + taken, len(missing))[0])
        rows = [(number, unit, now) for number, unit in zip(numbers, missing, strict=False)]
        stored = self._store(connection, key, facts, rows)
        used = {number for number in numbers if stored[number].number == number}
        left = settle(connection, key, holdings, used)
        # If another process has assigned a unit meanwhile, its position is free again.
        keep(connection, key, without(taken, used))
        leased = keep(connection, key, more, expires)
        given = _in_order(units, facts, known, [stored[number] for number in numbers])
        return Handed(given, (*left, *leased))

    def _store(
        self, connection: Connection, key: int, facts: Facts, rows: Sequence[tuple[int, str, int]]
    ) -> dict[int, Assigned]:
        """Store assignments, given as number, unit and time.

        Returns by number the assignment that counts: the new one or, if the unit was assigned
        meanwhile, the one that it has.
        """
        if not rows:
            return {}
        drawn = self._draws.at(
            key,
            facts.seed,
            (place_of(row[0]) for row in rows),
            lambda index: segments_of(connection, key, [index])[index].segment,
        )
        found = {
            number: Assigned(number, unit, arm, probability, time)
            for (number, unit, time), (arm, probability) in zip(rows, drawn, strict=True)
        }
        new = _insert(connection, key, facts, list(found.values()))
        if len(new) < len(found):
            others = [item.unit for item in found.values() if item.number not in new]
            theirs = _existing(connection, key, facts, others)
            found = {n: a if n in new else theirs[a.unit] for n, a in found.items()}
        counts: dict[tuple[int, int, int], ArmDay] = {}
        for number in new:
            item = found[number]
            place = place_of(number)[0], item.arm, day_of(item.created)
            counts.setdefault(place, ArmDay(item.arm)).assign(item.created)
        values = [
            {
                "key": key,
                "segment": segment,
                "arm": arm,
                "shard": self._database.shard,
                "day": day,
                "assigned": count.assigned,
                "rewarded": 0,
                "sums": "0",
                "squares": "0",
                "last": count.last,
            }
            for (segment, arm, day), count in sorted(counts.items(), key=itemgetter(0))
        ]
        if values:
            connection.execute(ADD[connection.dialect.name], one_or_many(values))
        return found

    @writes
    def lease(
        self, connection: Connection, key: int, wanted: int, *, expires: int, now: int
    ) -> tuple[Lease, ...]:
        check_running(state_of(connection, key))
        return keep(connection, key, sorted(take(connection, key, wanted, now)[0]), expires)

    @writes
    def report(
        self,
        connection: Connection,
        key: int,
        lease: int,
        used: Sequence[tuple[int, str, int]],
        now: int,
    ) -> tuple[Assigned | None, ...]:
        facts = self._facts(connection, key)
        check_not_archived(state_of(connection, key))
        known = _existing(connection, key, facts, [unit for _, unit, _ in used])
        row = connection.execute(MARK, {"of": key, "lease": lease}).one_or_none()
        if row is None:
            return tuple(known.get(unit) for _, unit, _ in used)
        segment, start, stop = row
        places = [number_of(segment, position) for position, _, _ in used]
        taken = by_numbers(connection, key, places)
        answers: list[Assigned | None] = [None] * len(used)
        first: dict[int | str, int] = {}  # the use of a position, or of a sticky unit, that counts
        new: list[int] = []
        repeats: dict[int, int] = {}
        for i, (position, unit, _) in enumerate(used):
            if unit in known:
                answers[i] = known[unit]
            elif unit in first:
                repeats[i] = first[unit]
            elif (number := places[i]) in first:
                if used[first[number]][1] == unit:
                    repeats[i] = first[number]
            elif number in taken:
                if taken[number].unit == unit:
                    answers[i] = taken[number].assigned()
            elif start <= position < stop:
                first[number] = i
                new.append(i)
                if facts.sticky:
                    first[unit] = i
        rows = [(places[i], used[i][1], used[i][2]) for i in new]
        stored = self._store(connection, key, facts, rows)
        for i in new:
            answers[i] = stored[places[i]]
        for i, j in repeats.items():
            earlier = answers[j]
            answers[i] = None if earlier is None else replace(earlier, new=False)
        return tuple(answers)

    @writes
    def release(self, connection: Connection, key: int, leases: Iterable[int]) -> int:
        self._facts(connection, key)
        return release(connection, key, leases)

    @reads
    def leases(self, connection: Connection, key: int) -> tuple[Lease, ...]:
        self._facts(connection, key)
        rows = connection.execute(OUT, {"key": key}).all()
        return tuple(piece for row in rows for piece in _pieces(row, _left(connection, key, row)))


def _existing(
    connection: Connection, key: int, facts: Facts, units: Sequence[str]
) -> dict[str, Assigned]:
    """The assignments that units have; none if units are not sticky."""
    rows = by_units(connection, key, units) if facts.sticky else {}
    return {unit: row.assigned() for unit, row in rows.items()}


def _insert(connection: Connection, key: int, facts: Facts, items: list[Assigned]) -> set[int]:
    """Insert assignments of units that have none; their numbers.

    Sorted by unit, so that transactions that wait for each other do so in one order.
    """
    rows = [
        {
            "key": key,
            "number": item.number,
            "unit": item.unit,
            "repeat": 0 if facts.sticky else item.number + 1,
            "arm": item.arm,
            "probability": item.probability,
            "created": item.created,
        }
        for item in sorted(items, key=lambda item: item.unit)
    ]
    statement = INSERT_NEW[connection.dialect.name]
    if connection.dialect.name == "postgresql":
        values = {"rows": json.dumps(rows, ensure_ascii=False)}
        return set(connection.execute(statement, values).scalars())
    options = {"preserve_rowcount": True}
    inserted = connection.execute(statement, one_or_many(rows), execution_options=options).rowcount
    if inserted == len(rows):
        return {item.number for item in items}
    theirs = by_units(connection, key, [item.unit for item in items])
    return {item.number for item in items if theirs[item.unit].number == item.number}


def _in_order(
    units: Sequence[str], facts: Facts, known: dict[str, Assigned], given: Sequence[Assigned]
) -> tuple[Assigned | None, ...]:
    """One assignment for each unit, in their order; new only where the unit is named first."""
    if not facts.sticky:
        return (*given, *(None for _ in range(len(units) - len(given))))
    found = known | {item.unit: item for item in given}
    if len(set(units)) == len(units):
        return tuple(found.get(unit) for unit in units)
    answers = []
    for unit in units:
        item = found.get(unit)
        answers.append(item)
        if item is not None and item.new:
            found[unit] = replace(item, new=False)
    return tuple(answers)
