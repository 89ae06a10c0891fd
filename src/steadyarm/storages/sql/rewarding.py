"""Rewards: each stored once, and added to the exact sums of its segment, arm and day."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, bindparam, insert, literal_column, select

from steadyarm.errors import WrongStateError
from steadyarm.storages.counting import day_of, waited_between
from steadyarm.storages.records import Event, Outcome, happened, place_of
from steadyarm.storages.sql.lookups import by_targets, one_or_many, portions, state_of
from steadyarm.storages.sql.many import insert_new
from steadyarm.storages.sql.schema import AnyRow, assignments, rewards, segments
from steadyarm.storages.sql.summing import More, Place, add

__all__ = ["Rule", "reward"]

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


def reward(
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
