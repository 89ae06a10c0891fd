"""Rewards: each is stored once and added to the exact sums of its segment, arm and day.

Every process adds to the rows of its own shard. The sums also say how far segments have come.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    bindparam,
    func,
    insert,
    literal_column,
    select,
    update,
)
from sqlalchemy.dialects import postgresql

from steadyarm.storages.records import (
    ArmDay,
    Event,
    LogRow,
    Outcome,
    Progress,
    check_not_archived,
    day_of,
    happened,
    place_of,
    waited_between,
)
from steadyarm.storages.sql.base import SQLBase, by_targets, one_or_many, portions, state_of, writes
from steadyarm.storages.sql.schema import assignments, insert_new, rewards, segments, tallies

Place = tuple[int, int, int]  # segment, arm and day

SUMS = (
    select(tallies.c.segment, tallies.c.arm, tallies.c.day, tallies.c.sums, tallies.c.squares)
    .where(
        tallies.c.key == bindparam("key"),
        tallies.c.segment.in_(bindparam("segments", expanding=True)),
        tallies.c.arm.in_(bindparam("arms", expanding=True)),
        tallies.c.shard == bindparam("shard"),
        tallies.c.day.in_(bindparam("days", expanding=True)),
    )
    .order_by(tallies.c.segment, tallies.c.arm, tallies.c.day)
    .with_for_update()
)
BEGIN = {
    "sqlite": insert(tallies),
    "postgresql": postgresql.insert(tallies).on_conflict_do_nothing(),
}
ADD = (
    update(tallies)
    .where(
        tallies.c.key == bindparam("of"),
        tallies.c.segment == bindparam("in_segment"),
        tallies.c.arm == bindparam("of_arm"),
        tallies.c.shard == bindparam("in_shard"),
        tallies.c.day == bindparam("of_day"),
    )
    .values(
        rewarded=tallies.c.rewarded + bindparam("more"),
        sums=bindparam("all_sums"),
        squares=bindparam("all_squares"),
        waited=tallies.c.waited + bindparam("more_waited"),
        late=tallies.c.late + bindparam("more_late"),
        excluded=tallies.c.excluded + bindparam("more_excluded"),
    )
)

OPEN = (
    select(segments.c.index)
    .where(
        segments.c.key == bindparam("key"),
        segments.c.index.in_(bindparam("indices", expanding=True)),
        segments.c.closed.is_(None),
    )
    .order_by(segments.c.index)
    .with_for_update(read=True, key_share=True)  # against closing, not against each other
)
_tallied = (tallies.c.key == segments.c.key) & (tallies.c.segment == segments.c.index)
PROGRESS = (
    select(
        segments.c.index,
        segments.c.rounds,
        func.sum(tallies.c.assigned),
        func.sum(tallies.c.rewarded + tallies.c.excluded),
        func.max(tallies.c.last),
    )
    .select_from(segments.outerjoin(tallies, _tallied))
    .where(segments.c.key == bindparam("key"), segments.c.closed.is_(None))
    .group_by(segments.c.index, segments.c.rounds)
    .order_by(segments.c.index)
)
EXHAUSTED = PROGRESS.where(segments.c.handed >= segments.c.rounds)
INSERT = insert(rewards)
# Read again here, where nobody excludes any more, because the segments are locked.
_excluded: ColumnElement[int | None] = literal_column(
    f"(SELECT a.excluded FROM {assignments.name} AS a "
    f"WHERE a.key = {rewards.name}.key AND a.number = {rewards.name}.number)"
)
INSERT_NEW = insert_new(rewards, rewards.c.number, _excluded.label("excluded"))
STORED = select(rewards.c.number, rewards.c.reward).where(
    rewards.c.key == bindparam("key"), rewards.c.number.in_(bindparam("numbers", expanding=True))
)


class New(NamedTuple):
    """A reward that is not stored yet: its place in the request, assignment, value and time."""

    place: int
    row: LogRow
    value: float
    at: int


class Rewards(SQLBase):
    """The part of the storage that takes rewards."""

    def progress(self, key: int, exhausted: bool = False) -> tuple[Progress, ...]:
        """Read with one statement, which needs no transaction."""
        self._known_facts(key)  # there is such an experiment
        statement = EXHAUSTED if exhausted else PROGRESS
        rows = self._database.read_one(lambda c: c.execute(statement, {"key": key}).all())
        return tuple(
            Progress(index, rounds, int(assigned or 0), int(done or 0), last)
            for index, rounds, assigned, done, last in rows
        )

    @writes
    def reward(
        self,
        connection: Connection,
        key: int,
        rewards: Sequence[Event],
        window: int | None,
        now: int,
        grace: int = 0,
    ) -> tuple[Outcome, ...]:
        sticky = self._facts(connection, key).sticky
        check_not_archived(state_of(connection, key))
        rows = by_targets(connection, key, sticky, [event[0] for event in rewards])
        stored = {row.number: row.reward for row in rows if row and row.reward is not None}
        outcomes: dict[int, Outcome] = {}  # by place in the request
        refused: dict[int, LogRow] = {}
        new: dict[int, New] = {}
        for i, (row, event) in enumerate(zip(rows, rewards, strict=True)):
            if row is None:
                outcomes[i] = Outcome("unknown")
            elif row.number not in stored and row.number not in new:
                at = happened(event, row.created, window, grace, now)
                if at == "early":
                    outcomes[i] = Outcome(at, row.number)
                elif at == "late":
                    refused[i] = row
                else:
                    new[row.number] = New(i, row, float(event[1]), at)
        still_open = _open(connection, key, [*new, *(row.number for row in refused.values())])
        for number in [n for n in new if place_of(n)[0] not in still_open]:
            place, row, _, _ = new.pop(number)
            refused[place] = row
        there, excluded = _insert(connection, key, {n: new[n] for n in sorted(new)}, now)
        stored |= there
        counts: defaultdict[Place, ArmDay] = defaultdict(lambda: ArmDay(0))
        for number, (place, row, value, at) in new.items():
            if number not in there:
                outcomes[place] = Outcome("stored", number)
                stored[number] = value
                if number not in excluded:
                    counts[_place(row)].reward(value, waited_between(row.created, at))
        for place, row in refused.items():
            late = place_of(row.number)[0] in still_open
            outcomes[place] = Outcome("late" if late else "closed", row.number)
            if row.excluded is None:
                counts[_place(row)].late += 1
        add(connection, key, self._database.shard, counts)
        for i, (row, event) in enumerate(zip(rows, rewards, strict=True)):
            if row is not None and i not in outcomes:
                if row.number in stored:
                    value = stored[row.number]
                    same = value == event[1]
                    outcomes[i] = Outcome("repeated" if same else "conflict", row.number, value)
                else:
                    outcomes[i] = Outcome("closed", row.number)
        return tuple(outcomes[i] for i in range(len(rewards)))


def _place(row: LogRow) -> Place:
    return place_of(row.number)[0], row.arm, day_of(row.created)


def _open(connection: Connection, key: int, numbers: Iterable[int]) -> set[int]:
    """Segments of these assignments that are open; they stay so until the transaction ends."""
    return {
        index
        for portion in portions(sorted({place_of(number)[0] for number in numbers}))
        for (index,) in connection.execute(OPEN, {"key": key, "indices": portion})
    }


def _insert(
    connection: Connection, key: int, new: dict[int, New], now: int
) -> tuple[dict[int, float], set[int]]:
    """Store rewards.

    Returns the values of those that another process has stored meanwhile, by number, and the
    numbers of excluded assignments, whose rewards do not count.
    """
    rows = [
        {
            "key": key,
            "number": number,
            "reward": one.value,
            "created": now,
            "at": None if one.at == now else one.at,
        }
        for number, one in new.items()
    ]
    if not rows:
        return {}, set()
    if connection.dialect.name == "sqlite":  # the only writer, so what was missing still is
        connection.execute(INSERT, one_or_many(rows))
        return {}, {number for number, one in new.items() if one.row.excluded is not None}
    inserted = connection.execute(INSERT_NEW, {"rows": json.dumps(rows)})
    stored = {row.number: row.excluded for row in inserted}
    found: dict[int, float] = {}
    for portion in portions([number for number in new if number not in stored]):
        result = connection.execute(STORED, {"key": key, "numbers": portion})
        found |= {row.number: row.reward for row in result}
    return found, {number for number, entry in stored.items() if entry is not None}


def add(connection: Connection, key: int, shard: int, counts: Mapping[Place, ArmDay]) -> None:
    """Add rewards, waiting times, late rewards and exclusions to the sums of our shard."""
    if not counts:
        return
    there = _sums(connection, key, shard, counts)
    rows = []
    for place in sorted(counts):
        more, (sums, squares) = counts[place], there[place]
        rows.append(
            {
                "of": key,
                "in_segment": place[0],
                "of_arm": place[1],
                "in_shard": shard,
                "of_day": place[2],
                "more": more.rewarded,
                "all_sums": str(Fraction(sums) + more.sums),
                "all_squares": str(Fraction(squares) + more.squares),
                "more_waited": more.waited,
                "more_late": more.late,
                "more_excluded": more.excluded,
            }
        )
    connection.execute(ADD, one_or_many(rows))


def _sums(
    connection: Connection, key: int, shard: int, places: Mapping[Place, ArmDay]
) -> dict[Place, tuple[str, str]]:
    """Sums and squares of our shard, locked; missing rows are inserted."""
    wanted = {
        "key": key,
        "segments": sorted({segment for segment, _, _ in places}),
        "arms": sorted({arm for _, arm, _ in places}),
        "days": sorted({day for _, _, day in places}),
        "shard": shard,
    }

    def read() -> dict[Place, tuple[str, str]]:
        found = connection.execute(SUMS, wanted)
        return {(row.segment, row.arm, row.day): (row.sums, row.squares) for row in found}

    there = read()
    missing = sorted(places.keys() - there.keys())
    if not missing:
        return there
    none = {"assigned": 0, "rewarded": 0, "sums": "0", "squares": "0", "last": None}
    connection.execute(
        BEGIN[connection.dialect.name],
        [
            {"key": key, "segment": segment, "arm": arm, "shard": shard, "day": day, **none}
            for segment, arm, day in missing
        ],
    )
    return read()
