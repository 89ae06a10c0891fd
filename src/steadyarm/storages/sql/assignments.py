"""Places: spans of numbers that are leased, released, or taken from a segment's counter.

A span is a pair of numbers (see `number_of`), from the first to before the second.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

from sqlalchemy import (
    Connection,
    and_,
    bindparam,
    case,
    delete,
    exists,
    insert,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from steadyarm.errors import WrongStateError
from steadyarm.storages.counting import day_of
from steadyarm.storages.draws import Draws
from steadyarm.storages.records import Assigned, Handed, Lease, number_of, place_of, room_ahead
from steadyarm.storages.sql.schema import (
    RELEASED,
    AnyRow,
    assignments,
    insert_new,
    leases,
    segments,
    tallies,
)
from steadyarm.storages.sql.segments import (
    Facts,
    by_numbers,
    by_units,
    one_or_many,
    portions,
    reader,
    state_of,
)

__all__ = [
    "MARK",
    "NEVER",
    "Assigner",
    "Holding",
    "Span",
    "held_by",
    "keep",
    "leased",
    "numbers_in",
    "release",
    "settle",
    "size",
    "split",
    "take",
    "unused",
    "without",
]

# Places: spans of numbers that are leased, released, or taken from a segment's counter.


Span = tuple[int, int]

PORTION = 100  # rows of released positions looked at together
KEPT = 24 * 3600 * 10**6  # microseconds after its end that the empty row of a lease stays
NEVER = 2**63 - 1  # when such rows of earlier versions expire

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
    """What a caller holds of a lease: its row, locked, and the places it may use."""

    row: AnyRow
    spans: list[Span]


def split(spans: Iterable[Span], wanted: int) -> tuple[list[Span], list[Span]]:
    """The first `wanted` places, and the others."""
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
    """All of their numbers."""
    return list(chain.from_iterable(range(*span) for span in spans))


def size(spans: Iterable[Span]) -> int:
    """How many places they have."""
    return sum(stop - start for start, stop in spans)


def unused(connection: Connection, key: int, span: Span) -> list[Span]:
    """What no assignment uses of a span."""
    found, at = [], span[0]
    for (number,) in connection.execute(USED, {"key": key, "first": span[0], "end": span[1]}):
        if at < number:
            found.append((at, number))
        at = number + 1
    return found + ([(at, span[1])] if at < span[1] else [])


def leased(connection: Connection, key: int) -> tuple[Lease, ...]:
    """What is left of all leases; one with holes comes in pieces."""
    rows = connection.execute(OUT, {"key": key}).all()
    return tuple(piece for row in rows for piece in _pieces(row, _left(connection, key, row)))


def held_by(connection: Connection, key: int, held: Sequence[Lease]) -> list[Holding]:
    """What is left of leases that are still the caller's: of each what it says it has, no more."""
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
    """Note what was used of leases; what the caller holds of them from now on."""
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
    """Up to that many places: released ones, those of expired leases, then from the counter.

    holdings : of the caller, who goes on using them although they may have expired
    ahead : places to take beyond these, as far as `room_ahead` allows; given apart
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
    """Turn what is left of leases into released spans; how many places that are."""
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
    """Write spans down as leases, or as released."""
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
    """What is left of leases, which are gone then."""
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
    """Move the counter of the segment opened last."""
    while wanted > 0:
        row = connection.execute(LAST, {"key": key}).one_or_none()
        if row is None or row.handed >= row.rounds:
            break
        index, handed = row[0], row.handed
        counted = min(row.rounds, handed + wanted)
        counted += min(ahead, room_ahead(row.rounds - counted))
        values = {"of": key, "last": index, "counted": counted}
        # None is counted if another segment was opened while we waited for the lock.
        if connection.execute(COUNT, values).rowcount:
            return [(number_of(index, handed), number_of(index, counted))]
    return []


# Assignments: handed out, leased ahead, and reported by those who used a lease.


INSERT = insert(assignments)
INSERT_NEW = insert_new(assignments, assignments.c.number)
TALLY_KEY = ["key", "segment", "arm", "shard", "day"]


def _add(dialect: Any) -> Any:
    statement = dialect.insert(tallies)
    new = statement.excluded
    later = case((tallies.c.last > new.last, tallies.c.last), else_=new.last)
    return statement.on_conflict_do_update(
        index_elements=TALLY_KEY,
        set_={"assigned": tallies.c.assigned + new.assigned, "last": later},
    )


ADD = {"sqlite": _add(sqlite), "postgresql": _add(postgresql)}


class Assigner:
    """One call: new assignments of one experiment, inside one transaction."""

    def __init__(
        self, connection: Connection, key: int, facts: Facts, draws: Draws, shard: int
    ) -> None:
        self.connection, self.key, self.facts = connection, key, facts
        self.draws, self.shard = draws, shard

    def existing(self, units: Sequence[str]) -> dict[str, Assigned]:
        """What units have already; nothing if they are not sticky."""
        if not self.facts.sticky:
            return {}
        rows = by_units(self.connection, self.key, units)
        return {unit: _assigned(row) for unit, row in rows.items()}

    def assign(
        self,
        units: Sequence[str],
        held: Sequence[Lease],
        ahead: int,
        expires: int,
        now: int,
    ) -> Handed:
        """See `Storage.assign`."""
        known = self.existing(units)
        missing = [unit for unit in units if unit not in known]
        if self.facts.sticky:
            missing = list(dict.fromkeys(missing))
        if not missing:
            return Handed(tuple(known[unit] for unit in units), tuple(held))
        self.must_run()
        holdings = held_by(self.connection, self.key, held) if held else []
        spans = [span for holding in holdings for span in holding.spans]
        lacking = len(missing) - size(spans)
        taken: list[Span] = []
        more: list[Span] = []
        if lacking > 0:
            taken, more = take(self.connection, self.key, lacking, now, holdings, ahead)
        numbers = numbers_in(split(spans + taken, len(missing))[0])
        stored = self.store(
            [(number, unit, now) for number, unit in zip(numbers, missing, strict=False)]
        )
        used = {number for number in numbers if stored[number].number == number}
        left = settle(self.connection, self.key, holdings, used)
        # Where another process was faster with a unit, its place is for anybody again.
        keep(self.connection, self.key, without(taken, used))
        leased = keep(self.connection, self.key, more, expires)
        given = self._answer(units, known, [stored[number] for number in numbers])
        return Handed(given, (*left, *leased))

    def must_run(self) -> None:
        """Refuse what only running experiments do."""
        state = state_of(self.connection, self.key)
        if state != "running":
            raise WrongStateError(
                f"the experiment is {state}; only a running one hands out assignments."
            )

    def store(self, rows: Sequence[tuple[int, str, int]]) -> dict[int, Assigned]:
        """Write assignments: number, unit, time. By number, what counts: these or, for units that
        were given another one meanwhile, that.
        """
        if not rows:
            return {}
        places = self.draws.places(
            self.key, self.facts.seed, [row[0] for row in rows], reader(self.connection, self.key)
        )
        found = {
            number: Assigned(number, unit, arm, probability, time)
            for (number, unit, time), (arm, probability) in zip(rows, places, strict=True)
        }
        new = self._insert(list(found.values()))
        if len(new) < len(found):
            others = [item.unit for item in found.values() if item.number not in new]
            theirs = self.existing(others)
            found = {n: a if n in new else theirs[a.unit] for n, a in found.items()}
        self._count([found[number] for number in found if number in new])
        return found

    def _insert(self, items: list[Assigned]) -> set[int]:
        """Sorted by unit, so that transactions that wait for each other do so in one order."""
        sticky = self.facts.sticky
        rows = [
            {
                "key": self.key,
                "number": item.number,
                "unit": item.unit,
                "repeat": 0 if sticky else item.number + 1,
                "arm": item.arm,
                "probability": item.probability,
                "created": item.created,
            }
            for item in sorted(items, key=lambda item: item.unit)
        ]
        if self.connection.dialect.name == "sqlite":  # alone, so what was missing still is
            self.connection.execute(INSERT, one_or_many(rows))
            return {item.number for item in items}
        values = {"rows": json.dumps(rows, ensure_ascii=False)}
        return set(self.connection.execute(INSERT_NEW, values).scalars())

    def _count(self, items: list[Assigned]) -> None:
        counts = Counter[tuple[int, int, int]]()
        last: dict[tuple[int, int, int], int] = {}
        for item in items:
            place = place_of(item.number)[0], item.arm, day_of(item.created)
            counts[place] += 1
            last[place] = max(item.created, last.get(place, item.created))
        rows = [
            {
                "key": self.key,
                "segment": segment,
                "arm": arm,
                "shard": self.shard,
                "day": day,
                "assigned": count,
                "rewarded": 0,
                "sums": "0",
                "squares": "0",
                "last": last[segment, arm, day],
            }
            for (segment, arm, day), count in sorted(counts.items())
        ]
        if rows:
            self.connection.execute(ADD[self.connection.dialect.name], one_or_many(rows))

    def _answer(
        self, units: Sequence[str], known: dict[str, Assigned], given: Sequence[Assigned]
    ) -> tuple[Assigned | None, ...]:
        """One for every unit, in their order."""
        if not self.facts.sticky:
            return (*given, *(None for _ in range(len(units) - len(given))))
        found = known | {item.unit: item for item in given}
        if len(set(units)) == len(units):
            return tuple(found.get(unit) for unit in units)
        answer = []
        for unit in units:
            item = found.get(unit)
            answer.append(item)
            if item is not None and item.new:
                found[unit] = replace(item, new=False)
        return tuple(answer)

    def lease(self, wanted: int, expires: int, now: int) -> tuple[Lease, ...]:
        """See `Storage.lease`."""
        self.must_run()
        spans = sorted(take(self.connection, self.key, wanted, now)[0])
        return keep(self.connection, self.key, spans, expires)

    def report(
        self, lease: int, used: Sequence[tuple[int, str, int]]
    ) -> tuple[Assigned | None, ...]:
        """See `Storage.report`."""
        if state_of(self.connection, self.key) == "archived":
            raise WrongStateError("the experiment is archived; it takes no reports.")
        known = self.existing([unit for _, unit, _ in used])
        row = self.connection.execute(MARK, {"of": self.key, "lease": lease}).one_or_none()
        if row is None:
            return tuple(known.get(unit) for _, unit, _ in used)
        segment, start, stop = row
        places = [number_of(segment, position) for position, _, _ in used]
        taken = by_numbers(self.connection, self.key, places)
        answers: list[Assigned | None] = [None] * len(used)
        first: dict[int | str, int] = {}  # which use of a place, and of a sticky unit, counts
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
                    answers[i] = _assigned(taken[number])
            elif start <= position < stop:
                first[number] = i
                new.append(i)
                if self.facts.sticky:
                    first[unit] = i
        stored = self.store([(places[i], used[i][1], used[i][2]) for i in new])
        for i in new:
            answers[i] = stored[places[i]]
        for i, j in repeats.items():
            earlier = answers[j]
            answers[i] = None if earlier is None else replace(earlier, new=False)
        return tuple(answers)


def _assigned(row: AnyRow) -> Assigned:
    return Assigned(row.number, row.unit, row.arm, row.probability, row.created, new=False)
