"""Rewards: each stored once, and added to the exact sums of its segment, arm and day."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, insert, select

from steadyarm.errors import WrongStateError
from steadyarm.storages.counting import day_of, waited_between
from steadyarm.storages.records import (
    Outcome,
    Target,
    place_of,
)
from steadyarm.storages.sql.lookups import by_targets, one_or_many, portions, state_of
from steadyarm.storages.sql.many import insert_new
from steadyarm.storages.sql.schema import AnyRow, rewards, segments
from steadyarm.storages.sql.summing import More, Place, add

__all__ = ["reward"]

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
INSERT_NEW = insert_new(rewards, rewards.c.number)
TOLD = select(rewards.c.number, rewards.c.reward).where(
    rewards.c.key == bindparam("key"), rewards.c.number.in_(bindparam("numbers", expanding=True))
)


def reward(
    connection: Connection,
    key: int,
    sticky: bool,
    shard: int,
    told: Sequence[tuple[Target, float]],
    window: int | None,
    now: int,
) -> tuple[Outcome, ...]:
    """See `Storage.reward`."""
    if state_of(connection, key) == "archived":
        raise WrongStateError("the experiment is archived; it takes no rewards.")
    rows = by_targets(connection, key, sticky, [target for target, _ in told])
    counted = {row.number: row.reward for row in rows if row is not None and row.reward is not None}
    new: dict[int, tuple[AnyRow, float]] = {}
    for row, (_, value) in zip(rows, told, strict=True):
        if row is not None and row.number not in counted:
            new.setdefault(row.number, (row, value))
    indices = sorted({place_of(number)[0] for number in new})
    opened = {
        index
        for portion in portions(indices)
        for (index,) in connection.execute(OPEN, {"key": key, "indices": portion})
    }
    new = {
        number: new[number]
        for number in sorted(new)
        if place_of(number)[0] in opened and not _late(new[number][0], window, now)
    }
    counted |= _insert(connection, key, new, now)
    refused: list[AnyRow] = []
    if len(new) < len(rows):
        known = new.keys() | counted.keys()
        refused = [row for row in rows if row is not None and row.number not in known]
    add(connection, key, shard, _more(new, refused, now))
    outcomes = []
    for row, (_, value) in zip(rows, told, strict=True):
        if row is None:
            outcomes.append(Outcome("unknown"))
        elif row.number in new:
            counted[row.number] = new.pop(row.number)[1]
            outcomes.append(Outcome("stored", row.number))
        elif row.number in counted:
            there = counted[row.number]
            same = there == value
            outcomes.append(Outcome("repeated" if same else "conflict", row.number, there))
        else:
            late = place_of(row.number)[0] in opened
            outcomes.append(Outcome("late" if late else "closed", row.number))
    return tuple(outcomes)


def _late(row: AnyRow, window: int | None, now: int) -> bool:
    return window is not None and now - int(row.created) > window


def _insert(
    connection: Connection, key: int, new: dict[int, tuple[AnyRow, float]], now: int
) -> dict[int, float]:
    """Store rewards; those another process was faster with leave `new`, with its values given."""
    rows = [
        {"key": key, "number": number, "reward": value, "created": now}
        for number, (_, value) in new.items()
    ]
    if not rows:
        return {}
    if connection.dialect.name == "sqlite":  # alone, so what was missing still is
        connection.execute(INSERT, one_or_many(rows))
        return {}
    stored = set(connection.execute(INSERT_NEW, {"rows": json.dumps(rows)}).scalars())
    others = [number for number in new if number not in stored]
    for number in others:
        del new[number]
    found: dict[int, float] = {}
    for portion in portions(others):
        result = connection.execute(TOLD, {"key": key, "numbers": portion})
        found |= {row.number: row.reward for row in result}
    return found


def _more(
    new: dict[int, tuple[AnyRow, float]], refused: list[AnyRow], now: int
) -> dict[Place, More]:
    """What is to be added where: rewards, and those that came too late."""
    found: defaultdict[Place, More] = defaultdict(More)
    for number, (row, value) in new.items():
        created = row.created
        more = found[place_of(number)[0], row.arm, day_of(created)]
        more.values.append(value)
        more.waited += waited_between(created, now)
    for row in refused:
        found[place_of(row.number)[0], row.arm, day_of(row.created)].late += 1
    return found
