"""Adding to tallies: exact sums by segment, arm and day, in the shard of whoever adds."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, bindparam, insert, literal_column, select, update
from sqlalchemy.dialects import postgresql

from steadyarm.errors import WrongStateError
from steadyarm.storages.counting import day_of, waited_between
from steadyarm.storages.records import Event, Outcome, happened, place_of
from steadyarm.storages.sql.schema import (
    AnyRow,
    assignments,
    insert_new,
    rewards,
    segments,
    tallies,
)
from steadyarm.storages.sql.segments import by_targets, one_or_many, portions, state_of

__all__ = ["More", "Place", "Rule", "add", "reward_many"]

# Adding to tallies: exact sums by segment, arm and day, in the shard of whoever adds.


Place = tuple[int, int, int]  # segment, arm and day
NOTHING = Fraction(0)

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
BEGIN = insert(tallies)
BEGIN_NEW = postgresql.insert(tallies).on_conflict_do_nothing()
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


@dataclass
class More:
    """What is added in one place; what a correction takes away is below zero.

    Attributes
    ----------
    values : rewards that came
    waited : milliseconds for which rewards were waited
    late : rewards that came too late
    rewarded, sums, squares : of rewards that were told by `tell`
    excluded : assignments
    """

    values: list[float] = field(default_factory=list)
    waited: int = 0
    late: int = 0
    rewarded: int = 0
    sums: Fraction = NOTHING
    squares: Fraction = NOTHING
    excluded: int = 0

    def tell(self, value: float, times: int = 1) -> None:
        """Add a reward that many times; take it away if that is below zero."""
        exact = Fraction(value)
        self.rewarded += times
        self.sums += times * exact
        self.squares += times * exact * exact


def add(connection: Connection, key: int, shard: int, more: Mapping[Place, More]) -> None:
    """Add to the sums; nothing happens if there is nothing."""
    if not more:
        return
    there = _sums(connection, key, shard, more)
    rows = []
    for place in sorted(more):
        one = more[place]
        exact = [Fraction(value) for value in one.values]
        sums, squares = there[place]
        rows.append(
            {
                "of": key,
                "in_segment": place[0],
                "of_arm": place[1],
                "in_shard": shard,
                "of_day": place[2],
                "more": len(exact) + one.rewarded,
                "all_sums": str(sum(exact, Fraction(sums) + one.sums)),
                "all_squares": str(
                    sum((value * value for value in exact), Fraction(squares) + one.squares)
                ),
                "more_waited": one.waited,
                "more_late": one.late,
                "more_excluded": one.excluded,
            }
        )
    connection.execute(ADD, one_or_many(rows))


def _sums(
    connection: Connection, key: int, shard: int, places: Mapping[Place, More]
) -> dict[Place, tuple[str, str]]:
    """Sums and squares of our shard, locked; rows that are missing are begun."""
    wanted = {
        "key": key,
        "segments": sorted({segment for segment, _, _ in places}),
        "arms": sorted({arm for _, arm, _ in places}),
        "days": sorted({day for _, _, day in places}),
        "shard": shard,
    }

    def look() -> dict[Place, tuple[str, str]]:
        found = connection.execute(SUMS, wanted)
        return {(row.segment, row.arm, row.day): (row.sums, row.squares) for row in found}

    there = look()
    missing = sorted(places.keys() - there.keys())
    if not missing:
        return there
    none = {"assigned": 0, "rewarded": 0, "sums": "0", "squares": "0", "last": None}
    statement = BEGIN if connection.dialect.name == "sqlite" else BEGIN_NEW
    connection.execute(
        statement,
        [
            {"key": key, "segment": segment, "arm": arm, "shard": shard, "day": day, **none}
            for segment, arm, day in missing
        ],
    )
    return look()


# Rewards: each stored once, and added to the exact sums of its segment, arm and day.


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
INSERT = insert(rewards)
# Read again here, where nobody excludes any more: the segments are held.
_excluded: ColumnElement[int | None] = literal_column(
    f"(SELECT a.excluded FROM {assignments.name} AS a "
    f"WHERE a.key = {rewards.name}.key AND a.number = {rewards.name}.number)"
)
INSERT_NEW = insert_new(rewards, rewards.c.number, _excluded.label("excluded"))
TOLD = select(rewards.c.number, rewards.c.reward).where(
    rewards.c.key == bindparam("key"), rewards.c.number.in_(bindparam("numbers", expanding=True))
)


class Rule(NamedTuple):
    """When a reward counts: see `records.happened`."""

    window: int | None
    grace: int
    now: int


class New(NamedTuple):
    """A reward that is not there yet: which one of those told, of which assignment, and when."""

    place: int
    row: AnyRow
    value: float
    at: int


def reward_many(
    connection: Connection,
    key: int,
    sticky: bool,
    shard: int,
    told: Sequence[Event],
    rule: Rule,
) -> tuple[Outcome, ...]:
    """See `Storage.reward`."""
    if state_of(connection, key) == "archived":
        raise WrongStateError("the experiment is archived; it takes no rewards.")
    rows = by_targets(connection, key, sticky, [event[0] for event in told])
    counted = {row.number: row.reward for row in rows if row is not None and row.reward is not None}
    early: set[int] = set()  # places in `told`
    refused: dict[int, AnyRow] = {}
    new: dict[int, New] = {}
    for i, (row, event) in enumerate(zip(rows, told, strict=True)):
        if row is None or row.number in counted or row.number in new:
            continue
        at = happened(event, row.created, rule.window, rule.grace, rule.now)
        if at == "early":
            early.add(i)
        elif at == "late":
            refused[i] = row
        else:
            new[row.number] = New(i, row, float(event[1]), at)
    opened = _opened(connection, key, [*new, *(row.number for row in refused.values())])
    closed = [number for number in new if place_of(number)[0] not in opened]
    refused |= {new[number].place: new.pop(number).row for number in closed}
    there, excluded = _insert(connection, key, {n: new[n] for n in sorted(new)}, rule.now)
    counted |= there
    stored = {one.place: number for number, one in new.items() if number not in counted}
    counting = [new[number] for number in stored.values() if number not in excluded]
    add(connection, key, shard, _more(counting, refused))
    outcomes = []
    for i, (row, event) in enumerate(zip(rows, told, strict=True)):
        if row is None:
            outcomes.append(Outcome("unknown"))
        elif i in stored:
            counted[row.number] = new[row.number].value
            outcomes.append(Outcome("stored", row.number))
        elif row.number in counted:
            there = counted[row.number]
            same = there == event[1]
            outcomes.append(Outcome("repeated" if same else "conflict", row.number, there))
        elif i in early:
            outcomes.append(Outcome("early", row.number))
        else:
            late = place_of(row.number)[0] in opened
            outcomes.append(Outcome("late" if late else "closed", row.number))
    return tuple(outcomes)


def _opened(connection: Connection, key: int, numbers: list[int]) -> set[int]:
    """Segments of these assignments that are open; they stay so until the transaction ends."""
    indices = sorted({place_of(number)[0] for number in numbers})
    return {
        index
        for portion in portions(indices)
        for (index,) in connection.execute(OPEN, {"key": key, "indices": portion})
    }


def _insert(
    connection: Connection, key: int, new: dict[int, New], now: int
) -> tuple[dict[int, float], set[int]]:
    """Store rewards; gives the values of those that another process was faster with.

    And the numbers of assignments that are excluded, whose rewards do not count.
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
    if connection.dialect.name == "sqlite":  # alone, so what was missing still is
        connection.execute(INSERT, one_or_many(rows))
        return {}, {number for number, one in new.items() if one.row.excluded is not None}
    inserted = connection.execute(INSERT_NEW, {"rows": json.dumps(rows)})
    stored = {row.number: row.excluded for row in inserted}
    found: dict[int, float] = {}
    for portion in portions([number for number in new if number not in stored]):
        result = connection.execute(TOLD, {"key": key, "numbers": portion})
        found |= {row.number: row.reward for row in result}
    return found, {number for number, entry in stored.items() if entry is not None}


def _more(new: list[New], refused: dict[int, AnyRow]) -> dict[Place, More]:
    """What is to be added where: rewards, and those that came too late."""
    found: defaultdict[Place, More] = defaultdict(More)
    for _, row, value, at in new:
        more = found[place_of(row.number)[0], row.arm, day_of(row.created)]
        more.values.append(value)
        more.waited += waited_between(row.created, at)
    for row in refused.values():
        if row.excluded is None:
            found[place_of(row.number)[0], row.arm, day_of(row.created)].late += 1
    return found
