"""Assignments: units take positions of the segment opened last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from sqlalchemy import Connection, bindparam, exists, select, update

from steadyarm.storages.records import (
    ArmDay,
    Assigned,
    AssignmentResult,
    LogRow,
    Measured,
    day_of,
    number_of,
    place_of,
)
from steadyarm.storages.sql.base import (
    BY_UNIT_AND_STANDING,
    STANDING,
    STATE,
    TALLIES,
    Call,
    Facts,
    Place,
    counts_at,
    finding,
    found_in,
    loaded,
    reads,
    segments_of,
    standing_in,
)
from steadyarm.storages.sql.engine import CollisionError, Statement, at_the_end, together
from steadyarm.storages.sql.rewards import OPEN, Rewards
from steadyarm.storages.sql.schema import assignments, belonging, inserting, segments

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


def take(connection: Connection, key: int, wanted: int) -> range:
    """Take up to `wanted` positions of the segment opened last; their numbers."""
    while row := LAST(connection, {"key": key}).first:
        index, rounds, handed = row
        counted = min(rounds, handed + wanted)
        if counted == handed:
            break
        # Nothing is updated if another segment was opened while we waited for the lock.
        if TAKE(connection, {"of": key, "last": index, "counted": counted}).written:
            return range(number_of(index, handed), number_of(index, counted))
    return range(0)


class Assignments(Rewards):
    """The part of the storage that assigns positions to units."""

    def assign(
        self,
        key: int,
        units: Sequence[str],
        values: Sequence[Mapping[str, float]] = (),
        *,
        now: int,
    ) -> AssignmentResult:
        """Assign variants; known units are only read, since SQLite readers wait for no writer."""
        known: dict[str, Assigned] | None = None
        if self._database.sqlite and self._known_facts(key).sticky:
            wanted = {"key": key, "values": sorted(set(units))}
            rows = self._database.read_one(lambda c: list(BY_UNIT_AND_STANDING(c, wanted)))
            known = {row[1]: LogRow(*row[:-2]).assigned() for row in rows}
            if rows and all(unit in known for unit in units):
                state, outside = rows[0][-2:]
                found = tuple(known[unit] for unit in units)
                return AssignmentResult(found, state, loaded(outside))

        def work(connection: Connection) -> AssignmentResult:
            nonlocal known
            before, known = known, None  # if others assign meanwhile, it is read once more
            return self._assign(connection, key, units, values, before, now)

        return self._write(work)

    def _assign(
        self,
        connection: Connection,
        key: int,
        units: Sequence[str],
        values: Sequence[Mapping[str, float]],
        known: dict[str, Assigned] | None,
        now: int,
    ) -> AssignmentResult:
        facts = self._facts(connection, key)
        calls: list[Call] = [(STATE, {"key": key})]
        if any(values):
            calls.append((OPEN, {"key": key}))  # segments are locked first, as for rewards
        first = len(calls)
        if known is None:
            calls += finding(key, facts.sticky, units)
        results = together(connection, *calls)
        if known is None:
            rows = found_in(results[first:], units, facts.sticky)
            known = {row.unit: row.assigned() for row in rows if row is not None}
        missing = [unit for unit in units if unit not in known]
        if facts.sticky:
            missing = list(dict.fromkeys(missing))
        standing = standing_in(key, results[0])
        state, outside = standing
        if not missing or state != "running" or outside is not None:
            return AssignmentResult(tuple(known.get(unit) for unit in units), *standing)
        numbers = take(connection, key, len(missing))
        new = [(number, unit, now) for unit, number in zip(missing, numbers, strict=False)]
        stored = self._store(connection, key, facts, new)
        given: list[Assigned | None] = [*stored, *[None] * (len(units) - len(stored))]
        if facts.sticky:
            known |= {item.unit: item for item in stored}
            given = [known.get(unit) for unit in units]
        result = AssignmentResult(_new_once(given), *standing)
        entries = [
            Measured(item.number, name, value)
            for item, named in zip(result.assigned, values, strict=False)
            if item is not None and item.new
            for name, value in named.items()
        ]
        if entries:
            self._measure(connection, key, entries, now)
        return result

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
    def known(self, connection: Connection, key: int, units: Sequence[str]) -> AssignmentResult:
        sticky = self._facts(connection, key).sticky
        standing, *found = together(
            connection, (STANDING, {"key": key}), *finding(key, sticky, units)
        )
        rows = found_in(found, units, sticky)
        given = tuple(None if row is None else row.assigned() for row in rows)
        return AssignmentResult(given, *standing_in(key, standing))

    @reads
    def experiments_of(
        self, connection: Connection, units: Sequence[str], keys: Sequence[int]
    ) -> tuple[frozenset[int], ...]:
        found: dict[str, set[int]] = {unit: set() for unit in units}
        for unit, key in BELONGING(connection, {"units": list(found), "keys": sorted(set(keys))}):
            found[unit].add(key)
        return tuple(frozenset(found[unit]) for unit in units)


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
