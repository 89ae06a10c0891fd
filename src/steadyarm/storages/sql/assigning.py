"""Assignments: handed out, leased ahead, and reported by those who used a lease."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, case, insert
from sqlalchemy.dialects import postgresql, sqlite

from steadyarm.errors import WrongStateError
from steadyarm.storages.counting import day_of
from steadyarm.storages.drawing import Draws
from steadyarm.storages.records import Assigned, Handed, Lease, number_of, place_of
from steadyarm.storages.sql.lookups import (
    Facts,
    by_numbers,
    by_units,
    one_or_many,
    reader,
    state_of,
)
from steadyarm.storages.sql.many import insert_new
from steadyarm.storages.sql.places import (
    MARK,
    Span,
    held_by,
    keep,
    numbers_in,
    settle,
    size,
    split,
    take,
    without,
)
from steadyarm.storages.sql.schema import AnyRow, assignments, tallies

__all__ = ["Assigner"]

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
