"""Assignments: positions of segments are assigned, leased, reported and released.

A span is a pair of assignment numbers (see `number_of`), from the first to before the second.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from sqlalchemy import Connection, and_, bindparam, delete, exists, insert, select, update

from steadyarm.storages.records import (
    ArmDay,
    Assigned,
    Handed,
    Known,
    Lease,
    LogRow,
    Target,
    check_not_archived,
    check_running,
    day_of,
    number_of,
    place_of,
    room_ahead,
)
from steadyarm.storages.sql.base import (
    BY_UNIT_AND_OUTSIDE,
    STANDING,
    STATE,
    TALLIES,
    Call,
    Facts,
    Place,
    SQLBase,
    by_targets,
    counts_at,
    finding,
    found_in,
    loaded,
    reads,
    segments_of,
    standing_in,
    state_in,
    writes,
)
from steadyarm.storages.sql.engine import CollisionError, Statement, at_the_end, together
from steadyarm.storages.sql.schema import (
    RELEASED,
    Among,
    assignments,
    belonging,
    inserting,
    leases,
    segments,
)

Span = tuple[int, int]

PORTION = 100  # rows of released positions that are read together
KEPT = 24 * 3600 * 10**6  # microseconds for which the empty row of an ended lease stays

_key = leases.c.key == bindparam("key")
_id = leases.c.id == bindparam("lease")
_some = Among(leases.c.id, "ids")
_leased = leases.c.expires > RELEASED
_out = and_(_leased, leases.c.start < leases.c.stop)
_rows = select(
    leases.c.id,
    leases.c.segment,
    leases.c.start,
    leases.c.stop,
    leases.c.expires,
    leases.c.holes,
).where(_key)

OUT = Statement(_rows.where(_out).order_by(leases.c.id))
HELD = Statement(_rows.where(_some, _out).order_by(leases.c.id).with_for_update())
FREE = Statement(
    _rows.where(leases.c.expires <= bindparam("now"), ~_some)
    .order_by(leases.c.segment, leases.c.start)
    .limit(bindparam("most"))
    .with_for_update(skip_locked=True)
)
DROP = Statement(delete(leases).where(_key, _some))
EMPTY = Statement(
    update(leases)
    .where(_key, _id)
    .values({"start": leases.c.stop, "expires": leases.c.expires + KEPT})
)
MOVE = Statement(update(leases).where(_key, _id).values(start=bindparam("first")))
MARK = Statement(
    update(leases)
    .where(_key, _id, _leased)
    .values(holes=True)
    .returning(leases.c.segment, leases.c.start, leases.c.stop)
)
KEEP = Statement(
    insert(leases)
    .values({c.name: bindparam(f"new_{c.name}") for c in leases.c if c.name != "id"})
    .returning(leases.c.id)
)
USED = Statement(
    select(assignments.c.number)
    .where(
        assignments.c.key == bindparam("key"),
        assignments.c.number >= bindparam("first"),
        assignments.c.number < bindparam("end"),
    )
    .order_by(assignments.c.number)
)

_later = segments.alias("later")
LAST = Statement(
    select(segments.c.index, segments.c.rounds, segments.c.handed)
    .where(segments.c.key == bindparam("key"))
    .order_by(segments.c.index.desc())
    .limit(1)
    .with_for_update(key_share=True)
)
TAKE = Statement(
    update(segments)
    .where(
        segments.c.key == bindparam("of"),
        segments.c.index == bindparam("last"),
        ~exists().where(_later.c.key == bindparam("of"), _later.c.index > bindparam("last")),
    )
    .values(handed=bindparam("counted"))
)
BELONGING = belonging()
INSERT = inserting(
    assignments,
    lambda insert: insert.on_conflict_do_nothing(index_elements=["key", "unit", "repeat"]),
)


class LeaseRow(NamedTuple):
    """A row of `leases`."""

    id: int
    segment: int
    start: int
    stop: int
    expires: int
    holes: bool

    @property
    def span(self) -> Span:
        """All of its positions."""
        first = number_of(self.segment, self.start)
        return first, first + self.stop - self.start


class Holding(NamedTuple):
    """The part of a lease that a caller holds: the locked row, and the spans it may use."""

    row: LeaseRow
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


def size(spans: Iterable[Span]) -> int:
    """Number of positions in spans."""
    return sum(stop - start for start, stop in spans)


def unused(connection: Connection, key: int, span: Span) -> list[Span]:
    """The parts of a span that no assignment uses."""
    found, at = [], span[0]
    for (number,) in USED(connection, {"key": key, "first": span[0], "end": span[1]}):
        if at < number:
            found.append((at, number))
        at = number + 1
    return found + ([(at, span[1])] if at < span[1] else [])


def held_by(
    connection: Connection, key: int, held: Sequence[Lease], rows: Iterable[LeaseRow]
) -> list[Holding]:
    """What is left of the leases that a caller claims to hold, and no more than it claims.

    rows : the locked rows of these leases
    """
    said: dict[int, list[Span]] = {}
    for lease in held:
        start = number_of(lease.segment, lease.start)
        said.setdefault(lease.id, []).append((start, start + len(lease)))
    holdings = []
    for row in rows:
        left = _left(connection, key, row)
        spans = {(max(a, c), min(b, d)) for a, b in left for c, d in said[row.id]}
        holdings.append(Holding(row, sorted(s for s in spans if s[0] < s[1])))
    return holdings


def settle(connection: Connection, key: int, holdings: list[Holding], used: int) -> list[Lease]:
    """Store how many positions were used of leases; what the caller holds of them from now on."""
    left = []
    for row, spans in holdings:
        taken, mine = split(spans, used)
        used -= size(taken)
        left += _pieces(row, mine)
        if not taken:
            continue
        whole = not row.holes and spans == [row.span]
        if whole and not mine:
            at_the_end(connection, (DROP, {"key": key, "ids": [row.id]}))
        elif whole:
            first = place_of(mine[0][0])[1]
            at_the_end(connection, (MOVE, {"key": key, "lease": row.id, "first": first}))
        elif not row.holes:
            at_the_end(connection, (MARK, {"key": key, "lease": row.id}))
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
    values = {"key": key, "now": now, "ids": [holding.row.id for holding in holdings]}
    while wanted > 0:
        most = min(wanted, PORTION)
        rows = [LeaseRow(*row) for row in FREE(connection, values | {"most": most})]
        first, rest = split(_emptied(connection, key, rows), wanted)
        keep(connection, key, rest)
        spans += first
        wanted -= size(first)
        if len(rows) < most:
            first, rest = split(_count(connection, key, wanted, ahead), wanted)
            return spans + first, rest
    return spans, []


def release(connection: Connection, key: int, ids: Iterable[int]) -> int:
    """Release what is left of leases; the number of positions."""
    held = HELD(connection, {"key": key, "ids": sorted(set(ids))})
    spans = _emptied(connection, key, [LeaseRow(*row) for row in held])
    keep(connection, key, spans)
    return size(spans)


def keep(
    connection: Connection, key: int, spans: Iterable[Span], expires: int = RELEASED
) -> tuple[Lease, ...]:
    """Store spans as leases, or as released."""
    places = [(*place_of(start), stop - start) for start, stop in spans]
    calls: list[Call] = [
        (
            KEEP,
            {
                "new_key": key,
                "new_segment": segment,
                "new_start": start,
                "new_stop": start + length,
                "new_expires": expires,
                "new_holes": False,
            },
        )
        for segment, start, length in places
    ]
    ids = [row[0] for (row,) in together(connection, *calls)]
    return tuple(
        Lease(number, segment, start, start + length, expires)
        for number, (segment, start, length) in zip(ids, places, strict=True)
    )


def _emptied(connection: Connection, key: int, rows: Sequence[LeaseRow]) -> list[Span]:
    """What is left of leases, which are removed."""
    spans = [span for row in rows for span in _left(connection, key, row)]
    calls: list[Call] = []
    if dropped := [row.id for row in rows if not row.holes or row.start == row.stop]:
        calls.append((DROP, {"key": key, "ids": dropped}))
    calls += [(EMPTY, {"key": key, "lease": row.id}) for row in rows if row.id not in dropped]
    together(connection, *calls)
    return spans


def _left(connection: Connection, key: int, row: LeaseRow) -> list[Span]:
    return unused(connection, key, row.span) if row.holes else [row.span]


def _pieces(row: LeaseRow, spans: Iterable[Span]) -> list[Lease]:
    first = number_of(row.segment, 0)
    return [Lease(row.id, row.segment, a - first, b - first, row.expires) for a, b in spans]


def _count(connection: Connection, key: int, wanted: int, ahead: int) -> list[Span]:
    """Take positions from the counter of the segment opened last."""
    while wanted > 0:
        row = LAST(connection, {"key": key}).first
        if row is None or row[2] >= row[1]:
            break
        index, rounds, handed = row
        counted = min(rounds, handed + wanted)
        counted += min(ahead, room_ahead(rounds - counted))
        # Nothing is updated if another segment was opened while we waited for the lock.
        if TAKE(connection, {"of": key, "last": index, "counted": counted}).written:
            return [(number_of(index, handed), number_of(index, counted))]
    return []


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
            wanted = {"key": key, "values": sorted(set(units))}
            rows = self._database.read_one(lambda c: list(BY_UNIT_AND_OUTSIDE(c, wanted)))
            known = {row[1]: LogRow(*row[:-1]).assigned() for row in rows}
            if all(unit in known for unit in units):
                outside = loaded(rows[0][-1]) if rows else None
                return Handed(tuple(known[unit] for unit in units), tuple(held), outside)

        def work(connection: Connection) -> Handed:
            nonlocal known
            before, known = known, None  # if others assign meanwhile, it is read once more
            return self._assign(connection, key, units, before, held, ahead, expires, now)

        return self._write(work)

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
        ids = sorted({lease.id for lease in held})
        state, locked, *found = together(
            connection,
            (STATE, {"key": key}),
            (HELD, {"key": key, "ids": ids}),
            *(finding(key, facts.sticky, units) if known is None else ()),
        )
        if known is None:
            rows = found_in(found, units, facts.sticky)
            known = {row.unit: row.assigned() for row in rows if row is not None}
        missing = [unit for unit in units if unit not in known]
        if facts.sticky:
            missing = list(dict.fromkeys(missing))
        now_state, outside = standing_in(key, state)
        if not missing:
            return Handed(tuple(known[unit] for unit in units), tuple(held), outside)
        check_running(now_state, outside)
        holdings = held_by(connection, key, held, [LeaseRow(*row) for row in locked])
        spans = [span for holding in holdings for span in holding.spans]
        taken: list[Span] = []
        more: list[Span] = []
        if (lacking := len(missing) - size(spans)) > 0:
            taken, more = take(connection, key, lacking, now, holdings, ahead)
        numbers = chain.from_iterable(range(*span) for span in spans + taken)
        rows_of = [(number, unit, now) for unit, number in zip(missing, numbers, strict=False)]
        stored = self._store(connection, key, facts, rows_of)
        left = settle(connection, key, holdings, len(stored))
        leased = keep(connection, key, more, expires)
        if facts.sticky:
            known |= {item.unit: item for item in stored}
            given = [known.get(unit) for unit in units]
        else:
            given = [*stored, *(None for _ in range(len(units) - len(stored)))]
        return Handed(_new_once(given), (*left, *leased))

    def _store(
        self, connection: Connection, key: int, facts: Facts, rows: Sequence[tuple[int, str, int]]
    ) -> list[Assigned]:
        """Store assignments, given as number, unit and time."""
        drawn = self._draws.at(
            key,
            facts.seed,
            (place_of(row[0]) for row in rows),
            lambda index: segments_of(connection, key, [index])[index].segment,
        )
        items = [Assigned(*row[:2], *arm, row[2]) for row, arm in zip(rows, drawn, strict=True)]
        if not items:
            return items
        counts: dict[Place, ArmDay] = {}
        for item in items:
            place = place_of(item.number)[0], item.arm, day_of(item.created)
            counts.setdefault(place, ArmDay(item.arm)).assign(item.created)
        inserted = INSERT(
            connection,
            [
                {
                    "key": key,
                    "number": item.number,
                    "unit": item.unit,
                    "repeat": 0 if facts.sticky else item.number + 1,
                    "arm": item.arm,
                    "probability": item.probability,
                    "created": item.created,
                    "excluded": None,
                }
                # Transactions that wait for each other do so in one order.
                for item in sorted(items, key=attrgetter("unit"))
            ],
        )
        if inserted.written < len(items):
            raise CollisionError  # another process has assigned one of the units
        rows_at = counts_at(key, self._database.shard, counts.items())
        at_the_end(connection, (TALLIES.count, rows_at))
        return items

    @reads
    def known(self, connection: Connection, key: int, units: Sequence[str]) -> Known:
        sticky = self._facts(connection, key).sticky
        standing, *found = together(
            connection, (STANDING, {"key": key}), *finding(key, sticky, units)
        )
        rows = found_in(found, units, sticky)
        given = tuple(None if row is None else row.assigned() for row in rows)
        return Known(given, *standing_in(key, standing))

    @reads
    def experiments_of(
        self, connection: Connection, units: Sequence[str], keys: Sequence[int]
    ) -> tuple[frozenset[int], ...]:
        found: dict[str, set[int]] = {unit: set() for unit in units}
        for unit, key in BELONGING(connection, {"units": list(found), "keys": sorted(set(keys))}):
            found[unit].add(key)
        return tuple(frozenset(found[unit]) for unit in units)

    @writes
    def lease(
        self, connection: Connection, key: int, wanted: int, *, expires: int, now: int
    ) -> tuple[Lease, ...]:
        check_running(*standing_in(key, STATE(connection, {"key": key})))
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
        state, marked = together(
            connection, (STATE, {"key": key}), (MARK, {"key": key, "lease": lease})
        )
        check_not_archived(state_in(key, state))
        segment, start, stop = marked.first or (0, 0, 0)
        numbers = [number_of(segment, position) if stop else -1 for position, _, _ in used]
        targets: list[Target] = [*numbers, *(unit for _, unit, _ in used)]
        found = by_targets(connection, key, facts.sticky, targets)
        by_number = {row.number: row.assigned() for row in found[: len(used)] if row is not None}
        by_unit = {row.unit: row.assigned() for row in found[len(used) :] if row is not None}
        new: dict[int | str, tuple[int, str, int]] = {}  # by number, and by unit if it is sticky
        for number, (position, unit, at) in zip(numbers, used, strict=True):
            free = number not in by_number and number not in new and start <= position < stop
            if free and unit not in by_unit and unit not in new:
                new[number] = number, unit, at
                if facts.sticky:
                    new[unit] = new[number]
        for item in self._store(connection, key, facts, list(dict.fromkeys(new.values()))):
            by_number[item.number] = item
            if facts.sticky:
                by_unit[item.unit] = item

        def counts(number: int, unit: str) -> Assigned | None:
            item = by_unit.get(unit) or by_number.get(number)
            return item if item is not None and item.unit == unit else None

        return _new_once(
            counts(number, unit) for number, (_, unit, _) in zip(numbers, used, strict=True)
        )

    @writes
    def release(self, connection: Connection, key: int, leases: Iterable[int]) -> int:
        self._facts(connection, key)
        return release(connection, key, leases)

    @reads
    def leases(self, connection: Connection, key: int) -> tuple[Lease, ...]:
        self._facts(connection, key)
        rows = [LeaseRow(*row) for row in OUT(connection, {"key": key})]
        return tuple(piece for row in rows for piece in _pieces(row, _left(connection, key, row)))


def _new_once(items: Iterable[Assigned | None]) -> tuple[Assigned | None, ...]:
    """The same assignments, each of them new only where it comes first."""
    answers, seen = [], set[int]()
    for item in items:
        if item is not None and item.new:
            if item.number in seen:
                item = replace(item, new=False)
            seen.add(item.number)
        answers.append(item)
    return tuple(answers)
